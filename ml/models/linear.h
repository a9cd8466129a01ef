// A linear layer whose first weights come from a generator of its own, so that
// a run depends on its seed and on nothing else in the process.
//
// Needs LibTorch's front end, which is slow to compile: include it in sources,
// not in headers.

#ifndef MINIRAY_ML_MODELS_LINEAR_H_
#define MINIRAY_ML_MODELS_LINEAR_H_

#include <cstdint>

#include "ATen/core/Generator.h"
#include "torch/nn/modules/linear.h"

namespace miniray::ml {

// Returns a layer with weights and biases uniform in +-1/sqrt(inputs), as
// torch::nn::Linear has them. `random` gives the weights, [outputs, inputs],
// then the biases, [outputs].
torch::nn::Linear MakeLinear(int64_t inputs, int64_t outputs,
                             at::Generator& random);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_MODELS_LINEAR_H_
