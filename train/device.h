// Where a worker computes.

#ifndef MINIRAY_TRAIN_DEVICE_H_
#define MINIRAY_TRAIN_DEVICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"

namespace miniray::train {

// Returns the device of a name:
//   "auto"    the first CUDA device that this process may see, else the CPU
//   "cpu"
//   "cuda"    the first CUDA device
//   "cuda:1"  the one of that index, from 0, among those that this process may
//             see: CUDA_VISIBLE_DEVICES numbers them anew
//
// Errors: INVALID_ARGUMENT, no such name. FAILED_PRECONDITION, there is no such
// device: with what there is.
absl::StatusOr<c10::Device> ChooseDevice(absl::string_view name = "auto");

namespace internal {

// The same with so many CUDA devices, of CUDA_VISIBLE_DEVICES `visible`.
absl::StatusOr<c10::Device> ChooseDevice(absl::string_view name,
                                         int num_cuda_devices,
                                         const std::string& visible);

}  // namespace internal
}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DEVICE_H_
