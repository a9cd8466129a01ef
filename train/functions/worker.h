// TrainFunctionWorker: the actor in which one rank's train function runs.

#ifndef MINIRAY_TRAIN_FUNCTIONS_WORKER_H_
#define MINIRAY_TRAIN_FUNCTIONS_WORKER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "runtime/api/miniray.h"
#include "train/functions/context.h"
#include "train/functions/messages.h"

namespace miniray::train {

// Thread-safe: Run is called outside any concurrency group, and everything else
// in those of Groups(), so that nothing waits behind the function. Generations
// come in ascending order.
class TrainFunctionWorker : private ReportSink {
 public:
  // What its ActorOptions must have.
  static std::vector<ConcurrencyGroup> Groups();

  // Runs the function and returns how it ended: as long as that takes.
  RunOutcome Run(GenerationStart start, SharedStart shared)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until the function of this generation has made its report `number`,
  // and returns it; none if it ends before, or the generation is aborted. May
  // come before Run.
  std::optional<RankReport> NextReport(int generation, int number)
      ABSL_LOCKS_EXCLUDED(mu_);

  // All ranks have made report `number`: the function goes on.
  void Release(int generation, int number, const ReportReply& reply)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The generation ends, and all before it: Report throws, now and later, and
  // OnAbort's handlers are called. If the function has not begun, it will not.
  void Abort(int generation, const std::string& reason)
      ABSL_LOCKS_EXCLUDED(mu_);

  // What the function does; see Context::SetStage.
  std::string Stage(int generation) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<ReportReply> Exchange(RankReport report) override
      ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  int generation_ ABSL_GUARDED_BY(mu_) = -1;  // Runs, or ran last.
  int ended_ ABSL_GUARDED_BY(mu_) = -1;       // The last that has ended.
  int aborted_ ABSL_GUARDED_BY(mu_) = -1;     // The last that was aborted.
  std::string abort_reason_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Context> context_ ABSL_GUARDED_BY(mu_);  // While it runs.
  std::optional<RankReport> report_ ABSL_GUARDED_BY(mu_);  // Not released yet.
  std::optional<ReportReply> reply_ ABSL_GUARDED_BY(mu_);  // To report_.
};
MINIRAY_ACTOR(TrainFunctionWorker, Constructor<>, &TrainFunctionWorker::Run,
              &TrainFunctionWorker::NextReport, &TrainFunctionWorker::Release,
              &TrainFunctionWorker::Abort, &TrainFunctionWorker::Stage);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_WORKER_H_
