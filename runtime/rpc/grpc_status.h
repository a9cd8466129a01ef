// The one place where absl::Status becomes grpc::Status and back. Both use the
// same code numbers.

#ifndef MINIRAY_RUNTIME_RPC_GRPC_STATUS_H_
#define MINIRAY_RUNTIME_RPC_GRPC_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/support/status.h"
#include "proto/status.pb.h"
#include "runtime/base/utf8.h"
#include "runtime/rpc/tls.h"

namespace miniray {

inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()));
}

// A code beyond the known ones becomes UNKNOWN.
inline absl::Status StatusFromCode(int code, absl::string_view message) {
  if (code < 0 || code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return absl::UnknownError(message);
  }
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

inline absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(absl::StrCat(
        status.error_message(), TlsAdvice(status.error_message())));
  }
  return StatusFromCode(status.error_code(), status.error_message());
}

inline absl::Status FromProto(const v1::Status& status) {
  return StatusFromCode(status.code(), status.message());
}

inline v1::Status ToProto(const absl::Status& status) {
  v1::Status result;
  result.set_code(static_cast<int>(status.code()));
  // A message that is not UTF-8 would make the receiver refuse all of it.
  result.set_message(ToUtf8(status.message()));
  return result;
}

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_GRPC_STATUS_H_
