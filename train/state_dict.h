// A module's parameters and buffers as NamedTensors: what a worker's GetWeights
// returns and SetWeights takes.
//
// Needs LibTorch's front end, which is slow to compile: include it in the
// sources of workers, not in headers.

#ifndef MINIRAY_TRAIN_STATE_DICT_H_
#define MINIRAY_TRAIN_STATE_DICT_H_

#include "absl/status/status.h"
#include "runtime/tensor/tensor_codec.h"
#include "torch/nn/module.h"

namespace miniray::train {

// Returns copies of all parameters, then all buffers, on the CPU, detached,
// contiguous, under their full names ("net.0.weight").
NamedTensors StateDict(const torch::nn::Module& module);

// Copies `weights` into the module's parameters and buffers, wherever they are;
// optimizers that hold the parameters go on with the new values. The order does
// not matter.
//
// All or nothing: names, shapes and element types are checked first.
// Errors: INVALID_ARGUMENT, with the first tensor that does not fit.
absl::Status LoadStateDict(torch::nn::Module& module,
                           const NamedTensors& weights);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_STATE_DICT_H_
