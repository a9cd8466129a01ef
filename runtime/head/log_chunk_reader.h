// A log, for a thread of the head itself that reads it.

#ifndef MINIRAY_RUNTIME_HEAD_LOG_CHUNK_READER_H_
#define MINIRAY_RUNTIME_HEAD_LOG_CHUNK_READER_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"

namespace miniray {

// What ReadLog answers (proto/head.proto), one chunk after the other. For one
// thread. Its destruction ends the reading, and tells the node so.
class LogChunkReader {
 public:
  virtual ~LogChunkReader() = default;

  // Waits for the next chunk, at most `timeout`; nothing: none came. The node
  // sends no more than 1 MiB ahead. Errors: OUT_OF_RANGE, all was read; those
  // of ReadLog. After an error there is nothing more.
  virtual absl::StatusOr<std::optional<v1::LogChunk>> Next(
      absl::Duration timeout) = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_LOG_CHUNK_READER_H_
