// A module's parameters and buffers as NamedTensors: what a worker's GetWeights
// returns and SetWeights takes.
//
// Needs LibTorch's front end, which is slow to compile: include it in the
// sources of workers, not in headers.

#ifndef MINIRAY_TRAIN_STATE_DICT_H_
#define MINIRAY_TRAIN_STATE_DICT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/tensor/tensor_codec.h"
#include "torch/nn/module.h"

namespace miniray::train {

// Returns copies of all parameters, then all buffers, on the CPU, detached,
// contiguous, under their full names ("net.0.weight").
NamedTensors StateDict(const torch::nn::Module& module);

// The same tensors without a copy, for a worker's LendWeights
// (ps/parameter_server.h): they are the module's own, and change with it. Those
// that lie in shared memory reach other processes of the machine without being
// copied either. A module on a GPU: as StateDict.
ReadOnly<NamedTensors> LendStateDict(const torch::nn::Module& module);

// Moves the parameters and buffers of a module on the CPU into one piece of
// shared memory, where there is some, so that LendStateDict copies nothing.
// They keep their values, and optimizers that hold them go on. Once, after the
// module was made.
void ShareParameters(torch::nn::Module& module);

// Returns the full names of the module's buffers: for a worker's BufferNames.
std::vector<std::string> BufferNames(const torch::nn::Module& module);

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
