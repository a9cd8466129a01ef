#include "train/merge_metrics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

constexpr char kStepsMetric[] = "steps";

// The count that a worker reports under a name.
absl::StatusOr<int64_t> CountOf(const Metrics& metrics, const char* name,
                                size_t worker) {
  const auto found = metrics.find(name);
  if (found == metrics.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker, " reports no '", name, "'"));
  }
  const double count = found->second;
  if (!(count >= 0 && count < 0x1p53 && count == std::floor(count))) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker, " reports ", count, " ", name,
                     "; expected a count of 0 or more"));
  }
  return static_cast<int64_t>(count);
}

// samples * mean; an integer if it is one but for the rounding of a division
// and of this product.
double SumOf(double mean, double samples) {
  const double sum = mean * samples;
  const double integer = std::round(sum);
  return std::abs(sum - integer) <= 0x1p-51 * std::abs(sum) ? integer : sum;
}

}  // namespace

absl::StatusOr<Metrics> MergeEvaluation(const std::vector<Metrics>& shards) {
  Metrics sums;
  double all_samples = 0;
  size_t first = 0;  // The first shard with samples.
  for (size_t i = 0; i < shards.size(); ++i) {
    const Metrics& shard = shards[i];
    MR_ASSIGN_OR_RETURN(const int64_t count, CountOf(shard, kSamplesMetric, i));
    if (count == 0) continue;
    const auto samples = static_cast<double>(count);
    if (all_samples == 0) first = i;
    all_samples += samples;
    for (const auto& [name, mean] : shards[first]) {
      if (shard.count(name) > 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", i, " reports no '", name, "', and worker ",
                       first, " does"));
    }
    for (const auto& [name, mean] : shard) {
      if (shards[first].count(name) == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("worker ", first, " reports no '", name,
                         "', and worker ", i, " does"));
      }
      sums[name] += SumOf(mean, samples);
    }
  }
  if (all_samples == 0) {
    return absl::FailedPreconditionError(
        "no worker has a sample to evaluate on");
  }
  for (auto& [name, sum] : sums) sum /= all_samples;
  sums[kSamplesMetric] = all_samples;
  return sums;
}

Metrics WithEvaluationPrefix(const Metrics& metrics) {
  Metrics result;
  for (const auto& [name, value] : metrics) {
    result[absl::StrCat(kEvaluationPrefix, name)] = value;
  }
  return result;
}

Metrics EvaluationOf(const Metrics& metrics) {
  Metrics result;
  for (const auto& [name, value] : metrics) {
    if (absl::StartsWith(name, kEvaluationPrefix)) result[name] = value;
  }
  return result;
}

absl::Status EpochPieces::Add(const std::vector<Metrics>& piece,
                              int64_t count) {
  most_steps_ = 0;
  for (size_t i = 0; i < piece.size(); ++i) {
    MR_RETURN_IF_ERROR(CountOf(piece[i], kSamplesMetric, i).status());
    MR_ASSIGN_OR_RETURN(const int64_t steps,
                        CountOf(piece[i], kStepsMetric, i));
    if (steps > count) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", i, " reports ", steps,
                       " steps; it was asked for ", count, " at most"));
    }
    most_steps_ = std::max(most_steps_, steps);
    if (steps > 0) pieces_[i].push_back(piece[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<EpochResult> EpochPieces::Result() const {
  EpochResult result;
  for (const std::vector<Metrics>& pieces : pieces_) {
    MR_ASSIGN_OR_RETURN(Metrics metrics, AverageMetrics(pieces));
    metrics[kSamplesMetric];  // 0 of a worker that had no batch.
    double& steps = metrics[kStepsMetric] = 0;
    for (const Metrics& piece : pieces) steps += piece.at(kStepsMetric);
    result.per_worker.push_back(std::move(metrics));
  }
  MR_ASSIGN_OR_RETURN(result.metrics, AverageMetrics(result.per_worker));
  MetricsRange range = RangeOfMetrics(result.per_worker);
  result.min = std::move(range.min);
  result.max = std::move(range.max);
  return result;
}

}  // namespace miniray::train
