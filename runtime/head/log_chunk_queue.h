// LogChunkReader over a LogReading.

#ifndef MINIRAY_RUNTIME_HEAD_LOG_CHUNK_QUEUE_H_
#define MINIRAY_RUNTIME_HEAD_LOG_CHUNK_QUEUE_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/head/cluster_state.h"
#include "runtime/head/log_chunk_reader.h"
#include "runtime/head/log_reading.h"
#include "runtime/head/log_relay.h"

namespace miniray {

// `relay` and `state` outlive it.
class LogChunkQueue : public LogChunkReader, public LogOutput {
 public:
  LogChunkQueue(LogRelay* relay, ClusterState* state,
                ClusterState::LogPlace place);
  ~LogChunkQueue() override;

  absl::StatusOr<std::optional<v1::LogChunk>> Next(
      absl::Duration timeout) override ABSL_LOCKS_EXCLUDED(mu_);

  // LogOutput.
  void StartWrite(const v1::LogChunk* chunk,
                  grpc::WriteOptions options) override;
  void Finish(grpc::Status status) override;

 private:
  absl::Mutex mu_;
  // Stays until the reading hears that it is taken.
  const v1::LogChunk* chunk_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  const std::shared_ptr<LogReading> reading_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_LOG_CHUNK_QUEUE_H_
