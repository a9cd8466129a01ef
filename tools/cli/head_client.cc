#include "tools/cli/head_client.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpcpp/client_context.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray::cli {
namespace {

// gRPC puts the cause behind all that it tried: "...: ...: Connection refused".
absl::string_view Cause(absl::string_view message) {
  const size_t colon = message.rfind(": ");
  return colon == absl::string_view::npos ? message : message.substr(colon + 2);
}

absl::Status Explain(const absl::Status& status, const std::string& address) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return absl::UnavailableError(absl::StrCat(
          "no head answers at ", address, " (", Cause(status.message()),
          "); check the address and the network, or start a head "
          "there with: miniray start --head"));
    case absl::StatusCode::kUnimplemented:
      return absl::UnimplementedError(absl::StrCat(
          "what answers at ", address, " is not a head of this version (",
          Cause(status.message()), ")"));
    default:
      return Annotate(status, absl::StrCat("the head at ", address));
  }
}

}  // namespace

absl::StatusOr<v1::GetClusterStateResponse> FetchClusterState(
    const std::string& address, const std::string& token,
    absl::Duration timeout) {
  const std::unique_ptr<v1::Head::Stub> stub =
      v1::Head::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  PrepareContext(&context, token, timeout);
  v1::GetClusterStateResponse response;
  const grpc::Status status =
      stub->GetClusterState(&context, v1::GetClusterStateRequest(), &response);
  if (!status.ok()) return Explain(FromGrpcStatus(status), address);
  return response;
}

}  // namespace miniray::cli
