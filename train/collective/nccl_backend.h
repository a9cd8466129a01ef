// NcclBackend: collectives of tensors on GPUs over NCCL, from GPU to GPU.

#ifndef MINIRAY_TRAIN_COLLECTIVE_NCCL_BACKEND_H_
#define MINIRAY_TRAIN_COLLECTIVE_NCCL_BACKEND_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "c10/core/Stream.h"
#include "train/collective/backend.h"
#include "train/collective/nccl_library.h"

namespace miniray::train::internal {

// Collectives are started by one thread at a time, all with tensors on one
// device. Wait blocks the thread, not only the stream, so that a rank that died
// or hangs is an error and not a GPU that computes for ever.
class NcclBackend : public Backend {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    c10::Device device = c10::Device(c10::kCUDA, 0);  // No other rank's.
    absl::Duration timeout;                           // Of each collective.
  };

  // Connects all ranks, with an id of one of them. Blocks. Throws what NCCL
  // says.
  NcclBackend(const Options& options, const NcclLibrary& nccl,
              const NcclLibrary::UniqueId& id);
  ~NcclBackend() override;

  std::unique_ptr<Work> AllReduce(const at::Tensor& tensor,
                                  ReduceOp op) override;
  std::unique_ptr<Work> Broadcast(const at::Tensor& tensor, int root) override;
  std::unique_ptr<Work> AllGather(const at::Tensor& output,
                                  const at::Tensor& input) override;
  std::unique_ptr<Work> AllToAll(const at::Tensor& output,
                                 const at::Tensor& input) override;
  void Abort(const std::string& message) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Started;

  // Calls `start` with the stream of the collectives, behind all that the
  // current stream was given.
  template <class Start>
  std::unique_ptr<Work> Launch(const at::Tensor& output,
                               const at::Tensor& input, const Start& start);
  // Throws if it was aborted, or NCCL knows of an error.
  void CheckHealth() const ABSL_LOCKS_EXCLUDED(mu_);
  void Check(NcclLibrary::Result result) const;

  const Options options_;
  const NcclLibrary& nccl_;
  const c10::Stream stream_;
  NcclLibrary::Communicator communicator_ = nullptr;

  mutable absl::Mutex mu_;
  std::string aborted_ ABSL_GUARDED_BY(mu_);  // Why; empty: it is not.
};

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_COLLECTIVE_NCCL_BACKEND_H_
