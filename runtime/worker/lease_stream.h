// The stream on which a daemon renews its lease.

#ifndef MINIRAY_RUNTIME_WORKER_LEASE_STREAM_H_
#define MINIRAY_RUNTIME_WORKER_LEASE_STREAM_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "grpcpp/support/status.h"
#include "proto/head.grpc.pb.h"
#include "runtime/worker/clock_offset.h"

namespace miniray {

// Whether a renewal ended so because the head was not to be had.
inline bool IsSilence(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

// For one thread.
class LeaseStream : private grpc::ClientBidiReactor<v1::RenewLeaseRequest,
                                                    v1::RenewLeaseResponse> {
 public:
  // Begins to dial, and goes on with it until the head answers. The others
  // outlive it. clock: learns from each answer; the head hears what it knows.
  LeaseStream(v1::Head::Stub* stub, const std::string& token,
              ClockOffset* clock);
  ~LeaseStream() override { End(); }

  // Whether it has ended by itself: it renews nothing any more.
  bool broken() const;

  // Renews and waits for the answer. Errors end the stream: DEADLINE_EXCEEDED,
  // no answer within `timeout`; else what the head or the connection says.
  grpc::Status Renew(const std::string& node_id, absl::Duration timeout);

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  // Returns what the stream ended with. Idempotent.
  grpc::Status End();

  // What an answer said of the head's clock, and when it came.
  struct HeadTime {
    absl::Duration answered;
    absl::Time here;
    int64_t unix_us = 0;  // 0: nothing.
  };

  ClockOffset* const clock_;
  grpc::ClientContext context_;
  v1::RenewLeaseRequest request_;
  v1::RenewLeaseResponse response_;
  bool ended_ = false;

  mutable absl::Mutex mu_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  HeadTime head_time_ ABSL_GUARDED_BY(mu_);
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_LEASE_STREAM_H_
