// The floor of a synchronisation: only its memory work. The weights of all
// workers lie in kept shared memory; one process averages them with two
// threads, then each worker copies the average into memory of its own.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_SYNC_FLOOR_H_
#define MINIRAY_TOOLS_BENCH_PEERS_SYNC_FLOOR_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/bench/child.h"

namespace miniray::bench {

// The role of the process that averages, and what it runs. It forks the
// workers.
inline constexpr char kSyncFloorRole[] = "sync-floor";
int ServeSyncFloor();

class SyncFloor {
 public:
  static absl::StatusOr<std::unique_ptr<SyncFloor>> Start(int workers,
                                                          int64_t bytes);
  // Seconds until the last worker has its copy.
  absl::StatusOr<double> Sync() { return child_->AskNumber("run"); }

 private:
  explicit SyncFloor(std::unique_ptr<Child> child) : child_(std::move(child)) {}

  const std::unique_ptr<Child> child_;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_SYNC_FLOOR_H_
