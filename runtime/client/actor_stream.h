// One stream from this process to an actor, through gRPC or through a link; see
// ActorConnection.

#ifndef MINIRAY_RUNTIME_CLIENT_ACTOR_STREAM_H_
#define MINIRAY_RUNTIME_CLIENT_ACTOR_STREAM_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace miniray {
namespace internal {

class ActorStream;

// Who uses the stream. Called without locks, from gRPC's threads.
class ActorStreamUser {
 public:
  virtual ~ActorStreamUser() = default;
  // What to write next; empty: nothing now. Called under the stream's lock.
  virtual void OnWritable(ActorStream* stream) = 0;
  // Calls stream->Read() once, as the last thing.
  virtual void OnFrame(ActorStream* stream, const absl::Cord& frame) = 0;
  // Nothing follows.
  virtual void OnStreamEnded(ActorStream* stream,
                             const absl::Status& status) = 0;
};

// Thread-safe. Keeps its user alive until it has ended.
class ActorStream {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  virtual ~ActorStream() = default;

  // False if a write is on its way; OnWritable follows its end.
  virtual bool writable() const = 0;
  // at_once: nothing else is under way, so that the frame need not wait for
  // others to go with it. REQUIRES: writable, `frame` is not empty.
  virtual void Write(const absl::Cord& frame, bool at_once) = 0;
  // OnFrame or OnStreamEnded follows. The first is asked for already.
  virtual void Read() = 0;
  virtual void Cancel() = 0;
};

// It dies in the background thread, and with it perhaps its channel: gRPC 1.51
// joins the threads that run callbacks when the last channel dies, so that this
// must not happen inside a callback ("ref_counted.h: assertion failed: prior >
// 0").
class GrpcActorStream
    : public ActorStream,
      public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  static std::shared_ptr<ActorStream> Start(
      std::shared_ptr<ActorStreamUser> user,
      std::shared_ptr<grpc::Channel> channel, const std::string& token,
      const Metadata& metadata);

  // ActorStream.
  bool writable() const override ABSL_LOCKS_EXCLUDED(mu_);
  void Write(const absl::Cord& frame, bool at_once) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Read() override { StartRead(&incoming_); }
  void Cancel() override { context_.TryCancel(); }

  // ClientBidiReactor.
  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  GrpcActorStream(std::shared_ptr<ActorStreamUser> user,
                  std::shared_ptr<grpc::Channel> channel)
      : user_(std::move(user)), stub_(std::move(channel)) {}

  std::shared_ptr<ActorStreamUser> user_;  // Until OnDone.
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::shared_ptr<GrpcActorStream> self_;
  grpc::ByteBuffer incoming_;

  mutable absl::Mutex mu_;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

// A stream to the actor at `address` through its unix socket, or through a link
// over TCP: then nothing is known yet of who is there, and the stream may end
// with UNAVAILABLE where gRPC's would not. Null: it cannot be had.
std::shared_ptr<ActorStream> StartUnixActorStream(
    std::shared_ptr<ActorStreamUser> user, const std::string& address,
    const std::string& token, const ActorStream::Metadata& metadata);
std::shared_ptr<ActorStream> StartTcpActorStream(
    std::shared_ptr<ActorStreamUser> user, const std::string& address,
    const std::string& token, const ActorStream::Metadata& metadata);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_ACTOR_STREAM_H_
