#include "ml/gan/generator_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ml/image/grid.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {

absl::Status GeneratorWorker::Load(const GanSizes& sizes,
                                   std::optional<int64_t> label,
                                   NamedTensors weights) {
  MR_ASSIGN_OR_RETURN(
      generator_, ImageGenerator::Create({.network = GanNetwork::kGenerator,
                                          .latent_dim = sizes.latent_dim,
                                          .shape = sizes.shape,
                                          .architecture = sizes.architecture,
                                          .classes = sizes.classes,
                                          .weights = std::move(weights)},
                                         label));
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> GeneratorWorker::Generate(uint64_t seed,
                                                     int64_t first,
                                                     int64_t count) {
  if (generator_ == nullptr) {
    return absl::FailedPreconditionError(
        "the worker has no generator yet: call Load first");
  }
  if (first < 0 || count < 1 || count > kMaxCount) {
    return absl::InvalidArgumentError(
        absl::StrCat("images [", first, ", ", first, " + ", count,
                     "): expected first >= 0 and 1 to ", kMaxCount, " images"));
  }
  return ToUint8(generator_->Generate(seed, first, count));
}

}  // namespace miniray::ml
