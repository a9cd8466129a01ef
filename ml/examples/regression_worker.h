// A worker of `regression`: trains a Regressor on its part of a table.

#ifndef MINIRAY_ML_EXAMPLES_REGRESSION_WORKER_H_
#define MINIRAY_ML_EXAMPLES_REGRESSION_WORKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/data/batch_sampler.h"
#include "ml/regress/regressor.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/train_loop_options.h"

namespace miniray::ml {

struct RegressionWorkerOptions {
  std::string data;           // A CSV file; empty: Friedman's table.
  int64_t made_rows = 10000;  // Of that.
  std::string target;         // A column; empty: the last one.
  double test_share = 0.2;    // Of the rows, drawn by the seed; in (0, 1).
  int64_t batch_size = 64;
  int64_t hidden = 64;
  double lr = 0.003;
  train::TrainLoopOptions loop;
  std::string device = "auto";  // See train::ChooseDevice.
  uint64_t seed = 1;            // The same for all workers of a run.
};
MINIRAY_STRUCT(RegressionWorkerOptions, data, made_rows, target, test_share,
               batch_size, hidden, lr, loop, device, seed);

// All workers read the whole table, so features and targets are scaled alike
// (mean 0, variance 1 over all rows to train on), and then keep their parts.
//
// Not thread-safe. The same options and shard give the same
// weights.
class RegressionWorker {
 public:
  explicit RegressionWorker(RegressionWorkerOptions options);

  // Errors: those of ReadCsv, ColumnIndex, MakeFriedmanTable, ContiguousShard
  // and Regressor. INVALID_ARGUMENT, no column but the target's, or too few
  // rows to train and test on.
  absl::Status LoadDataShard(int shard_id, int num_shards);

  // The other methods return FAILED_PRECONDITION before LoadDataShard.

  // Returns what TrainLoop::EndEpoch does; "loss" is that of scaled targets.
  absl::StatusOr<train::Metrics> TrainEpoch(int epoch);

  // Over a part of the rows that nobody trains on, in the target's own unit:
  // "squared_error" and "absolute_error", means; "constant_squared_error", that
  // of who always says the mean of the targets to train on.
  absl::StatusOr<train::Metrics> EvaluateShard(int shard, int num_shards);

  // For the parameter server.
  absl::StatusOr<NamedTensors> GetWeights() const;
  absl::StatusOr<ReadOnly<NamedTensors>> LendWeights() const;
  absl::Status SetWeights(const ReadOnly<NamedTensors>& weights);
  absl::StatusOr<int64_t> NumSamples() const;

  // For checkpoints of a trainer. The order of the rows is a function of the
  // epoch.
  absl::StatusOr<train::CheckpointFiles> SaveCheckpoint();
  absl::Status LoadCheckpoint(const train::CheckpointFiles& files);

 private:
  // Scaled. features: float32 [N, F]; targets: float32 [N].
  struct Rows {
    at::Tensor features;
    at::Tensor targets;
  };

  absl::Status CheckLoaded() const;

  const RegressionWorkerOptions options_;
  Rows train_;  // Of the shard.
  Rows test_;   // All.
  double target_scale_ = 1;
  std::optional<BatchSampler> sampler_;
  std::unique_ptr<Regressor> regressor_;
};
MINIRAY_ACTOR(RegressionWorker, Constructor<RegressionWorkerOptions>,
              &RegressionWorker::LoadDataShard, &RegressionWorker::TrainEpoch,
              &RegressionWorker::EvaluateShard, &RegressionWorker::GetWeights,
              &RegressionWorker::LendWeights, &RegressionWorker::SetWeights,
              &RegressionWorker::NumSamples, &RegressionWorker::SaveCheckpoint,
              &RegressionWorker::LoadCheckpoint);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_REGRESSION_WORKER_H_
