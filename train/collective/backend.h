// Backend: collectives as ProcessGroup and GradientBucket use them, on Gloo
// (gloo_backend.h) or NCCL (nccl_backend.h); gpu_backend.h has the choice.

#ifndef MINIRAY_TRAIN_COLLECTIVE_BACKEND_H_
#define MINIRAY_TRAIN_COLLECTIVE_BACKEND_H_

#include <memory>
#include <string>

#include "ATen/core/Tensor.h"

namespace miniray::train {

enum class ReduceOp { kSum, kMean, kMin, kMax };

namespace internal {

// A collective that was started. It holds the tensors.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks until the tensors may be used, on a GPU by what this thread's stream
  // is given next. To be called once. Throws what failed.
  virtual void Wait() = 0;
};

// All ranks call the same ones in the same order, with tensors of one shape.
// Tensors are dense and contiguous. Throw std::exceptions, here or in Wait.
class Backend {
 public:
  virtual ~Backend() = default;

  // Replaces `tensor` by the sum over the ranks, or the least or greatest: the
  // same bits everywhere. No mean. bool and bfloat16 are not taken.
  virtual std::unique_ptr<Work> AllReduce(const at::Tensor& tensor,
                                          ReduceOp op) = 0;

  // The next three are for tensors of any type.
  // Gives all ranks what `root` has.
  virtual std::unique_ptr<Work> Broadcast(const at::Tensor& tensor,
                                          int root) = 0;
  // output: world size times the bytes of `input`; by rank.
  virtual std::unique_ptr<Work> AllGather(const at::Tensor& output,
                                          const at::Tensor& input) = 0;
  // Rank r gets each rank's rth piece, by rank. Both have as many bytes, a
  // multiple of the world size.
  virtual std::unique_ptr<Work> AllToAll(const at::Tensor& output,
                                         const at::Tensor& input) = 0;

  // Makes what waits, and all later calls, throw; see ProcessGroup::Abort. May
  // be called at any time from any thread. Of several calls the first counts.
  virtual void Abort(const std::string& message) = 0;
};

}  // namespace internal
}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_COLLECTIVE_BACKEND_H_
