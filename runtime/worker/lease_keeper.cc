#include "runtime/worker/lease_keeper.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>
#include <time.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
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

// Leases without contact after which a node ends its actors by itself.
constexpr int kFenceLeases = 3;

// Neither stepped nor running while the machine is suspended: what a leap of
// the clock shows is no silence of the head.
absl::Duration MonotonicNow() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace

LeaseKeeper::LeaseKeeper(Options options, v1::Head::Stub* stub, HeadLink* link,
                         Callbacks callbacks)
    : options_(std::move(options)),
      stub_(stub),
      link_(link),
      callbacks_(std::move(callbacks)),
      thread_([this] { Loop(); }) {}

void LeaseKeeper::Stop() {
  if (!stopping_.HasBeenNotified()) stopping_.Notify();
  if (thread_.joinable()) thread_.join();
}

void LeaseKeeper::Loop() {
  // Since the last contact: all of it, and what of it nobody refused us.
  absl::Duration alone, silence;
  absl::Duration last = MonotonicNow();
  bool refused_before = false;
  double pause = kPeriod;
  std::optional<LeaseStream> stream;
  while (true) {
    if (!Await(pause)) return;
    const int64_t attachment = link_->attachment();
    const absl::Duration lease = link_->lease();
    // One that broke meanwhile says nothing about whether the head can be had.
    if (!stream.has_value() || stream->broken()) {
      stream.emplace(stub_, options_.token);
    }
    const grpc::Status status =
        stream->Renew(link_->node_id(), kPatience * lease);
    if (!status.ok()) stream.reset();
    if (stopping_.HasBeenNotified()) return;
    const bool lost =
        status.error_code() == grpc::StatusCode::UNAVAILABLE ||
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    pause = lost ? kRetryPause : kPeriod;
    const bool refused =
        lost && RefusesConnections(options_.head, kPatience * lease);
    if (refused && !refused_before) {
      LOG(WARNING) << "no head listens at "
                   << JoinHostPort(options_.head.host, options_.head.port)
                   << " any more: what runs here goes on, and waits for it to "
                      "be started again for "
                   << absl::FormatDuration(options_.headless_timeout);
    } else if (!status.ok() && !refused) {
      LOG(WARNING) << "lease not renewed: " << status.error_message();
    }
    refused_before = refused;
    // A step lasts less than a lease. One that lasted longer is a time in which
    // this process stood still, and the head was not listened to.
    const absl::Duration now = MonotonicNow();
    const absl::Duration step = std::min(now - last, lease);
    last = now;
    if (status.ok() || status.error_code() == grpc::StatusCode::NOT_FOUND) {
      alone = silence = absl::ZeroDuration();
    } else {
      alone += step;
      if (!refused) silence += step;
      const absl::Duration fence = options_.fence_after > absl::ZeroDuration()
                                       ? options_.fence_after
                                       : kFenceLeases * lease;
      if (silence > fence || alone > options_.headless_timeout) {
        callbacks_.on_cut_off(absl::StrCat("no contact with the head for ",
                                           absl::FormatDuration(alone)));
        alone = silence = absl::ZeroDuration();
      }
    }
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
