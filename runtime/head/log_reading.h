// What goes on for one reader of a log: the logs of one process after the
// other, each from the node that has it.

#ifndef MINIRAY_RUNTIME_HEAD_LOG_READING_H_
#define MINIRAY_RUNTIME_HEAD_LOG_READING_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/status.h"
#include "proto/head.pb.h"
#include "runtime/head/cluster_state.h"
#include "runtime/head/log_relay.h"
#include "runtime/head/stream_link.h"

namespace miniray {

// Where it goes: one chunk at a time, which stays until LogReading::Written has
// told that it is gone. Called under a lock: must not call back.
class LogOutput {
 public:
  virtual void StartWrite(const v1::LogChunk* chunk,
                          grpc::WriteOptions options) = 0;
  // The last call.
  virtual void Finish(grpc::Status status) = 0;

 protected:
  ~LogOutput() = default;
};

// Thread-safe. Held by a shared_ptr; may outlive the output once Close has
// returned, but not relay and state.
class LogReading : public LogRelay::Sink,
                   public std::enable_shared_from_this<LogReading> {
 public:
  LogReading(LogOutput* output, LogRelay* relay, ClusterState* state)
      : relay_(relay), state_(state), out_(output) {}

  // Reads what lies at `place`; with `follow`, what the next processes print as
  // well, wherever they run. Call it once.
  void Begin(ClusterState::LogPlace place) ABSL_LOCKS_EXCLUDED(mu_);

  // Nobody reads any more: neither the head's tables nor nodes are asked from
  // here on.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

  // The chunk of the last StartWrite is gone; not `ok`: nothing can be written
  // any more.
  void Written(bool ok);

  // --- Of Sink: with the relay's lock, so without ours.

  void Data(v1::LogChunk chunk) override;
  void End(absl::Status status, int32_t incarnation) override;

 private:
  void Push(v1::LogChunk chunk, int64_t size);
  void Finish(const absl::Status& status);
  void Open(ClusterState::LogPlace place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a node had was read.
  void GoOn(const absl::Status& status, int32_t incarnation);
  // Waits until the record has changed.
  void Await(int64_t min_version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // news: there is a further log; ended: and none after it.
  void Look(bool news, bool ended, int64_t version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  LogRelay* const relay_;
  ClusterState* const state_;
  StreamLink<LogOutput, v1::LogChunk> out_;

  // Held while the relay and the state are used: once Close has returned,
  // they are not. The relay's and the state's locks may be taken meanwhile.
  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // No process comes any more.
  v1::ReadLogRequest request_ ABSL_GUARDED_BY(mu_);  // What is still wanted.
  uint64_t id_ ABSL_GUARDED_BY(mu_) = 0;             // At the relay.

  absl::Mutex queue_mu_;
  uint64_t open_id_ ABSL_GUARDED_BY(queue_mu_) = 0;
  // Of what waits to be sent: which reading it came from, and its bytes.
  std::deque<std::pair<uint64_t, int64_t>> queued_ ABSL_GUARDED_BY(queue_mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_LOG_READING_H_
