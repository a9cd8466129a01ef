// A driver's session with the head: opens its job, prints what the job's actors
// print, and is dialled again when it breaks.

#ifndef MINIRAY_RUNTIME_CLIENT_DRIVER_SESSION_H_
#define MINIRAY_RUNTIME_CLIENT_DRIVER_SESSION_H_

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/backoff.h"
#include "runtime/base/steady_time.h"
#include "runtime/rpc/redialler.h"

namespace miniray {
namespace internal {

// Thread-safe.
class DriverSession {
 public:
  // All outlive it. redialler: of the stub's channel.
  DriverSession(v1::Head::Stub* stub, std::string token,
                v1::RegisterDriver registration, Redialler* redialler);
  ~DriverSession() { End(); }

  // Blocks until the head has accepted the driver. Errors: UNAVAILABLE, no
  // answer within `timeout`. UNAUTHENTICATED, ALREADY_EXISTS,
  // FAILED_PRECONDITION as of AttachDriver. Call it once.
  absl::Status Begin(absl::Duration timeout);

  // Says goodbye: the head stops the job's actors, and what they still print
  // comes here first; some seconds at most. Idempotent.
  void End();

  // As the head said last; empty before it accepted the driver.
  v1::ClusterPeriods periods() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Stream = grpc::ClientReaderWriter<v1::DriverMessage, v1::DriverEvent>;

  void Loop();
  absl::Status RunStream(Backoff* backoff);

  v1::Head::Stub* const stub_;
  const std::string token_;
  const v1::RegisterDriver registration_;
  Redialler* const redialler_;
  SteadyNotification wake_;

  mutable absl::Mutex mu_;
  v1::ClusterPeriods periods_ ABSL_GUARDED_BY(mu_);
  bool registered_ ABSL_GUARDED_BY(mu_) = false;
  bool fatal_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
  Stream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::thread thread_;
};

// What an actor printed, as the driver shows it: each line behind "(Counter
// pid=123 node=host) ".
std::string FormatOutput(const v1::ProcessOutput& output);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_DRIVER_SESSION_H_
