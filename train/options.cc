#include "train/options.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/runs/run_checks.h"
#include "train/run_folder.h"

namespace miniray::train {
namespace {

// What a synchronisation beside training does not go with.
absl::Status CheckOverlap(const TrainerOptions& options) {
  if (options.sync_every == 0) {
    return absl::InvalidArgumentError(
        "overlap_sync has no effect without sync_every: only synchronisations "
        "within an epoch run beside training");
  }
  if (options.failure.max_failures != 0 &&
      options.failure.policy == FailurePolicy::kHeal) {
    return absl::InvalidArgumentError(
        "overlap_sync does not go with failure.policy kHeal: a worker that is "
        "made anew has no snapshot for the synchronisation that runs; use "
        "kGroup");
  }
  if (options.server_options.min_workers > 0) {
    return absl::InvalidArgumentError(
        "overlap_sync does not go with server_options.min_workers: a worker "
        "that is left out would get weights for a snapshot that it has not");
  }
  if (ps::NeedsExchange(options.server_options)) {
    return absl::InvalidArgumentError(
        "overlap_sync does not go with server_options that compress, cut or "
        "shard what travels: SendWeights and ReceiveWeights know no "
        "snapshots");
  }
  return absl::OkStatus();
}

}  // namespace

Config ConfigForData(const TrainerOptions& options, const Config& config) {
  Config for_data = config;
  if (options.sharding.has_value() && !config.Has(kShardingOption)) {
    for_data.Set(kShardingOption,
                 std::string(ShardMethodName(*options.sharding)));
    if (!config.Has(kShardingSeedOption)) {
      for_data.Set(kShardingSeedOption,
                   static_cast<int64_t>(options.sharding_seed));
    }
  }
  return for_data;
}

absl::Status Validate(const TrainerOptions& options) {
  if (options.num_workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_workers must be at least 1, got ", options.num_workers));
  }
  if (options.max_workers != 0 && options.max_workers < options.num_workers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_workers must be at least num_workers, ", options.num_workers,
        ", or 0 for no more than those; got ", options.max_workers));
  }
  if (IsElastic(options) && options.failure.max_failures == 0) {
    return absl::InvalidArgumentError(
        "max_workers needs failure.max_failures above 0, or -1: when a node "
        "leaves, its workers fail");
  }
  if (options.sync_interval < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sync_interval must be at least 1 epoch, got ", options.sync_interval));
  }
  if (options.sync_every < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sync_every must be 1 step or more, or 0 for none within "
                     "an epoch; got ",
                     options.sync_every));
  }
  if (options.sync_every > 0 && options.sync_interval != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sync_interval is ", options.sync_interval,
        ", and with sync_every the workers are synchronised in every epoch: it "
        "must be 1"));
  }
  if (options.overlap_sync) MR_RETURN_IF_ERROR(CheckOverlap(options));
  if (options.evaluate_every < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluate_every must be 1 epoch or more, or 0 for never; got ",
        options.evaluate_every));
  }
  if (options.num_evaluators < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_evaluators must be 1 or more, or 0 where the workers "
                     "evaluate; got ",
                     options.num_evaluators));
  }
  if (IsElastic(options) &&
      (options.placement == PlacementStrategy::kStrictPack ||
       options.placement == PlacementStrategy::kStrictSpread)) {
    return absl::InvalidArgumentError(
        "a strict placement does not go with max_workers: the workers beyond "
        "num_workers get their places one by one, where there is room; use "
        "kPack or kSpread");
  }
  if (options.num_evaluators > 0 && IsElastic(options)) {
    return absl::InvalidArgumentError(
        "num_evaluators does not go with max_workers: an evaluator would hold "
        "the place of a worker that could come; let the workers evaluate");
  }
  if (options.num_evaluators > 0 && options.evaluate_every == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_evaluators is ", options.num_evaluators,
        " and has no effect without evaluate_every, which says when they "
        "evaluate"));
  }
  if (options.start_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("start_timeout must be above 0, got ",
                     absl::FormatDuration(options.start_timeout)));
  }
  MR_RETURN_IF_ERROR(CheckRunName(options.name));
  if (!options.name.empty() && options.storage_path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "name is '", options.name,
        "' and has no effect without storage_path, where its folder would be"));
  }
  if (!options.run_id.empty()) {
    MR_RETURN_IF_ERROR(Annotate(CheckRunId(options.run_id), "run_id"));
  }
  MR_RETURN_IF_ERROR(Validate(options.checkpoint));
  MR_RETURN_IF_ERROR(Validate(options.failure));
  const bool resumes = options.checkpoint.resume != "never";
  if ((options.checkpoint.enabled() || resumes) &&
      options.storage_path.empty()) {
    return absl::InvalidArgumentError(
        "checkpoints need storage_path, where the folder is that they are in");
  }
  if (options.checkpoint.resume == "auto" && options.name.empty()) {
    return absl::InvalidArgumentError(
        "checkpoint.resume is 'auto', and without a name nothing tells which "
        "training is gone on with");
  }
  for (size_t i = 0; i < options.callbacks.size(); ++i) {
    if (options.callbacks[i] != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("callbacks[", i, "] is null"));
  }
  return absl::OkStatus();
}

absl::Status Validate(const RunOptions& options) {
  if (options.epochs < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("epochs must not be negative, got ", options.epochs));
  }
  return absl::OkStatus();
}

}  // namespace miniray::train
