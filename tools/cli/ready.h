// What a process started with --ready_fd says, once, when it is ready or has
// failed: one line of JSON. Whoever starts it waits for the line.

#ifndef MINIRAY_TOOLS_CLI_READY_H_
#define MINIRAY_TOOLS_CLI_READY_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/files.h"

namespace miniray::cli {

struct ReadyMessage {
  std::string error;  // If not empty, nothing else counts.

  std::string address;  // HOST:PORT of the head.
  pid_t pid = 0;
  std::string node_id;    // Worker daemons.
  std::string join;       // Heads: the command that adds a node.
  std::string dashboard;  // Heads: URL; empty: none.
  std::string resumed;    // Heads: what was taken over from an earlier one.
  std::string warning;    // For the user; empty: none.
  std::string session_dir;
  std::string log;  // Empty: the process logs to its stderr.
};

std::string ToLine(const ReadyMessage& message);

// Errors: INTERNAL, not such a line.
absl::StatusOr<ReadyMessage> FromLine(const std::string& line);

// The end of --ready_fd in the process that was started. Movable.
class ReadyPipe {
 public:
  // fd: closed when the line is sent; -1: there is nobody to tell.
  explicit ReadyPipe(int fd) : fd_(fd) {}

  bool has_reader() const { return fd_.valid(); }

  // Sends the line unless one was sent before. Errors: UNAVAILABLE, nobody
  // reads it: whoever started this process has gone.
  absl::Status Send(const ReadyMessage& message);

 private:
  ScopedFd fd_;
};

// What a person is told about a process that is ready.
std::string DescribeHead(const ReadyMessage& message);
std::string DescribeDaemon(const ReadyMessage& message);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_READY_H_
