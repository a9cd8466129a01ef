// Checks of weights that come from elsewhere, before anything is done with
// them. Every error is INVALID_ARGUMENT and names whose weights, which tensor,
// and what was expected.

#ifndef MINIRAY_PS_CHECK_WEIGHTS_H_
#define MINIRAY_PS_CHECK_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// What a model looks like: names, shapes and element types, in order.
struct ModelLayout {
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    at::ScalarType dtype;
  };
  std::vector<Entry> entries;

  static ModelLayout Of(const NamedTensors& weights);
};

// Checks one model by itself: it has tensors, each dense and with a name of its
// own, and all values are finite.
//
// who: begins the message, "worker 2".
absl::Status CheckValues(const NamedTensors& weights, absl::string_view who);

// The two parts of CheckValues.
absl::Status CheckForm(const NamedTensors& weights, absl::string_view who);
absl::Status CheckFinite(const NamedTensors& weights, absl::string_view who);

// Checks that `weights` look like `expected`, which is what `expected_of` has.
absl::Status CheckLayout(const NamedTensors& weights,
                         const ModelLayout& expected, absl::string_view who,
                         absl::string_view expected_of);

// Bytes of all tensors.
int64_t TotalBytes(const NamedTensors& weights);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_CHECK_WEIGHTS_H_
