// The part of HeadService about placement groups.

#include <utility>

#include "runtime/head/head_service.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

template <class Response>
ClusterState::GroupCallback AnswerGroup(grpc::ServerUnaryReactor* reactor,
                                        Response* response) {
  return [reactor, response](absl::StatusOr<v1::PlacementGroupInfo> group) {
    if (group.ok()) *response->mutable_group() = *std::move(group);
    reactor->Finish(ToGrpcStatus(group.status()));
  };
}

}  // namespace

grpc::ServerUnaryReactor* HeadService::CreatePlacementGroup(
    grpc::CallbackServerContext* context,
    const v1::CreatePlacementGroupRequest* request,
    v1::CreatePlacementGroupResponse* response) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return FinishUnary(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->CreatePlacementGroup(request->spec(), AnswerGroup(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* HeadService::GetPlacementGroup(
    grpc::CallbackServerContext* context,
    const v1::GetPlacementGroupRequest* request,
    v1::GetPlacementGroupResponse* response) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return FinishUnary(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->GetPlacementGroup(*request, AnswerGroup(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* HeadService::RemovePlacementGroup(
    grpc::CallbackServerContext* context,
    const v1::RemovePlacementGroupRequest* request,
    v1::RemovePlacementGroupResponse* response) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return FinishUnary(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->RemovePlacementGroup(request->placement_group_id(),
                               [reactor](const absl::Status& status) {
                                 reactor->Finish(ToGrpcStatus(status));
                               });
  return reactor;
}

}  // namespace miniray
