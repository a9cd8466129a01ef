// The raw peers for large payloads, to a server in a process of its own, over
// one TCP connection: a `bytes` field through generated stubs, and the same
// message as gRPC slices over the memory where the bytes lie; and over two, in
// frames.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_GRPC_BULK_H_
#define MINIRAY_TOOLS_BENCH_PEERS_GRPC_BULK_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace miniray::bench {

// The role of the server's process, and what it runs.
inline constexpr char kGrpcBulkRole[] = "grpc-bulk";
int ServeGrpcBulk();

// Each returns the seconds from the call until the receiver has all `bytes`,
// which are the bytes of floats 0, 1, 2, ..., 999, 0, 1, ...: with stubs in the
// message's string, with slices in a buffer that it keeps.
class GrpcBulk {
 public:
  static absl::StatusOr<std::unique_ptr<GrpcBulk>> Start();
  virtual ~GrpcBulk() = default;

  virtual absl::StatusOr<double> StubsDownload(int64_t bytes) = 0;
  virtual absl::StatusOr<double> StubsUpload(int64_t bytes) = 0;
  virtual absl::StatusOr<double> SlicesDownload(int64_t bytes) = 0;
  virtual absl::StatusOr<double> SlicesUpload(int64_t bytes) = 0;
  // Two halves side by side, each over a connection of its own.
  virtual absl::StatusOr<double> RangesDownload(int64_t bytes) = 0;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_GRPC_BULK_H_
