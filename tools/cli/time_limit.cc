#include "tools/cli/time_limit.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "tools/cli/flags.h"

namespace miniray::cli {

absl::Status CheckTimeoutFlag(const CommandLine& line) {
  const double timeout = absl::GetFlag(FLAGS_timeout);
  if (!line.Has("timeout") || (timeout > 0 && timeout <= 1e9)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--timeout=", timeout, ": expected seconds, more than 0"));
}

absl::Duration TimeLimit(const CommandLine& line, absl::Duration otherwise) {
  return line.Has("timeout") ? absl::Seconds(absl::GetFlag(FLAGS_timeout))
                             : otherwise;
}

}  // namespace miniray::cli
