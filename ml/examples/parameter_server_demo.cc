// Three parameter servers, each with another strategy, and three tiny workers
// whose numbers one can follow by hand. See README.md.

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/str_format.h"
#include "ml/cli/flags.h"
#include "ps/parameter_server.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/tensor_codec.h"

using miniray::ActorHandle;
using miniray::NamedTensors;
using miniray::ps::ParameterServer;
using miniray::ps::StrategyOptions;
using miniray::ps::SyncStats;

// The "model" is one tensor of two numbers; a step of "training" adds the same
// to both. GetWeights and SetWeights make any class a worker.
class TinyWorker {
 public:
  TinyWorker(const std::vector<float>& start, double step, int64_t samples)
      : weights_(at::tensor(start)), step_(step), samples_(samples) {}

  void Train() { weights_ += step_; }
  NamedTensors GetWeights() const { return {{"w", weights_}}; }
  void SetWeights(const NamedTensors& weights) {
    weights_.copy_(weights[0].second);
  }
  // Optional: the worker's weight in the strategy "weighted".
  int64_t NumSamples() const { return samples_; }

 private:
  at::Tensor weights_;
  const double step_;
  const int64_t samples_;
};
MINIRAY_ACTOR(TinyWorker, Constructor<std::vector<float>, double, int64_t>,
              &TinyWorker::Train, &TinyWorker::GetWeights,
              &TinyWorker::SetWeights, &TinyWorker::NumSamples);

namespace {

constexpr int kSyncs = 3;

// "[3.75, 6]".
std::string Text(const at::Tensor& weights) {
  const float* values = weights.data_ptr<float>();
  return absl::StrFormat("[%g, %g]", values[0], values[1]);
}

// Synchronises three new workers kSyncs times, with a step of training in
// between; prints the weights after each, and returns the server's statistics.
absl::StatusOr<SyncStats> RunStrategy(const miniray::Cluster& cluster,
                                      const std::string& strategy,
                                      const StrategyOptions& options) {
  std::vector<ActorHandle<TinyWorker>> workers;
  const std::vector<std::vector<float>> starts = {{1, 2}, {2, 4}, {6, 9}};
  const std::vector<int64_t> samples = {100, 100, 200};
  for (size_t i = 0; i < starts.size(); ++i) {
    // A process of its own, wherever the cluster has room.
    MR_ASSIGN_OR_RETURN(
        ActorHandle<TinyWorker> worker,
        cluster.CreateActor<TinyWorker>({.resources = {.cpu = 0.1}}, starts[i],
                                        /*step=*/i + 1.0, samples[i]));
    workers.push_back(std::move(worker));
  }
  MR_ASSIGN_OR_RETURN(
      const ActorHandle<ParameterServer> server,
      miniray::ps::CreateParameterServer(cluster, strategy, options));
  std::cout << absl::StrFormat("%-10s", strategy);
  for (int sync = 0; sync < kSyncs; ++sync) {
    std::vector<miniray::ObjectRef<void>> steps;
    for (const ActorHandle<TinyWorker>& worker : workers) {
      if (sync > 0) steps.push_back(worker.Call<&TinyWorker::Train>());
    }
    MR_RETURN_IF_ERROR(miniray::GetAll(steps));
    // Weights go from worker to server and back; this program sees none.
    const std::vector<miniray::AnyActorHandle> handles(workers.begin(),
                                                       workers.end());
    MR_RETURN_IF_ERROR(
        server.Call<&ParameterServer::SyncFromWorkers>(handles).Get().status());
    MR_ASSIGN_OR_RETURN(const NamedTensors weights,
                        workers[0].Call<&TinyWorker::GetWeights>().Get());
    std::cout << absl::StrFormat("%16s", Text(weights[0].second));
  }
  std::cout << std::endl;
  return server.Call<&ParameterServer::GetStats>().Get();
}

absl::Status Run() {
  // --address or MINIRAY_ADDRESS, else a small cluster of its own.
  MR_ASSIGN_OR_RETURN(const miniray::Cluster cluster,
                      miniray::Cluster::Connect());
  std::cout << "Weights of all three workers\n"
            << absl::StrFormat("%-10s%16s%16s%16s\n", "strategy", "sync 1",
                               "sync 2", "sync 3");
  std::vector<SyncStats> all;
  for (const auto& [strategy, options] :
       std::vector<std::pair<std::string, StrategyOptions>>{
           {"average", {}},
           {"weighted", {}},
           {"momentum", {{"momentum", 0.5}}}}) {
    MR_ASSIGN_OR_RETURN(SyncStats stats,
                        RunStrategy(cluster, strategy, options));
    all.push_back(std::move(stats));
  }
  std::cout << "\nThe servers\n"
            << absl::StrFormat("%-26s%8s%8s%9s%9s%9s\n", "strategy", "version",
                               "syncs", "accepted", "pulled", "pushed");
  for (const SyncStats& stats : all) {
    std::cout << absl::StrFormat("%-26s%8d%8d%9d%7d B%7d B\n", stats.strategy,
                                 stats.version, stats.num_syncs,
                                 stats.contributions_accepted,
                                 stats.bytes_pulled, stats.bytes_pushed);
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  const miniray::ml::ProgramHelp help = {
      .name = "parameter_server_demo",
      .summary =
          "Synchronises three tiny workers through parameter servers of "
          "three strategies, and prints weights and statistics.",
      .other_flags = {{"address=HOST:PORT",
                       "head of the cluster; without it, and without "
                       "MINIRAY_ADDRESS, one is started for the run"}}};
  if (const auto code = miniray::ml::ParseCommandLine(help, argc, argv)) {
    return *code;
  }
  const absl::Status status = Run();
  return status.ok() ? 0 : miniray::ml::Fail(help, status, 1);
}
