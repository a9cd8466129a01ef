// Logs lie on the nodes; who wants to read one asks the head, which asks the
// node and passes on what comes. LogRelay keeps who asked for what, and sees to
// it that a slow reader slows the node down instead of filling a queue.

#ifndef MINIRAY_RUNTIME_HEAD_LOG_RELAY_H_
#define MINIRAY_RUNTIME_HEAD_LOG_RELAY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "proto/head.pb.h"
#include "runtime/head/cluster_state.h"

namespace miniray {

// Thread-safe.
class LogRelay {
 public:
  // Bytes on their way to one reader at most.
  static constexpr int64_t kWindowBytes = 1 << 20;
  static constexpr size_t kMaxReaders = 1000;

  // Who reads. Called under the lock of LogRelay: must not call back.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void Data(v1::LogChunk chunk) = 0;
    // The last call. incarnation: of an actor's processes, the last one of
    // which the node has all; meaningless after an error.
    virtual void End(absl::Status status, int32_t incarnation) = 0;
  };

  // What names a request.
  uint64_t NewId();
  // Asks the node behind `link`. Errors: RESOURCE_EXHAUSTED, too many read at
  // once.
  absl::Status Open(uint64_t id, std::shared_ptr<NodeLink> link,
                    v1::ReadNodeLog request, std::shared_ptr<Sink> sink);
  // The sink has passed on so many bytes: as many more may come.
  void Grant(uint64_t id, int64_t bytes);
  // The reader has gone: the sink hears nothing more.
  void Close(uint64_t id);

  // What the node behind `link` sent.
  void Chunk(const NodeLink* link, v1::LogChunk chunk);
  // Ends what was read there.
  void NodeGone(const NodeLink* link);

 private:
  struct Reading {
    std::shared_ptr<NodeLink> link;
    std::shared_ptr<Sink> sink;
    int64_t window = kWindowBytes;
  };

  absl::Mutex mu_;
  // Not that of a head before this one: a node may still answer it.
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) =
      static_cast<uint64_t>(absl::GetCurrentTimeNanos());
  std::map<uint64_t, Reading> readings_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_LOG_RELAY_H_
