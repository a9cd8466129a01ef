// The worker of the benchmark of gradients.

#ifndef MINIRAY_TOOLS_BENCH_GRADIENT_WORKER_H_
#define MINIRAY_TOOLS_BENCH_GRADIENT_WORKER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "ps/parameter_server.h"
#include "runtime/api/miniray.h"

namespace miniray::bench {

// An actor that holds a module and gradients that are always the same: what is
// measured is the way from gradients to the next weights in the module.
class GradientWorker {
 public:
  // bytes: of the module's parameters, float32.
  explicit GradientWorker(int64_t bytes);
  ~GradientWorker();

  absl::Status Join(const ActorHandle<ps::ParameterServer>& server,
                    int worker_id);
  // Pushes the gradients, and loads what comes back into the module.
  absl::Status Push();
  // The same step by LibTorch's AdamW, in this process, on this thread.
  void StepAlone();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};
MINIRAY_ACTOR(GradientWorker, Constructor<int64_t>, &GradientWorker::Join,
              &GradientWorker::Push, &GradientWorker::StepAlone);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_GRADIENT_WORKER_H_
