#include "tools/bench/sync_team.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"

namespace miniray::bench {

absl::StatusOr<std::unique_ptr<SyncTeam>> SyncTeam::Start(
    const Cluster& cluster, int size, int64_t bytes) {
  return Start(cluster,
               {.bytes = bytes,
                .workers = std::vector<ActorOptions>(static_cast<size_t>(size)),
                .servers = {{}}});
}

absl::StatusOr<std::unique_ptr<SyncTeam>> SyncTeam::Start(
    const Cluster& cluster, const Options& options) {
  auto team = absl::WrapUnique(new SyncTeam);
  for (const ps::ServerOptions& server : options.servers) {
    MR_ASSIGN_OR_RETURN(
        ActorHandle<ps::ParameterServer> handle,
        ps::CreateParameterServer(cluster, "average", {}, server,
                                  options.server_actor));
    team->servers_.push_back(std::move(handle));
  }
  for (const ActorOptions& actor : options.workers) {
    MR_ASSIGN_OR_RETURN(ActorHandle<SyncWorker> worker,
                        cluster.CreateActor<SyncWorker>(actor, options.bytes));
    team->handles_.push_back(worker);
    team->workers_.push_back(std::move(worker));
  }
  for (const auto& server : team->servers_) {
    MR_RETURN_IF_ERROR(server.WaitReady());
  }
  MR_RETURN_IF_ERROR(team->Fill());
  return team;
}

absl::StatusOr<double> SyncTeam::Sync(size_t server) {
  const absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(const ps::SyncResult result,
                      servers_[server]
                          .Call<&ps::ParameterServer::SyncFromWorkers>(handles_)
                          .Get());
  const double seconds = SecondsSince(start);
  num_pieces_ = result.num_pieces;
  std::vector<ObjectRef<void>> checks;
  for (const auto& worker : workers_) {
    checks.push_back(worker.Call<&SyncWorker::Check>(Size(), round_));
  }
  MR_RETURN_IF_ERROR(GetAll(checks));
  MR_RETURN_IF_ERROR(Fill());
  return seconds;
}

absl::Status SyncTeam::BeginServer() {
  MR_RETURN_IF_ERROR(servers_.front()
                         .Call<&ps::ParameterServer::StartFromWorkers>(handles_)
                         .Get()
                         .status());
  return Fill();
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
