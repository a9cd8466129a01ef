// The command line of `miniray submit`, checked.

#ifndef MINIRAY_TOOLS_CLI_SUBMIT_OPTIONS_H_
#define MINIRAY_TOOLS_CLI_SUBMIT_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

struct SubmitOptions {
  // All but the ids of the packages, the submitter and the submission.
  v1::JobSpec spec;
  std::string working_dir;  // May be empty.
  int64_t max_folder_bytes = 0;
  bool wait = true;
  absl::Duration head_patience = absl::Seconds(60);
};

// Errors: INVALID_ARGUMENT, a message for the user.
absl::StatusOr<SubmitOptions> ReadSubmitOptions(const CommandLine& line);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_SUBMIT_OPTIONS_H_
