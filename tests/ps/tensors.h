// Small tensors for tests of ps/ and train/.

#ifndef MINIRAY_TESTS_PS_TENSORS_H_
#define MINIRAY_TESTS_PS_TENSORS_H_

#include <cstring>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

template <class T>
at::Tensor Make(at::ScalarType dtype, const std::vector<T>& values) {
  at::Tensor tensor =
      at::empty({static_cast<int64_t>(values.size())}, at::dtype(dtype));
  std::copy(values.begin(), values.end(), tensor.data_ptr<T>());
  return tensor;
}

inline at::Tensor Floats(const std::vector<float>& values) {
  return Make(at::kFloat, values);
}

inline at::Tensor Doubles(const std::vector<double>& values) {
  return Make(at::kDouble, values);
}

inline at::Tensor Ints(const std::vector<int64_t>& values) {
  return Make(at::kLong, values);
}

// The values as double, whatever the element type (no complex).
inline std::vector<double> Values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  const double* data = wide.data_ptr<double>();
  return {data, data + wide.numel()};
}

inline bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(),
                     a.nbytes()) == 0;
}

// Contributions of workers 0, 1, ... with weight 1.
inline std::vector<Contribution> Contributions(
    const std::vector<NamedTensors>& models) {
  std::vector<Contribution> contributions;
  for (const NamedTensors& model : models) {
    contributions.push_back(
        {.worker_id = static_cast<int>(contributions.size()),
         .tensors = model});
  }
  return contributions;
}

}  // namespace miniray::ps

#endif  // MINIRAY_TESTS_PS_TENSORS_H_
