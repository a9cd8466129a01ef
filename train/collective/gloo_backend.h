// GlooBackend: collectives over Gloo, whose operations run in threads of its
// own, several at a time.
//
// On Gloo itself rather than on c10d's ProcessGroupGloo: of LibTorch's builds
// only Debian's uses the Gloo that one can compile against; the others contain
// another, and none of its headers.
//
// Tensors on a GPU travel as copies in the CPU's memory: out when a collective
// is started, behind what its stream was given before, and back in Wait.

#ifndef MINIRAY_TRAIN_COLLECTIVE_GLOO_BACKEND_H_
#define MINIRAY_TRAIN_COLLECTIVE_GLOO_BACKEND_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/store.h"
#include "train/collective/abortable_device.h"
#include "train/collective/backend.h"

namespace miniray::train::internal {

// Collectives are started by one thread at a time.
class GlooBackend : public Backend {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    absl::Duration timeout;  // Of each collective.
    int num_threads = 2;     // How many collectives run at a time.
  };

  // Connects all ranks. Blocks, by Gloo's rule up to five times `timeout`;
  // device->Abort ends it. Throws what Gloo and the store throw.
  GlooBackend(const Options& options, gloo::rendezvous::Store& store,
              std::shared_ptr<AbortableDevice> device);
  // Waits for what was started.
  ~GlooBackend() override;

  std::unique_ptr<Work> AllReduce(const at::Tensor& tensor,
                                  ReduceOp op) override;
  std::unique_ptr<Work> Broadcast(const at::Tensor& tensor, int root) override;
  std::unique_ptr<Work> AllGather(const at::Tensor& output,
                                  const at::Tensor& input) override;
  std::unique_ptr<Work> AllToAll(const at::Tensor& output,
                                 const at::Tensor& input) override;
  void Abort(const std::string& message) override;

 private:
  class Job;

  // Starts `run`, which gets the number that tells apart the collectives that
  // are under way. It reads the CPU's copy of `input` and writes that of
  // `output`, which may be the same tensor.
  using Run = std::function<void(uint32_t tag, const at::Tensor& output,
                                 const at::Tensor& input)>;
  std::unique_ptr<Work> Start(const at::Tensor& output, const at::Tensor& input,
                              Run run) ABSL_LOCKS_EXCLUDED(mu_);
  void RunJobs() ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<AbortableDevice> device_;
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  uint32_t next_tag_ = 0;

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_COLLECTIVE_GLOO_BACKEND_H_
