// Metrics of parts, put together: of shards of a test set, and of pieces of an
// epoch.

#ifndef MINIRAY_TRAIN_MERGE_METRICS_H_
#define MINIRAY_TRAIN_MERGE_METRICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/metrics.h"
#include "train/result.h"

namespace miniray::train {

// Before the names of an evaluation's metrics: "eval/loss".
inline constexpr char kEvaluationPrefix[] = "eval/";

// Returns the means over all samples of a test set from those over its shards:
// for each metric the sum of samples * mean, in double and in the order of the
// shards, divided by all samples. "samples" is their number.
//
// Exact for shares such as accuracy, which are a count divided by the samples:
// a samples * mean within rounding of an integer counts as that integer, so
// that the result is the one double nearest to (sum of the counts) / samples,
// on any number of shards. Other metrics are those of one process but for the
// rounding of the sum of so many terms as there are shards.
//
// A shard of 0 samples may report nothing, and does not count.
//
// Errors: INVALID_ARGUMENT, a shard reports no count of "samples", or other
// metrics than another shard; with the worker. FAILED_PRECONDITION, no shard
// has a sample.
absl::StatusOr<Metrics> MergeEvaluation(const std::vector<Metrics>& shards);

// The names of `metrics` with kEvaluationPrefix.
Metrics WithEvaluationPrefix(const Metrics& metrics);

// Those of `metrics` whose names begin with it.
Metrics EvaluationOf(const Metrics& metrics);

// What workers report of an epoch that they train in pieces.
class EpochPieces {
 public:
  explicit EpochPieces(size_t num_workers) : pieces_(num_workers) {}

  // Takes what each worker reports of one piece of at most `count` batches.
  // Errors: INVALID_ARGUMENT, with the worker, no "samples" or "steps", or
  // numbers that cannot be.
  absl::Status Add(const std::vector<Metrics>& piece, int64_t count);

  // Batches of the last piece, of the worker that had most.
  int64_t most_steps() const { return most_steps_; }

  // The epoch: each worker's metrics are the means over its pieces, weighted by
  // samples; its "samples", "steps" and "skipped_steps" are sums. Over the
  // workers as ever (AverageMetrics).
  absl::StatusOr<EpochResult> Result() const;

 private:
  std::vector<std::vector<Metrics>> pieces_;  // By worker, without empty ones.
  int64_t most_steps_ = 0;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_MERGE_METRICS_H_
