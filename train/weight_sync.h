// A trainer's parameter server: what DataParallelTrainer does about
// synchronisation, without the class of the workers.

#ifndef MINIRAY_TRAIN_WEIGHT_SYNC_H_
#define MINIRAY_TRAIN_WEIGHT_SYNC_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps/parameter_server.h"
#include "ps/pull_weights.h"
#include "runtime/api/miniray.h"
#include "runtime/base/ids.h"
#include "train/worker_contract.h"

namespace miniray::train {

// Not thread-safe.
class WeightSync {
 public:
  // Waits for a call to the server; an error is returned in its place.
  using Wait = std::function<absl::Status(
      const std::shared_ptr<miniray::internal::CallState>&)>;

  WeightSync(std::string strategy, ps::StrategyOptions options,
             ps::ServerOptions server_options, int num_workers, Wait wait);
  ~WeightSync();
  WeightSync(const WeightSync&) = delete;
  WeightSync& operator=(const WeightSync&) = delete;

  // INVALID_ARGUMENT or FAILED_PRECONDITION if the strategy cannot be, or not
  // with so many workers.
  absl::Status Check() const;

  // INVALID_ARGUMENT if the number of workers may not change.
  absl::Status CheckElastic() const;

  // Creates the parameter server; does not wait for it.
  //
  // anew: training goes back to an earlier moment, so that what an earlier
  //   server has in its state_dir is not gone on with: this one's is another
  //   folder, beside it.
  // REQUIRES: none has been started, or it has been ended.
  absl::Status Start(const Cluster& cluster, const ActorOptions& options,
                     bool anew);

  // The server forgets what an earlier one left in its state_dir.
  absl::Status BeginAnew() const;

  // Gives it the worker weights set so far, in place of all that it has.
  absl::Status SendWorkerWeights() const;

  // Makes worker 0's weights everybody's, if the strategy starts from some.
  // Errors also where workers lack what the server will ask of them.
  absl::Status SendStart(const std::vector<AnyActorHandle>& workers) const;

  // FAILED_PRECONDITION if the strategy weighs workers, and neither they nor
  // SetWorkerWeight say how much: the next synchronisation would fail.
  absl::Status CheckWeights(const std::vector<AnyActorHandle>& workers) const;

  // Gives a worker that has been made anew, or an evaluator, what all had after
  // the last synchronisation; nothing, if there was none and no common start.
  // name: "worker 2", for errors.
  absl::Status SendTo(absl::string_view name,
                      const AnyActorHandle& actor) const;

  // Kills the parameter server with its shards, dead or not. A folder of its
  // own beside state_dir is removed, if it is on this machine. Idempotent.
  // Errors: UNAVAILABLE or DEADLINE_EXCEEDED, the head does not answer: it may
  // still live, and Stop may be called again.
  absl::Status Stop();

  // The same at the end of training, whose state is to be found in state_dir,
  // on this machine. What cannot be ended now is left to the end of the driver.
  void StopForGood();

  // See DataParallelTrainer.
  absl::Status SetWorkerWeight(int worker_id, double weight);
  absl::StatusOr<ps::SyncResult> Sync(
      const std::vector<AnyActorHandle>& workers);
  // The synchronisation that has failed once more: only pushed again where the
  // server had aggregated it already.
  absl::StatusOr<ps::SyncResult> SyncAgain(
      const std::vector<AnyActorHandle>& workers);
  // Begins one, which the workers take part in beside what else they do, and
  // waits for it. REQUIRES: none runs; one runs.
  absl::Status Begin(const std::vector<AnyActorHandle>& workers);
  bool runs() const { return running_.has_value(); }
  absl::StatusOr<ps::SyncResult> Finish();
  absl::StatusOr<ps::SyncStats> Stats() const;
  absl::StatusOr<NamedTensors> PullWeights() const;

  // The parameter server's state, for a checkpoint, and back, but for the
  // worker weights: those that are set here stand.
  absl::StatusOr<std::string> ExportState() const;
  absl::Status ImportState(const std::string& state) const;

  const ActorHandle<ps::ParameterServer>& server() const { return server_; }

 private:
  absl::Status CheckStarted() const;
  absl::Status EndActors();
  // Calls the server for the synchronisation of this number.
  absl::StatusOr<ObjectRef<ps::SyncResult>> CallServer(
      const std::vector<AnyActorHandle>& workers) const;
  // The result, once wait_ lets it.
  template <class T>
  auto Await(ObjectRef<T> ref) const -> decltype(ref.Get()) {
    const absl::Status waited = wait_(ref.state());
    if (!waited.ok()) return waited;
    return std::move(ref).Get();
  }
  // For what may run twice: a server that keeps its state comes back.
  CallOptions Retries() const;

  const std::string strategy_;
  const ps::StrategyOptions options_;
  const ps::ServerOptions server_options_;
  const int num_workers_;
  const Wait wait_;
  std::map<int, double> weights_;
  const std::string run_id_ = NewId("run");
  int64_t num_syncs_ = 0;
  std::optional<ObjectRef<ps::SyncResult>> running_;  // Begun, not finished.
  ActorHandle<ps::ParameterServer> server_;           // Empty unless started.
  std::vector<AnyActorHandle> shards_;  // Its shards, if there are several.
  std::string anew_dir_;  // Where it keeps its state, beside state_dir; or "".
};

// Calls LoadDataShard of all workers, or of `only`; waits for none. By worker;
// null for the others.
std::vector<std::shared_ptr<miniray::internal::CallState>> CallLoadDataShard(
    const std::vector<AnyActorHandle>& workers, internal::ShardCall form,
    const Config& config, std::optional<int> only = std::nullopt);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_WEIGHT_SYNC_H_
