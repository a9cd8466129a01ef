// Measures a synchronisation of weights through the parameter server, against
// Gloo's all-reduce and the memory work that no way can do without.
//
//   bazel-bin/tools/bench/sync [--mb=N] [--rounds=N] [--json] [--check]

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "runtime/api/miniray.h"
#include "tools/bench/bench.h"
#include "tools/bench/node_memory.h"
#include "tools/bench/peers/gloo.h"
#include "tools/bench/peers/open_mpi.h"
#include "tools/bench/peers/sync_floor.h"
#include "tools/bench/sync_team.h"

ABSL_FLAG(int, mb, 100, "Megabytes of a worker's weights.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures how long workers with 100 MB of weights each take to be averaged.

  sync [FLAGS]

Ours: SyncFromWorkers of the parameter server, until the modules of all workers
hold the mean (which is checked). Its peers: an all-reduce of the same size over
Gloo through LibTorch's c10d, and over Open MPI. The floor: weights that already
lie in shared memory are averaged by two threads, then copied into each worker's
own memory.

Extra memory: the most that all processes of the node use during the first
synchronisations, less what they used before the server had weights; and its
parts, the weights that the server keeps between synchronisations and what a
synchronisation takes beside them. Times and memory are measured of two servers,
one with the default options and one that does not keep its weights meanwhile
(keep_weights = false), which is held to all targets at once.

  --mb=N       megabytes (10^6 bytes) of a worker's weights (default 100))";

// What the processes need besides weights: stacks, messages, tables.
constexpr double kMemoryTolerance = 1.05;
constexpr int kMemorySyncs = 5;

int64_t Bytes() { return int64_t{absl::GetFlag(FLAGS_mb)} * 1000000; }

// Beyond what the node used before the server had weights.
struct ExtraMemory {
  int64_t server_bytes = 0;  // What it keeps between synchronisations.
  int64_t sync_bytes = 0;    // What synchronisations take beside that.
};

absl::StatusOr<ExtraMemory> MeasureMemory(SyncTeam* team) {
  const int64_t before = TreeMemory({});
  MR_RETURN_IF_ERROR(team->BeginServer());
  const int64_t begun = TreeMemory({});
  MR_ASSIGN_OR_RETURN(const int64_t peak,
                      PeakTreeMemory({}, [&]() -> absl::Status {
                        for (int i = 0; i < kMemorySyncs; ++i) {
                          MR_RETURN_IF_ERROR(team->Sync().status());
                        }
                        return absl::OkStatus();
                      }));
  return ExtraMemory{begun - before, peak - begun};
}

// With a server that does not keep its weights.
absl::StatusOr<std::unique_ptr<SyncTeam>> StartSparing(const Cluster& cluster,
                                                       size_t size,
                                                       int64_t bytes) {
  return SyncTeam::Start(cluster, {.bytes = bytes,
                                   .workers = std::vector<ActorOptions>(size),
                                   .servers = {{.keep_weights = false}}});
}

absl::Status Measure(Table* table) {
  const int64_t bytes = Bytes();
  MR_ASSIGN_OR_RETURN(const Cluster cluster,
                      Cluster::Connect({.embedded_num_cpus = 12}));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<SyncTeam> four,
                      SyncTeam::Start(cluster, 4, bytes));
  // Before the peers are there.
  MR_ASSIGN_OR_RETURN(const ExtraMemory extra, MeasureMemory(four.get()));
  MR_ASSIGN_OR_RETURN(const auto sparing_four, StartSparing(cluster, 4, bytes));
  MR_ASSIGN_OR_RETURN(const ExtraMemory spared,
                      MeasureMemory(sparing_four.get()));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<SyncTeam> two,
                      SyncTeam::Start(cluster, 2, bytes));
  MR_ASSIGN_OR_RETURN(const auto sparing_two, StartSparing(cluster, 2, bytes));
  MR_ASSIGN_OR_RETURN(const auto gloo_four, GlooGroup::Start(4, bytes));
  MR_ASSIGN_OR_RETURN(const auto gloo_two, GlooGroup::Start(2, bytes));
  MR_ASSIGN_OR_RETURN(const auto floor_four, SyncFloor::Start(4, bytes));
  MR_ASSIGN_OR_RETURN(const auto floor_two, SyncFloor::Start(2, bytes));
  const bool mpi = HasOpenMpi();

  std::vector<Measurement> measurements = {
      {"4 workers", [&] { return four->Sync(); }},
      {"Gloo, 4 ranks", [&] { return gloo_four->AllReduce(); }},
      {"floor, 4 workers", [&] { return floor_four->Sync(); }},
      {"2 workers", [&] { return two->Sync(); }},
      {"Gloo, 2 ranks", [&] { return gloo_two->AllReduce(); }},
      {"floor, 2 workers", [&] { return floor_two->Sync(); }},
      {"4 workers, keep_weights = false", [&] { return sparing_four->Sync(); }},
      {"2 workers, keep_weights = false", [&] { return sparing_two->Sync(); }},
  };
  if (mpi) {
    measurements.push_back(
        {"Open MPI, 4 ranks", [&] { return OpenMpiAllReduce(4, bytes); }});
    measurements.push_back(
        {"Open MPI, 2 ranks", [&] { return OpenMpiAllReduce(2, bytes); }});
  }
  MR_ASSIGN_OR_RETURN(const std::vector<double> medians,
                      MeasureInTurn(measurements, table));
  auto add = [&](const std::string& what, size_t ours, const std::string& name,
                 std::optional<size_t> peer, std::optional<double> at_most) {
    Row row{.what = what,
            .unit = "ms",
            .ours = medians[ours] * 1e3,
            .peer_name = name,
            .at_most = at_most};
    if (peer.has_value()) row.peer = medians[*peer] * 1e3;
    table->Add(std::move(row));
  };
  const std::string mpi_name = mpi ? "Open MPI all-reduce" : kNoOpenMpi;
  using Index = std::optional<size_t>;
  add("sync, 4 workers", 0, "Gloo all-reduce, 4 processes", 1, 0.25);
  add("sync, 4 workers", 0, "memory work alone", 2, 1.4);
  add("sync, 4 workers", 0, mpi_name, mpi ? Index(8) : Index(), {});
  add("sync, 2 workers", 3, "Gloo all-reduce, 2 processes", 4, 0.35);
  add("sync, 2 workers", 3, "memory work alone", 5, {});
  add("sync, 2 workers", 3, mpi_name, mpi ? Index(9) : Index(), {});
  // One configuration is held to all of it, memory included.
  add("4 workers, keep_weights = false", 6, "Gloo all-reduce, 4 processes", 1,
      0.25);
  add("4 workers, keep_weights = false", 6, "memory work alone", 2, 1.4);
  add("2 workers, keep_weights = false", 7, "Gloo all-reduce, 2 processes", 4,
      0.35);
  const auto add_memory = [&](const std::string& what, int64_t ours,
                              std::optional<double> at_most) {
    table->Add({.what = what,
                .unit = "MB",
                .ours = static_cast<double>(ours) / 1e6,
                .peer_name = "one model",
                .peer = static_cast<double>(bytes) / 1e6,
                .note = "5 % for all that is no weights",
                .at_most = at_most});
  };
  add_memory("extra memory, keep_weights = false",
             spared.server_bytes + spared.sync_bytes, kMemoryTolerance);
  add_memory("extra memory, 4 workers", extra.server_bytes + extra.sync_bytes,
             {});
  add_memory("of it the server's weights", extra.server_bytes, {});
  add_memory("of it a sync beside them", extra.sync_bytes, {});
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(
      argc, argv,
      {.name = "sync",
       .help = bench::kHelp,
       .measure = bench::Measure,
       .roles = {{bench::kGlooRole, bench::ServeGlooRank},
                 {bench::kSyncFloorRole, bench::ServeSyncFloor},
                 {bench::kOpenMpiRole, bench::ServeOpenMpiRank}}});
}
