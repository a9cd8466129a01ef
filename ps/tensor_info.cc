#include "ps/tensor_info.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace miniray::ps {

bool IsBufferName(absl::string_view name) {
  return absl::EndsWith(name, "running_mean") ||
         absl::EndsWith(name, "running_var") ||
         absl::EndsWith(name, "num_batches_tracked");
}

std::vector<TensorInfo> InfoOf(const Contribution& contribution) {
  if (contribution.info != nullptr) return *contribution.info;
  std::vector<TensorInfo> info;
  info.reserve(contribution.tensors.size());
  for (const auto& [name, tensor] : contribution.tensors) {
    info.push_back({.is_buffer = IsBufferName(name)});
  }
  return info;
}

absl::StatusOr<std::shared_ptr<const std::vector<TensorInfo>>> MakeInfo(
    const NamedTensors& model, const std::vector<std::string>& buffers) {
  std::set<absl::string_view> names(buffers.begin(), buffers.end());
  auto info = std::make_shared<std::vector<TensorInfo>>();
  for (const auto& [name, tensor] : model) {
    info->push_back({.is_buffer = names.erase(name) > 0});
  }
  if (!names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "BufferNames has '", *names.begin(), "', which the weights have not"));
  }
  return info;
}

}  // namespace miniray::ps
