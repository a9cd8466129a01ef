#include "ps/server_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

namespace {

constexpr int64_t kMaxShards = 1024;

bool Compresses(const ServerOptions& options) {
  return options.from_workers.method != Compression::kNone ||
         options.to_workers.method != Compression::kNone;
}

}  // namespace

bool NeedsExchange(const ServerOptions& options) {
  return options.num_shards > 1 || options.piece_bytes > 0 ||
         Compresses(options);
}

bool StepsInRounds(const ServerOptions& options) {
  return options.mode == SyncMode::kSynchronous ||
         (options.max_staleness == 0 &&
          options.staleness_policy == StalenessPolicy::kWait);
}

namespace {

absl::Status ValidateStaleness(const ServerOptions& options) {
  if (options.num_workers < 0 || options.num_workers > kMaxWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_workers = ", options.num_workers,
                     ": must be from 0 (as many as come) to ", kMaxWorkers));
  }
  if (options.max_staleness < kUnboundedStaleness) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_staleness = ", options.max_staleness, ": must be ",
                     kUnboundedStaleness, " (no bound), 0 or more"));
  }
  if (options.mode == SyncMode::kSynchronous && options.max_staleness > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_staleness = ", options.max_staleness,
                     ": has an effect with SyncMode::kAsynchronous only"));
  }
  const bool damps = options.staleness_policy == StalenessPolicy::kDamp;
  if (damps && (options.mode == SyncMode::kSynchronous ||
                options.max_staleness == kUnboundedStaleness)) {
    return absl::InvalidArgumentError(
        "StalenessPolicy::kDamp needs SyncMode::kAsynchronous and a "
        "max_staleness of 0 or more");
  }
  const bool waits = !damps && options.max_staleness >= 0 &&
                     options.mode == SyncMode::kAsynchronous;
  if (waits && options.num_workers == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_staleness = ", options.max_staleness,
        " with StalenessPolicy::kWait needs num_workers: who has not pushed "
        "yet is waited for, too"));
  }
  if ((waits || options.mode == SyncMode::kSynchronous) &&
      options.num_workers > kMaxPushingWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_workers = ", options.num_workers, ": at most ",
                     kMaxPushingWorkers, " workers can wait for each other"));
  }
  if (options.num_workers > 0 && options.min_workers > options.num_workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_workers = ", options.min_workers, ": num_workers is ",
                     options.num_workers));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const ServerOptions& options) {
  if (options.min_workers < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_workers = ", options.min_workers,
                     ": must be 0 (all of them) or more"));
  }
  if (!std::isfinite(options.sync_timeout_seconds) ||
      options.sync_timeout_seconds < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sync_timeout_seconds = ", options.sync_timeout_seconds,
                     ": must be 0 (none) or more"));
  }
  if (options.save_every < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "save_every = ", options.save_every, ": must be 1 or more"));
  }
  if (options.save_every > 1 && options.state_dir.empty()) {
    return absl::InvalidArgumentError(
        "save_every has no effect without state_dir");
  }
  if (options.num_shards < 1 || options.num_shards > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_shards = ", options.num_shards,
                     ": must be from 1 to ", kMaxShards));
  }
  if (options.num_shards > 1 && options.save_every > 1) {
    return absl::InvalidArgumentError(
        "several shards that save at times of their own would come back with "
        "weights of different times: save_every must be 1 with num_shards "
        "above 1");
  }
  if (options.piece_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("piece_bytes = ", options.piece_bytes,
                     ": must be 0 (the whole model at once) or more"));
  }
  if (options.piece_bytes > 0 &&
      (options.num_shards > 1 || Compresses(options))) {
    return absl::InvalidArgumentError(
        "piece_bytes, the model in pieces, is not for several shards or "
        "compressed weights: leave it, or num_shards, from_workers and "
        "to_workers, at the default");
  }
  if (!options.keep_weights &&
      (!options.state_dir.empty() || NeedsExchange(options))) {
    return absl::InvalidArgumentError(
        "keep_weights = false is not for a server that saves its weights "
        "(state_dir), nor for compressed weights, several shards or pieces: "
        "they need the weights that there are");
  }
  MR_RETURN_IF_ERROR(Validate(options.from_workers, "from_workers"));
  MR_RETURN_IF_ERROR(Validate(options.to_workers, "to_workers"));
  return ValidateStaleness(options);
}

}  // namespace miniray::ps
