// absl::Cord to grpc::ByteBuffer and back, sharing memory.

#ifndef MINIRAY_RUNTIME_RPC_BYTE_BUFFER_H_
#define MINIRAY_RUNTIME_RPC_BYTE_BUFFER_H_

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "grpcpp/support/byte_buffer.h"

namespace miniray {

// Large chunks are shared: the cord's memory stays alive until gRPC has sent
// it.
grpc::ByteBuffer ToByteBuffer(const absl::Cord& cord);

// Large slices are shared: they stay alive as long as the cord. Errors:
// FAILED_PRECONDITION, the buffer holds no message.
absl::StatusOr<absl::Cord> ToCord(const grpc::ByteBuffer& buffer);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_BYTE_BUFFER_H_
