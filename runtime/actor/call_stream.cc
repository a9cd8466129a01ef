#include "runtime/actor/call_stream.h"

#include <utility>

#include "runtime/rpc/byte_buffer.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace internal {

std::shared_ptr<CallStream> CallStream::Make(
    grpc::CallbackServerContext* context, std::shared_ptr<CallSession> session,
    std::function<void(CallStream*)> on_end) {
  std::shared_ptr<CallStream> stream(
      new CallStream(context, std::move(session), std::move(on_end)));
  stream->self_ = stream;
  return stream;
}

void CallStream::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    reading_ = false;
  }
  if (!ok) return Finish(absl::OkStatus());
  absl::StatusOr<absl::Cord> frame = ToCord(incoming_);
  incoming_.Clear();
  if (!frame.ok()) return Finish(frame.status());
  session_->OnFrame(this, *frame);
}

void CallStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mu_);
    outgoing_.Clear();
  }
  session_->OnWritten(this, ok);
}

void CallStream::OnCancel() {
  // A read that is on its way fails, and ends the stream. Where reading is
  // paused, nothing else would.
  absl::MutexLock lock(&mu_);
  if (reading_ || ended_) return;
  ended_ = true;
  ChannelReactor::Finish(grpc::Status::CANCELLED);
}

void CallStream::OnDone() {
  {
    absl::MutexLock lock(&mu_);
    ended_ = true;
    done_ = true;
  }
  on_end_(this);
  self_.reset();
}

bool CallStream::Write(const absl::Cord& frame, bool) {
  absl::MutexLock lock(&mu_);
  if (ended_) return false;
  outgoing_ = ToByteBuffer(frame);
  StartWrite(&outgoing_);
  return false;
}

void CallStream::Read() {
  absl::MutexLock lock(&mu_);
  if (ended_) return;
  reading_ = true;
  StartRead(&incoming_);
}

void CallStream::Finish(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (ended_) return;
  ended_ = true;
  ChannelReactor::Finish(ToGrpcStatus(status));
}

void CallStream::Cancel() {
  absl::MutexLock lock(&mu_);
  if (!done_) context_->TryCancel();
}

RefusedStream::RefusedStream(const absl::Status& status) {
  Finish(ToGrpcStatus(status));
}

}  // namespace internal
}  // namespace miniray
