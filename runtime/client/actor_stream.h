// One gRPC stream from this process to an actor; see ActorConnection.

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
  virtual void OnFrame(ActorStream* stream, const absl::Cord& frame) = 0;
  // Nothing follows.
  virtual void OnStreamEnded(ActorStream* stream,
                             const absl::Status& status) = 0;
};

// Thread-safe. Keeps its user alive until it has ended. It dies in the
// background thread, and with it perhaps its channel: gRPC 1.51 joins the
// threads that run callbacks when the last channel dies, so that this must not
// happen inside a callback ("ref_counted.h: assertion failed: prior > 0").
class ActorStream
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
      public std::enable_shared_from_this<ActorStream> {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  static std::shared_ptr<ActorStream> Start(
      std::shared_ptr<ActorStreamUser> user,
      std::shared_ptr<grpc::Channel> channel, const std::string& token,
      const Metadata& metadata);

  // False if a write is on its way; OnWritable follows its end. REQUIRES:
  // `frame` is not empty.
  bool writable() const ABSL_LOCKS_EXCLUDED(mu_);
  void Write(const absl::Cord& frame) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel() { context_.TryCancel(); }

  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  ActorStream(std::shared_ptr<ActorStreamUser> user,
              std::shared_ptr<grpc::Channel> channel)
      : user_(std::move(user)), stub_(std::move(channel)) {}

  std::shared_ptr<ActorStreamUser> user_;  // Until OnDone.
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::shared_ptr<ActorStream> self_;
  grpc::ByteBuffer incoming_;

  mutable absl::Mutex mu_;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_ACTOR_STREAM_H_
