#include "runtime/tensor/shared_tensors.h"

#include <cstdint>
#include <memory>

#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "runtime/shm/shared_memory.h"

namespace miniray {
namespace {

// Cache lines.
constexpr uint64_t kAlignment = 64;

uint64_t Padded(const at::Tensor& tensor) {
  return (tensor.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

NamedTensors EmptySharedTensors(const NamedTensors& like) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : like) bytes += Padded(tensor);
  const std::shared_ptr<SharedBlock> block =
      SharedMemory::Get().Allocate(bytes);
  NamedTensors tensors;
  tensors.reserve(like.size());
  uint64_t offset = 0;
  for (const auto& [name, tensor] : like) {
    const auto options = at::TensorOptions().dtype(tensor.scalar_type());
    tensors.emplace_back(name, block == nullptr
                                   ? at::empty(tensor.sizes(), options)
                                   : at::from_blob(
                                         block->data() + offset, tensor.sizes(),
                                         [block](void*) {}, options));
    offset += Padded(tensor);
  }
  return tensors;
}

}  // namespace miniray
