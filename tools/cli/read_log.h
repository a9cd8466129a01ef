// Reading the log of an actor or a job, wherever it lies.

#ifndef MINIRAY_TOOLS_CLI_READ_LOG_H_
#define MINIRAY_TOOLS_CLI_READ_LOG_H_

#include "absl/status/status.h"
#include "proto/head.pb.h"
#include "tools/cli/cancellation.h"
#include "tools/cli/command_line.h"
#include "tools/cli/head_client.h"
#include "tools/cli/patience.h"

namespace miniray::cli {

// Writes what the head sends to stdout until its end. A connection that breaks
// is made again, and reading goes on where it was, within `patience`; for a
// node that is cut from the head it waits until the head knows more, if
// `request` follows or something was read. `request` says where reading goes on
// (min_incarnation, skip_bytes). Errors: those of ReadLog and of
// Patience::Failed; CANCELLED; ABORTED, nobody reads stdout any more;
// DATA_LOSS, stdout takes no more.
absl::Status PrintLog(HeadClient* head, v1::ReadLogRequest* request,
                      Patience* patience, Cancellation* cancellation);

// Errors: INVALID_ARGUMENT, a flag of `logs` has a bad value.
absl::Status CheckLogFlags(const CommandLine& line);

// `miniray logs` and `miniray job logs`: prints the log that `request` names.
// Returns the exit code.
int RunLogs(const CommandLine& line, v1::ReadLogRequest request);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_READ_LOG_H_
