// The actors that evaluate beside training (TrainerOptions::num_evaluators):
// what DataParallelTrainer does about them, without the class of the workers.

#ifndef MINIRAY_TRAIN_EVALUATORS_H_
#define MINIRAY_TRAIN_EVALUATORS_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "train/metrics.h"
#include "train/options.h"

namespace miniray::train {

// Not thread-safe.
class Evaluators {
 public:
  struct Outcome {
    int epoch = 0;    // That was evaluated.
    Metrics metrics;  // See MergeEvaluation; and "seconds", from Begin on.
  };

  Evaluators() = default;
  ~Evaluators() { StopForGood(); }
  Evaluators(const Evaluators&) = delete;
  Evaluators& operator=(const Evaluators&) = delete;

  // Takes an actor with EvaluateShard, to be killed by Stop.
  void Add(AnyActorHandle actor) { actors_.push_back(std::move(actor)); }
  const std::vector<AnyActorHandle>& actors() const { return actors_; }

  // Has each of n evaluate its part, EvaluateShard(i, n), with the weights that
  // it has. Waits for none.
  //
  // config: a third argument, unless null. REQUIRES: none runs.
  void Begin(int epoch, const Config* config);

  // Of the evaluation that runs.
  std::optional<int> epoch() const { return epoch_; }

  // Returns what has come of the evaluation that runs: nothing if there is
  // none, or if it is not done and is not waited for.
  //
  // Errors: of the first evaluator that fails; DEADLINE_EXCEEDED, one has not
  // returned `hang_timeout` after Begin; with the epoch and the evaluator. It
  // then runs no more.
  absl::StatusOr<std::optional<Outcome>> Collect(bool wait,
                                                 absl::Duration hang_timeout);

  // Kills the actors and forgets what runs. Idempotent. Errors: UNAVAILABLE or
  // DEADLINE_EXCEEDED, the head does not answer: some may still live, and Stop
  // may be called again.
  absl::Status Stop();

  // The same at the end of training: those that cannot be killed now are left
  // to the end of the driver.
  void StopForGood();

 private:
  std::vector<AnyActorHandle> actors_;
  std::optional<int> epoch_;
  // A clock that somebody sets makes nobody hang.
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  std::vector<ObjectRef<Metrics>> calls_;
  // Nanoseconds from start_ until the last so far was done.
  std::shared_ptr<std::atomic<int64_t>> duration_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_EVALUATORS_H_
