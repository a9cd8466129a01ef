#include "runtime/head/ask_actor.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {

absl::StatusOr<v1::InspectResponse> AskActor(const v1::ActorInfo& actor,
                                             const std::string& token,
                                             absl::Duration timeout) {
  if (actor.state() != v1::ACTOR_STATE_ALIVE) {
    return absl::UnavailableError(absl::StrCat(
        "the actor has no process now",
        actor.cause().empty() ? "" : absl::StrCat(": ", actor.cause())));
  }
  const auto stub = v1::ActorService::NewStub(MakeChannel(actor.address()));
  grpc::ClientContext context;
  PrepareContext(&context, token, timeout);
  v1::InspectRequest request;
  request.set_actor_id(actor.actor_id());
  v1::InspectResponse response;
  const grpc::Status status = stub->Inspect(&context, request, &response);
  if (status.ok()) return response;
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    return absl::UnavailableError(
        absl::StrCat("its process at ", actor.address(), " has ended"));
  }
  return FromGrpcStatus(status);
}

}  // namespace miniray
