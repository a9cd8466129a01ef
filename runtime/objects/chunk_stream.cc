#include "runtime/objects/chunk_stream.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/rpc/byte_buffer.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/wire/wire.h"

namespace miniray {
namespace {

using v1::ObjectChunk;

// These two are what generated stubs are made of.
using ReaderFactory = grpc::internal::ClientReaderFactory<grpc::ByteBuffer>;
using WriterFactory = grpc::internal::ClientWriterFactory<grpc::ByteBuffer>;

}  // namespace

grpc::ByteBuffer EncodeChunk(const Chunk& chunk) {
  WireWriter out;
  auto text = [&out](int field, const std::string& value) {
    if (!value.empty()) out.Bytes(field, value);
  };
  text(ObjectChunk::kObjectIdFieldNumber, chunk.object_id);
  if (chunk.total_bytes != 0) {
    out.Varint(ObjectChunk::kTotalBytesFieldNumber,
               static_cast<uint64_t>(chunk.total_bytes));
  }
  text(ObjectChunk::kJobIdFieldNumber, chunk.job_id);
  text(ObjectChunk::kOwnerFieldNumber, chunk.owner);
  text(ObjectChunk::kPeerAddressFieldNumber, chunk.peer_address);
  if (!chunk.data.empty()) {
    out.Bytes(ObjectChunk::kDataFieldNumber, chunk.data);
  }
  return ToByteBuffer(std::move(out).Take());
}

absl::StatusOr<Chunk> DecodeChunk(const grpc::ByteBuffer& message) {
  MR_ASSIGN_OR_RETURN(const absl::Cord bytes, ToCord(message));
  WireReader reader(bytes);
  Chunk chunk;
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(Annotate(reader.Next(&field), "a chunk of an object"));
    if (field.number == ObjectChunk::kTotalBytesFieldNumber &&
        field.type == WireField::Type::kVarint) {
      chunk.total_bytes = static_cast<int64_t>(field.scalar);
    }
    if (field.type != WireField::Type::kBytes) continue;
    switch (field.number) {
      case ObjectChunk::kObjectIdFieldNumber:
        chunk.object_id = std::string(field.bytes);
        break;
      case ObjectChunk::kJobIdFieldNumber:
        chunk.job_id = std::string(field.bytes);
        break;
      case ObjectChunk::kOwnerFieldNumber:
        chunk.owner = std::string(field.bytes);
        break;
      case ObjectChunk::kPeerAddressFieldNumber:
        chunk.peer_address = std::string(field.bytes);
        break;
      case ObjectChunk::kDataFieldNumber:
        chunk.data = std::move(field.bytes);
        break;
      default:
        break;
    }
  }
  return chunk;
}

ChunkReader::ChunkReader(grpc::Channel* channel, const char* method,
                         grpc::ClientContext* context,
                         const v1::FetchObjectRequest& request)
    : context_(context),
      stream_(ReaderFactory::Create(
          channel,
          grpc::internal::RpcMethod(
              method, grpc::internal::RpcMethod::SERVER_STREAMING),
          context, ToByteBuffer(absl::Cord(request.SerializeAsString())))) {}

bool ChunkReader::Read(Chunk* chunk) {
  if (!stream_->Read(&message_)) return false;
  absl::StatusOr<Chunk> decoded = DecodeChunk(message_);
  message_.Clear();
  if (!decoded.ok()) {
    malformed_ = decoded.status();
    context_->TryCancel();
    return false;
  }
  *chunk = *std::move(decoded);
  return true;
}

absl::Status ChunkReader::Finish() {
  while (stream_->Read(&message_)) {
  }
  const absl::Status status = FromGrpcStatus(stream_->Finish());
  return malformed_.ok() ? status : malformed_;
}

absl::Status PutChunks(grpc::Channel* channel, grpc::ClientContext* context,
                       Chunk first, const absl::Cord& value) {
  grpc::ByteBuffer response;
  const std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>> writer(
      WriterFactory::Create(channel,
                            grpc::internal::RpcMethod(
                                "/miniray.v1.ObjectStore/PutObject",
                                grpc::internal::RpcMethod::CLIENT_STREAMING),
                            context, &response));
  Chunk chunk = std::move(first);
  chunk.total_bytes = static_cast<int64_t>(value.size());
  size_t offset = 0;
  do {
    const size_t size =
        std::min(static_cast<size_t>(kChunkBytes), value.size() - offset);
    chunk.data = value.Subcord(offset, size);
    if (!writer->Write(EncodeChunk(chunk))) break;
    offset += size;
    chunk = Chunk();
  } while (offset < value.size());
  writer->WritesDone();
  return FromGrpcStatus(writer->Finish());
}

grpc::internal::MethodHandler* NewChunkHandler(
    std::function<absl::Status(grpc::ServerContext*, ChunkServerStream*)>
        serve) {
  return new grpc::internal::TemplatedBidiStreamingHandler<ChunkServerStream,
                                                           false>(
      [serve = std::move(serve)](grpc::ServerContext* context,
                                 ChunkServerStream* stream) {
        return ToGrpcStatus(serve(context, stream));
      });
}

}  // namespace miniray
