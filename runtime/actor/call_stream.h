// The gRPC side of ActorService.Channel: one caller's stream, which carries its
// session. See call_session.h.

#ifndef MINIRAY_RUNTIME_ACTOR_CALL_STREAM_H_
#define MINIRAY_RUNTIME_ACTOR_CALL_STREAM_H_

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "runtime/actor/call_session.h"

namespace miniray {
namespace internal {

using ChannelReactor =
    grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// gRPC holds it until OnDone; its session does as long as it carries it.
class CallStream : public ChannelReactor, public SessionStream {
 public:
  // `on_end` runs when gRPC is done with the stream.
  static std::shared_ptr<CallStream> Make(
      grpc::CallbackServerContext* context,
      std::shared_ptr<CallSession> session,
      std::function<void(CallStream*)> on_end);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  bool Write(const absl::Cord& frame, bool at_once) override;
  void Read() override;
  void Finish(const absl::Status& status) override;
  void Cancel() override;

  CallSession* session() const { return session_.get(); }

 private:
  CallStream(grpc::CallbackServerContext* context,
             std::shared_ptr<CallSession> session,
             std::function<void(CallStream*)> on_end)
      : context_(context),
        session_(std::move(session)),
        on_end_(std::move(on_end)) {}

  // Valid until OnDone.
  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<CallSession> session_;
  const std::function<void(CallStream*)> on_end_;
  std::shared_ptr<CallStream> self_;
  grpc::ByteBuffer incoming_;

  absl::Mutex mu_;  // Below the session's.
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
};

// Refuses a stream.
class RefusedStream : public ChannelReactor {
 public:
  explicit RefusedStream(const absl::Status& status);
  void OnDone() override { delete this; }
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_CALL_STREAM_H_
