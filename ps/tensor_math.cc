#include "ps/tensor_math.h"

#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/maximum.h"
#include "ATen/ops/view_as_real.h"
#include "ps/kernels.h"

namespace miniray::ps {
namespace {

at::Tensor Dense(const at::Tensor& tensor) {
  return tensor.detach().cpu().contiguous();
}

// The memory of *out serves for a result like `like`.
bool Fits(const at::Tensor& out, const at::Tensor& like) {
  return out.defined() && out.sizes() == like.sizes() &&
         out.scalar_type() == like.scalar_type() && out.device().is_cpu() &&
         out.is_contiguous() && !out.requires_grad();
}

template <class T>
void Run(absl::Span<const at::Tensor> inputs,
         absl::Span<const double> coefficients, at::Tensor* out) {
  std::vector<const T*> data;
  data.reserve(inputs.size());
  for (const at::Tensor& input : inputs) data.push_back(input.data_ptr<T>());
  LinearCombination(data, coefficients, out->numel(), out->data_ptr<T>());
}

}  // namespace

bool IsFloat(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

void LinearCombination(absl::Span<const at::Tensor> inputs,
                       absl::Span<const double> coefficients, at::Tensor* out) {
  std::vector<at::Tensor> dense;
  dense.reserve(inputs.size());
  for (const at::Tensor& input : inputs) dense.push_back(Dense(input));
  const at::Tensor& first = dense.front();
  if (!Fits(*out, first)) *out = at::empty(first.sizes(), first.options());

  if (first.is_complex()) {
    for (at::Tensor& input : dense) {
      input = at::view_as_real(input.resolve_conj()).contiguous();
    }
    at::Tensor real = at::view_as_real(*out);
    return LinearCombination(dense, coefficients, &real);
  }
  switch (first.scalar_type()) {
    case at::kFloat:
      return Run<float>(dense, coefficients, out);
    case at::kDouble:
      return Run<double>(dense, coefficients, out);
    default: {  // float16, bfloat16
      for (at::Tensor& input : dense) input = input.to(at::kFloat);
      at::Tensor wide;
      LinearCombination(dense, coefficients, &wide);
      out->copy_(wide);
    }
  }
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

void CombineModels(absl::Span<const Contribution> contributions,
                   absl::Span<const double> coefficients, double keep,
                   NamedTensors* out) {
  const NamedTensors& model = contributions.front().tensors;
  out->resize(model.size());
  std::vector<double> with_kept;
  if (keep != 0) {
    with_kept.push_back(keep);
    with_kept.insert(with_kept.end(), coefficients.begin(), coefficients.end());
    coefficients = with_kept;
  }
  for (size_t i = 0; i < model.size(); ++i) {
    at::Tensor& result = (*out)[i].second;
    (*out)[i].first = model[i].first;
    std::vector<at::Tensor> inputs = TensorsAt(contributions, i);
    if (!IsFloat(inputs.front())) {
      result = Maximum(inputs);
      continue;
    }
    if (keep != 0) inputs.insert(inputs.begin(), result);
    LinearCombination(inputs, coefficients, &result);
  }
}

}  // namespace miniray::ps
