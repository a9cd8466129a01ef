#include "tools/cli/head_client.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "proto/head.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray::cli {

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
  if (!status.ok()) return ExplainHeadFailure(FromGrpcStatus(status), address);
  return response;
}

absl::Status ExplainHeadFailure(const absl::Status& status,
                                const std::string& address) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return absl::UnavailableError(absl::StrCat(
          "no head answers at ", address,
          "; check the address and the network, or start one there with: "
          "miniray start --head (",
          status.message(), ")"));
    case absl::StatusCode::kUnauthenticated:
      return absl::UnauthenticatedError(absl::StrCat(
          "the head at ", address,
          " asks for its token; set MINIRAY_TOKEN as `miniray start --head` "
          "showed it, or pass --token_file (",
          status.message(), ")"));
    case absl::StatusCode::kUnimplemented:
      return absl::UnimplementedError(absl::StrCat(
          "what answers at ", address, " is not a head of this version (",
          status.message(), ")"));
    default:
      return status;
  }
}

}  // namespace miniray::cli
