// What workers that push gradients and the server tell each other; a worker
// uses GradientClient (gradient_client.h), which knows them.

#ifndef MINIRAY_PS_GRADIENT_MESSAGES_H_
#define MINIRAY_PS_GRADIENT_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "ps/staleness.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

// The server's weights at one version. They never change; a later version is
// other memory.
struct VersionedWeights {
  int64_t version = 0;
  ReadOnly<NamedTensors> weights;
};
MINIRAY_STRUCT(VersionedWeights, version, weights);

struct JoinReply {
  VersionedWeights model;
  int64_t last_sequence = 0;  // Of the worker's gradients that were taken.
};
MINIRAY_STRUCT(JoinReply, model, last_sequence);

struct PushReply {
  VersionedWeights model;  // What the worker goes on with.
  // The gradient went into a step. False: it was left out, for it is not finite
  // (NonFinitePolicy::kDropWorker) or its round was over.
  bool accepted = false;
  bool repeated = false;  // It had been taken before, and was not used again.
  int64_t staleness = 0;  // In versions.
  double lr_scale = 1;    // Below 1: it was damped.
};
MINIRAY_STRUCT(PushReply, model, accepted, repeated, staleness, lr_scale);

// What has become of gradients; counted by this process of the server, but for
// the clocks.
struct GradientStats {
  int64_t accepted = 0;  // Went into a step.
  int64_t refused = 0;   // Failed a check, were not finite, or came too late.
  int64_t damped = 0;    // Of those accepted: took a smaller step.
  int64_t repeated = 0;  // Came again, and were not used again.
  int64_t steps = 0;     // Of the optimizer.
  int64_t dropped_workers = 0;  // Times that one was waited for no longer.
  // Of those accepted; see CountStaleness.
  std::vector<int64_t> staleness;
  double seconds_step = 0;    // Saves included.
  double seconds_waited = 0;  // By workers, for others.
  std::vector<WorkerClock> clocks;
};
MINIRAY_STRUCT(GradientStats, accepted, refused, damped, repeated, steps,
               dropped_workers, staleness, seconds_step, seconds_waited,
               clocks);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_GRADIENT_MESSAGES_H_
