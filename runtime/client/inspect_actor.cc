#include "runtime/client/inspect_actor.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace internal {

absl::StatusOr<v1::InspectResponse> InspectActor(const v1::ActorInfo& actor,
                                                 const std::string& token,
                                                 ChannelPool* channels,
                                                 absl::Time deadline) {
  if (actor.state() == v1::ACTOR_STATE_DEAD) {
    return absl::UnavailableError(
        absl::StrCat("the actor is dead: ", actor.cause()));
  }
  if (actor.state() != v1::ACTOR_STATE_ALIVE) {
    return absl::UnavailableError(absl::StrCat(
        "the actor is not up: ",
        actor.cause().empty() ? "its process starts" : actor.cause()));
  }
  const auto stub = v1::ActorService::NewStub(channels->Get(actor.address()));
  grpc::ClientContext context;
  AddToken(&context, token);
  if (deadline != absl::InfiniteFuture()) {
    context.set_deadline(absl::ToChronoTime(deadline));
  }
  v1::InspectRequest request;
  request.set_actor_id(actor.actor_id());
  v1::InspectResponse response;
  const grpc::Status status = stub->Inspect(&context, request, &response);
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return response;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(
          absl::StrCat("its process at ", actor.address(), " does not answer"));
    case grpc::StatusCode::NOT_FOUND:
      return absl::UnavailableError(
          absl::StrCat("its process at ", actor.address(), " has ended"));
    default:
      return FromGrpcStatus(status);
  }
}

}  // namespace internal
}  // namespace miniray
