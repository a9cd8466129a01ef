// Lists of a GAN's tensors by name: splitting and checking them.

#ifndef MINIRAY_ML_GAN_GAN_TENSORS_H_
#define MINIRAY_ML_GAN_GAN_TENSORS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ml/gan/architecture.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ml {

// Returns `tensors` with "generator." or "discriminator." before their names.
NamedTensors WithNetworkPrefix(GanNetwork network, NamedTensors tensors);

// The inverse: returns those whose names begin so, without the prefix.
NamedTensors SelectNetwork(GanNetwork network, const NamedTensors& tensors);

// Errors: InvalidArgument if `tensors` are not those of `specs` in that order;
// the message begins with `whose` and names the first tensor that differs.
absl::Status CheckTensors(const std::vector<TensorSpec>& specs,
                          const NamedTensors& tensors, absl::string_view whose);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_GAN_TENSORS_H_
