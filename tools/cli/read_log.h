// Reading the log of an actor or a job, wherever it lies.

#ifndef MINIRAY_TOOLS_CLI_READ_LOG_H_
#define MINIRAY_TOOLS_CLI_READ_LOG_H_

#include "absl/status/status.h"
#include "proto/head.pb.h"
#include "tools/cli/cancellation.h"
#include "tools/cli/command_line.h"
#include "tools/cli/head_client.h"

namespace miniray::cli {

// Writes what the head sends to stdout until its end. A connection that breaks
// is made again and reading goes on where it was, for kLogPatience without
// progress; `request` counts what was written (skip_bytes). Errors: those of
// ReadLog; CANCELLED; ABORTED, nobody reads stdout any more.
absl::Status PrintLog(HeadClient* head, v1::ReadLogRequest* request,
                      Cancellation* cancellation);

inline constexpr absl::Duration kLogPatience = absl::Seconds(60);

// Errors: INVALID_ARGUMENT, a flag of `logs` has a bad value.
absl::Status CheckLogFlags(const CommandLine& line);

// `miniray logs` and `miniray job logs`: prints the log that `request` names.
// Returns the exit code.
int RunLogs(const CommandLine& line, v1::ReadLogRequest request);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_READ_LOG_H_
