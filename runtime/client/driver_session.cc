#include "runtime/client/driver_session.h"

#include <glog/logging.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace internal {
namespace {

// End waits as long; internal.
constexpr absl::Duration kDialTime = absl::Milliseconds(500);
// Longer than the head waits for the job's actors to end.
constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(7);
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);

// Nothing that trying again would change.
bool IsFinal(const absl::Status& status) {
  return IsRefusal(status) ||
         status.code() == absl::StatusCode::kAlreadyExists ||
         status.code() == absl::StatusCode::kFailedPrecondition;
}

// Straight to the descriptor, in one piece: lines of others, and of this
// program, do not get into ours.
void Print(const v1::ProcessOutput& output) {
  const std::string text = FormatOutput(output);
  absl::string_view left = text;
  while (!left.empty()) {
    const ssize_t n = write(STDERR_FILENO, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // Nobody reads it.
    left.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

std::string FormatOutput(const v1::ProcessOutput& output) {
  const std::string prefix =
      absl::StrCat("(", output.class_name(), " pid=", output.pid(),
                   " node=", output.hostname(), ") ");
  std::string text;
  if (output.dropped_lines() > 0) {
    absl::StrAppend(&text, prefix, "[", output.dropped_lines(),
                    " lines came too fast to be shown; see: miniray logs ",
                    output.actor_id(), "]\n");
  }
  absl::string_view lines = output.text();
  if (lines.empty()) return text;
  // The last line of a process need not end.
  if (lines.back() == '\n') lines.remove_suffix(1);
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    absl::StrAppend(&text, prefix, line, "\n");
  }
  return text;
}

DriverSession::DriverSession(v1::Head::Stub* stub, std::string token,
                             v1::RegisterDriver registration,
                             Redialler* redialler)
    : stub_(stub),
      token_(std::move(token)),
      registration_(std::move(registration)),
      redialler_(redialler) {}

absl::Status DriverSession::Begin(absl::Duration timeout) {
  thread_ = std::thread([this] { Loop(); });
  absl::MutexLock lock(&mu_);
  auto settled = [this] {
    mu_.AssertHeld();
    return registered_ || fatal_;
  };
  if (mu_.AwaitWithTimeout(absl::Condition(&settled), timeout) && registered_) {
    return absl::OkStatus();
  }
  return error_.ok() ? absl::UnavailableError("no answer") : error_;
}

void DriverSession::End() {
  {
    absl::MutexLock lock(&mu_);
    if (ending_) return;
    ending_ = true;
    if (stream_ != nullptr) {
      v1::DriverMessage leaving;
      leaving.mutable_leaving();
      if (stream_->Write(leaving)) {
        auto ended = [this] {
          mu_.AssertHeld();
          return stream_ == nullptr;
        };
        // The head ends the stream once all was printed.
        mu_.AwaitWithTimeout(absl::Condition(&ended), kGoodbyeTimeout);
      }
    }
    if (context_ != nullptr) context_->TryCancel();
  }
  wake_.Notify();
  if (thread_.joinable()) thread_.join();
}

v1::ClusterPeriods DriverSession::periods() const {
  absl::MutexLock lock(&mu_);
  return periods_;
}

void DriverSession::Loop() {
  Backoff backoff(kFirstPause, kMaxRedialPause);
  while (true) {
    const absl::Status status = RunStream(&backoff);
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      error_ = status;
      if (IsFinal(status)) {
        // One that ran already may have been stopped (miniray job stop).
        if (registered_) LOG(ERROR) << status.message();
        fatal_ = true;
        return;
      }
    }
    if (wake_.WaitForNotificationWithTimeout(backoff.Next())) return;
    // A head that was just started again gives its drivers a moment only.
    while (!redialler_->AwaitConnected(absl::Now() + kDialTime)) {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      if (!registered_) break;
    }
  }
}

absl::Status DriverSession::RunStream(Backoff* backoff) {
  grpc::ClientContext context;
  AddToken(&context, token_);
  std::unique_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mu_);
    if (ending_) return absl::CancelledError("ending");
    context_ = &context;
    // A call that fails at once hardly gives a connection the time to come
    // about: only waiting calls drive it. At first the reason is of interest.
    context.set_wait_for_ready(registered_);
  }
  // May take as long as a connection takes; End cancels the context.
  stream = stub_->AttachDriver(&context);
  v1::DriverMessage hello;
  *hello.mutable_register_driver() = registration_;
  const bool written = stream->Write(hello);
  {
    absl::MutexLock lock(&mu_);
    if (written && !ending_) stream_ = stream.get();
  }
  v1::DriverEvent event;
  while (stream->Read(&event)) {
    if (event.has_output()) {
      Print(event.output());
    } else if (event.has_registered()) {
      const v1::ClusterPeriods& periods = event.registered().periods();
      if (const int64_t pause = periods.max_reconnect_pause_ms(); pause > 0) {
        redialler_->SetMaxPause(absl::Milliseconds(pause));
        backoff->SetMax(absl::Milliseconds(pause));
      }
      backoff->Reset();
      absl::MutexLock lock(&mu_);
      registered_ = true;
      periods_ = periods;
    }
  }
  // Nobody writes from here on.
  {
    absl::MutexLock lock(&mu_);
    stream_ = nullptr;
    context_ = nullptr;
  }
  const grpc::Status status = stream->Finish();
  if (status.ok()) return absl::UnavailableError("the head closed the stream");
  return FromGrpcStatus(status);
}

}  // namespace internal
}  // namespace miniray
