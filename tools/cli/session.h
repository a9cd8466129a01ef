// The session folder of a head or worker daemon: log, packages, sockets.

#ifndef MINIRAY_TOOLS_CLI_SESSION_H_
#define MINIRAY_TOOLS_CLI_SESSION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace miniray::cli {

// Session folders of dead processes that are kept for whoever looks for a log.
inline constexpr int kKeptSessions = 10;

// Makes RuntimeDirectory()/session-<time>-<pid> for this process and removes
// what is left of dead processes beyond the newest kKeptSessions.
absl::StatusOr<std::string> CreateSession();

// What is in `log`, to which processes append, goes to LOG.1, in place of what
// is there, if it is more than max_bytes. Does what it can; what is written at
// that moment may be lost.
void LimitLog(const std::string& log, int64_t max_bytes);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_SESSION_H_
