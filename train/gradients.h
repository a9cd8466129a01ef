// A module's gradients as NamedTensors: what a worker pushes to a parameter
// server that takes gradients (ps/gradient_client.h), or returns from
// LendGradients (ps/parameter_server.h).
//
// Needs LibTorch's front end, which is slow to compile: include it in the
// sources of workers, not in headers.

#ifndef MINIRAY_TRAIN_GRADIENTS_H_
#define MINIRAY_TRAIN_GRADIENTS_H_

#include <string>
#include <vector>

#include "runtime/tensor/tensor_codec.h"
#include "torch/nn/module.h"

namespace miniray::train {

// Returns the gradients of all parameters that require them, zeros for those
// that have none yet, then the values of all buffers; under their full names,
// in the order of StateDict, on the CPU, dense.
//
// They may be the module's own tensors: they are valid, and must not change,
// until the call that they are passed to is done.
ReadOnly<NamedTensors> Gradients(const torch::nn::Module& module);

// Returns the names of what an optimizer on the server must leave alone:
// buffers, and parameters that do not require gradients. For
// GradientClient::Join and a worker's BufferNames.
std::vector<std::string> UntrainedNames(const torch::nn::Module& module);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_GRADIENTS_H_
