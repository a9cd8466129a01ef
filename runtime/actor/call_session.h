// What an actor keeps of one caller: which calls arrived, which run or wait,
// and the replies that the caller has not acknowledged. It outlives the streams
// that carry it, so that a broken stream neither loses a call nor runs it
// twice. See proto/actor.proto.

#ifndef MINIRAY_RUNTIME_ACTOR_CALL_SESSION_H_
#define MINIRAY_RUNTIME_ACTOR_CALL_SESSION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "runtime/actor/call_queue.h"
#include "runtime/wire/call_messages.h"

namespace miniray {
namespace internal {

// How calls and replies get from process to process.
enum class CallPath { kSharedMemory, kUnixSocket, kTcp };

// The stream that carries a session at present. Its methods are called under
// the session's lock and do not call back from inside.
class SessionStream {
 public:
  virtual ~SessionStream() = default;
  // Sends a frame; CallSession::OnWritten follows, unless this returns true: it
  // is written already. at_once: nothing else is under way, so that the frame
  // need not wait for others to go with it. REQUIRES: the one before was
  // written.
  virtual bool Write(const absl::Cord& frame, bool at_once) = 0;
  // Reads the next frame; CallSession::OnFrame follows if one comes.
  virtual void Read() = 0;
  // Ends the stream; what else is called after it has no effect.
  virtual void Finish(const absl::Status& status) = 0;
  // Ends it at once, from the side.
  virtual void Cancel() = 0;
  // Which way its frames go.
  virtual CallPath path() const { return CallPath::kTcp; }
};

// The actor, as its sessions see it. Called under a session's lock.
class SessionOwner {
 public:
  virtual ~SessionOwner() = default;
  // The queue of the call's concurrency group. Errors: for the caller.
  virtual absl::StatusOr<CallQueue*> QueueFor(const CallMessage& call) = 0;
  // The groups that methods have, the unnamed one left out.
  virtual std::vector<MethodGroup> Groups() const { return {}; }
  // Calls were put into `queue`.
  virtual void OnQueued(CallQueue* queue) = 0;
  // The session is no longer stalled.
  virtual void OnResumed(const CallSession* session) = 0;
  // The caller needs a kept result no more.
  virtual void OnReleased(const std::string& object_id) = 0;
  // So many bytes of calls came that way, or of replies went. Also called
  // without a lock. Must not block.
  virtual void CountBytes(CallPath path, bool sent, uint64_t bytes) {}
};

// Thread-safe. Held by shared_ptr: calls refer to it.
class CallSession : public std::enable_shared_from_this<CallSession> {
 public:
  // `owner` outlives the session's streams and calls.
  CallSession(std::string caller, SessionOwner* owner)
      : caller_(std::move(caller)),
        owner_(owner),
        num_queues_(1 + owner->Groups().size()) {}

  // From now on `stream` carries the session; the one before is cancelled.
  // Sends what the session knows, then all replies that were not acknowledged.
  // reads_memory: this process can read the caller's shared memory.
  void Attach(std::shared_ptr<SessionStream> stream, bool known,
              bool reads_memory = false) ABSL_LOCKS_EXCLUDED(mu_);

  // From the stream. Those of one that was superseded have no effect.
  void OnFrame(SessionStream* from, const absl::Cord& bytes)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnWritten(SessionStream* from, bool ok) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether the session now has no stream.
  bool OnEnded(SessionStream* from) ABSL_LOCKS_EXCLUDED(mu_);

  // The call runs from now on: what it brought is the method's by now, and
  // keeps no other call from being read.
  void OnRunning(QueuedCall* call) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends a call of this session, which must still be the holder's. False: the
  // session was abandoned, and nobody will come for the reply.
  bool Reply(const QueuedCall& call, const ReplyMessage& reply)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Fails what still arrives with `status`, and ends the stream once all
  // replies are written.
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the stream of a closed session now, without the replies that are still
  // to come.
  void Cut() ABSL_LOCKS_EXCLUDED(mu_);

  // Forgets the replies; nobody will come for them.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_);

  // The caller fetches results that stay here.
  bool takes_references() const {
    return takes_references_.load(std::memory_order_relaxed);
  }
  // The caller reads memory of ours.
  bool shares_replies() const {
    return shares_replies_.load(std::memory_order_relaxed);
  }

  // Too many replies wait for the caller: none of its calls shall run.
  bool stalled() const { return stalled_.load(std::memory_order_acquire); }
  bool attached() const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t reply_bytes() const ABSL_LOCKS_EXCLUDED(mu_);
  const std::string& caller() const { return caller_; }

 private:
  // Calls that follow each other into one queue.
  struct Batch {
    CallQueue* queue = nullptr;
    CallQueue::Calls calls;
  };
  // Takes in a frame. Its calls are to be pushed after it, also if it fails;
  // then what it cancels.
  absl::Status Accept(CallFrame* frame, uint64_t bytes,
                      std::vector<Batch>* batches)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Push(Batch batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelCall(uint64_t call_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Refuse(uint64_t call_id, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct KeptReply {
    absl::Cord bytes;   // With their tag.
    absl::Cord result;  // What they share.
    uint64_t size() const { return bytes.size() + result.size(); }
  };
  void AddReply(uint64_t call_id, KeptReply reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UpdateStalled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string caller_;
  SessionOwner* const owner_;
  // Limits are for one queue.
  const size_t num_queues_;
  std::atomic<bool> stalled_ = false;
  std::atomic<bool> shares_replies_ = false;  // The caller reads our memory.
  std::atomic<bool> takes_references_ = false;

  mutable absl::Mutex mu_;
  std::shared_ptr<SessionStream> stream_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mu_);
  uint64_t last_call_id_ ABSL_GUARDED_BY(mu_) = 0;
  // Calls without a reply.
  absl::flat_hash_map<uint64_t, QueuedCall*> pending_ ABSL_GUARDED_BY(mu_);
  uint64_t pending_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Not acknowledged.
  absl::flat_hash_map<uint64_t, KeptReply> replies_ ABSL_GUARDED_BY(mu_);
  uint64_t reply_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // What the present stream is still to carry.
  std::deque<absl::Cord> outbox_ ABSL_GUARDED_BY(mu_);
  uint64_t outbox_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_CALL_SESSION_H_
