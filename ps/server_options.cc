#include "ps/server_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

bool NeedsExchange(const ServerOptions& options) {
  return options.from_workers.method != Compression::kNone ||
         options.to_workers.method != Compression::kNone;
}

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
  MR_RETURN_IF_ERROR(Validate(options.from_workers, "from_workers"));
  return Validate(options.to_workers, "to_workers");
}

}  // namespace miniray::ps
