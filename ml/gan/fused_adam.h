// Adam in one pass over memory.
//
// torch::optim::Adam reads and writes each array several times and takes a
// quarter of a GAN step on one core; here each is touched once.

#ifndef MINIRAY_ML_GAN_FUSED_ADAM_H_
#define MINIRAY_ML_GAN_FUSED_ADAM_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/optim/adam.h"

namespace miniray::ml {

// torch::optim::Adam (without weight decay or AMSGrad), equal to it but for
// rounding. Its state is Adam's, so what saves, loads and schedules optimizers
// does so with this one. Not thread-safe.
//
// Source: Kingma, Ba, "Adam: a method for stochastic optimization", ICLR 2015,
// algorithm 1.
class FusedAdam : public torch::optim::Adam {
 public:
  // parameters: float32, contiguous, on the CPU; shared with the model.
  // Throws c10::Error for others, and for options that it does not know.
  FusedAdam(std::vector<at::Tensor> parameters,
            const torch::optim::AdamOptions& options);

  // Applies and then drops the gradients, so that the next backward pass need
  // not add to zeros. A parameter without a gradient stays as it is.
  //
  // closure: if given, computes the gradients first, and returns the loss.
  at::Tensor step(LossClosure closure = nullptr) override;
};

// Returns the moments and steps that `adam` has of a parameter; of one that it
// has not stepped yet, new zeros, which it goes on with. Valid until the state
// is cleared or loaded.
//
// parameter: of adam, which has no AMSGrad.
torch::optim::AdamParamState& AdamStateOf(torch::optim::Adam& adam,
                                          const at::Tensor& parameter);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_FUSED_ADAM_H_
