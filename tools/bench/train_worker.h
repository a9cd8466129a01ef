// The worker of the benchmark of training.

#ifndef MINIRAY_TOOLS_BENCH_TRAIN_WORKER_H_
#define MINIRAY_TOOLS_BENCH_TRAIN_WORKER_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/epoch_meter.h"
#include "train/metrics.h"

namespace miniray::train {
class TrainLoop;
}  // namespace miniray::train

namespace miniray::bench {

// Trains a TrainingTask as a user's worker would: with a TrainLoop, and a model
// in shared memory.
class TrainWorker {
 public:
  // samples: in an epoch of each worker.
  TrainWorker(int64_t samples, int64_t batch_size);
  ~TrainWorker();

  // FAILED_PRECONDITION from the others before it.
  absl::Status LoadDataShard(int shard_id, int num_shards);

  absl::StatusOr<train::Metrics> TrainEpoch(int epoch);
  // Batches [first, first + count), fewer at the end of the epoch.
  absl::StatusOr<train::Metrics> TrainSteps(int epoch, int64_t first,
                                            int64_t count);

  // Of the epoch that is trained. From any thread.
  train::Progress GetProgress() const;

  absl::StatusOr<NamedTensors> GetWeights();
  absl::StatusOr<ReadOnly<NamedTensors>> LendWeights();
  absl::Status SetWeights(const ReadOnly<NamedTensors>& weights);
  // For overlap_sync.
  absl::Status SnapshotWeights();
  absl::Status ApplyWeights(bool trained);

 private:
  struct State;
  absl::Status CheckLoaded() const;

  const int64_t samples_;
  const int64_t batch_size_;
  std::unique_ptr<State> state_;
  // Of state_, once it is there: for GetProgress.
  std::atomic<const train::TrainLoop*> loop_ = nullptr;
};
MINIRAY_ACTOR(TrainWorker, Constructor<int64_t, int64_t>,
              &TrainWorker::LoadDataShard, &TrainWorker::TrainEpoch,
              &TrainWorker::TrainSteps, &TrainWorker::GetProgress,
              &TrainWorker::GetWeights, &TrainWorker::LendWeights,
              &TrainWorker::SetWeights, &TrainWorker::SnapshotWeights,
              &TrainWorker::ApplyWeights);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_TRAIN_WORKER_H_
