// Measures a synchronisation of weights through the parameter server, for
// models of two sizes and for two numbers of workers, against LibTorch's own
// all-reduce and what the bytes cost at memcpy's speed.
//
//   bazel-bin/tools/bench/ps [--mb=N,N] [--rounds=N] [--json] [--check]

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/peers/gloo.h"
#include "tools/bench/peers/memory.h"
#include "tools/bench/peers/sync_floor.h"
#include "tools/bench/sync_team.h"

ABSL_FLAG(std::vector<std::string>, mb, (std::vector<std::string>{"25", "100"}),
          "Megabytes of a worker's weights.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures how long 2 and 4 workers with 25 and 100 MB of weights take to be
averaged.

  ps [FLAGS]

Ours: SyncFromWorkers of the parameter server, until the modules of all workers
hold the mean (which is checked). Beside it:
  Gloo    an all-reduce of the same size over Gloo through LibTorch's c10d
  bytes   what must be read and written, at memcpy's speed on all cores: of N
          workers with M bytes N M to read and M to write for the mean, and M to
          read and M to write for each worker's module
  memory  a program that does only that work: weights that already lie in shared
          memory are averaged by two threads, past the caches, and then copied

  --mb=N,N     megabytes (10^6 bytes) of a worker's weights (default 25,100))";

// What is compared for one number of workers and one size.
struct Case {
  int workers;
  int64_t bytes;
  std::unique_ptr<SyncTeam> ours;
  std::unique_ptr<GlooGroup> gloo;
  std::unique_ptr<SyncFloor> floor;
};

// Of an all-reduce's time, by number of workers.
double GlooTarget(int workers) { return workers == 4 ? 0.25 : 0.35; }
constexpr double kFloorTarget = 1.4;

absl::StatusOr<std::vector<int64_t>> Sizes() {
  std::vector<int64_t> sizes;
  for (const std::string& word : absl::GetFlag(FLAGS_mb)) {
    int megabytes = 0;
    if (!absl::SimpleAtoi(word, &megabytes) || megabytes < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--mb has '", word, "'; expected 1 or more"));
    }
    sizes.push_back(int64_t{megabytes} * 1000000);
  }
  return sizes;
}

absl::StatusOr<std::vector<Case>> StartCases(
    const Cluster& cluster, const std::vector<int64_t>& sizes) {
  std::vector<Case> cases;
  for (const int64_t bytes : sizes) {
    for (const int workers : {2, 4}) {
      Case c{.workers = workers, .bytes = bytes};
      MR_ASSIGN_OR_RETURN(c.ours, SyncTeam::Start(cluster, workers, bytes));
      MR_ASSIGN_OR_RETURN(c.gloo, GlooGroup::Start(workers, bytes));
      MR_ASSIGN_OR_RETURN(c.floor, SyncFloor::Start(workers, bytes));
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

absl::Status Measure(Table* table) {
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, Sizes());
  // For 2 and 4 workers of each size.
  MR_ASSIGN_OR_RETURN(
      const Cluster cluster,
      Cluster::Connect(
          {.embedded_num_cpus = 6.0 * static_cast<double>(sizes.size())}));
  MR_ASSIGN_OR_RETURN(const std::vector<Case> cases,
                      StartCases(cluster, sizes));
  std::vector<std::unique_ptr<WarmMemory>> memory;
  std::vector<Measurement> measurements;
  for (const Case& c : cases) {
    const std::string name =
        absl::StrCat(c.bytes / 1000000, " MB, ", c.workers, " workers");
    memory.push_back(std::make_unique<WarmMemory>(c.bytes));
    measurements.push_back({name, [&] { return c.ours->Sync(); }});
    measurements.push_back(
        {name + ", Gloo", [&] { return c.gloo->AllReduce(); }});
    measurements.push_back(
        {name + ", memcpy",
         [warm = memory.back().get()]() -> absl::StatusOr<double> {
           return warm->CopyOnAllCores();
         }});
    measurements.push_back(
        {name + ", memory work", [&] { return c.floor->Sync(); }});
  }
  MR_ASSIGN_OR_RETURN(const std::vector<double> medians,
                      MeasureInTurn(measurements, table));
  const double* median = medians.data();
  for (const Case& c : cases) {
    const double ours = *median++, gloo = *median++;
    // A copy reads and writes its bytes: two for each.
    const double bytes = *median++ / 2 * (3 * c.workers + 1);
    const double work = *median++;
    const std::string what = absl::StrCat("sync of ", c.bytes / 1000000,
                                          " MB, ", c.workers, " workers");
    const auto add = [&](const std::string& peer, double seconds,
                         std::optional<double> at_most) {
      table->Add({.what = what,
                  .unit = "ms",
                  .ours = ours * 1e3,
                  .peer_name = peer,
                  .peer = seconds * 1e3,
                  .at_most = at_most});
    };
    add("Gloo all-reduce", gloo, GlooTarget(c.workers));
    add("bytes at memcpy's speed", bytes, kFloorTarget);
    add("memory work alone", work, {});
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(
      argc, argv,
      {.name = "ps",
       .help = bench::kHelp,
       .measure = bench::Measure,
       .roles = {{bench::kGlooRole, bench::ServeGlooRank},
                 {bench::kSyncFloorRole, bench::ServeSyncFloor}}});
}
