// The parameter server: an actor that holds the weights that several workers
// share, and brings the workers back to them.
//
//   MR_ASSIGN_OR_RETURN(ActorHandle<ParameterServer> server,
//                       CreateParameterServer(cluster, "momentum",
//                                             {{"momentum", 0.9}}));
//   MR_ASSIGN_OR_RETURN(SyncResult result,
//                       server.Call<&ParameterServer::SyncFromWorkers>(workers)
//                           .Get());
//
// A worker is an actor of any class with the methods
//   NamedTensors GetWeights();
//   void SetWeights(NamedTensors weights);
// and is known to the server by its index among the workers. Instead of
// GetWeights, the server calls
//   ReadOnly<NamedTensors> LendWeights();
// where the class has it: what it returns may be the memory that the worker
// trains in (train/state_dict.h), for it is only read until SetWeights is
// called or the synchronisation has failed. SetWeights may take a ReadOnly,
// too.

#ifndef MINIRAY_PS_PARAMETER_SERVER_H_
#define MINIRAY_PS_PARAMETER_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps/check_weights.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// What one synchronisation did.
struct SyncResult {
  int64_t version = 0;  // Of the weights that the workers now hold.
  int64_t num_workers = 0;
  int64_t bytes = 0;        // Of tensors, pulled and pushed.
  double seconds_pull = 0;  // The checks included: they overlap.
  double seconds_aggregate = 0;
  double seconds_push = 0;
};
MINIRAY_STRUCT(SyncResult, version, num_workers, bytes, seconds_pull,
               seconds_aggregate, seconds_push);

// The server's life so far.
struct SyncStats {
  std::string strategy;   // Name and options: "momentum (momentum=0.9)".
  int64_t version = 0;    // How often the weights changed; 0: there are none.
  int64_t num_syncs = 0;  // Synchronisations that reached every worker.
  bool initialized = false;  // There are weights.
  int64_t num_tensors = 0;
  int64_t bytes_pulled = 0;  // Totals over all synchronisations.
  int64_t bytes_pushed = 0;
  double seconds_pull = 0;
  double seconds_aggregate = 0;
  double seconds_push = 0;
};
MINIRAY_STRUCT(SyncStats, strategy, version, num_syncs, initialized,
               num_tensors, bytes_pulled, bytes_pushed, seconds_pull,
               seconds_aggregate, seconds_push);

// The actor's class; drivers use it through CreateParameterServer.
//
// The first weights that it sees fix the model: later ones must have the same
// names, shapes and element types, in the same order. A program that trains two
// models, or another one after that, has a server for each.
class ParameterServer {
 public:
  // Throws std::invalid_argument for what StrategyRegistry::Create refuses.
  ParameterServer(const std::string& strategy, const StrategyOptions& options);

  // Pulls the weights of all workers at once, checks them, aggregates, and
  // pushes the result to all at once. Afterwards all hold the same bits. Waits
  // as long as a worker takes; logs every 30 s for whom.
  //
  // Errors: the worker's, beginning with "worker 2 (GanWorker 'w2')", when it
  // is dead or fails. INVALID_ARGUMENT, no workers, or weights that do not fit
  // together or are not finite (with worker and tensor). What the strategy
  // returns. In all these cases no worker has received anything. When a push
  // fails, the other workers have the new weights, and so has the server.
  absl::StatusOr<SyncResult> SyncFromWorkers(
      const std::vector<AnyActorHandle>& workers);

  // Returns the weights. Errors: FAILED_PRECONDITION, there are none yet.
  absl::StatusOr<NamedTensors> PullWeights() const;

  // Sets the weights, those of a checkpoint say; strategies that remember
  // start anew from them. Returns the new version.
  //
  // Errors: INVALID_ARGUMENT, they do not fit the model or are not finite.
  absl::StatusOr<int64_t> PushWeights(NamedTensors weights);

  // Sends the server's weights to all workers: for equal starts.
  // Errors: as of SyncFromWorkers. FAILED_PRECONDITION, there are none yet.
  absl::Status PushToWorkers(const std::vector<AnyActorHandle>& workers);

  // Sets the weight of a worker in the mean of strategies like "weighted".
  //
  // worker_id: index among the workers, from 0.  weight: finite, >= 0.
  // Errors: INVALID_ARGUMENT. FAILED_PRECONDITION, the strategy has no use for
  // weights.
  absl::Status SetWorkerWeight(int worker_id, double weight);

  SyncStats GetStats() const;

 private:
  // Pulls from all, checks each by itself as it comes, then all together.
  absl::StatusOr<std::vector<Contribution>> Pull(
      const std::vector<AnyActorHandle>& workers);
  absl::StatusOr<NamedTensors> Aggregate(
      const std::vector<Contribution>& contributions,
      const std::vector<AnyActorHandle>& workers);
  absl::Status Push(const std::vector<AnyActorHandle>& workers);
  void Replace(NamedTensors weights);

  const std::unique_ptr<SyncStrategy> strategy_;
  std::map<int, double> worker_weights_;  // 1 where there is none.
  std::optional<ModelLayout> layout_;     // Set together with weights_.
  NamedTensors weights_;
  SyncStats stats_;
};
MINIRAY_ACTOR(ParameterServer, Constructor<std::string, StrategyOptions>,
              &ParameterServer::SyncFromWorkers, &ParameterServer::PullWeights,
              &ParameterServer::PushWeights, &ParameterServer::PushToWorkers,
              &ParameterServer::SetWorkerWeight, &ParameterServer::GetStats);

// INVALID_ARGUMENT for what no server's SetWorkerWeight takes.
absl::Status CheckWorkerWeight(int worker_id, double weight);

// Creates a parameter server and returns its handle at once. It asks for no
// CPU unless `actor_options` says otherwise, so it never takes the place of a
// worker.
//
// Errors: of StrategyRegistry::Create, before anything is created; of
// Cluster::CreateActor.
absl::StatusOr<ActorHandle<ParameterServer>> CreateParameterServer(
    const Cluster& cluster, absl::string_view strategy = "average",
    const StrategyOptions& options = {},
    const ActorOptions& actor_options = {.resources = {.cpu = 0}});

}  // namespace miniray::ps

#endif  // MINIRAY_PS_PARAMETER_SERVER_H_
