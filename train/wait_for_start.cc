#include "train/wait_for_start.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"
#include "train/actor_states.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

constexpr size_t kMaxReasons = 3;

// What the actors with the indices `waiting` wait for, those without a place
// before those whose processes are starting: "worker 4: no node has ... free".
std::string Reasons(const Cluster& cluster, const NamedActors& actors,
                    const std::vector<size_t>& waiting) {
  auto states = ActorStates(cluster);
  if (!states.ok()) return std::string(states.status().message());
  std::vector<std::string> reasons, starting;
  for (const size_t i : waiting) {
    const auto& [name, actor] = actors[i];
    const std::string& cause = (*states)[actor.actor_id()].cause();
    if (cause.empty()) {
      starting.push_back(absl::StrCat(name, ": its process is starting"));
    } else {
      reasons.push_back(absl::StrCat(name, ": ", cause));
    }
  }
  reasons.insert(reasons.end(), starting.begin(), starting.end());
  const size_t left_out =
      reasons.size() - std::min(reasons.size(), kMaxReasons);
  reasons.resize(reasons.size() - left_out);
  if (left_out > 0) reasons.push_back(absl::StrCat("and ", left_out, " more"));
  return absl::StrJoin(reasons, "; ");
}

}  // namespace

absl::Status WaitForStart(const Cluster& cluster, const NamedActors& actors,
                          absl::Time begin, absl::Duration timeout,
                          absl::FunctionRef<bool()> cancelled) {
  const absl::Time deadline = begin + timeout;
  bool logged = false;
  std::vector<size_t> waiting;
  for (size_t i = 0; i < actors.size(); ++i) waiting.push_back(i);
  while (true) {
    std::vector<size_t> still;
    for (const size_t i : waiting) {
      if (cancelled()) {
        return absl::CancelledError("the start of workers was given up");
      }
      const auto& [name, actor] = actors[i];
      const absl::Status status = actor.WaitReady(
          std::clamp(deadline - absl::Now(), absl::ZeroDuration(), kStartTurn));
      if (absl::IsDeadlineExceeded(status)) {
        still.push_back(i);
      } else if (!status.ok()) {
        return Annotate(status, absl::StrCat(name, " did not start"));
      }
    }
    waiting = std::move(still);
    if (waiting.empty()) return absl::OkStatus();
    const bool late = absl::Now() >= deadline;
    const bool log = !logged && absl::Now() - begin >= kLogStartAfter;
    if (!late && !log) continue;
    const std::string progress = absl::StrCat(
        actors.size() - waiting.size(), " of ", actors.size(),
        " actors have started; ", Reasons(cluster, actors, waiting));
    if (late) {
      return absl::DeadlineExceededError(absl::StrCat(
          "after ", absl::FormatDuration(timeout), " only ", progress,
          ". Use fewer workers (num_workers, --workers) or smaller ones "
          "(worker_resources, --num-cpus-per-worker; resources_per_worker, "
          "use_gpu), add nodes, or wait "
          "longer "
          "(start_timeout, --start-timeout)"));
    }
    logged = true;
    LOG(WARNING) << "training cannot begin yet: " << progress
                 << ". It is given up after " << absl::FormatDuration(timeout);
  }
}

}  // namespace miniray::train
