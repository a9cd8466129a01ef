#include "ps/check_weights.h"

#include <set>

#include "ATen/ops/view_as_real.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ps/kernels.h"
#include "ps/parallel_for.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

std::string Describe(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  return absl::StrCat(at::toString(dtype), " [", absl::StrJoin(shape, ", "),
                      "]");
}

// Elements that one thread looks through at a time.
constexpr int64_t kPiece = 1 << 20;

// Returns the flat index of the first value that is infinite or NaN, or -1.
int64_t FindNonFinite(const at::Tensor& tensor) {
  at::Tensor values = tensor.detach().cpu();
  if (values.is_complex()) values = at::view_as_real(values.resolve_conj());
  const bool is_double = values.scalar_type() == at::kDouble;
  values = values.to(is_double ? at::kDouble : at::kFloat).contiguous();
  const int64_t size = values.numel();
  std::atomic<int64_t> first = size;
  ParallelFor((size + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t begin = piece * kPiece;
    if (begin >= first.load(std::memory_order_relaxed)) return;
    const int64_t length = std::min(kPiece, size - begin);
    const int64_t found =
        is_double ? FirstNonFinite(values.data_ptr<double>() + begin, length)
                  : FirstNonFinite(values.data_ptr<float>() + begin, length);
    if (found < 0) return;
    int64_t before = first.load();
    while (begin + found < before &&
           !first.compare_exchange_weak(before, begin + found)) {
    }
  });
  const int64_t index = first == size ? -1 : first.load();
  return index > 0 && tensor.is_complex() ? index / 2 : index;
}

}  // namespace

ModelLayout ModelLayout::Of(const NamedTensors& weights) {
  ModelLayout layout;
  for (const auto& [name, tensor] : weights) {
    layout.entries.push_back(
        {name, tensor.sizes().vec(), tensor.scalar_type()});
  }
  return layout;
}

absl::Status CheckValues(const NamedTensors& weights, absl::string_view who) {
  MR_RETURN_IF_ERROR(CheckForm(weights, who));
  return CheckFinite(weights, who);
}

absl::Status CheckForm(const NamedTensors& weights, absl::string_view who) {
  if (weights.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": the model has no tensors"));
  }
  std::set<absl::string_view> names;
  for (const auto& [name, tensor] : weights) {
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": two tensors have the name '", name, "'"));
    }
    if (!tensor.defined() || tensor.layout() != at::kStrided ||
        tensor.is_quantized()) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": '", name, "' is ",
                       tensor.defined() ? "sparse or quantized" : "undefined",
                       "; only dense tensors can be synchronised"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const NamedTensors& weights, absl::string_view who) {
  for (const auto& [name, tensor] : weights) {
    if (!IsFloat(tensor)) continue;
    const int64_t index = FindNonFinite(tensor);
    if (index >= 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          who, ": '", name, "' ",
          Describe(tensor.sizes().vec(), tensor.scalar_type()),
          " holds a value that is infinite or NaN at flat index ", index,
          "; has training diverged? A lower learning rate may help"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLayout(const NamedTensors& weights,
                         const ModelLayout& expected, absl::string_view who,
                         absl::string_view expected_of) {
  const size_t common = std::min(weights.size(), expected.entries.size());
  for (size_t i = 0; i < common; ++i) {
    const auto& [name, tensor] = weights[i];
    const ModelLayout::Entry& entry = expected.entries[i];
    if (name != entry.name) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, ": tensor ", i, " is '", name, "', expected '",
                       entry.name, "' as in ", expected_of));
    }
    if (tensor.sizes() != at::IntArrayRef(entry.shape) ||
        tensor.scalar_type() != entry.dtype) {
      return absl::InvalidArgumentError(absl::StrCat(
          who, ": '", name, "' is ",
          Describe(tensor.sizes().vec(), tensor.scalar_type()), ", expected ",
          Describe(entry.shape, entry.dtype), " as in ", expected_of));
    }
  }
  if (weights.size() > common) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": has '", weights[common].first, "', which ",
                     expected_of, " has not"));
  }
  if (expected.entries.size() > common) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, ": lacks '", expected.entries[common].name,
                     "', which ", expected_of, " has"));
  }
  return absl::OkStatus();
}

int64_t TotalBytes(const NamedTensors& weights) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : weights) {
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace miniray::ps
