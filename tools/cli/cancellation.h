// Work in a thread of its own that a signal or a time limit ends.

#ifndef MINIRAY_TOOLS_CLI_CANCELLATION_H_
#define MINIRAY_TOOLS_CLI_CANCELLATION_H_

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"

namespace miniray::cli {

// Ends the calls to the head that are under way. Thread-safe.
class Cancellation {
 public:
  // A call's context for its lifetime.
  class Scope {
   public:
    Scope(Cancellation* cancellation, grpc::ClientContext* context);
    ~Scope();

   private:
    Cancellation* const cancellation_;
  };

  void Cancel();
  bool cancelled() const;
  // Returns whether it was cancelled meanwhile.
  bool Sleep(absl::Duration time);

 private:
  mutable absl::Mutex mu_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
};

struct Interruption {
  int exit_code = 0;  // 0: there was none. 130, 143: a signal. 124: the limit.
  std::string what;   // "SIGINT", "the time limit of 5s"
};

// Runs `work` in a thread until it returns, a signal asks this process to stop
// or `limit` is over; in the latter cases `work` is cancelled and waited for.
absl::StatusOr<Interruption> RunInterruptibly(
    absl::Duration limit, Cancellation* cancellation,
    const std::function<void()>& work);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_CANCELLATION_H_
