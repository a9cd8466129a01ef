// Streams of v1.ObjectChunk that copy nothing: what is sent is the object's own
// memory, what is received stays where gRPC has put it. On the wire they are
// what the generated stubs would send.

#ifndef MINIRAY_RUNTIME_OBJECTS_CHUNK_STREAM_H_
#define MINIRAY_RUNTIME_OBJECTS_CHUNK_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/method_handler.h"
#include "grpcpp/support/sync_stream.h"
#include "proto/object.pb.h"

namespace miniray {

// Data of one chunk.
inline constexpr int64_t kChunkBytes = 1 << 20;

// See v1.ObjectChunk.
struct Chunk {
  std::string object_id;
  int64_t total_bytes = 0;
  std::string job_id;
  std::string owner;
  std::string peer_address;
  absl::Cord data;
};

grpc::ByteBuffer EncodeChunk(const Chunk& chunk);
// Errors: INVALID_ARGUMENT.
absl::StatusOr<Chunk> DecodeChunk(const grpc::ByteBuffer& message);

// --- Clients. The channel and the context outlive the stream.

// FetchObject of a store, or of an actor's process.
class ChunkReader {
 public:
  // method: "/miniray.v1.SERVICE/FetchObject"
  ChunkReader(grpc::Channel* channel, const char* method,
              grpc::ClientContext* context,
              const v1::FetchObjectRequest& request);

  // False at the end, which Finish explains.
  bool Read(Chunk* chunk);
  // Blocks until the server has ended the call. Errors: of the server, and
  // INVALID_ARGUMENT if it sent what is no chunk.
  absl::Status Finish();

 private:
  grpc::ClientContext* const context_;
  std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> stream_;
  grpc::ByteBuffer message_;
  absl::Status malformed_;
};

// Sends an object to a store with PutObject. `first` says all but the data; its
// total_bytes are those of `value`. Blocks. Errors: of the server.
absl::Status PutChunks(grpc::Channel* channel, grpc::ClientContext* context,
                       Chunk first, const absl::Cord& value);

// --- Servers.

using ChunkServerStream =
    grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

// Serves a method of streams with messages as they are on the wire. To be
// passed to grpc::Service::MarkMethodStreamed.
grpc::internal::MethodHandler* NewChunkHandler(
    std::function<absl::Status(grpc::ServerContext*, ChunkServerStream*)>
        serve);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_CHUNK_STREAM_H_
