#include "runtime/worker/gpus.h"

#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace miniray {
namespace {

constexpr double kMaxGpus = 10000;  // As the head's.

double Gpus(const v1::Resources& resources) {
  const auto it = resources.quantity().find("GPU");
  return it == resources.quantity().end() ? 0 : it->second;
}

// As the CUDA runtime reads it: what is no device ends the list.
std::vector<std::string> ParseVisible(absl::string_view visible) {
  std::vector<std::string> ids;
  for (absl::string_view entry : absl::StrSplit(visible, ',')) {
    entry = absl::StripAsciiWhitespace(entry);
    if (entry.empty() || entry == "NoDevFiles" ||
        absl::StartsWith(entry, "-")) {
      break;
    }
    ids.emplace_back(entry);
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> GpuIds(const v1::Resources& offered,
                                                const char* visible) {
  if (Gpus(offered) > kMaxGpus) {
    return absl::InvalidArgumentError(
        absl::StrCat("a node offers at most ", kMaxGpus, " GPUs"));
  }
  const auto count = static_cast<size_t>(std::ceil(Gpus(offered)));
  std::vector<std::string> ids;
  if (count == 0) return ids;
  if (visible == nullptr) {
    for (size_t i = 0; i < count; ++i) ids.push_back(absl::StrCat(i));
    return ids;
  }
  ids = ParseVisible(visible);
  if (ids.size() < count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the node is to offer ", count, " GPUs, but CUDA_VISIBLE_DEVICES ('",
        visible, "') names ", ids.size(),
        ": give a smaller --num_gpus, or name more devices"));
  }
  ids.resize(count);
  if (std::set<std::string>(ids.begin(), ids.end()).size() < count) {
    return absl::InvalidArgumentError(
        absl::StrCat("CUDA_VISIBLE_DEVICES ('", visible,
                     "') names a device twice: CUDA then finds none"));
  }
  return ids;
}

std::vector<std::string> GpuIdsOf(
    const google::protobuf::RepeatedField<int32_t>& numbers,
    const std::vector<std::string>& node_ids) {
  std::vector<std::string> ids;
  for (const int32_t number : numbers) {
    if (number < 0 || static_cast<size_t>(number) >= node_ids.size()) return {};
    ids.push_back(node_ids[static_cast<size_t>(number)]);
  }
  return ids;
}

void ShowGpus(const std::vector<std::string>& ids, const v1::Resources& request,
              const std::vector<std::string>& node_ids,
              std::map<std::string, std::string>* env) {
  if (node_ids.empty()) return;
  // A head that does not know of devices names none.
  if (ids.empty() && Gpus(request) > 0) return;
  (*env)["CUDA_VISIBLE_DEVICES"] = absl::StrJoin(ids, ",");
}

}  // namespace miniray
