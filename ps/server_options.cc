#include "ps/server_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace miniray::ps {

absl::Status Validate(const ServerOptions& options) {
  if (options.min_workers < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_workers = ", options.min_workers,
                     ": must be 0 (all of them) or more"));
  }
  if (!std::isfinite(options.sync_timeout_seconds) ||
      options.sync_timeout_seconds < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sync_timeout_seconds = ", options.sync_timeout_seconds,
                     ": must be 0 (none) or more"));
  }
  if (options.save_every < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "save_every = ", options.save_every, ": must be 1 or more"));
  }
  if (options.save_every > 1 && options.state_dir.empty()) {
    return absl::InvalidArgumentError(
        "save_every has no effect without state_dir");
  }
  return absl::OkStatus();
}

}  // namespace miniray::ps
