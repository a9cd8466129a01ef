// What a training does about workers that fail.

#ifndef MINIRAY_TRAIN_FAILURE_CONFIG_H_
#define MINIRAY_TRAIN_FAILURE_CONFIG_H_

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace miniray::train {

enum class FailurePolicy {
  // All workers and the parameter server are made anew and go on from the last
  // good checkpoint: epochs since then are trained again. Without one, from the
  // start.
  kGroup,
  // Only the lost worker is made anew. It gets its shard and the weights of the
  // last synchronisation; its optimizer begins anew. The others go on. Where
  // that does not help, as kGroup.
  kHeal,
};

struct FailureConfig {
  // How many failures a call of Train survives; -1: as many as come.
  int max_failures = 0;
  FailurePolicy policy = FailurePolicy::kGroup;
  // A worker without progress for so long has failed, and is killed. Progress
  // is what GetProgress tells, where the class has it; otherwise the answer to
  // the call that runs, so that the longest epoch must fit. The longest
  // synchronisation must fit in any case.
  //
  // No limit if not set: nobody else knows how long an epoch may take. Training
  // then waits for a worker that hangs, and says so; see warn_after.
  absl::Duration hang_timeout = absl::InfiniteDuration();
  // A worker without progress for so long, and a parameter server that has not
  // answered, is a warning in the log, which is repeated as often; infinite: no
  // warnings.
  absl::Duration warn_after = absl::Minutes(5);
};

// INVALID_ARGUMENT with the field and what it may be.
absl::Status Validate(const FailureConfig& config);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FAILURE_CONFIG_H_
