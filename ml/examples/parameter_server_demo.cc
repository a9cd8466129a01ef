// Three parameter servers, each with another strategy, and three tiny workers
// whose numbers one can follow by hand. See README.md.

#include <string>
#include <vector>

#include "ml/examples/demo_table.h"
#include "ml/examples/example_main.h"
#include "ml/examples/tiny_worker.h"
#include "ps/parameter_server.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// Synchronises three new workers, with a step of training in between.
absl::Status RunStrategy(const Cluster& cluster, const std::string& strategy,
                         const ps::StrategyOptions& options, DemoTable* table) {
  MR_ASSIGN_OR_RETURN(const auto workers, StartTinyWorkers(cluster));
  MR_ASSIGN_OR_RETURN(const ActorHandle<ps::ParameterServer> server,
                      ps::CreateParameterServer(cluster, strategy, options));
  const std::vector<AnyActorHandle> handles(workers.begin(), workers.end());
  for (int sync = 0; sync < kDemoSyncs; ++sync) {
    if (sync > 0) MR_RETURN_IF_ERROR(TrainAll(workers));
    // Weights go from worker to server and back; this program sees none.
    const auto call =
        server.Call<&ps::ParameterServer::SyncFromWorkers>(handles);
    MR_RETURN_IF_ERROR(call.Get().status());
    MR_ASSIGN_OR_RETURN(const NamedTensors weights,
                        workers[0].Call<&TinyWorker::GetWeights>().Get());
    table->AddWeights(strategy, sync, weights);
  }
  MR_ASSIGN_OR_RETURN(const ps::SyncStats stats,
                      server.Call<&ps::ParameterServer::GetStats>().Get());
  table->EndStrategy(stats);
  return absl::OkStatus();
}

absl::Status Run() {
  MR_ASSIGN_OR_RETURN(const Cluster cluster, Cluster::Connect());
  DemoTable table;
  MR_RETURN_IF_ERROR(RunStrategy(cluster, "average", {}, &table));
  MR_RETURN_IF_ERROR(RunStrategy(cluster, "weighted", {}, &table));
  MR_RETURN_IF_ERROR(
      RunStrategy(cluster, "momentum", {{"momentum", 0.5}}, &table));
  table.PrintServers();
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::ml

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  return miniray::ml::ExampleMain(
      argc, argv,
      {.name = "parameter_server_demo", .summary = "Shows three strategies."},
      &miniray::ml::Run);
}
