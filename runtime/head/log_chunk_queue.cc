#include "runtime/head/log_chunk_queue.h"

#include <utility>

#include "runtime/rpc/grpc_status.h"

namespace miniray {

LogChunkQueue::LogChunkQueue(LogRelay* relay, ClusterState* state,
                             ClusterState::LogPlace place)
    : reading_(std::make_shared<LogReading>(this, relay, state)) {
  reading_->Begin(std::move(place));
}

LogChunkQueue::~LogChunkQueue() { reading_->Close(); }

absl::StatusOr<std::optional<v1::LogChunk>> LogChunkQueue::Next(
    absl::Duration timeout) {
  std::optional<v1::LogChunk> chunk;
  {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return chunk_ != nullptr || end_.has_value();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&ready), timeout)) return chunk;
    if (chunk_ == nullptr) {
      return end_->ok() ? absl::OutOfRangeError("all of the log was read")
                        : *end_;
    }
    chunk = *chunk_;
    chunk_ = nullptr;
  }
  // Without the lock: the next one may come of it at once.
  reading_->Written(true);
  return chunk;
}

void LogChunkQueue::StartWrite(const v1::LogChunk* chunk,
                               grpc::WriteOptions /*options*/) {
  absl::MutexLock lock(&mu_);
  chunk_ = chunk;
}

void LogChunkQueue::Finish(grpc::Status status) {
  absl::MutexLock lock(&mu_);
  end_ = FromGrpcStatus(status);
}

}  // namespace miniray
