#include "runtime/worker/lease_stream.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/rpc/channel.h"

namespace miniray {
namespace {

constexpr absl::Duration kMicrosecond = absl::Microseconds(1);

}  // namespace

LeaseStream::LeaseStream(v1::Head::Stub* stub, const std::string& token,
                         ClockOffset* clock)
    : clock_(clock) {
  AddToken(&context_, token);
  // Not to fail at once: only waiting calls drive a connection.
  context_.set_wait_for_ready(true);
  stub->async()->RenewLease(&context_, this);
  AddHold();  // Until End: Renew writes from outside of the reactions.
  StartRead(&response_);
  StartCall();
}

bool LeaseStream::broken() const {
  absl::MutexLock lock(&mu_);
  return broken_;
}

grpc::Status LeaseStream::Renew(const std::string& node_id,
                                absl::Duration timeout) {
  if (ended_) return End();
  {
    absl::MutexLock lock(&mu_);
    answered_ = false;
    writing_ = true;
  }
  request_.set_node_id(node_id);
  const absl::Duration asked = ClockOffset::Steady();
  if (const std::optional<ClockOffset::Estimate> known = clock_->Get(asked)) {
    request_.mutable_clock()->set_ahead_us(
        absl::ToInt64Microseconds(known->ahead));
    request_.mutable_clock()->set_error_us(
        absl::ToInt64Microseconds(absl::Ceil(known->error, kMicrosecond)));
  }
  StartWrite(&request_);
  bool in_time = false;
  {
    absl::MutexLock lock(&mu_);
    auto settled = [this] {
      mu_.AssertHeld();
      return broken_ || (answered_ && !writing_);
    };
    in_time = mu_.AwaitWithTimeout(absl::Condition(&settled), timeout);
    // Also of a stream that has ended since.
    if (answered_ && head_time_.unix_us > 0) {
      clock_->Add(asked, head_time_.answered, head_time_.here,
                  absl::FromUnixMicros(head_time_.unix_us));
    }
    if (in_time && !broken_) return grpc::Status::OK;
  }
  const grpc::Status status = End();
  if (in_time) return status;
  return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                      absl::StrCat("no answer from the head within ",
                                   absl::FormatDuration(timeout)));
}

void LeaseStream::OnReadDone(bool ok) {
  const HeadTime head_time = {ClockOffset::Steady(), absl::Now(),
                              ok ? response_.unix_us() : 0};
  {
    absl::MutexLock lock(&mu_);
    if (ok) answered_ = true;
    if (ok) head_time_ = head_time;
    if (!ok) broken_ = true;
  }
  if (ok) StartRead(&response_);
}

void LeaseStream::OnWriteDone(bool) {
  // Where it failed, the read fails too.
  absl::MutexLock lock(&mu_);
  writing_ = false;
}

void LeaseStream::OnDone(const grpc::Status& status) {
  absl::MutexLock lock(&mu_);
  status_ = status;
  done_ = true;
}

grpc::Status LeaseStream::End() {
  if (!ended_) {
    ended_ = true;
    // What broke has a status of its own.
    if (!broken()) context_.TryCancel();
    RemoveHold();
  }
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&done_));
  if (!status_.ok()) return status_;
  return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                      "the head has ended the stream");
}

}  // namespace miniray
