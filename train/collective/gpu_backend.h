// How the ranks of a group exchange what lies on their GPUs: the one place
// where that is chosen.

#ifndef MINIRAY_TRAIN_COLLECTIVE_GPU_BACKEND_H_
#define MINIRAY_TRAIN_COLLECTIVE_GPU_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"
#include "train/collective/backend.h"
#include "train/collective/process_group.h"

namespace miniray::train::internal {

// Returns NCCL where all ranks have it and each has a GPU of its own; null
// where not: Gloo then takes the tensors through the CPU's memory, as it does
// for several ranks on one GPU, which NCCL refuses. MINIRAY_NCCL=off in any
// rank's environment: Gloo. A collective call; `device` is this rank's.
//
// Errors: those of the collectives, and what NCCL says.
absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(ProcessGroup& group,
                                                        c10::Device device);

// What tells GPUs apart: the machine (as long as it runs), and what it calls
// the device. For tests.
// visible: CUDA_VISIBLE_DEVICES; null, not set.
std::string GpuName(absl::string_view machine, const char* visible, int index);

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_COLLECTIVE_GPU_BACKEND_H_
