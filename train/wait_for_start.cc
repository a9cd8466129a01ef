#include "train/wait_for_start.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

constexpr absl::Duration kLogAfter = absl::Seconds(5);
// How long one actor is waited for before the next is looked at: one that died
// must be noticed while another still waits for its place.
constexpr absl::Duration kTurn = absl::Milliseconds(200);

}  // namespace

absl::Status WaitForStart(const NamedActors& actors, absl::Duration timeout) {
  const absl::Time begin = absl::Now();
  const absl::Time deadline = begin + timeout;
  bool logged = false;
  std::vector<size_t> waiting;
  for (size_t i = 0; i < actors.size(); ++i) waiting.push_back(i);
  while (!waiting.empty()) {
    std::vector<size_t> still;
    absl::Status reason;  // Of the first that has not started.
    for (const size_t i : waiting) {
      const auto& [name, actor] = actors[i];
      const absl::Status status = actor.WaitReady(std::max(
          absl::ZeroDuration(), std::min(kTurn, deadline - absl::Now())));
      if (status.ok()) continue;
      if (!absl::IsDeadlineExceeded(status)) {
        return Annotate(status, absl::StrCat(name, " did not start"));
      }
      reason.Update(Annotate(status, name));
      still.push_back(i);
    }
    waiting = std::move(still);
    if (waiting.empty()) break;
    const std::string progress =
        absl::StrCat(actors.size() - waiting.size(), " of ", actors.size(),
                     " actors have started; ", reason.message());
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "after ", absl::FormatDuration(timeout), " only ", progress,
          ". Lower num_workers or worker_resources, add nodes, or raise "
          "start_timeout"));
    }
    if (!logged && absl::Now() - begin >= kLogAfter) {
      logged = true;
      LOG(WARNING) << "Training cannot begin yet: " << progress
                   << ". Waiting until " << absl::FormatDuration(timeout)
                   << " have passed.";
    }
  }
  return absl::OkStatus();
}

}  // namespace miniray::train
