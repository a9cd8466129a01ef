#include "train/worker_places.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

bool AsksForNothing(const ResourceOptions& worker) {
  return worker.cpu == 0 && worker.gpu == 0 && worker.memory_bytes == 0 &&
         std::all_of(worker.custom.begin(), worker.custom.end(),
                     [](const auto& item) { return item.second == 0; });
}

}  // namespace

absl::Status WorkerPlaces::Reserve(const Cluster& cluster, int num_workers,
                                   const ResourceOptions& worker,
                                   PlacementStrategy strategy,
                                   const std::string& name) {
  if (group_.has_value() || AsksForNothing(worker)) return absl::OkStatus();
  absl::StatusOr<PlacementGroup> group = cluster.CreatePlacementGroup(
      {.strategy = strategy,
       .bundles = std::vector<ResourceOptions>(num_workers, worker),
       .name = name});
  if (!group.ok()) return Annotate(group.status(), "the workers' places");
  group_ = *std::move(group);
  num_places_ = num_workers;
  used_ = false;
  return absl::OkStatus();
}

void WorkerPlaces::Place(int worker_id, ActorOptions* options) const {
  if (!group_.has_value() || worker_id >= num_places_) return;
  used_ = true;
  options->placement_group = *group_;
  options->bundle_index = worker_id;
}

absl::Status WorkerPlaces::Await(absl::Time begin, absl::Duration timeout,
                                 absl::FunctionRef<bool()> cancelled) {
  if (!group_.has_value()) return absl::OkStatus();
  if (!used_) {
    Release();
    return absl::OkStatus();
  }
  bool logged = false;
  while (true) {
    const absl::Status ready = group_->WaitReady(std::clamp(
        begin + timeout - absl::Now(), absl::ZeroDuration(), kStartTurn));
    if (ready.ok()) return absl::OkStatus();
    if (cancelled()) {
      return absl::CancelledError("the wait for places was given up");
    }
    const absl::Duration waited = absl::Now() - begin;
    if (absl::IsDeadlineExceeded(ready) && waited < timeout) {
      if (!logged && waited >= kLogStartAfter) {
        logged = true;
        LOG(WARNING) << "training cannot begin yet: " << ready.message()
                     << ". It is given up after "
                     << absl::FormatDuration(timeout);
      }
      continue;
    }
    if (absl::IsUnavailable(ready)) {
      return Annotate(ready, "the workers' places");
    }
    Release();
    return absl::Status(
        ready.code(),
        absl::StrCat(
            "after ",
            absl::FormatDuration(absl::Trunc(waited, absl::Seconds(1))),
            " the workers have no places, which they get together: ",
            ready.message(),
            ". Use fewer workers (num_workers, --workers) or smaller "
            "ones (worker_resources, --num-cpus-per-worker; "
            "resources_per_worker, use_gpu), add nodes, or wait longer "
            "(start_timeout, --start-timeout)"));
  }
}

void WorkerPlaces::Release() {
  if (!group_.has_value()) return;
  const absl::Status removed = group_->Remove();
  LOG_IF(WARNING, !removed.ok())
      << "the workers' places could not be given back before the driver ends: "
      << removed.message();
  group_.reset();
}

}  // namespace miniray::train
