// What workers that push gradients and the server tell each other; a worker
// uses GradientClient (gradient_client.h), which knows them.

#ifndef MINIRAY_PS_GRADIENT_MESSAGES_H_
#define MINIRAY_PS_GRADIENT_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ps/server_options.h"
#include "ps/staleness.h"
#include "ps/weight_message.h"
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

// What a worker must know of a server, or of one of its shards, to push to it.
struct PushTerms {
  bool in_rounds = false;  // As StepsInRounds says.
  NonFinitePolicy non_finite = NonFinitePolicy::kRefuse;
  CompressionOptions from_workers;
  std::vector<std::string> buffers;  // Names of those among its tensors.
  // Where a shard's tensors lie in the whole model; empty: it has all of it.
  std::vector<TensorPart> places;
};
MINIRAY_STRUCT(PushTerms, in_rounds, non_finite, from_workers, buffers, places);

struct PullReply {
  VersionedWeights model;
  PushTerms terms;
};
MINIRAY_STRUCT(PullReply, model, terms);

// Of a shard that has no weights yet: version 0, and the worker has not joined.
struct JoinReply {
  VersionedWeights model;
  PushTerms terms;
  int64_t last_sequence = 0;  // Of the worker's gradients that were taken.
};
MINIRAY_STRUCT(JoinReply, model, terms, last_sequence);

// A gradient on its way to a server, or its part for one shard.
struct GradientPush {
  PushId id;
  int64_t version = 0;  // Of the weights that it was computed with.
  // It counts as taken and goes into no step: it is not finite, or is lost.
  // There are no tensors then.
  bool left_out = false;
  // As compression/difference.h has it, a difference to zeros.
  CompressionOptions compression;
  NamedTensors gradients;
};
MINIRAY_STRUCT(GradientPush, id, version, left_out, compression, gradients);

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
  int64_t bytes = 0;        // Of gradients that were pushed, as they travelled.
  int64_t bytes_saved = 0;  // By compression.
};
MINIRAY_STRUCT(GradientStats, accepted, refused, damped, repeated, steps,
               dropped_workers, staleness, seconds_step, seconds_waited, clocks,
               bytes, bytes_saved);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_GRADIENT_MESSAGES_H_
