// HostCopy: a tensor in the CPU's memory, wherever it is.

#ifndef MINIRAY_TRAIN_COLLECTIVE_HOST_COPY_H_
#define MINIRAY_TRAIN_COLLECTIVE_HOST_COPY_H_

#include <optional>

#include "ATen/core/Tensor.h"
#include "c10/core/Stream.h"

namespace miniray::train::internal {

// The tensor itself where it is on the CPU. Of one on a GPU a copy in pinned
// memory, made beside what the GPU's stream is given afterwards.
class HostCopy {
 public:
  enum class Contents { kCopied, kUndefined };

  // tensor: contiguous. kCopied: begins to copy, behind all that the current
  // stream was given so far.
  HostCopy(const at::Tensor& tensor, Contents contents);

  // Blocks until the copy holds the tensor's values. In any thread.
  void Await() const;

  // Copies the values back, in the current stream.
  void CopyBack() const;

  const at::Tensor& tensor() const { return host_; }

 private:
  const at::Tensor original_;
  at::Tensor host_;
  std::optional<c10::Stream> stream_;  // In which it is copied.
};

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_COLLECTIVE_HOST_COPY_H_
