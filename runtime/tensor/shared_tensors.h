// Tensors whose memory other processes of the machine can read where it is.

#ifndef MINIRAY_RUNTIME_TENSOR_SHARED_TENSORS_H_
#define MINIRAY_RUNTIME_TENSOR_SHARED_TENSORS_H_

#include "runtime/tensor/tensor_codec.h"

namespace miniray {

// Returns tensors of the names, shapes and element types of `like`, contiguous,
// on the CPU, with any contents: all in one piece of shared memory
// (runtime/shm), in ordinary memory if there is none. Sent as ReadOnly, they
// are not copied on this machine. Throws what LibTorch throws.
NamedTensors EmptySharedTensors(const NamedTensors& like);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_TENSOR_SHARED_TENSORS_H_
