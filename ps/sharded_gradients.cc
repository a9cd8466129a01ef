#include "ps/sharded_gradients.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ps/check_weights.h"
#include "ps/model_cut.h"
#include "ps/shard_messages.h"
#include "ps/shard_stats.h"
#include "ps/tensor_info.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

// A shard that restarts is waited for; one that is dead for good is an error.
const CallOptions kRetries = {.max_retries = -1};

// Waits for one call to each shard, and returns the results, or the error of
// the first that failed.
template <class R>
absl::StatusOr<std::vector<R>> Await(std::vector<ObjectRef<R>> calls) {
  std::vector<R> results;
  absl::Status first_error;
  for (size_t i = 0; i < calls.size(); ++i) {
    absl::StatusOr<R> result = calls[i].Get();
    if (result.ok()) {
      results.push_back(*std::move(result));
    } else {
      first_error.Update(Annotate(
          result.status(), absl::StrCat("shard ", i, " of ", calls.size())));
    }
  }
  if (!first_error.ok()) return first_error;
  return results;
}

template <class R>
absl::StatusOr<std::vector<R>> CallAll(
    const std::vector<AnyActorHandle>& shards, absl::string_view method) {
  std::vector<ObjectRef<R>> calls;
  for (const AnyActorHandle& shard : shards) {
    calls.push_back(shard.CallByNameWith<R>(kRetries, method));
  }
  return Await(std::move(calls));
}

}  // namespace

ShardedGradients::ShardedGradients(std::vector<AnyActorHandle> shards)
    : shards_(std::move(shards)) {}

absl::StatusOr<std::vector<int64_t>> ShardedGradients::Versions() const {
  MR_ASSIGN_OR_RETURN(const std::vector<PartState> states,
                      CallAll<PartState>(shards_, "GetPartState"));
  std::vector<int64_t> versions;
  for (const PartState& state : states) versions.push_back(state.version);
  return versions;
}

absl::Status ShardedGradients::StartIfEmpty(
    const NamedTensors& weights, const std::vector<std::string>& buffers) {
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> versions, Versions());
  const auto [least, most] =
      std::minmax_element(versions.begin(), versions.end());
  if (*least > 0) return absl::OkStatus();
  if (*most > 1) {
    return absl::DataLossError(absl::StrCat(
        "shard ", least - versions.begin(), " of ", versions.size(),
        " has lost its weights, and another is at version ", *most,
        "; begin anew from a checkpoint (PushWeights), and set state_dir, so "
        "that shards come back with theirs"));
  }
  return SetParts(weights, buffers, 1).status();
}

absl::StatusOr<int64_t> ShardedGradients::Start(
    const NamedTensors& weights,
    const std::optional<std::vector<std::string>>& buffers) {
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> versions, Versions());
  const auto [least, most] =
      std::minmax_element(versions.begin(), versions.end());
  if (*least > 0) {
    // Before any shard changes: each sees its own part alone.
    MR_ASSIGN_OR_RETURN(const NamedTensors before, Pull());
    MR_RETURN_IF_ERROR(CheckLayout(weights, ModelLayout::Of(before),
                                   "the weights to start from",
                                   "the parameter server"));
  }
  return SetParts(weights, buffers, *most + 1);
}

absl::StatusOr<int64_t> ShardedGradients::SetParts(
    const NamedTensors& weights,
    const std::optional<std::vector<std::string>>& buffers,
    int64_t version) const {
  MR_RETURN_IF_ERROR(CheckValues(weights, "the weights to start from"));
  if (buffers.has_value()) {
    MR_RETURN_IF_ERROR(MakeInfo(weights, *buffers).status());
  }
  const auto num_parts = static_cast<int64_t>(shards_.size());
  MR_ASSIGN_OR_RETURN(const std::vector<ModelPart> parts,
                      CutModel(weights, num_parts));
  std::vector<ObjectRef<int64_t>> calls;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ReadOnly<WeightMessage> part = {
        {.part = static_cast<int64_t>(i),
         .num_parts = num_parts,
         .tensors = TensorsOfPart(weights, parts[i]),
         .parts = PlacesOfPart(weights, parts[i])}};
    calls.push_back(shards_[i].CallByNameWith<int64_t>(
        kRetries, "StartGradientPart", part, buffers, version));
  }
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> set, Await(std::move(calls)));
  return *std::min_element(set.begin(), set.end());
}

absl::StatusOr<NamedTensors> ShardedGradients::Pull() const {
  MR_ASSIGN_OR_RETURN(const std::vector<ReadOnly<WeightMessage>> parts,
                      CallAll<ReadOnly<WeightMessage>>(shards_, "GetPart"));
  std::vector<const WeightMessage*> pointers;
  for (const ReadOnly<WeightMessage>& part : parts) {
    if (part.value.tensors.empty()) {
      return absl::FailedPreconditionError(
          "the parameter server has no weights yet; call StartFromWorkers or "
          "PushWeights, or let a worker join first");
    }
    pointers.push_back(&part.value);
  }
  return JoinParts(pointers);
}

absl::StatusOr<SyncStats> ShardedGradients::GetStats() const {
  MR_ASSIGN_OR_RETURN(const std::vector<SyncStats> parts,
                      CallAll<SyncStats>(shards_, "GetStats"));
  return MergeShardStats(parts);
}

}  // namespace miniray::ps
