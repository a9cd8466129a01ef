#include "train/functions/trainer_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/runs/run_checks.h"
#include "train/run_folder.h"

namespace miniray::train {
namespace {

absl::Status CheckPositive(absl::string_view field, absl::Duration value) {
  if (value > absl::ZeroDuration() && value < absl::InfiniteDuration()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      field, " must be above 0 and finite, got ", absl::FormatDuration(value)));
}

absl::Status Validate(const ScalingConfig& scaling) {
  const auto [min, max] = scaling.num_workers;
  if (min < 0 || max < min || (min == 0 && max > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scaling.num_workers must be at least 1, or {least, most}, or 0 to run "
        "in this process; got ",
        min, min == max ? "" : absl::StrCat(" to ", max)));
  }
  const bool is_strict =
      scaling.placement_strategy == PlacementStrategy::kStrictPack ||
      scaling.placement_strategy == PlacementStrategy::kStrictSpread;
  if (max > min && is_strict) {
    return absl::InvalidArgumentError(
        "scaling.num_workers cannot vary with a strict placement_strategy; use "
        "kPack or kSpread");
  }
  const ResourceOptions& worker = scaling.resources_per_worker;
  if (worker.cpu < 0 || worker.gpu < 0 || worker.memory_bytes < 0) {
    return absl::InvalidArgumentError(
        "scaling.resources_per_worker must not be below 0");
  }
  if (worker.gpu > 0 && !scaling.use_gpu) {
    return absl::InvalidArgumentError(
        "scaling.resources_per_worker asks for GPUs, and scaling.use_gpu is "
        "false: set it, or ask for none");
  }
  return CheckPositive("scaling.start_timeout", scaling.start_timeout);
}

absl::Status Validate(const RunConfig& run) {
  MR_RETURN_IF_ERROR(Annotate(CheckRunName(run.name), "run.name"));
  if (!run.run_id.empty()) {
    MR_RETURN_IF_ERROR(Annotate(CheckRunId(run.run_id), "run.run_id"));
  }
  CheckpointConfig checkpoint = run.checkpoint;
  if (checkpoint.frequency == 0) checkpoint.frequency = 1;
  MR_RETURN_IF_ERROR(Annotate(Validate(checkpoint), "run"));
  MR_RETURN_IF_ERROR(Annotate(Validate(run.failure), "run"));
  if (run.checkpoint.at_end) {
    return absl::InvalidArgumentError(
        "run.checkpoint.at_end has no effect on a train function, which alone "
        "knows its end: give its last Report a checkpoint "
        "(Context::Checkpoint with `always`)");
  }
  if (run.checkpoint.resume != "never") {
    return absl::InvalidArgumentError(
        "run.checkpoint.resume has no effect on a train function: use "
        "run.resume, which is true, or resume_from_checkpoint");
  }
  if (run.failure.policy != FailurePolicy::kGroup) {
    return absl::InvalidArgumentError(
        "run.failure.policy must be kGroup: the ranks of a train function "
        "begin anew together");
  }
  if (run.storage_path.empty() && run.checkpoint.num_to_keep > 0) {
    return absl::InvalidArgumentError(
        "run.checkpoint.num_to_keep needs a run.storage_path");
  }
  if (std::find(run.callbacks.begin(), run.callbacks.end(), nullptr) !=
      run.callbacks.end()) {
    return absl::InvalidArgumentError("one of run.callbacks is null");
  }
  MR_RETURN_IF_ERROR(CheckPositive("run.report_timeout", run.report_timeout));
  MR_RETURN_IF_ERROR(CheckPositive("run.abort_timeout", run.abort_timeout));
  if (run.collective_timeout >= absl::Milliseconds(1)) {
    return CheckPositive("run.collective_timeout", run.collective_timeout);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("run.collective_timeout must be at least 1 ms, got ",
                   absl::FormatDuration(run.collective_timeout)));
}

}  // namespace

absl::Status Validate(const TorchTrainerOptions& options) {
  MR_RETURN_IF_ERROR(Validate(options.scaling));
  return Validate(options.run);
}

ResourceOptions WorkerResources(const ScalingConfig& scaling) {
  ResourceOptions resources = scaling.resources_per_worker;
  if (scaling.use_gpu && resources.gpu == 0) resources.gpu = 1;
  return resources;
}

}  // namespace miniray::train
