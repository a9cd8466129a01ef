#include "runtime/link/transport.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace miniray {
namespace internal {

absl::StatusOr<Transport> TransportFromEnvironment() {
  const char* const value = std::getenv(kTransportVariable);
  const absl::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "auto") return Transport::kAuto;
  if (text == "tcp") return Transport::kTcp;
  if (text == "grpc") return Transport::kGrpc;
  return absl::InvalidArgumentError(absl::StrCat(
      kTransportVariable, " is '", text,
      "'; set it to 'tcp' (calls inside a machine go through TCP, too), to "
      "'grpc' (all calls go through gRPC) or to 'auto'"));
}

}  // namespace internal
}  // namespace miniray
