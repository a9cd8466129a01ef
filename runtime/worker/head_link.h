// A worker daemon's stream to the head: dials, registers, dials again after a
// break, hands over the head's commands and sends what there is to tell.

#ifndef MINIRAY_RUNTIME_WORKER_HEAD_LINK_H_
#define MINIRAY_RUNTIME_WORKER_HEAD_LINK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "proto/head.grpc.pb.h"
#include "proto/head.pb.h"
#include "runtime/base/backoff.h"
#include "runtime/base/steady_time.h"
#include "runtime/rpc/redialler.h"

namespace miniray {

// Thread-safe.
class HeadLink {
 public:
  struct Options {
    std::string head_address;
    std::string token;
    // The stub's, of MakeHeadChannel; outlives the link.
    grpc::Channel* channel = nullptr;
    // So long the head may take to accept a stream, once there is a connection;
    // then the link dials again.
    absl::Duration answer_timeout = absl::Seconds(20);
  };
  // Called by the link's thread, without a lock of the link.
  struct Callbacks {
    // Fills in what lives on this node, before each registration. Whatever
    // leaves that list must be told by Send at the same moment: under the lock
    // that guards the list.
    std::function<void(v1::RegisterNode*)> describe;
    std::function<void(const v1::NodeCommand&)> on_command;
    // The head gave the node up. Calls FallSilent, ends what the node runs, and
    // calls StartAnew.
    std::function<void()> on_given_up;
  };

  // `stub` outlives the link.
  HeadLink(Options options, v1::Head::Stub* stub, Callbacks callbacks);
  ~HeadLink() { Stop(); }

  // Begins, and blocks until the head has accepted the node. Errors:
  // UNAVAILABLE, no answer within `timeout`. UNAUTHENTICATED, the token is
  // wrong. UNIMPLEMENTED, the head is of another version. INVALID_ARGUMENT.
  // CANCELLED, `cancelled` (may be null) said so. Call it once.
  absl::Status Start(absl::Duration timeout,
                     const std::function<bool()>& cancelled = nullptr);

  // Queues a message, which goes out now or after the next registration.
  // Never blocks.
  void Send(v1::NodeMessage message);
  // The same for what may be dropped (output, records): false, and nothing
  // queued, where kMaxQueuedBytes wait already.
  bool TrySend(v1::NodeMessage message);

  // Cuts the stream that attachment() told of, and dials again. Nothing if the
  // head has accepted another one since.
  void Redial(int64_t attachment);
  // Cuts the stream, and does not dial before StartAnew: what ends from now on
  // ends because the node starts anew, and the head is not to hear of it from
  // the old one, or it would start an actor there once more.
  void FallSilent();
  // Forgets what is queued; the next registration is that of a new node.
  void StartAnew();
  // Gives what is queued a moment to go out, and ends. Idempotent.
  void Stop();

  std::string node_id() const;
  // The number of the stream that the head has accepted, and which has not
  // ended since; 0: there is none.
  int64_t attachment() const;
  bool attached() const { return attachment() != 0; }
  // As the head wants it; a guess before it was heard.
  absl::Duration lease() const;
  // For the actors of this node; empty before the head was heard.
  v1::ClusterPeriods periods() const;

  static constexpr size_t kMaxQueuedBytes = 8 << 20;

 private:
  using Stream = grpc::ClientReaderWriter<v1::NodeMessage, v1::NodeCommand>;
  struct Dial;

  void DialLoop();
  absl::Status RunStream(Backoff* backoff);
  // Adds the ends that the head may not have heard of; returns how many of
  // them are queued.
  int AddExits(v1::RegisterNode* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteLoop();
  void Enqueue(v1::NodeMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::NodeMessage Dequeue(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A stream that breaks loses what was written last: ends are told again.
  void Remember(v1::NodeMessage message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  v1::Head::Stub* const stub_;
  const Callbacks callbacks_;
  Redialler redialler_;
  SteadyNotification stopping_;

  mutable absl::Mutex mu_;
  std::string node_id_ ABSL_GUARDED_BY(mu_);
  // Given up since the head was heard of last.
  std::vector<std::string> replaced_ids_ ABSL_GUARDED_BY(mu_);
  absl::Duration lease_ ABSL_GUARDED_BY(mu_) = absl::Seconds(9);
  v1::ClusterPeriods periods_ ABSL_GUARDED_BY(mu_);
  bool registered_ ABSL_GUARDED_BY(mu_) = false;  // Once at least.
  int64_t attachment_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t attachments_ ABSL_GUARDED_BY(mu_) = 0;  // So many there were.
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool silent_ ABSL_GUARDED_BY(mu_) = false;  // Until StartAnew.
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);
  std::string last_error_ ABSL_GUARDED_BY(mu_);
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
  Stream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::NodeMessage> outbox_ ABSL_GUARDED_BY(mu_);
  size_t outbox_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<v1::NodeMessage> told_exits_ ABSL_GUARDED_BY(mu_);

  std::thread dialler_;
  std::thread writer_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_HEAD_LINK_H_
