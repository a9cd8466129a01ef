// How a parameter server works, whatever its strategy.

#ifndef MINIRAY_PS_SERVER_OPTIONS_H_
#define MINIRAY_PS_SERVER_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "ps/compression/compression.h"
#include "ps/staleness.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

// What becomes of a contribution with values that are infinite or NaN.
enum class NonFinitePolicy {
  kRefuse,  // The synchronisation fails.
  // The others go on, if they are min_workers; the worker receives the result,
  // too.
  kDropWorker,
  // The strategy gets it: for median, krum and others that stand it. A result
  // that is not finite is refused all the same.
  kAllow,
};

// When gradients that workers push become a step; see gradient_server.h.
enum class SyncMode {
  kSynchronous,   // Together: all workers' gradients are one step.
  kAsynchronous,  // One by one: each gradient is a step when it comes.
};

struct ServerOptions {
  NonFinitePolicy non_finite = NonFinitePolicy::kRefuse;

  // A synchronisation goes on with so many contributions if the other workers
  // die, fail, or are late (sync_timeout_seconds); 0: it needs all. Who is left
  // out, or fails to take the result, is sent it without waiting, and counts
  // again once it has it.
  int64_t min_workers = 0;

  // A worker that has not given its weights after so many seconds is late; 0:
  // all are waited for, however long. If too many are late, the synchronisation
  // fails with DEADLINE_EXCEEDED. The push has the same time once more. Of
  // gradients that workers push: how long a push waits for those of others; 0:
  // five minutes.
  double sync_timeout_seconds = 0;

  // Where the server keeps its weights and what its strategy remembers, so that
  // a server that was killed goes on; empty: nowhere, it starts anew. A folder
  // of the machine, or of all where the server may restart on another. One
  // server, one folder; what an earlier one left there is gone on with.
  std::string state_dir;

  // Synchronisations from one save to the next. With 1, the state is saved
  // before any worker receives new weights, so that SyncOnce survives a server
  // that is killed at any moment. With more, up to save_every - 1 of them are
  // forgotten with the server: cheaper, where that does no harm.
  int64_t save_every = 1;

  // What travels is compressed, per direction: the difference to what both
  // sides hold. Workers need two more methods for it (weight_exchange.h), and
  // hold what the server's weights are up to that compression; what it loses
  // goes with the next synchronisation. Of strategies that take gradients only
  // from_workers: the gradients that workers push (gradient_encoder.h).
  CompressionOptions from_workers;
  CompressionOptions to_workers;

  // The model is cut into so many parts, each held and aggregated by an actor
  // of its own, on different nodes if there are several (sharded_server.h).
  // Workers need the same two methods, but those that push gradients none.
  int64_t num_shards = 1;

  // The model travels in pieces of about so many bytes, and the first are
  // pushed while the last are still pulled: over a network that carries both
  // directions at once, a synchronisation takes half the time. 0: the model
  // travels at once. A few megabytes are a good size; there are at most 1024
  // pieces. Workers need the same two methods. Not with strategies for whole
  // models (WholeModelStrategy), compression or several shards.
  int64_t piece_bytes = 0;

  // Whether the server keeps its weights until the next ones are known to be
  // good. If not, a synchronisation puts the next ones where they were, which
  // spares memory for one model. But if it fails then, because a worker's
  // weights are not finite, say, the server has none until the next one
  // succeeds: PullWeights fails meanwhile; workers have theirs. Only with
  // strategies that work with the workers' weights alone ("average",
  // "weighted", "median", "trimmed_mean", "krum", "multi_krum", "bulyan";
  // SyncStrategy::UsesServerWeights), without state_dir, compression, shards
  // and pieces.
  bool keep_weights = true;

  // --- Only for strategies that take gradients, and workers that push them.

  SyncMode mode = SyncMode::kSynchronous;

  // How many workers push, those of index 0 ... num_workers - 1. Needed where
  // workers wait for others: in rounds, and with kWait. At most
  // kMaxPushingWorkers then, and at most kMaxWorkers. 0: as many as come.
  int64_t num_workers = 0;

  // With kAsynchronous: how old a gradient may be; kUnboundedStaleness (-1): as
  // old as it is. With kWait, the clocks that a worker may be ahead of the
  // slowest; 0 is kSynchronous. With kDamp, the versions from which on it takes
  // a smaller step.
  int64_t max_staleness = kUnboundedStaleness;
  StalenessPolicy staleness_policy = StalenessPolicy::kWait;
};

MINIRAY_STRUCT(ServerOptions, non_finite, min_workers, sync_timeout_seconds,
               state_dir, save_every, from_workers, to_workers, num_shards,
               piece_bytes, keep_weights, mode, num_workers, max_staleness,
               staleness_policy);

// Whether workers need SendWeights and ReceiveWeights for it.
bool NeedsExchange(const ServerOptions& options);

// Each of them may occupy a thread of the server while it waits.
inline constexpr int64_t kMaxPushingWorkers = 500;

// Ids of workers are small numbers; more of them is a mistake.
inline constexpr int64_t kMaxWorkers = 1 << 20;

// Whether gradients are gathered in rounds.
bool StepsInRounds(const ServerOptions& options);

// INVALID_ARGUMENT with the field and what it may be.
absl::Status Validate(const ServerOptions& options);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SERVER_OPTIONS_H_
