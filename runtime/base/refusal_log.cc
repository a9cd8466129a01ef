#include "runtime/base/refusal_log.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace miniray {
namespace {

constexpr size_t kMaxTextBytes = 200;

std::string Printable(absl::string_view text) {
  std::string printable(text.substr(0, kMaxTextBytes));
  for (char& c : printable) {
    if (!absl::ascii_isprint(c)) c = '?';
  }
  return printable;
}

}  // namespace

std::optional<int64_t> RefusalLimiter::Admit(absl::Time now) {
  if (now > last_) {
    const double seconds =
        last_ == absl::InfinitePast() ? 0 : absl::ToDoubleSeconds(now - last_);
    lines_ =
        std::min<double>(kRefusalBurst, lines_ + seconds * kRefusalsPerSecond);
    last_ = now;
  }
  if (lines_ < 1) {
    ++silent_;
    return std::nullopt;
  }
  lines_ -= 1;
  const int64_t silent = silent_;
  silent_ = 0;
  return silent;
}

std::string RefusalText(absl::string_view peer, absl::string_view what,
                        absl::string_view why, int64_t silent) {
  return absl::StrCat(
      "refused ", Printable(what), " from ", Printable(peer), ": ",
      Printable(why),
      silent == 0
          ? ""
          : absl::StrCat(" (and ", silent, " more since the last such line)"));
}

void LogRefusal(absl::string_view peer, absl::string_view what,
                absl::string_view why) {
  static absl::Mutex mu(absl::kConstInit);
  static auto* const limiter ABSL_GUARDED_BY(mu) = new RefusalLimiter;
  std::optional<int64_t> silent;
  {
    absl::MutexLock lock(&mu);
    silent = limiter->Admit(absl::Now());
  }
  if (silent.has_value()) {
    LOG(WARNING) << RefusalText(peer, what, why, *silent);
  }
}

}  // namespace miniray
