// ShardedServer: what stands behind the ParameterServer that a user talks to
// where the model is cut over several shards, actors of their own. It holds no
// weights and remembers nothing: the shards do.
//
// A synchronisation changes all shards or none. Each pulls its part of the
// weights, all agree on whose contributions count, whole-model strategies add
// up their sums, and each aggregates its part and saves it beside the state
// that it has ("prepared"). Only when all have, each is told to make it its
// state
// ("commit"), and then to push it; a worker takes new weights when all parts
// are there. Whoever is killed in between, one of two holds afterwards: some
// shard has committed, then all have prepared, and the others commit now; or
// none has, and those that have prepared take it back. Weights and states that
// come from elsewhere go the same way.
//
// With ServerOptions::state_dir a shard that dies comes back, and what it was
// part of is done again or continued. Without, its part of the model is lost,
// and everything fails.
//
// Gray, Lamport 2006, Consensus on Transaction Commit (two-phase commit; the
// coordinator has no state of its own here, since any shard tells the outcome).
//
// Not thread-safe.

#ifndef MINIRAY_PS_SHARDED_SERVER_H_
#define MINIRAY_PS_SHARDED_SERVER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/server_options.h"
#include "ps/shard_messages.h"
#include "ps/sync_result.h"
#include "ps/sync_strategy.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

class ShardedServer {
 public:
  // shards: actors of class ParameterServer, by their index.
  // strategy: an instance of the shards' strategy, which is asked only what it
  //   is. Both it and `options` outlive this.
  ShardedServer(const SyncStrategy* strategy, const ServerOptions* options,
                std::vector<AnyActorHandle> shards);

  // These are ParameterServer's; workers are checked.
  absl::StatusOr<SyncResult> Sync(const std::vector<AnyActorHandle>& workers,
                                  std::string sync_id);
  absl::StatusOr<NamedTensors> PullWeights();
  absl::StatusOr<int64_t> PushWeights(const NamedTensors& weights);
  absl::StatusOr<int64_t> StartFromWorkers(
      const std::vector<AnyActorHandle>& workers);
  absl::Status PushToWorkers(const std::vector<AnyActorHandle>& workers);
  absl::Status SetWorkerWeight(int worker_id, double weight);
  absl::Status SetWorkerWeights(const std::map<int, double>& weights);
  absl::StatusOr<SyncStats> GetStats();
  absl::StatusOr<std::string> ExportState();
  absl::Status ImportState(const std::string& bytes);
  absl::Status BeginAnew();

 private:
  enum class Repeat { kNo, kIfShardDies };

  // Brings all shards to the same weights; done once, and after each failure.
  // Errors: UNAVAILABLE, a shard is dead for good. DATA_LOSS, their states are
  // of different times.
  absl::Status Settle();
  absl::StatusOr<SyncResult> TrySync(const std::vector<AnyActorHandle>& workers,
                                     const std::string& sync_id);
  // The end of all that changes weights. prepared: outcome of the first half.
  absl::StatusOr<int64_t> Finish(const absl::Status& prepared,
                                 const std::string& id);
  absl::Status Push(const std::vector<AnyActorHandle>& workers,
                    const std::vector<LeftOutWorker>& left_out, bool of_sync,
                    SyncResult* result);
  // What came of it. Those who failed or died are sent all parts again: of one
  // alone they could do nothing.
  absl::Status Judge(const std::vector<AnyActorHandle>& workers,
                     const std::vector<PushedPart>& pushed, SyncResult* result);
  absl::Status Commit(const std::string& id);
  // All forget what is prepared. reset: and what their strategies remember.
  void Abandon(bool reset);
  // Whom one shard leaves out, all do.
  absl::StatusOr<std::vector<LeftOutWorker>> Merge(
      const std::vector<PulledPart>& pulled,
      const std::vector<AnyActorHandle>& workers) const;

  // Makes a call to each shard, `call(i)`, waits for all, and returns the
  // results, or the error of the first that failed; notes whether one has died.
  template <class R>
  absl::StatusOr<std::vector<R>> Await(std::vector<ObjectRef<R>> calls) {
    std::vector<R> results;
    absl::Status first_error;
    for (size_t i = 0; i < calls.size(); ++i) {
      absl::StatusOr<R> result = calls[i].Get();
      if (result.ok()) {
        results.push_back(*std::move(result));
      } else {
        first_error.Update(Note(i, result.status()));
      }
    }
    if (!first_error.ok()) return first_error;
    return results;
  }
  template <class R, class... Args>
  absl::StatusOr<std::vector<R>> CallAll(Repeat repeat, const char* method,
                                         const Args&... args) {
    std::vector<ObjectRef<R>> calls;
    for (const AnyActorHandle& shard : shards_) {
      calls.push_back(
          shard.CallByNameWith<R>(OptionsOf(repeat), method, args...));
    }
    return Await(std::move(calls));
  }
  template <class... Args>
  absl::Status CallAllForNothing(Repeat repeat, const char* method,
                                 const Args&... args) {
    std::vector<ObjectRef<void>> calls;
    for (const AnyActorHandle& shard : shards_) {
      calls.push_back(
          shard.CallByNameWith<void>(OptionsOf(repeat), method, args...));
    }
    absl::Status first_error;
    for (size_t i = 0; i < calls.size(); ++i) {
      const absl::Status done = calls[i].Get();
      if (!done.ok()) first_error.Update(Note(i, done));
    }
    return first_error;
  }
  CallOptions OptionsOf(Repeat repeat) const;
  // Returns it with the shard's name.
  absl::Status Note(size_t shard, const absl::Status& error);

  const SyncStrategy* const strategy_;
  const ServerOptions& options_;
  const std::vector<AnyActorHandle> shards_;
  bool settled_ = false;
  bool shard_died_ = false;  // In the attempt that is under way.
  PartState state_;          // Of all shards, if settled.
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SHARDED_SERVER_H_
