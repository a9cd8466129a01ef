#include "runtime/runs/run_reporter.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/ids.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/runs/run_checks.h"

namespace miniray {
namespace {

// Of one request; an event alone may be larger.
constexpr size_t kMaxBatchBytes = size_t{1} << 20;
constexpr int kMaxBatchEvents = 2000;
// What an event takes besides its bytes on the wire; about.
constexpr size_t kEventOverhead = 128;
// Pauses between tries that fail; they grow.
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kMaxPause = absl::Seconds(1);
// Another version or token of the head may come with its next start.
constexpr absl::Duration kRefusedPause = absl::Minutes(1);
// Between two looks at whether to go on waiting for a connection.
constexpr absl::Duration kDialTime = absl::Milliseconds(200);
// How long Flush waits for a head that is away.
constexpr absl::Duration kAwayTime = absl::Seconds(1);

// The first and the last word on a run.
bool MayBeDropped(const v1::RunEvent& event) {
  return !event.has_started() && !event.has_ended();
}

// What no answer of a head is, but what gRPC makes of one that is killed.
bool MayComeBack(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunReporter>> RunReporter::Start(
    Options options) {
  MR_RETURN_IF_ERROR(CheckRunId(options.run_id));
  MR_RETURN_IF_ERROR(ParseHostPort(options.head_address).status());
  auto reporter = absl::WrapUnique(new RunReporter(std::move(options)));
  reporter->thread_ = std::thread([r = reporter.get()] { r->Loop(); });
  return reporter;
}

RunReporter::RunReporter(Options options)
    : options_(std::move(options)),
      reporter_id_(NewId("reporter")),
      channel_(MakeDialledChannel(options_.head_address)),
      redialler_(channel_.get()),
      stub_(v1::RunCollector::NewStub(channel_)),
      backoff_(kFirstPause, kMaxPause) {}

RunReporter::~RunReporter() {
  {
    absl::MutexLock lock(&mu_);
    closing_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  if (thread_.joinable()) thread_.join();
}

// --- The queue.

void RunReporter::Report(v1::RunEvent event) {
  if (event.unix_us() == 0) event.set_unix_us(absl::ToUnixMicros(absl::Now()));
  const absl::Status fine = CheckRunEvent(event);
  const size_t bytes = event.ByteSizeLong() + kEventOverhead;
  absl::MutexLock lock(&mu_);
  const int64_t sequence = next_sequence_++;
  if (!fine.ok()) {
    ++dropped_;
    if (!std::exchange(warned_of_event_, true)) {
      LOG(WARNING) << "run " << options_.run_id
                   << ": an event is not reported: " << fine.message();
    }
    return;
  }
  if (event.has_point() || event.has_progress()) {
    points_.push_back(sequence);
  } else if (MayBeDropped(event)) {
    others_.push_back(sequence);
  }
  queue_.emplace(sequence, Waiting{std::move(event), bytes});
  queue_bytes_ += bytes;
  MakeRoom();
}

void RunReporter::MakeRoom() {
  while (queue_.size() + in_flight_events_ > options_.max_events ||
         queue_bytes_ + in_flight_bytes_ > options_.max_bytes) {
    if (!DropOldest(&points_) && !DropOldest(&others_)) return;
  }
}

bool RunReporter::DropOldest(std::deque<int64_t>* kind) {
  while (!kind->empty()) {
    const auto it = queue_.find(kind->front());
    kind->pop_front();
    if (it == queue_.end()) continue;  // Sent.
    queue_bytes_ -= it->second.bytes;
    queue_.erase(it);
    ++dropped_;
    return true;
  }
  return false;
}

RunReporter::Counts RunReporter::counts() const {
  absl::MutexLock lock(&mu_);
  return {.reported = next_sequence_ - 1,
          .delivered = delivered_,
          .dropped = dropped_,
          .waiting = queue_.size() + in_flight_events_,
          .waiting_bytes = queue_bytes_ + in_flight_bytes_};
}

bool RunReporter::Flush(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  absl::MutexLock lock(&mu_);
  ++num_flushing_;
  const absl::Condition settled(this, &RunReporter::Settled);
  if (!mu_.AwaitWithDeadline(settled,
                             std::min(deadline, absl::Now() + kAwayTime)) &&
      !away_) {
    mu_.AwaitWithDeadline(settled, deadline);
  }
  --num_flushing_;
  return is_empty();
}

// --- The thread.

void RunReporter::Loop() {
  absl::Time next_poll = absl::Now() + options_.poll_period;
  while (true) {
    const bool pauses = absl::Now() < next_try_;
    {
      absl::MutexLock lock(&mu_);
      if (pauses) {
        mu_.AwaitWithDeadline(absl::Condition(&closing_),
                              std::min(next_try_, next_poll));
      } else {
        mu_.AwaitWithTimeout(absl::Condition(this, &RunReporter::Hurries),
                             options_.period);
      }
      if (closing_) return;
    }
    const absl::Time now = absl::Now();
    if (options_.poll != nullptr && now >= next_poll) options_.poll();
    if (now >= next_poll) next_poll = now + options_.poll_period;
    if (now >= next_try_) SendAll();
  }
}

void RunReporter::SendAll() {
  while (HasBatch()) {
    // Nothing leaves the queue, where the oldest can be dropped, before that.
    if (!redialler_.AwaitConnected(absl::Now() + kDialTime)) {
      absl::MutexLock lock(&mu_);
      away_ = true;
      return;
    }
    if (!has_batch_) TakeBatch();
    const absl::Status status = Deliver();
    if (status.ok()) {
      Delivered();
    } else if (!Failed(status)) {
      return;
    }
  }
}

bool RunReporter::HasBatch() const {
  absl::MutexLock lock(&mu_);
  if (closing_) return false;
  return has_batch_ || !queue_.empty() || absl::Now() >= next_sign_of_life_;
}

void RunReporter::TakeBatch() {
  absl::MutexLock lock(&mu_);
  in_flight_.Clear();
  in_flight_.set_run_id(options_.run_id);
  in_flight_.set_reporter_id(reporter_id_);
  in_flight_.set_first_sequence(queue_.empty() ? next_sequence_
                                               : queue_.begin()->first);
  in_flight_.set_dropped(dropped_);
  int64_t next = in_flight_.first_sequence();
  size_t bytes = 0;
  while (!queue_.empty() && queue_.begin()->first == next &&
         in_flight_.events_size() < kMaxBatchEvents) {
    Waiting& first = queue_.begin()->second;
    if (bytes > 0 && bytes + first.bytes > kMaxBatchBytes) break;
    bytes += first.bytes;
    queue_bytes_ -= first.bytes;
    *in_flight_.add_events() = std::move(first.event);
    queue_.erase(queue_.begin());
    ++next;
  }
  for (std::deque<int64_t>* kind : {&points_, &others_}) {
    while (!kind->empty() && kind->front() < next) kind->pop_front();
  }
  in_flight_events_ = static_cast<size_t>(in_flight_.events_size());
  in_flight_bytes_ = bytes;
  has_batch_ = true;
}

absl::Status RunReporter::Deliver() {
  grpc::ClientContext context;
  PrepareContext(&context, options_.token, options_.call_timeout);
  {
    absl::MutexLock lock(&mu_);
    if (closing_) return absl::CancelledError("it ends");
    call_ = &context;
  }
  v1::ReportRunResponse response;
  const grpc::Status status = stub_->ReportRun(&context, in_flight_, &response);
  {
    absl::MutexLock lock(&mu_);
    call_ = nullptr;
  }
  if (status.ok() && response.stop_requested()) stop_requested_ = true;
  return FromGrpcStatus(status);
}

void RunReporter::Delivered() {
  backoff_.Reset();
  has_batch_ = false;
  next_sign_of_life_ = absl::Now() + options_.idle_period;
  absl::MutexLock lock(&mu_);
  delivered_ += static_cast<int64_t>(in_flight_events_);
  in_flight_events_ = in_flight_bytes_ = 0;
  away_ = refused_ = false;
}

bool RunReporter::Failed(const absl::Status& status) {
  if (IsRefusal(status)) {
    WarnOnce(absl::StrCat("the head does not take reports: ", status.message()),
             &warned_of_refusal_);
    next_try_ = absl::Now() + kRefusedPause;
    absl::MutexLock lock(&mu_);
    refused_ = true;
    return false;
  }
  if (MayComeBack(status)) {
    // The connection's own pauses are enough while there is none.
    if (channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
      next_try_ = absl::Now() + backoff_.Next();
    }
    absl::MutexLock lock(&mu_);
    away_ = true;
    return false;
  }
  WarnOnce(absl::StrCat("the head did not take all that was reported: ",
                        status.message()),
           &warned_of_loss_);
  // The head has counted what it had no room for.
  if (absl::IsResourceExhausted(status)) {
    Delivered();
    return true;
  }
  has_batch_ = false;
  next_sign_of_life_ = absl::Now() + options_.idle_period;
  absl::MutexLock lock(&mu_);
  dropped_ += static_cast<int64_t>(in_flight_events_);
  in_flight_events_ = in_flight_bytes_ = 0;
  away_ = false;
  return true;
}

void RunReporter::WarnOnce(const std::string& what, bool* warned) {
  if (std::exchange(*warned, true)) return;
  LOG(WARNING) << "run " << options_.run_id
               << " is not shown as it is (training goes on): " << what;
}

}  // namespace miniray
