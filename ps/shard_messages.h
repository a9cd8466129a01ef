// What the actor that a user talks to and its shards tell each other; see
// sharded_server.h.

#ifndef MINIRAY_PS_SHARD_MESSAGES_H_
#define MINIRAY_PS_SHARD_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/api/miniray.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

// What an actor of class ParameterServer is: the whole server (default), one of
// the shards, or the one in front of them, which has the shards' handles.
struct ShardRole {
  int64_t shard = 0;
  int64_t num_shards = 1;
  std::vector<AnyActorHandle> shards;
};
MINIRAY_STRUCT(ShardRole, shard, num_shards, shards);

// A status as a value: of a shard's work, whereas a call that fails says that
// the shard itself has died.
struct Outcome {
  int64_t code = 0;
  std::string message;

  static Outcome Of(const absl::Status& status) {
    return {static_cast<int64_t>(status.code()), std::string(status.message())};
  }
  absl::Status status() const {
    return absl::Status(static_cast<absl::StatusCode>(code), message);
  }
};
MINIRAY_STRUCT(Outcome, code, message);

// A worker that a synchronisation goes on without; see LeftOut.
struct LeftOutWorker {
  int64_t worker = 0;
  Outcome why;
  bool refused = false;
};
MINIRAY_STRUCT(LeftOutWorker, worker, why, refused);

// A worker that does not have the weights that were pushed.
struct BehindWorker {
  int64_t worker = 0;
  // Why it has not taken them; OK if it was left out, and nobody waited for it.
  Outcome why;
  bool late = false;  // It may still take them.
};
MINIRAY_STRUCT(BehindWorker, worker, why, late);

// Which weights a shard has.
struct PartState {
  int64_t version = 0;
  std::string id;        // Of the weights; empty: there are none.
  std::string prepared;  // Of weights that wait for CommitPart; or empty.
  std::string last_sync;
};
MINIRAY_STRUCT(PartState, version, id, prepared, last_sync);

struct PulledPart {
  Outcome outcome;
  std::vector<LeftOutWorker> left_out;
  // Workers that have gone on from the weights that they were sent last.
  std::vector<int64_t> holds_view;
  int64_t bytes = 0;
  int64_t bytes_saved = 0;
};
MINIRAY_STRUCT(PulledPart, outcome, left_out, holds_view, bytes, bytes_saved);

// Not both are errors.
struct AggregatedPart {
  Outcome strategy;
  Outcome save;
};
MINIRAY_STRUCT(AggregatedPart, strategy, save);

struct PushedPart {
  Outcome outcome;
  std::vector<BehindWorker> behind;
  int64_t bytes = 0;
  int64_t bytes_saved = 0;
};
MINIRAY_STRUCT(PushedPart, outcome, behind, bytes, bytes_saved);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SHARD_MESSAGES_H_
