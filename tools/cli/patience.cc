#include "tools/cli/patience.h"

#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "tools/cli/flags.h"

namespace miniray::cli {
namespace {

std::string InSeconds(absl::Duration time) {
  return absl::StrCat(absl::ToDoubleSeconds(time), " s");
}

}  // namespace

absl::StatusOr<absl::Duration> ReadHeadPatience() {
  const double seconds = absl::GetFlag(FLAGS_head_patience);
  if (!(seconds >= 0 && seconds <= 1e9)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--head_patience=", seconds, ": expected seconds, 0 or more"));
  }
  return absl::Seconds(seconds);
}

Patience::Patience(Options options) : options_(std::move(options)) {}

void Patience::Answered() {
  if (silent_since_.has_value()) {
    options_.say(
        absl::StrCat("the head at ", options_.address, " answers again"));
  }
  silent_since_.reset();
  has_answered_ = true;
}

absl::Status Patience::Failed(const absl::Status& status) {
  // A head that is killed cancels nothing: its connections break.
  const bool cancelled = absl::IsCancelled(status);
  if (!cancelled && !absl::IsUnavailable(status) &&
      !absl::IsDeadlineExceeded(status)) {
    Answered();
    return status;
  }
  if (cancelled || options_.stopped()) {
    head_stopped_ = true;
    return absl::FailedPreconditionError(
        absl::StrCat("the head at ", options_.address,
                     " was stopped, and its cluster has ended"));
  }
  const absl::Time now = options_.clock();
  if (!silent_since_.has_value()) {
    silent_since_ = now;
    if (options_.limit > absl::ZeroDuration()) {
      options_.say(absl::StrCat("the head at ", options_.address,
                                " does not answer; waiting for it up to ",
                                InSeconds(options_.limit)));
    }
  }
  if (now - *silent_since_ < options_.limit) return absl::OkStatus();
  gave_up_ = true;
  return absl::UnavailableError(absl::StrCat(
      "waited ", InSeconds(options_.limit), ": ", status.message()));
}

}  // namespace miniray::cli
