// The streams of proto/head.proto's service: one object each, which lives until
// its stream has ended.

#ifndef MINIRAY_RUNTIME_HEAD_HEAD_STREAMS_H_
#define MINIRAY_RUNTIME_HEAD_HEAD_STREAMS_H_

#include <string>

#include "grpcpp/support/server_callback.h"
#include "proto/head.grpc.pb.h"
#include "runtime/head/call_record_ring.h"
#include "runtime/head/cluster_state.h"
#include "runtime/head/log_relay.h"
#include "runtime/packages/package_store.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {

// A refused stream: finishes at once.
template <class Base>
class RefusedStream : public Base {
 public:
  explicit RefusedStream(const absl::Status& status) {
    this->Finish(ToGrpcStatus(status));
  }
  void OnDone() override { delete this; }
};

// A worker daemon's stream. What it is given outlives it.
grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeCommand>* NewNodeStream(
    ClusterState* state, LogRelay* logs, CallRecordRing* calls);

// On which a worker daemon renews its lease. `state` outlives it.
grpc::ServerBidiReactor<v1::RenewLeaseRequest, v1::RenewLeaseResponse>*
NewLeaseStream(ClusterState* state);

// A driver's stream. `state` outlives it.
grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent>* NewDriverStream(
    ClusterState* state);

// `packages` outlives them.
grpc::ServerReadReactor<v1::PackageChunk>* NewPackageUpload(
    PackageStore* packages);
grpc::ServerWriteReactor<v1::PackageChunk>* NewPackageDownload(
    PackageStore* packages, const std::string& package_id);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_HEAD_STREAMS_H_
