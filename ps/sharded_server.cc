#include "ps/sharded_server.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/await_calls.h"
#include "ps/compression/block_codec.h"
#include "ps/model_cut.h"
#include "ps/model_pieces.h"
#include "ps/push_error.h"
#include "ps/shard_states.h"
#include "ps/shard_stats.h"
#include "ps/weight_message.h"
#include "runtime/base/ids.h"

namespace miniray::ps {
namespace {

// So that what is computed block by block does not depend on the cut.
static_assert(kCutGrid % kCodecBlock == 0 && kCutGrid % kSumBlock == 0);

// Of one synchronisation. A shard that dies each time, of too little memory
// say, would have it begin again for ever.
constexpr int kMaxAttempts = 20;

double SecondsSince(absl::Time start) {
  return absl::ToDoubleSeconds(absl::Now() - start);
}

absl::Status FirstError(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    if (!outcome.status().ok()) return outcome.status();
  }
  return absl::OkStatus();
}

absl::Status NoWeights() {
  return absl::FailedPreconditionError(
      "the parameter server has no weights yet; call SyncFromWorkers or "
      "PushWeights first");
}

}  // namespace

ShardedServer::ShardedServer(const SyncStrategy* strategy,
                             const ServerOptions* options,
                             std::vector<AnyActorHandle> shards)
    : strategy_(strategy), options_(*options), shards_(std::move(shards)) {}

CallOptions ShardedServer::OptionsOf(Repeat repeat) const {
  CallOptions options;
  const bool comes_back = !options_.state_dir.empty();
  options.max_retries = repeat == Repeat::kIfShardDies && comes_back ? -1 : 0;
  return options;
}

absl::Status ShardedServer::Note(size_t shard, const absl::Status& error) {
  settled_ = false;
  if (absl::IsUnavailable(error)) shard_died_ = true;
  return Annotate(error, absl::StrCat("shard ", shard, " of ", shards_.size()));
}

absl::Status ShardedServer::Settle() {
  shard_died_ = false;
  if (settled_) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(std::vector<PartState> states,
                      CallAll<PartState>(Repeat::kIfShardDies, "GetPartState"));
  // Weights that a shard has, and all others have or have prepared: versions do
  // not tell, since an imported state may be an older one.
  const auto settled =
      std::find_if(states.begin(), states.end(), [&](const PartState& one) {
        return std::all_of(
            states.begin(), states.end(), [&](const PartState& other) {
              return other.id == one.id ||
                     (!one.id.empty() && other.prepared == one.id);
            });
      });
  if (settled == states.end()) {
    const auto [oldest, newest] = std::minmax_element(
        states.begin(), states.end(),
        [](const auto& a, const auto& b) { return a.version < b.version; });
    return absl::DataLossError(absl::StrCat(
        "the shards of the parameter server have weights of different "
        "times, versions ",
        newest->version, " and ", oldest->version,
        "; restore their folders in ", options_.state_dir,
        " from copies of one time, or begin anew"));
  }
  const bool behind = std::any_of(
      states.begin(), states.end(),
      [&](const PartState& state) { return state.id != settled->id; });
  if (behind) {
    MR_RETURN_IF_ERROR(Commit(settled->id));
  } else if (std::any_of(states.begin(), states.end(), [](const auto& state) {
               return !state.prepared.empty();
             })) {
    MR_RETURN_IF_ERROR(CallAllForNothing(Repeat::kIfShardDies, "AbandonPart",
                                         /*reset=*/false));
  }
  state_ = *settled;
  settled_ = true;
  return absl::OkStatus();
}

absl::Status ShardedServer::Commit(const std::string& id) {
  return CallAllForNothing(Repeat::kIfShardDies, "CommitPart", id);
}

void ShardedServer::Abandon(bool reset) {
  const absl::Status abandoned =
      CallAllForNothing(Repeat::kIfShardDies, "AbandonPart", reset);
  settled_ = abandoned.ok();
  if (!abandoned.ok()) LOG(WARNING) << "taking weights back: " << abandoned;
}

absl::StatusOr<int64_t> ShardedServer::Finish(const absl::Status& prepared,
                                              const std::string& id) {
  if (!prepared.ok()) {
    if (!shard_died_) Abandon(/*reset=*/false);
    return prepared;
  }
  MR_RETURN_IF_ERROR(Commit(id));
  settled_ = false;
  MR_RETURN_IF_ERROR(Settle());  // Asks for the version.
  return state_.version;
}

absl::StatusOr<SyncResult> ShardedServer::Sync(
    const std::vector<AnyActorHandle>& workers, std::string sync_id) {
  // One that a shard's death interrupts is told from the one before by it.
  if (sync_id.empty()) sync_id = NewId("sync");
  for (int attempt = 1;; ++attempt) {
    MR_RETURN_IF_ERROR(Settle());
    absl::StatusOr<SyncResult> result;
    if (state_.last_sync == sync_id) {
      SyncResult repeated = {
          .version = state_.version,
          .num_workers = static_cast<int64_t>(workers.size()),
          .repeated = true};
      const absl::Status pushed = Push(workers, {}, true, &repeated);
      if (pushed.ok()) {
        result = repeated;
      } else {
        result = pushed;
      }
    } else {
      result = TrySync(workers, sync_id);
    }
    const bool again = !result.ok() && shard_died_ &&
                       !options_.state_dir.empty() &&
                       absl::IsUnavailable(result.status());
    if (!again) return result;
    if (attempt == kMaxAttempts) {
      return Annotate(result.status(),
                      absl::StrCat("shards died in ", attempt,
                                   " synchronisations in a row; `miniray logs` "
                                   "may tell why"));
    }
    LOG(WARNING) << "the synchronisation begins again: " << result.status();
  }
}

absl::StatusOr<SyncResult> ShardedServer::TrySync(
    const std::vector<AnyActorHandle>& workers, const std::string& sync_id) {
  SyncResult result = {.num_workers = static_cast<int64_t>(workers.size())};
  const std::string id = NewId("weights");
  absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(
      const std::vector<PulledPart> pulled,
      CallAll<PulledPart>(Repeat::kIfShardDies, "PullPart", workers, id));
  const absl::StatusOr<std::vector<LeftOutWorker>> left_out =
      Merge(pulled, workers);
  if (!left_out.ok()) {
    Abandon(/*reset=*/false);
    return left_out.status();
  }
  for (const PulledPart& part : pulled) {
    result.bytes += part.bytes;
    result.bytes_saved += part.bytes_saved;
  }
  for (const LeftOutWorker& worker : *left_out) {
    ++(worker.refused ? result.num_refused : result.num_lost);
  }
  result.seconds_pull = SecondsSince(start);

  start = absl::Now();
  std::vector<WideSum> sums;
  if (dynamic_cast<const WholeModelStrategy*>(strategy_) != nullptr) {
    const auto parts =
        CallAll<std::vector<WideSum>>(Repeat::kNo, "SumPart", id, *left_out);
    if (!parts.ok()) {
      if (!shard_died_) Abandon(/*reset=*/false);
      return parts.status();
    }
    sums.resize(parts->front().size());
    for (const std::vector<WideSum>& part : *parts) {
      for (size_t i = 0; i < std::min(sums.size(), part.size()); ++i) {
        sums[i].Add(part[i]);
      }
    }
  }
  MR_ASSIGN_OR_RETURN(
      const std::vector<AggregatedPart> aggregated,
      CallAll<AggregatedPart>(Repeat::kNo, "AggregatePart", workers, id,
                              sync_id, *left_out, sums));
  for (const AggregatedPart& part : aggregated) {
    if (part.strategy.status().ok()) continue;
    Abandon(/*reset=*/true);
    return part.strategy.status();
  }
  for (const AggregatedPart& part : aggregated) {
    if (part.save.status().ok()) continue;
    Abandon(/*reset=*/false);
    return part.save.status();
  }
  MR_ASSIGN_OR_RETURN(result.version, Finish(absl::OkStatus(), id));
  result.seconds_aggregate = SecondsSince(start);
  MR_RETURN_IF_ERROR(Push(workers, *left_out, true, &result));
  return result;
}

absl::StatusOr<std::vector<LeftOutWorker>> ShardedServer::Merge(
    const std::vector<PulledPart>& pulled,
    const std::vector<AnyActorHandle>& workers) const {
  std::map<int64_t, LeftOutWorker> merged;
  std::map<int64_t, size_t> holders;  // Shards that a worker goes on from.
  for (const PulledPart& part : pulled) {
    MR_RETURN_IF_ERROR(part.outcome.status());
    for (const LeftOutWorker& worker : part.left_out) {
      const auto [it, is_new] = merged.emplace(worker.worker, worker);
      // One that is late for one shard is not waited for by any.
      if (!is_new && !worker.refused) it->second = worker;
    }
    for (const int64_t worker : part.holds_view) ++holders[worker];
  }
  for (const auto& [index, count] : holders) {
    if (count == pulled.size() || merged.contains(index)) continue;
    const auto worker = static_cast<size_t>(index);
    const absl::Status torn = absl::FailedPreconditionError(absl::StrCat(
        WorkerName(worker, workers[worker]),
        " took new weights while the shards asked for its own, which are of "
        "two times; synchronise again"));
    if (options_.min_workers == 0) return torn;
    merged[index] = {.worker = index, .why = Outcome::Of(torn)};
  }
  const auto left = static_cast<int64_t>(workers.size() - merged.size());
  std::vector<LeftOutWorker> left_out;
  for (const auto& [index, worker] : merged) left_out.push_back(worker);
  if (left >= std::max<int64_t>(1, options_.min_workers) || left_out.empty()) {
    return left_out;
  }
  return Annotate(
      left_out.front().why.status(),
      absl::StrCat(left, " of ", workers.size(),
                   " workers are left over all shards, and min_workers is ",
                   options_.min_workers));
}

absl::Status ShardedServer::Push(const std::vector<AnyActorHandle>& workers,
                                 const std::vector<LeftOutWorker>& left_out,
                                 bool of_sync, SyncResult* result) {
  const absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(const std::vector<PushedPart> pushed,
                      CallAll<PushedPart>(Repeat::kIfShardDies, "PushPart",
                                          workers, left_out, of_sync));
  for (const PushedPart& part : pushed) {
    result->bytes += part.bytes;
    result->bytes_saved += part.bytes_saved;
  }
  result->seconds_push = SecondsSince(start);
  return Judge(workers, pushed, result);
}

absl::Status ShardedServer::Judge(const std::vector<AnyActorHandle>& workers,
                                  const std::vector<PushedPart>& pushed,
                                  SyncResult* result) {
  absl::Status error;
  std::map<int64_t, BehindWorker> merged;
  for (const PushedPart& part : pushed) {
    error.Update(part.outcome.status());
    for (const BehindWorker& worker : part.behind) {
      const auto [it, is_new] = merged.emplace(worker.worker, worker);
      if (!is_new && !worker.late) it->second = worker;
    }
  }
  std::vector<BehindWorker> behind;
  std::vector<AnyActorHandle> failed;
  absl::Status first_error;
  for (const auto& [index, worker] : merged) {
    behind.push_back(worker);
    const absl::Status why = worker.why.status();
    first_error.Update(why);
    if (options_.min_workers > 0 && !worker.late && !why.ok()) {
      failed.push_back(workers[static_cast<size_t>(index)]);
    }
  }
  result->num_behind = static_cast<int64_t>(behind.size());
  // Fewer may have all parts than have each.
  const auto good = static_cast<int64_t>(workers.size() - behind.size());
  if (good < options_.min_workers) error.Update(first_error);
  if (!error.ok()) error = PushError(error, state_.version, workers, behind);
  if (!failed.empty()) {
    error.Update(CallAllForNothing(Repeat::kIfShardDies, "SendPart", failed));
  }
  return error;
}

absl::StatusOr<NamedTensors> ShardedServer::PullWeights() {
  MR_RETURN_IF_ERROR(Settle());
  if (state_.id.empty()) return NoWeights();
  MR_ASSIGN_OR_RETURN(
      const std::vector<ReadOnly<WeightMessage>> parts,
      CallAll<ReadOnly<WeightMessage>>(Repeat::kIfShardDies, "GetPart"));
  std::vector<const WeightMessage*> pointers;
  for (const auto& part : parts) pointers.push_back(&part.value);
  return JoinParts(pointers);
}

absl::StatusOr<int64_t> ShardedServer::PushWeights(
    const NamedTensors& weights) {
  MR_RETURN_IF_ERROR(Settle());
  MR_ASSIGN_OR_RETURN(const std::vector<ModelPart> parts,
                      CutModel(weights, static_cast<int64_t>(shards_.size())));
  const std::string id = NewId("weights");
  std::vector<ObjectRef<Outcome>> calls;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ReadOnly<WeightMessage> part = {
        {.part = static_cast<int64_t>(i),
         .num_parts = static_cast<int64_t>(shards_.size()),
         .tensors = TensorsOfPart(weights, parts[i]),
         .parts = PlacesOfPart(weights, parts[i])}};
    calls.push_back(shards_[i].CallByNameWith<Outcome>(
        OptionsOf(Repeat::kIfShardDies), "SetPart", part, id));
  }
  const absl::StatusOr<std::vector<Outcome>> outcomes = Await(std::move(calls));
  return Finish(outcomes.ok() ? FirstError(*outcomes) : outcomes.status(), id);
}

absl::StatusOr<int64_t> ShardedServer::StartFromWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(Settle());
  const std::string id = NewId("weights");
  const absl::StatusOr<std::vector<Outcome>> outcomes =
      CallAll<Outcome>(Repeat::kIfShardDies, "StartPart", workers, id);
  MR_ASSIGN_OR_RETURN(
      const int64_t version,
      Finish(outcomes.ok() ? FirstError(*outcomes) : outcomes.status(), id));
  SyncResult ignored;
  MR_RETURN_IF_ERROR(Push(workers, {}, false, &ignored));
  return version;
}

absl::Status ShardedServer::PushToWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(Settle());
  if (state_.id.empty()) return NoWeights();
  SyncResult ignored;
  return Push(workers, {}, false, &ignored);
}

absl::Status ShardedServer::SetWorkerWeight(int worker_id, double weight) {
  MR_RETURN_IF_ERROR(Settle());
  return CallAllForNothing(Repeat::kIfShardDies, "SetWorkerWeight", worker_id,
                           weight);
}

absl::Status ShardedServer::SetWorkerWeights(
    const std::map<int, double>& weights) {
  MR_RETURN_IF_ERROR(Settle());
  return CallAllForNothing(Repeat::kIfShardDies, "SetWorkerWeights", weights);
}

absl::StatusOr<SyncStats> ShardedServer::GetStats() {
  MR_RETURN_IF_ERROR(Settle());
  MR_ASSIGN_OR_RETURN(const std::vector<SyncStats> parts,
                      CallAll<SyncStats>(Repeat::kIfShardDies, "GetStats"));
  return MergeShardStats(parts);
}

absl::StatusOr<std::string> ShardedServer::ExportState() {
  MR_RETURN_IF_ERROR(Settle());
  ShardStates states{.id = state_.id};
  MR_ASSIGN_OR_RETURN(
      states.shards, CallAll<std::string>(Repeat::kIfShardDies, "ExportState"));
  return PackShardStates(states);
}

absl::Status ShardedServer::ImportState(const std::string& bytes) {
  size_t num_shards = 1;
  ShardStates states;
  if (AreShardStates(bytes)) {
    MR_ASSIGN_OR_RETURN(states, UnpackShardStates(bytes));
    num_shards = states.shards.size();
  }
  if (num_shards != shards_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state is of a server with ", num_shards, " shard",
                     num_shards == 1 ? "" : "s",
                     " (num_shards), and this one has ", shards_.size()));
  }
  MR_RETURN_IF_ERROR(Settle());
  std::vector<ObjectRef<Outcome>> calls;
  for (size_t i = 0; i < shards_.size(); ++i) {
    calls.push_back(shards_[i].CallByNameWith<Outcome>(
        OptionsOf(Repeat::kIfShardDies), "ImportPart", states.shards[i],
        states.id));
  }
  const absl::StatusOr<std::vector<Outcome>> outcomes = Await(std::move(calls));
  const absl::Status imported =
      outcomes.ok() ? FirstError(*outcomes) : outcomes.status();
  if (!states.id.empty()) return Finish(imported, states.id).status();
  settled_ = false;  // There are no weights to prepare.
  return imported;
}

absl::Status ShardedServer::BeginAnew() {
  settled_ = false;  // And need not be: shards that do not fit begin anew, too.
  return CallAllForNothing(Repeat::kIfShardDies, "BeginAnew");
}

}  // namespace miniray::ps
