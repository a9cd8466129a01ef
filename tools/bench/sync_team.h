// A parameter server and its workers, for benchmarks of synchronisations.

#ifndef MINIRAY_TOOLS_BENCH_SYNC_TEAM_H_
#define MINIRAY_TOOLS_BENCH_SYNC_TEAM_H_

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
  // `size` workers, each with a module of `bytes`; the server has its default
  // options.
  static absl::StatusOr<std::unique_ptr<SyncTeam>> Start(const Cluster& cluster,
                                                         int size,
                                                         int64_t bytes);

  // Seconds of one synchronisation, until the modules of all workers hold the
  // mean. Checks that they do, and gives the workers new weights for the next.
  absl::StatusOr<double> Sync();

 private:
  SyncTeam() = default;

  int Size() const { return static_cast<int>(workers_.size()); }
  absl::Status Fill();

  int round_ = 0;
  ActorHandle<ps::ParameterServer> server_;
  std::vector<ActorHandle<SyncWorker>> workers_;
  std::vector<AnyActorHandle> handles_;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_SYNC_TEAM_H_
