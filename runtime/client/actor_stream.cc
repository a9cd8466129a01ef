#include "runtime/client/actor_stream.h"

#include "runtime/base/background.h"
#include "runtime/rpc/byte_buffer.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace internal {
namespace {

constexpr char kChannelMethod[] = "/miniray.v1.ActorService/Channel";

}  // namespace

std::shared_ptr<ActorStream> GrpcActorStream::Start(
    std::shared_ptr<ActorStreamUser> user,
    std::shared_ptr<grpc::Channel> channel, const std::string& token,
    const Metadata& metadata) {
  std::shared_ptr<GrpcActorStream> stream(
      new GrpcActorStream(std::move(user), std::move(channel)));
  stream->self_ = stream;
  AddToken(&stream->context_, token);
  for (const auto& [key, value] : metadata) {
    stream->context_.AddMetadata(key, value);
  }
  stream->stub_.PrepareBidiStreamingCall(&stream->context_, kChannelMethod, {},
                                         stream.get());
  // Writes come from any thread until reading has ended: see AddHold in gRPC.
  stream->AddHold();
  stream->StartRead(&stream->incoming_);
  stream->StartCall();
  return stream;
}

bool GrpcActorStream::writable() const {
  absl::MutexLock lock(&mu_);
  return !writing_ && !ended_;
}

void GrpcActorStream::Write(const absl::Cord& frame, bool) {
  absl::MutexLock lock(&mu_);
  if (ended_) return;
  outgoing_ = ToByteBuffer(frame);
  writing_ = true;
  StartWrite(&outgoing_);
}

void GrpcActorStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    outgoing_.Clear();  // Lets go of the tensors that were sent.
  }
  if (ok) user_->OnWritable(this);
}

void GrpcActorStream::OnReadDone(bool ok) {
  if (!ok) {
    {
      absl::MutexLock lock(&mu_);
      ended_ = true;
    }
    RemoveHold();
    return;
  }
  absl::StatusOr<absl::Cord> frame = ToCord(incoming_);
  incoming_.Clear();
  if (frame.ok()) {
    user_->OnFrame(this, *frame);
  } else {
    Cancel();  // Whose replies were in it is not known.
    Read();
  }
}

void GrpcActorStream::OnDone(const grpc::Status& status) {
  user_->OnStreamEnded(this, FromGrpcStatus(status));
  RunInBackground([self = std::move(self_)]() mutable {
    self->user_.reset();
    self.reset();
  });
}

}  // namespace internal
}  // namespace miniray
