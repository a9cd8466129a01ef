#include "runtime/rpc/byte_buffer.h"

#include <memory>
#include <utility>
#include <vector>

#include "grpcpp/support/slice.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

// Below this a copy is cheaper than a reference.
constexpr size_t kShareThreshold = 4096;

}  // namespace

grpc::ByteBuffer ToByteBuffer(const absl::Cord& cord) {
  if (cord.size() < kShareThreshold) {
    const std::string bytes(cord);
    grpc::Slice slice(bytes);
    return grpc::ByteBuffer(&slice, 1);
  }
  std::vector<grpc::Slice> slices;
  auto owner = std::make_shared<absl::Cord>(cord);
  for (absl::string_view chunk : owner->Chunks()) {
    if (chunk.size() < kShareThreshold) {
      slices.emplace_back(chunk.data(), chunk.size());
      continue;
    }
    slices.emplace_back(
        const_cast<char*>(chunk.data()), chunk.size(),
        [](void* user_data) {
          delete static_cast<std::shared_ptr<absl::Cord>*>(user_data);
        },
        new std::shared_ptr<absl::Cord>(owner));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<absl::Cord> ToCord(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (grpc::Status status = buffer.Dump(&slices); !status.ok()) {
    return FromGrpcStatus(status);
  }
  absl::Cord cord;
  for (grpc::Slice& slice : slices) {
    const absl::string_view bytes(reinterpret_cast<const char*>(slice.begin()),
                                  slice.size());
    if (slice.size() < kShareThreshold) {
      cord.Append(bytes);
    } else {
      cord.Append(absl::MakeCordFromExternal(
          bytes, [slice = std::move(slice)](absl::string_view) {}));
    }
  }
  return cord;
}

}  // namespace miniray
