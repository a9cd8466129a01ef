// Notices workers that have restarted since they were sent weights: they have
// what they began with, which is no contribution to a synchronisation.
//
// Of workers whose class has the method
//   int NumRestarts();  // ActorContext::Current()->num_restarts()
// nothing is known of others.

#ifndef MINIRAY_PS_WORKER_RESTARTS_H_
#define MINIRAY_PS_WORKER_RESTARTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

// Not thread-safe.
class WorkerRestarts {
 public:
  static constexpr char kMethod[] = "NumRestarts";

  // The worker has been sent weights in the call before: asks, behind it, which
  // process of the worker that was.
  //
  // options: of the call that sent them.
  void NoteSent(const AnyActorHandle& worker, const CallOptions& options = {});

  // num_restarts: of the process that a contribution came from, asked after
  //   NoteSent.
  // Errors: FAILED_PRECONDITION, it is not the one that was sent weights last;
  // the message does not name the worker.
  absl::Status Check(const AnyActorHandle& worker, int64_t num_restarts) const;

 private:
  // By actor: what NoteSent has asked.
  std::map<std::string, ObjectRef<int64_t>> took_weights_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_WORKER_RESTARTS_H_
