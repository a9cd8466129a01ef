#include "runtime/worker/lease_keeper.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/worker/clock_offset.h"
#include "runtime/worker/lease_stream.h"

namespace miniray {
namespace {

// Of the lease: how long a renewal may take, and the pause before the next try
// if it fails. Two whole tries fit before the lease ends.
constexpr double kPatience = 0.25;
constexpr double kRetryPause = 0.05;
// A node whose stream broke is lost after a third of the lease, unless it is
// renewed: a stream that is hard to get back is no death.
constexpr double kPeriodWithoutStream = 0.1;

}  // namespace

LeaseKeeper::LeaseKeeper(std::string token, v1::Head::Stub* stub,
                         HeadLink* link, Listener on_renewal)
    : token_(std::move(token)),
      stub_(stub),
      link_(link),
      on_renewal_(std::move(on_renewal)),
      thread_([this] { Loop(); }) {}

void LeaseKeeper::Stop() {
  if (!stopping_.HasBeenNotified()) stopping_.Notify();
  if (thread_.joinable()) thread_.join();
}

void LeaseKeeper::Loop() {
  double pause = kPeriod;
  ClockOffset clock;
  std::optional<LeaseStream> stream;
  while (true) {
    if (!Await(pause)) return;
    const int64_t attachment = link_->attachment();
    const absl::Duration lease = link_->lease();
    // One that broke meanwhile says nothing about whether the head can be had.
    if (!stream.has_value() || stream->broken()) {
      stream.emplace(stub_, token_, &clock);
    }
    const grpc::Status status =
        stream->Renew(link_->node_id(), kPatience * lease);
    if (!status.ok()) stream.reset();
    if (stopping_.HasBeenNotified()) return;
    pause = IsSilence(status) ? kRetryPause : kPeriod;
    on_renewal_(status, lease);
    // We were silent for too long and given up, or the head is another one.
    // The stream need not have noticed; but one that came after the question
    // has.
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
      link_->Redial(attachment);
    }
  }
}

bool LeaseKeeper::Await(double pause) {
  const absl::Duration lease = link_->lease();
  absl::Duration left = pause * lease;
  while (left > absl::ZeroDuration()) {
    const absl::Duration step = std::min(left, kPeriodWithoutStream * lease);
    if (stopping_.WaitForNotificationWithTimeout(step)) return false;
    if (!link_->attached()) return true;
    left -= step;
  }
  return true;
}

}  // namespace miniray
