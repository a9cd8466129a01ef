// ReadLog's stream.

#ifndef MINIRAY_RUNTIME_HEAD_LOG_STREAM_H_
#define MINIRAY_RUNTIME_HEAD_LOG_STREAM_H_

#include "grpcpp/support/server_callback.h"
#include "proto/head.grpc.pb.h"
#include "runtime/head/cluster_state.h"
#include "runtime/head/log_relay.h"

namespace miniray {

// Reads what lies at `place`; with `follow`, what the next processes print as
// well, wherever they run. `relay` and `state` outlive it.
grpc::ServerWriteReactor<v1::LogChunk>* NewLogStream(
    LogRelay* relay, ClusterState* state, ClusterState::LogPlace place);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_LOG_STREAM_H_
