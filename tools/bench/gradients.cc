// Measures a step of an optimizer on the parameter server: from the gradients
// in the workers to the new weights in their modules.
//
//   bazel-bin/tools/bench/gradients [--mb=N] [--rounds=N] [--json] [--check]

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/time/clock.h"
#include "ps/parameter_server.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/gradient_worker.h"

ABSL_FLAG(int, mb, 100, "Megabytes of a worker's weights.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures how long a step of AdamW on the parameter server takes, with 100 MB
of weights and gradients.

  gradients [FLAGS]

Ours: workers push gradients, the server checks them, steps and checks the new
weights, and the workers load those into their modules. Its peer: the same step by
torch::optim::AdamW in the worker itself, on one thread, with nothing sent.

  --mb=N       megabytes (10^6 bytes) of a worker's weights (default 100))";

// A parameter server and its workers.
struct Team {
  static absl::StatusOr<Team> Start(const Cluster& cluster, int size,
                                    const ps::ServerOptions& options) {
    Team team;
    MR_ASSIGN_OR_RETURN(
        team.server, ps::CreateParameterServer(cluster, "adamw", {}, options));
    for (int i = 0; i < size; ++i) {
      MR_ASSIGN_OR_RETURN(auto worker,
                          cluster.CreateActor<GradientWorker>(
                              {}, int64_t{absl::GetFlag(FLAGS_mb)} * 1000000));
      MR_RETURN_IF_ERROR(
          worker.template Call<&GradientWorker::Join>(team.server, i).Get());
      team.workers.push_back(std::move(worker));
    }
    return team;
  }

  // Seconds until all have pushed once and hold the new weights.
  absl::StatusOr<double> Push() const {
    const absl::Time start = absl::Now();
    std::vector<ObjectRef<void>> pushes;
    for (const auto& worker : workers) {
      pushes.push_back(worker.Call<&GradientWorker::Push>());
    }
    MR_RETURN_IF_ERROR(GetAll(pushes));
    return SecondsSince(start);
  }

  absl::StatusOr<double> StepAlone() const {
    const absl::Time start = absl::Now();
    MR_RETURN_IF_ERROR(
        workers.front().Call<&GradientWorker::StepAlone>().Get());
    return SecondsSince(start);
  }

  ActorHandle<ps::ParameterServer> server;
  std::vector<ActorHandle<GradientWorker>> workers;
};

absl::Status Measure(Table* table) {
  MR_ASSIGN_OR_RETURN(const Cluster cluster,
                      Cluster::Connect({.embedded_num_cpus = 8}));
  MR_ASSIGN_OR_RETURN(
      const Team one,
      Team::Start(cluster, 1, {.mode = ps::SyncMode::kAsynchronous}));
  MR_ASSIGN_OR_RETURN(const Team two,
                      Team::Start(cluster, 2, {.num_workers = 2}));
  MR_ASSIGN_OR_RETURN(
      const std::vector<double> medians,
      MeasureInTurn({{"1 worker, asynchronous", [&] { return one.Push(); }},
                     {"2 workers, in rounds", [&] { return two.Push(); }},
                     {"torch AdamW", [&] { return one.StepAlone(); }}},
                    table));
  const std::string what[] = {"step of AdamW, 1 worker, asynchronous",
                              "step of AdamW, 2 workers, in rounds"};
  for (size_t i = 0; i < 2; ++i) {
    table->Add({.what = what[i],
                .unit = "ms",
                .ours = medians[i] * 1e3,
                .peer_name = "torch::optim::AdamW in the worker",
                .peer = medians[2] * 1e3});
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
      {.name = "gradients", .help = bench::kHelp, .measure = bench::Measure});
}
