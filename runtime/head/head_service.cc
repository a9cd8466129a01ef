#include "runtime/head/head_service.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"
#include "runtime/head/head_streams.h"
#include "runtime/head/state_query.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

absl::Status Parse(grpc::ByteBuffer bytes, google::protobuf::Message* message) {
  grpc::ProtoBufferReader reader(&bytes);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the request is no ", message->GetTypeName()));
}

// Keeps the bytes where they are.
grpc::Slice SliceOf(std::string bytes) {
  auto* const owned = new std::string(std::move(bytes));
  return grpc::Slice(
      owned->data(), owned->size(),
      [](void* owned) { delete static_cast<std::string*>(owned); }, owned);
}

std::set<v1::Table> TablesOf(const v1::GetClusterStateRequest& query) {
  std::set<v1::Table> tables;
  for (const int table : query.tables()) {
    tables.insert(static_cast<v1::Table>(table));
  }
  return tables;
}

template <class Response>
ClusterState::ActorCallback AnswerActor(grpc::ServerUnaryReactor* reactor,
                                        Response* response) {
  return [reactor, response](absl::StatusOr<v1::ActorInfo> actor) {
    if (actor.ok()) *response->mutable_actor() = *std::move(actor);
    reactor->Finish(ToGrpcStatus(actor.status()));
  };
}

}  // namespace

grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeCommand>*
HeadService::AttachNode(grpc::CallbackServerContext* context) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return new RefusedStream<
        grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeCommand>>(status);
  }
  return NewNodeStream(state_, logs_, calls_);
}

grpc::ServerBidiReactor<v1::RenewLeaseRequest, v1::RenewLeaseResponse>*
HeadService::RenewLease(grpc::CallbackServerContext* context) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return new RefusedStream<
        grpc::ServerBidiReactor<v1::RenewLeaseRequest, v1::RenewLeaseResponse>>(
        status);
  }
  return NewLeaseStream(state_);
}

grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent>*
HeadService::AttachDriver(grpc::CallbackServerContext* context) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return new RefusedStream<
        grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent>>(status);
  }
  return NewDriverStream(state_);
}

grpc::ServerUnaryReactor* HeadService::HasPackage(
    grpc::CallbackServerContext* context, const v1::HasPackageRequest* request,
    v1::HasPackageResponse* response) {
  absl::Status status = admission_.Check(*context);
  if (status.ok()) {
    packages_->MarkUsed(request->package_id());
    response->set_present(packages_->Has(request->package_id()));
  }
  return FinishUnary(context, status);
}

grpc::ServerReadReactor<v1::PackageChunk>* HeadService::PutPackage(
    grpc::CallbackServerContext* context, v1::PutPackageResponse* response) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return new RefusedStream<grpc::ServerReadReactor<v1::PackageChunk>>(status);
  }
  return NewPackageUpload(packages_);
}

grpc::ServerWriteReactor<v1::PackageChunk>* HeadService::GetPackage(
    grpc::CallbackServerContext* context,
    const v1::GetPackageRequest* request) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return new RefusedStream<grpc::ServerWriteReactor<v1::PackageChunk>>(
        status);
  }
  packages_->MarkUsed(request->package_id());
  if (request->damaged()) {
    if (absl::Status status = packages_->Check(request->package_id());
        !status.ok()) {
      return new RefusedStream<grpc::ServerWriteReactor<v1::PackageChunk>>(
          status);
    }
  }
  return NewPackageDownload(packages_, request->package_id());
}

grpc::ServerUnaryReactor* HeadService::CreateActor(
    grpc::CallbackServerContext* context, const v1::CreateActorRequest* request,
    v1::CreateActorResponse* response) {
  absl::Status status = admission_.Check(*context);
  if (status.ok() && !packages_->HadLately(request->spec().package_id())) {
    status = absl::FailedPreconditionError(
        "upload the package before an actor of it is created");
  }
  if (!status.ok()) return FinishUnary(context, status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->CreateActor(request->spec(), AnswerActor(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* HeadService::GetActor(
    grpc::CallbackServerContext* context, const v1::GetActorRequest* request,
    v1::GetActorResponse* response) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return FinishUnary(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->GetActor(*request, AnswerActor(reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* HeadService::KillActor(
    grpc::CallbackServerContext* context, const v1::KillActorRequest* request,
    v1::KillActorResponse* response) {
  if (absl::Status status = admission_.Check(*context); !status.ok()) {
    return FinishUnary(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->KillActor(*request, [reactor](const absl::Status& status) {
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* HeadService::SaveActorState(
    grpc::CallbackServerContext* context,
    const v1::SaveActorStateRequest* request,
    v1::SaveActorStateResponse* response) {
  absl::Status status = admission_.Check(*context);
  if (status.ok()) {
    status = actor_states_->Save(request->actor_id(), request->incarnation(),
                                 request->state());
  }
  return FinishUnary(context, status);
}

grpc::ServerUnaryReactor* HeadService::LoadActorState(
    grpc::CallbackServerContext* context,
    const v1::LoadActorStateRequest* request,
    v1::LoadActorStateResponse* response) {
  absl::Status status = admission_.Check(*context);
  if (status.ok()) {
    absl::StatusOr<std::string> state =
        actor_states_->Load(request->actor_id(), request->incarnation());
    status = state.status();
    if (state.ok()) response->set_state(*std::move(state));
  }
  return FinishUnary(context, status);
}

grpc::ServerUnaryReactor* HeadService::GetClusterState(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  v1::GetClusterStateRequest query;
  absl::Status status = admission_.Check(*context);
  if (status.ok()) status = Parse(*request, &query);
  if (status.ok()) status = CheckQuery(query);
  if (!status.ok()) return FinishUnary(context, status);
  const std::set<v1::Table> tables = TablesOf(query);
  v1::GetClusterStateResponse packages;
  if (Wants(query, v1::TABLE_PACKAGES)) {
    for (const PackageStore::Entry& entry : packages_->List()) {
      v1::PackageInfo* info = packages.add_packages();
      info->set_package_id(entry.package_id);
      info->set_size(entry.bytes);
      info->set_last_used_unix_ms(absl::ToUnixMillis(entry.last_used));
    }
  }
  std::string bytes;
  if (query.filters().empty()) {
    // In wire format a message behind another one is merged with it.
    bytes = state_->SerializedSnapshot(tables);
    packages.AppendToString(&bytes);
  } else {
    v1::GetClusterStateResponse state = state_->Snapshot(
        tables,
        [&query](const v1::ActorInfo& actor) { return Passes(query, actor); });
    *state.mutable_packages() = std::move(*packages.mutable_packages());
    ApplyQuery(query, &state);
    bytes = state.SerializeAsString();
  }
  const grpc::Slice slice = SliceOf(std::move(bytes));
  *response = grpc::ByteBuffer(&slice, 1);
  return FinishUnary(context, status);
}

}  // namespace miniray
