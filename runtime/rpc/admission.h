// How the head's services begin and end their calls.

#ifndef MINIRAY_RUNTIME_RPC_ADMISSION_H_
#define MINIRAY_RUNTIME_RPC_ADMISSION_H_

#include <atomic>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {

// Who may call a service. Thread-safe.
class Admission {
 public:
  explicit Admission(std::string token) : token_(std::move(token)) {}

  // Refuses every call before (UNAVAILABLE: callers come again).
  void Open() { open_ = true; }

  // Whether a call may go on. method: the caller's name. Errors: see
  // CheckToken.
  absl::Status Check(const grpc::ServerContextBase& context,
                     const char* method = __builtin_FUNCTION()) const {
    if (!open_) return absl::UnavailableError("the head is about to start");
    return CheckToken(context, token_, method);
  }

 private:
  const std::string token_;
  std::atomic<bool> open_ = false;
};

// Ends a unary call, whose response is set if it is OK.
inline grpc::ServerUnaryReactor* FinishUnary(
    grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_ADMISSION_H_
