#include "ps/tensor_math.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/maximum.h"
#include "ATen/ops/view_as_real.h"
#include "ps/kernels.h"
#include "ps/parallel_for.h"
#include "runtime/tensor/shared_tensors.h"

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

// Elements that one thread computes at a time.
constexpr int64_t kPiece = 1 << 18;

struct Piece {
  size_t tensor;
  int64_t begin, size;
};

template <class T>
void RunPiece(const std::vector<at::Tensor>& inputs,
              absl::Span<const double> coefficients, const Piece& piece,
              const at::Tensor& out) {
  std::vector<const T*> data;
  data.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    data.push_back(input.data_ptr<T>() + piece.begin);
  }
  LinearCombination(data, coefficients, piece.size,
                    out.data_ptr<T>() + piece.begin);
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

NamedTensors CombineModels(absl::Span<const Contribution> contributions,
                           absl::Span<const double> coefficients, double keep,
                           const NamedTensors& kept) {
  const NamedTensors& model = contributions.front().tensors;
  std::vector<double> with_kept;
  if (keep != 0) {
    with_kept.push_back(keep);
    with_kept.insert(with_kept.end(), coefficients.begin(), coefficients.end());
    coefficients = with_kept;
  }
  NamedTensors out = EmptySharedTensors(model);
  std::vector<std::vector<at::Tensor>> inputs(model.size());
  std::vector<Piece> pieces;
  for (size_t i = 0; i < model.size(); ++i) {
    at::Tensor& result = out[i].second;
    inputs[i] = TensorsAt(contributions, i);
    if (!IsFloat(inputs[i].front())) {
      result.copy_(Maximum(inputs[i]));
      continue;
    }
    if (keep != 0) inputs[i].insert(inputs[i].begin(), kept[i].second);
    if (result.scalar_type() != at::kFloat &&
        result.scalar_type() != at::kDouble) {
      LinearCombination(inputs[i], coefficients, &result);
      continue;
    }
    for (at::Tensor& input : inputs[i]) input = Dense(input);
    for (int64_t begin = 0; begin < result.numel(); begin += kPiece) {
      pieces.push_back({i, begin, std::min(kPiece, result.numel() - begin)});
    }
  }
  ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t index) {
    const Piece& piece = pieces[static_cast<size_t>(index)];
    const at::Tensor& result = out[piece.tensor].second;
    if (result.scalar_type() == at::kFloat) {
      RunPiece<float>(inputs[piece.tensor], coefficients, piece, result);
    } else {
      RunPiece<double>(inputs[piece.tensor], coefficients, piece, result);
    }
  });
  return out;
}

}  // namespace miniray::ps
