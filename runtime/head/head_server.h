// The head of a cluster as a gRPC server in this process.

#ifndef MINIRAY_RUNTIME_HEAD_HEAD_SERVER_H_
#define MINIRAY_RUNTIME_HEAD_HEAD_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/actor.pb.h"
#include "proto/head.pb.h"
#include "runtime/head/log_chunk_reader.h"

namespace miniray {

// Thread-safe.
class HeadServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // IP address to listen on.
    int port = 0;                    // 0: one that is free.
    // Every RPC must carry it. May be empty only on a loopback address.
    std::string token;
    // Folder for the head's database, packages and what actors save; created if
    // missing. If the last head there did not end by Shutdown(kFinal), this one
    // goes on with its cluster.
    std::string state_dir;
    // A node that is silent for so long is lost, with its actors.
    absl::Duration lease = absl::Seconds(10);
    // How long a driver whose connection broke may take to come back before its
    // actors are stopped.
    absl::Duration driver_grace = absl::Seconds(2);
    // An actor that no node could hold even when idle fails after this time.
    absl::Duration infeasible_timeout = absl::Seconds(30);
    // A placement group that waits so long has nodes held for it; after
    // group_hold they are chosen anew.
    absl::Duration group_patience = absl::Seconds(10);
    absl::Duration group_hold = absl::Seconds(30);
    // Of an actor whose processes end soon after they have begun: before
    // long_life.
    absl::Duration max_restart_delay = absl::Seconds(30);
    absl::Duration long_life = absl::Minutes(1);
    // Nodes, actors and drivers hear of these: how long calls wait for an actor
    // or the head that is out of reach, how long an actor remembers the calls
    // of a caller whose connection broke, and the longest pause between two
    // tries to reach the head (at most kMaxRedialPause, and a quarter of the
    // lease or the driver's grace).
    absl::Duration reconnect_timeout = absl::Seconds(60);
    absl::Duration session_life = absl::Minutes(5);
    absl::Duration max_reconnect_pause = absl::Seconds(1);
    // As many actors, placement groups and submitted jobs may wait for room,
    // each; what would be one more is refused with RESOURCE_EXHAUSTED.
    int64_t max_waiting = 100000;
    // Of all packages together; those least recently used, and needed by no
    // living actor or job, are removed beyond it.
    int64_t package_limit = int64_t{20} << 30;
    // Of one actor that keeps state (SaveActorState).
    int64_t max_state_bytes = int64_t{64} << 20;
  };

  enum class End {
    kRestart,  // Worker daemons and drivers stay, and dial again.
    kFinal,    // The cluster ends: the next head does not go on with it.
    // What this head belongs to could not be started: a cluster that it went on
    // with stays for the next one, of a new cluster nothing is left.
    kFailedStart,
  };

  // On failure state_dir is as it was before. Errors: UNAVAILABLE, the port is
  // in use. FAILED_PRECONDITION, no token on an address that is not loopback;
  // another head uses state_dir, or a newer version wrote it. INVALID_ARGUMENT,
  // not an IP address of this machine. DATA_LOSS, the database is damaged.
  static absl::StatusOr<std::unique_ptr<HeadServer>> Start(Options options);

  virtual ~HeadServer() = default;

  virtual int port() const = 0;

  // What GetClusterState answers.
  virtual v1::GetClusterStateResponse GetState() const = 0;

  // --- For the dashboard, which is in the same process: without a call and its
  // token.

  // The tables asked for; none: all of them. keep_actor: of the actors, only
  // those for which it is true; null: all. It is called under the head's lock,
  // and must not call back.
  virtual v1::GetClusterStateResponse SelectState(
      const std::set<v1::Table>& tables,
      const std::function<bool(const v1::ActorInfo&)>& keep_actor) const = 0;
  // Is another one when something in the tables has changed. Costs a
  // millisecond with ten thousand actors.
  virtual uint64_t StateFingerprint() const = 0;
  // As ReadLog. The reader must go before the head. Errors: those of ReadLog.
  virtual absl::StatusOr<std::unique_ptr<LogChunkReader>> ReadLog(
      const v1::ReadLogRequest& request) = 0;
  // As StopJob; waits until the head's answer would leave. Errors: NOT_FOUND.
  virtual absl::Status StopJob(const std::string& job_id) = 0;
  // What the actor's process tells of its calls: asks it, for `timeout` at
  // most. Errors: NOT_FOUND, the head knows no such actor. UNAVAILABLE, it has
  // no process now, or the head cannot reach it (nodes dial the head, and need
  // not be reachable from it). DEADLINE_EXCEEDED.
  virtual absl::StatusOr<v1::InspectResponse> InspectActor(
      const std::string& actor_id, absl::Duration timeout) const = 0;

  // What was taken over from an earlier head, e.g. "2 nodes, 5 actors"; empty:
  // this is a new cluster.
  virtual const std::string& resumed() const = 0;

  // Stops serving.
  virtual void Shutdown(End end = End::kRestart) = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_HEAD_SERVER_H_
