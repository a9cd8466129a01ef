#include "ps/tensor_math.h"

#include <algorithm>
#include <atomic>

#include "ATen/ops/maximum.h"
#include "ps/kernels.h"
#include "ps/model_pieces.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {
namespace {

at::Tensor Dense(const at::Tensor& tensor) {
  return tensor.detach().cpu().contiguous();
}

// Of a type that the kernels do not write themselves.
bool IsNarrow(const NamedTensors::value_type& named) {
  const at::ScalarType type = named.second.scalar_type();
  return type == at::kHalf || type == at::kBFloat16;
}

}  // namespace

bool IsFloat(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

at::Tensor Maximum(absl::Span<const at::Tensor> inputs) {
  at::Tensor result = Dense(inputs.front()).clone();
  for (const at::Tensor& input : inputs.subspan(1)) {
    result = at::maximum(result, Dense(input));
  }
  return result;
}

std::vector<at::Tensor> TensorsAt(absl::Span<const Contribution> contributions,
                                  size_t index) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(contributions.size());
  for (const Contribution& contribution : contributions) {
    tensors.push_back(contribution.tensors[index].second);
  }
  return tensors;
}

void SetMaxima(absl::Span<const Contribution> contributions,
               NamedTensors* out) {
  for (size_t i = 0; i < out->size(); ++i) {
    at::Tensor& result = (*out)[i].second;
    if (!IsFloat(result)) result.copy_(Maximum(TensorsAt(contributions, i)));
  }
}

NamedTensors CombineModels(absl::Span<const Contribution> contributions,
                           absl::Span<const double> coefficients, double keep,
                           const NamedTensors& kept, bool* finite) {
  std::vector<const NamedTensors*> models = ModelsOf(contributions);
  std::vector<double> with_kept;
  if (keep != 0) {
    models.insert(models.begin(), &kept);
    with_kept.push_back(keep);
    with_kept.insert(with_kept.end(), coefficients.begin(), coefficients.end());
    coefficients = with_kept;
  }
  NamedTensors out = EmptySharedTensors(contributions.front().tensors);
  std::atomic<bool> all_finite = true;
  const auto work = [&](const auto& piece) {
    if (!LinearCombination(piece.read, coefficients, piece.size,
                           piece.written.front())) {
      all_finite = false;
    }
  };
  ForEachPiece(models, {&out}, work, work);
  SetMaxima(contributions, &out);
  if (finite != nullptr) {
    *finite = all_finite && std::none_of(out.begin(), out.end(), IsNarrow);
  }
  return out;
}

NamedTensors MeanOfModels(absl::Span<const Contribution> contributions,
                          bool* finite) {
  const size_t n = contributions.size();
  return CombineModels(contributions,
                       std::vector<double>(n, 1.0 / static_cast<double>(n)),
                       /*keep=*/0, /*kept=*/{}, finite);
}

}  // namespace miniray::ps
