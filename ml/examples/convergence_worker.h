// A worker of `strategy_convergence`: trains a Classifier on a skewed shard, a
// few steps at a time.

#ifndef MINIRAY_ML_EXAMPLES_CONVERGENCE_WORKER_H_
#define MINIRAY_ML_EXAMPLES_CONVERGENCE_WORKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/classify/classifier.h"
#include "ml/data/batch_sampler.h"
#include "ml/data/image_dataset.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/checkpoint.h"
#include "train/metrics.h"

namespace miniray::ml {

// What the parameter server gets of a worker instead of its weights.
enum class Fault {
  kNone,
  kScaled,  // The weights times 100.
  kNan,
};

struct ConvergenceWorkerOptions {
  std::string dataset = "fashion-mnist";  // As LoadImageDataset knows it.
  std::string data_dir;
  int64_t limit = 0;  // Images before sharding; 0: all.
  double skew = 0;    // See SkewedShard.
  int64_t batch_size = 32;
  int64_t hidden = 64;
  std::string optimizer = "sgd";
  // Falls linearly, to 0 after the last step.
  double lr = 0.1;
  double fedprox_mu = 0;
  int64_t steps = 0;            // Of the whole run.
  int64_t steps_per_epoch = 0;  // From one synchronisation to the next.
  std::string device = "auto";  // See train::ChooseDevice.
  uint64_t seed = 1;            // The same for all workers of a run.
  Fault fault = Fault::kNone;
};
MINIRAY_STRUCT(ConvergenceWorkerOptions, dataset, data_dir, limit, skew,
               batch_size, hidden, optimizer, lr, fedprox_mu, steps,
               steps_per_epoch, device, seed, fault);

// Not thread-safe. The same options and shard give the same weights.
class ConvergenceWorker {
 public:
  explicit ConvergenceWorker(ConvergenceWorkerOptions options);

  // Errors: those of LoadImageDataset, SkewedShard and Classifier.
  absl::Status LoadDataShard(int shard_id, int num_shards);

  // The other methods return FAILED_PRECONDITION before LoadDataShard.

  // Takes steps_per_epoch steps; returns what TrainLoop::EndEpoch does.
  absl::StatusOr<train::Metrics> TrainEpoch(int epoch);

  // Computes the gradients of one step, with the batch that TrainEpoch would
  // have in it, and returns the loss.
  absl::StatusOr<double> ComputeGradients(int64_t step);

  // For the parameter server.
  absl::StatusOr<ReadOnly<NamedTensors>> LendGradients() const;
  absl::StatusOr<NamedTensors> GetWeights() const;
  absl::StatusOr<ReadOnly<NamedTensors>> LendWeights() const;
  absl::StatusOr<int64_t> NumSamples() const;
  absl::Status SetWeights(const ReadOnly<NamedTensors>& weights);

  // For checkpoints of a trainer. The order of the images needs no place in
  // them: it is a function of the step.
  absl::StatusOr<train::CheckpointFiles> SaveCheckpoint();
  absl::Status LoadCheckpoint(const train::CheckpointFiles& files);

  // Null before LoadDataShard.
  const Classifier* classifier() const { return classifier_.get(); }

 private:
  absl::Status CheckLoaded() const;
  absl::StatusOr<ImageBatch> BatchOf(int64_t step);

  const ConvergenceWorkerOptions options_;
  ImageDataset dataset_;
  std::optional<BatchSampler> sampler_;
  // Of the pass over the shard that the last step was in.
  std::optional<EpochBatches> batches_;
  int64_t pass_ = 0;
  std::unique_ptr<Classifier> classifier_;
};
MINIRAY_ACTOR(ConvergenceWorker, Constructor<ConvergenceWorkerOptions>,
              &ConvergenceWorker::LoadDataShard, &ConvergenceWorker::TrainEpoch,
              &ConvergenceWorker::ComputeGradients,
              &ConvergenceWorker::LendGradients, &ConvergenceWorker::GetWeights,
              &ConvergenceWorker::LendWeights, &ConvergenceWorker::NumSamples,
              &ConvergenceWorker::SetWeights,
              &ConvergenceWorker::SaveCheckpoint,
              &ConvergenceWorker::LoadCheckpoint);

// Loads a split as the workers do; `limit` images of it, 0 for all.
absl::StatusOr<ImageDataset> LoadSplit(const ConvergenceWorkerOptions& options,
                                       const std::string& split, int64_t limit);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_CONVERGENCE_WORKER_H_
