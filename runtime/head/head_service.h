// proto/head.proto's service: checks the token, and passes calls on to
// ClusterState and the head's other parts.

#ifndef MINIRAY_RUNTIME_HEAD_HEAD_SERVICE_H_
#define MINIRAY_RUNTIME_HEAD_HEAD_SERVICE_H_

#include <string>
#include <utility>

#include "grpcpp/support/byte_buffer.h"
#include "proto/head.grpc.pb.h"
#include "runtime/head/actor_state_store.h"
#include "runtime/head/call_record_ring.h"
#include "runtime/head/cluster_state.h"
#include "runtime/head/log_relay.h"
#include "runtime/packages/package_store.h"
#include "runtime/rpc/admission.h"

namespace miniray {

// Thread-safe. What it is given outlives it. Refuses every call (UNAVAILABLE)
// until it is opened.
//
// GetClusterState answers in bytes: a message of ten thousand actors would take
// most of the call's time.
class HeadService : public v1::Head::WithRawCallbackMethod_GetClusterState<
                        v1::Head::CallbackService> {
 public:
  HeadService(ClusterState* state, PackageStore* packages,
              ActorStateStore* actor_states, LogRelay* logs,
              CallRecordRing* calls, std::string token)
      : state_(state),
        packages_(packages),
        actor_states_(actor_states),
        logs_(logs),
        calls_(calls),
        admission_(std::move(token)) {}

  // What a caller is told from here on holds beyond the death of this process.
  void Open() { admission_.Open(); }

  // What GetCallRecords answers.
  v1::GetCallRecordsResponse CallRecords(
      const v1::GetCallRecordsRequest& request) const;

  grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeCommand>* AttachNode(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::RenewLeaseRequest, v1::RenewLeaseResponse>*
  RenewLease(grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent>* AttachDriver(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* HasPackage(
      grpc::CallbackServerContext* context,
      const v1::HasPackageRequest* request,
      v1::HasPackageResponse* response) override;
  grpc::ServerReadReactor<v1::PackageChunk>* PutPackage(
      grpc::CallbackServerContext* context,
      v1::PutPackageResponse* response) override;
  grpc::ServerWriteReactor<v1::PackageChunk>* GetPackage(
      grpc::CallbackServerContext* context,
      const v1::GetPackageRequest* request) override;
  grpc::ServerUnaryReactor* CreateActor(
      grpc::CallbackServerContext* context,
      const v1::CreateActorRequest* request,
      v1::CreateActorResponse* response) override;
  grpc::ServerUnaryReactor* GetActor(grpc::CallbackServerContext* context,
                                     const v1::GetActorRequest* request,
                                     v1::GetActorResponse* response) override;
  grpc::ServerUnaryReactor* KillActor(grpc::CallbackServerContext* context,
                                      const v1::KillActorRequest* request,
                                      v1::KillActorResponse* response) override;
  grpc::ServerUnaryReactor* SaveActorState(
      grpc::CallbackServerContext* context,
      const v1::SaveActorStateRequest* request,
      v1::SaveActorStateResponse* response) override;
  grpc::ServerUnaryReactor* LoadActorState(
      grpc::CallbackServerContext* context,
      const v1::LoadActorStateRequest* request,
      v1::LoadActorStateResponse* response) override;
  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context,
                                    const v1::StopJobRequest* request,
                                    v1::StopJobResponse* response) override;
  grpc::ServerWriteReactor<v1::LogChunk>* ReadLog(
      grpc::CallbackServerContext* context,
      const v1::ReadLogRequest* request) override;
  grpc::ServerUnaryReactor* GetCallRecords(
      grpc::CallbackServerContext* context,
      const v1::GetCallRecordsRequest* request,
      v1::GetCallRecordsResponse* response) override;
  grpc::ServerUnaryReactor* GetUsage(grpc::CallbackServerContext* context,
                                     const v1::GetUsageRequest* request,
                                     v1::GetUsageResponse* response) override;
  grpc::ServerUnaryReactor* CreatePlacementGroup(
      grpc::CallbackServerContext* context,
      const v1::CreatePlacementGroupRequest* request,
      v1::CreatePlacementGroupResponse* response) override;
  grpc::ServerUnaryReactor* GetPlacementGroup(
      grpc::CallbackServerContext* context,
      const v1::GetPlacementGroupRequest* request,
      v1::GetPlacementGroupResponse* response) override;
  grpc::ServerUnaryReactor* RemovePlacementGroup(
      grpc::CallbackServerContext* context,
      const v1::RemovePlacementGroupRequest* request,
      v1::RemovePlacementGroupResponse* response) override;
  grpc::ServerUnaryReactor* GetClusterState(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
      grpc::ByteBuffer* response) override;

 private:
  ClusterState* const state_;
  PackageStore* const packages_;
  ActorStateStore* const actor_states_;
  LogRelay* const logs_;
  CallRecordRing* const calls_;
  Admission admission_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_HEAD_SERVICE_H_
