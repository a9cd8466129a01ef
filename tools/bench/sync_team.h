// Parameter servers and their workers, for benchmarks of synchronisations.

#ifndef MINIRAY_TOOLS_BENCH_SYNC_TEAM_H_
#define MINIRAY_TOOLS_BENCH_SYNC_TEAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/parameter_server.h"
#include "runtime/api/miniray.h"
#include "tools/bench/sync_worker.h"

namespace miniray::bench {

// Not thread-safe.
class SyncTeam {
 public:
  struct Options {
    int64_t bytes = 0;                       // Of each worker's module.
    std::vector<ActorOptions> workers;       // One for each.
    std::vector<ps::ServerOptions> servers;  // One for each.
    ActorOptions server_actor = {.resources = {.cpu = 0}};
  };
  static absl::StatusOr<std::unique_ptr<SyncTeam>> Start(
      const Cluster& cluster, const Options& options);

  // `size` workers, each with a module of `bytes`; the server has its default
  // options.
  static absl::StatusOr<std::unique_ptr<SyncTeam>> Start(const Cluster& cluster,
                                                         int size,
                                                         int64_t bytes);

  // Seconds of one synchronisation with that server, until the modules of all
  // workers hold the mean. Checks that they do, and gives the workers new
  // weights for the next.
  absl::StatusOr<double> Sync(size_t server = 0);

  // Lets the first server begin with the weights of a worker, as it does on its
  // own in the first synchronisation.
  absl::Status BeginServer();

  // Of the last synchronisation; see ps::SyncResult.
  int64_t num_pieces() const { return num_pieces_; }

 private:
  SyncTeam() = default;

  int Size() const { return static_cast<int>(workers_.size()); }
  absl::Status Fill();

  int round_ = 0;
  int64_t num_pieces_ = 0;
  std::vector<ActorHandle<ps::ParameterServer>> servers_;
  std::vector<ActorHandle<SyncWorker>> workers_;
  std::vector<AnyActorHandle> handles_;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_SYNC_TEAM_H_
