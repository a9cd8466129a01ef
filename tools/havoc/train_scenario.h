// One training under one SIGKILL: who is hit, when, and what must come of it.

#ifndef MINIRAY_TOOLS_HAVOC_TRAIN_SCENARIO_H_
#define MINIRAY_TOOLS_HAVOC_TRAIN_SCENARIO_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "tools/havoc/havoc_cluster.h"

namespace miniray::havoc {

enum class TrainVictim { kNobody, kWorker, kParameterServer, kDaemon, kHead };

struct TrainPlan {
  TrainVictim victim = TrainVictim::kNobody;
  int target = 0;      // Of several workers or daemons.
  absl::Duration at;   // Since the first epoch began.
  bool heals = false;  // FailurePolicy::kHeal; otherwise kGroup.
  int max_failures = 0;
  absl::Duration head_away;  // Until it is started again.
};

// Follows from the seed, everywhere.
TrainPlan MakeTrainPlan(uint64_t seed);

// "kill worker 2 at 1.234s, heal, max_failures 3"
std::string Describe(const TrainPlan& plan);

struct TrainLosses {
  double last = 0;    // Of the last epoch.
  double before = 0;  // Of the one before.
};

struct TrainSetting {
  std::string folder;  // For the run folder; exists.
  // Of a training that nobody disturbed; null: this is the one.
  const TrainLosses* undisturbed = nullptr;
  bool forget = false;  // Breaks the workers on purpose; see Learner.
};

struct TrainOutcome {
  TrainLosses losses;  // Where training came to its end.
  std::string text;    // "loss 0.125000, 1 failure survived"
};

// Trains and kills, on a cluster whose daemons were just started. From the main
// thread. Does not return if training does not end: then it ends the processes
// and exits with 1. Errors: INTERNAL, with what does not hold.
absl::StatusOr<TrainOutcome> RunTraining(const TrainPlan& plan,
                                         const TrainSetting& setting,
                                         HavocCluster* cluster,
                                         const Cluster& driver);

}  // namespace miniray::havoc

#endif  // MINIRAY_TOOLS_HAVOC_TRAIN_SCENARIO_H_
