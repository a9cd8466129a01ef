#include "train/functions/model_state.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace miniray::train {
namespace {

// Among the extras.
constexpr char kEpoch[] = "miniray.epoch";

// What a rank other than 0 gives of replicated models: names that rank 0 does
// not use, since each rank gets both.
constexpr char kOwnPrefix[] = "rank.";

template <class T>
T ValueOrThrow(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  throw std::runtime_error(std::string(value.status().message()));
}

}  // namespace

CheckpointFiles SaveParts(const Context& context, const TrainingParts& parts,
                          int epoch, const SaveOptions& options) {
  if (!context.checkpoint_is_due() && !options.always) return {};
  Config extras = options.extras;
  extras.Set(kEpoch, int64_t{epoch});
  if (!options.replicated || context.rank() == 0) {
    return ValueOrThrow(SaveTraining(parts, extras));
  }
  TrainingParts own;
  own.generators = parts.generators;
  CheckpointFiles files;
  for (auto& [name, bytes] : ValueOrThrow(SaveTraining(own, extras))) {
    files[absl::StrCat(kOwnPrefix, name)] = std::move(bytes);
  }
  return files;
}

RestoredState RestoreParts(const Context& context, const TrainingParts& parts) {
  const CheckpointFiles* const files = context.GetCheckpoint();
  if (files == nullptr) return {};
  Config extras = ValueOrThrow(LoadTraining(*files, parts));
  CheckpointFiles own_files;
  for (const auto& [name, bytes] : *files) {
    if (absl::StartsWith(name, kOwnPrefix)) {
      own_files[name.substr(sizeof(kOwnPrefix) - 1)] = bytes;
    }
  }
  if (!own_files.empty()) {
    TrainingParts own;
    own.generators = parts.generators;
    extras = ValueOrThrow(LoadTraining(own_files, own));
  }
  const int64_t epoch = ValueOrThrow(extras.GetInt(kEpoch, -1));
  Config::Map values = extras.values();
  values.erase(kEpoch);
  return {.next_epoch = static_cast<int>(epoch) + 1,
          .extras = Config(std::move(values))};
}

}  // namespace miniray::train
