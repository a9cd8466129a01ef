// The writing half of a stream that a peer holds open: messages are queued and
// leave in order, whatever happens to the stream meanwhile.

#ifndef MINIRAY_RUNTIME_HEAD_STREAM_LINK_H_
#define MINIRAY_RUNTIME_HEAD_STREAM_LINK_H_

#include <cstddef>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/status.h"

namespace miniray {

// Thread-safe; may outlive the stream. Reactor is the stream's
// grpc::ServerBidiReactor; it calls Written in OnWriteDone, and Finish only
// through End.
template <class Reactor, class Message>
class StreamLink {
 public:
  // A peer that reads nothing while so many bytes wait for it is cut off; what
  // it missed is made up for when it registers again.
  static constexpr size_t kMaxQueuedBytes = size_t{256} << 20;

  explicit StreamLink(Reactor* reactor) : reactor_(reactor) {}

  // The same for what may get lost: false, and nothing queued, where more than
  // `max_bytes` wait already.
  bool TryPush(Message message, size_t max_bytes) {
    {
      absl::MutexLock lock(&mu_);
      if (bytes_ > max_bytes) return false;
    }
    Push(std::move(message));
    return true;
  }

  void Push(Message message) {
    absl::MutexLock lock(&mu_);
    if (reactor_ == nullptr || ending_) return;
    const size_t bytes = message.ByteSizeLong();
    bytes_ += bytes;
    queue_.push_back({std::move(message), bytes});
    if (bytes_ > kMaxQueuedBytes) {
      return Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                 "the peer does not read what it is sent"));
    }
    if (queue_.size() == 1) WriteFront();
  }

  // Ends the stream: now, or (`drain`) once all that was queued has left.
  void End(const grpc::Status& status, bool drain = false) {
    absl::MutexLock lock(&mu_);
    if (reactor_ == nullptr) return;
    if (drain && !queue_.empty()) {
      ending_ = true;
      end_ = status;
      return;
    }
    Finish(status);
  }

  void Written(bool ok) {
    absl::MutexLock lock(&mu_);
    if (reactor_ == nullptr || !ok) return;
    bytes_ -= queue_.front().bytes;
    queue_.pop_front();
    if (!queue_.empty()) {
      WriteFront();
    } else if (ending_) {
      Finish(end_);
    }
  }

 private:
  struct Queued {
    Message message;
    size_t bytes;
  };

  // One with others behind it need not leave at once: the last of them takes
  // all along, in one write to the network.
  void WriteFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    grpc::WriteOptions options;
    if (queue_.size() > 1) options.set_buffer_hint();
    reactor_->StartWrite(&queue_.front().message, options);
  }

  // The front message stays: it may be on its way.
  void Finish(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::exchange(reactor_, nullptr)->Finish(status);
  }

  absl::Mutex mu_;
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);  // Null: it is over.
  std::deque<Queued> queue_ ABSL_GUARDED_BY(mu_);
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_STREAM_LINK_H_
