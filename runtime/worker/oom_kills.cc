#include "runtime/worker/oom_kills.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Bounds the memory where a machine kills and kills.
constexpr int64_t kMost = 1000;

// See Look.
constexpr absl::Duration kLongestGap = absl::Seconds(10);

}  // namespace

absl::StatusOr<int64_t> ReadOomKills() {
  MR_ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/vmstat"));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    int64_t count = 0;
    if (absl::ConsumePrefix(&line, "oom_kill ") &&
        absl::SimpleAtoi(line, &count)) {
      return count;
    }
  }
  return absl::NotFoundError("/proc/vmstat has no oom_kill");
}

OomKills::OomKills(std::function<absl::StatusOr<int64_t>()> read,
                   std::function<absl::Time()> now)
    : read_(std::move(read)), now_(std::move(now)) {
  Look();
}

void OomKills::Look() {
  absl::MutexLock lock(&mu_);
  LookLocked();
}

void OomKills::LookLocked() {
  const absl::Time now = now_();
  if (const absl::StatusOr<int64_t> count = read_(); count.ok()) {
    if (seen_ >= 0 && *count > seen_ && now - seen_at_ <= kLongestGap) {
      unexplained_.insert(unexplained_.end(),
                          static_cast<size_t>(std::min(*count - seen_, kMost)),
                          now);
    }
    seen_ = *count;
    seen_at_ = now;
  }
  while (!unexplained_.empty() && unexplained_.front() < now - kMemory) {
    unexplained_.pop_front();
  }
}

std::string OomKills::Explain(int wait_status) {
  if (!WIFSIGNALED(wait_status) || WTERMSIG(wait_status) != SIGKILL) return "";
  absl::MutexLock lock(&mu_);
  LookLocked();
  if (unexplained_.empty()) return "";
  unexplained_.pop_front();
  ++explained_;
  return "; in those seconds the kernel ended a process of this machine for "
         "memory, probably this one";
}

int64_t OomKills::explained() const {
  absl::MutexLock lock(&mu_);
  return explained_;
}

}  // namespace miniray
