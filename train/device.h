// Where a worker computes.

#ifndef MINIRAY_TRAIN_DEVICE_H_
#define MINIRAY_TRAIN_DEVICE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"

namespace miniray::train {

// Returns the device of a name:
//   "auto"    the first CUDA device that this process may see, else the CPU;
//             not the CPU in an actor that has asked for a GPU
//   "cpu"
//   "cuda"    the first CUDA device
//   "cuda:1"  the one of that index, from 0, among those that this process may
//             see: CUDA_VISIBLE_DEVICES numbers them anew
//
// Errors: INVALID_ARGUMENT, no such name. FAILED_PRECONDITION, there is no such
// device: with what there is; "auto", and the GPU that the actor has been given
// cannot be used.
absl::StatusOr<c10::Device> ChooseDevice(absl::string_view name = "auto");

namespace internal {

// The same with so many CUDA devices, of CUDA_VISIBLE_DEVICES `visible`.
// given: the actor's GPUs, by the names that they have on its node.
absl::StatusOr<c10::Device> ChooseDevice(
    absl::string_view name, int num_cuda_devices, const std::string& visible,
    const std::vector<std::string>& given = {});

}  // namespace internal
}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DEVICE_H_
