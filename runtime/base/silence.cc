#include "runtime/base/silence.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace miniray {
namespace {

absl::Duration FromEnvironment() {
  const char* const text = std::getenv(kSilenceTimeoutVariable);
  if (text == nullptr || *text == '\0') return kDefaultSilenceTimeout;
  const absl::StatusOr<absl::Duration> timeout = ParseSilenceTimeout(text);
  if (timeout.ok()) return *timeout;
  LOG(WARNING) << kSilenceTimeoutVariable
               << " is not used: " << timeout.status().message();
  return kDefaultSilenceTimeout;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseSilenceTimeout(absl::string_view text) {
  absl::Duration timeout;
  if (absl::ParseDuration(text, &timeout) && timeout >= kMinSilenceTimeout &&
      timeout <= kMaxSilenceTimeout) {
    return timeout;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", absl::CHexEscape(text), "' is not a time between ",
      absl::FormatDuration(kMinSilenceTimeout), " and ",
      absl::FormatDuration(kMaxSilenceTimeout), "; write e.g. 20s, 2m"));
}

absl::Duration SilenceTimeout() {
  static const absl::Duration timeout = FromEnvironment();
  return timeout;
}

absl::Duration SignOfLifePeriod() {
  return std::min(SilenceTimeout(), kDefaultSilenceTimeout) / 4;
}

}  // namespace miniray
