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

// Returns the tensors that images are made with, as they are named in the
// network: those of the generator's average where there is one, else the
// generator's. tensors: as Gan::Weights returns them.
NamedTensors SelectTrainedGenerator(const NamedTensors& tensors);

// Returns `tensors` with "generator_ema." before their names.
NamedTensors WithEmaPrefix(NamedTensors tensors);

// Returns what Gan::Weights returns for such a GAN, name by name.
//
// ema: whether it keeps an average of the generator.
// moments: whether Adam's are among them (SyncMoments::kAverage); see
//   MomentSpecs.
// All of these count as buffers: whoever steps parameters only averages them.
std::vector<TensorSpec> GanWeightSpecs(const GanSizes& sizes, bool ema,
                                       bool moments = false);

// Returns the tensors of a network's Adam, "generator_adam." or
// "discriminator_adam." before their names: "step", int64 [1]; the means of the
// gradients, "exp_avg.", before the name of each parameter; those of their
// squares, "exp_avg_sq.", likewise.
std::vector<TensorSpec> MomentSpecs(GanNetwork network, const GanSizes& sizes);

// Errors: InvalidArgument if `tensors` are not those of `specs` in that order;
// the message begins with `whose` and names the first tensor that differs.
absl::Status CheckTensors(const std::vector<TensorSpec>& specs,
                          const NamedTensors& tensors, absl::string_view whose);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_GAN_TENSORS_H_
