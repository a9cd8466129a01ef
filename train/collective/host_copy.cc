#include "train/collective/host_copy.h"

#include "ATen/ATen.h"
#include "ATen/core/grad_mode.h"
#include "c10/core/Event.h"
#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"

namespace miniray::train::internal {

HostCopy::HostCopy(const at::Tensor& tensor, Contents contents)
    : original_(tensor), host_(tensor) {
  if (tensor.is_cpu()) return;
  const at::NoGradGuard no_grad;
  host_ = at::empty(
      tensor.sizes(),
      at::TensorOptions().dtype(tensor.scalar_type()).pinned_memory(true));
  if (contents == Contents::kUndefined) return;
  const c10::Device device = tensor.device();
  const c10::impl::VirtualGuardImpl gpu(device.type());
  // A stream of its own: waiting for the current one would mean to wait for
  // what it is given while the copy is on its way.
  const c10::Stream current = gpu.getStream(device);
  stream_ = gpu.getStreamFromGlobalPool(device);
  c10::Event ready(device.type());
  ready.record(current);
  ready.block(*stream_);
  const c10::StreamGuard guard(*stream_);
  host_.copy_(tensor, /*non_blocking=*/true);
}

void HostCopy::Await() const {
  if (stream_.has_value()) stream_->synchronize();
}

void HostCopy::CopyBack() const {
  if (original_.is_cpu()) return;
  const at::NoGradGuard no_grad;
  original_.copy_(host_, /*non_blocking=*/true);
}

}  // namespace miniray::train::internal
