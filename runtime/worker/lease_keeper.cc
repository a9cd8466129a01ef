#include "runtime/worker/lease_keeper.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/time/clock.h"
#include "runtime/rpc/channel.h"

namespace miniray {
namespace {

// Of the lease: when it is renewed, how long a renewal may take, and the pause
// before the next try if it fails. Two whole tries fit before the lease ends.
constexpr double kPeriod = 0.4;
constexpr double kPatience = 0.25;
constexpr double kRetryPause = 0.05;

// Leases without contact after which a node ends its actors by itself.
constexpr int kFenceLeases = 3;

}  // namespace

LeaseKeeper::LeaseKeeper(std::string token, v1::Head::Stub* stub,
                         HeadLink* link, Callbacks callbacks)
    : token_(std::move(token)),
      stub_(stub),
      link_(link),
      callbacks_(std::move(callbacks)),
      thread_([this] { Loop(); }) {}

void LeaseKeeper::Stop() {
  if (!stopping_.HasBeenNotified()) stopping_.Notify();
  if (thread_.joinable()) thread_.join();
}

void LeaseKeeper::Loop() {
  absl::Time last_contact = absl::Now();
  double pause = kPeriod;
  while (true) {
    const absl::Duration lease = link_->lease();
    if (stopping_.WaitForNotificationWithTimeout(pause * lease)) return;
    grpc::ClientContext context;
    PrepareContext(&context, token_, kPatience * lease);
    // Not to fail at once: only waiting calls drive a connection.
    context.set_wait_for_ready(true);
    v1::RenewLeaseRequest request;
    request.set_node_id(link_->node_id());
    v1::RenewLeaseResponse response;
    const grpc::Status status = stub_->RenewLease(&context, request, &response);
    if (stopping_.HasBeenNotified()) return;
    const bool lost =
        status.error_code() == grpc::StatusCode::UNAVAILABLE ||
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    pause = lost ? kRetryPause : kPeriod;
    if (!status.ok()) {
      LOG(WARNING) << "lease not renewed: " << status.error_message();
    }
    if (status.ok() || status.error_code() == grpc::StatusCode::NOT_FOUND) {
      last_contact = absl::Now();
    } else if (absl::Now() - last_contact > kFenceLeases * lease) {
      callbacks_.on_cut_off(absl::Now() - last_contact);
      last_contact = absl::Now();
    }
    // We were silent for too long and given up, or the head is another one.
    // The stream need not have noticed.
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) link_->Redial();
  }
}

}  // namespace miniray
