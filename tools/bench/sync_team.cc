#include "tools/bench/sync_team.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"

namespace miniray::bench {

absl::StatusOr<std::unique_ptr<SyncTeam>> SyncTeam::Start(
    const Cluster& cluster, int size, int64_t bytes) {
  auto team = absl::WrapUnique(new SyncTeam);
  MR_ASSIGN_OR_RETURN(team->server_, ps::CreateParameterServer(cluster));
  for (int i = 0; i < size; ++i) {
    MR_ASSIGN_OR_RETURN(ActorHandle<SyncWorker> worker,
                        cluster.CreateActor<SyncWorker>({}, bytes));
    team->handles_.push_back(worker);
    team->workers_.push_back(std::move(worker));
  }
  MR_RETURN_IF_ERROR(team->server_.WaitReady());
  MR_RETURN_IF_ERROR(team->Fill());
  return team;
}

absl::StatusOr<double> SyncTeam::Sync() {
  const absl::Time start = absl::Now();
  MR_RETURN_IF_ERROR(
      server_.Call<&ps::ParameterServer::SyncFromWorkers>(handles_)
          .Get()
          .status());
  const double seconds = SecondsSince(start);
  std::vector<ObjectRef<void>> checks;
  for (const auto& worker : workers_) {
    checks.push_back(worker.Call<&SyncWorker::Check>(Size(), round_));
  }
  MR_RETURN_IF_ERROR(GetAll(checks));
  MR_RETURN_IF_ERROR(Fill());
  return seconds;
}

absl::Status SyncTeam::Fill() {
  ++round_;
  std::vector<ObjectRef<void>> fills;
  for (int i = 0; i < Size(); ++i) {
    fills.push_back(
        workers_[static_cast<size_t>(i)].Call<&SyncWorker::Fill>(i, round_));
  }
  return GetAll(fills);
}

}  // namespace miniray::bench
