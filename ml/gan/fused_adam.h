// Adam in one pass over memory.
//
// torch::optim::Adam reads and writes each array several times and takes a
// quarter of a GAN step on one core; here each is touched once.

#ifndef MINIRAY_ML_GAN_FUSED_ADAM_H_
#define MINIRAY_ML_GAN_FUSED_ADAM_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"

namespace miniray::ml {

// The update of torch::optim::Adam (without weight decay or AMSGrad), equal to
// it but for rounding. Not thread-safe.
//
// Source: Kingma, Ba, "Adam: a method for stochastic optimization", ICLR 2015,
// algorithm 1.
class FusedAdam {
 public:
  struct Options {
    double lr = 2e-4;
    double beta1 = 0.5;
    double beta2 = 0.999;
    double epsilon = 1e-8;
  };

  // parameters: float32, contiguous, on the CPU; shared with the model.
  FusedAdam(std::vector<at::Tensor> parameters, const Options& options);

  // Applies and then drops the gradients, so that the next backward pass need
  // not add to zeros. A parameter without a gradient stays as it is.
  void Step();

 private:
  struct Slot {
    at::Tensor parameter;
    at::Tensor moment1;  // Like the parameter.
    at::Tensor moment2;
    int64_t steps = 0;
  };

  const Options options_;
  std::vector<Slot> slots_;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_FUSED_ADAM_H_
