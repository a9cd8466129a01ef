// ClassifierWorker trains a Classifier on a part of a data set, as an actor
// under a trainer.

#ifndef MINIRAY_ML_CLASSIFY_CLASSIFIER_WORKER_H_
#define MINIRAY_ML_CLASSIFY_CLASSIFIER_WORKER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/classify/classifier.h"
#include "ml/data/batch_sampler.h"
#include "ml/data/image_source.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/checkpoint.h"
#include "train/epoch_meter.h"
#include "train/metrics.h"
#include "train/options.h"
#include "train/train_loop_options.h"

namespace miniray::ml {

struct ClassifierWorkerOptions {
  std::string dataset = "fashion-mnist";  // As LoadImageDataset knows it.
  std::string data_dir;                   // On the worker's machine.
  int64_t limit = 0;  // Images of each split, before sharding; 0: all.
  // EvaluateShard will be called: what is wrong of the test split, be it that
  // there is none, is an error of LoadDataShard, and not of a late epoch.
  bool evaluates = true;
  // Of an image-folder; see ImageFolderOptions.
  int64_t image_size = 64;
  int64_t image_channels = 3;
  // Of an image-folder: pictures stay on the disk and are read by threads ahead
  // of the step, each epoch anew. For more of them than memory holds; trains
  // the same weights. Those of the test split are held in memory even so, as
  // long as EvaluateShard runs.
  bool lazy = false;
  // See ClassifierOptions.
  std::string network = "cnn";
  int64_t hidden = 64;
  std::string optimizer = "sgd";
  double lr = 0.05;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  train::TrainLoopOptions loop;
  std::string device = "auto";
  int64_t batch_size = 64;
  // Training images are flipped and moved at random (augment.h).
  bool augment = false;
  uint64_t seed = 1;  // The same for all workers of a run.
};
MINIRAY_STRUCT(ClassifierWorkerOptions, dataset, data_dir, limit, evaluates,
               image_size, image_channels, lazy, network, hidden, optimizer, lr,
               momentum, weight_decay, loop, device, batch_size, augment, seed);

// Not thread-safe but for GetProgress. The same options and shard give the same
// weights on one thread. Methods may throw what LibTorch throws.
class ClassifierWorker {
 public:
  explicit ClassifierWorker(ClassifierWorkerOptions options);

  // Loads the worker's part of the training split (TrainerOptions::sharding
  // decides which) and, the first time, makes the model.
  //
  // Errors: those of LoadImageDataset, train::ShardItems and Classifier.
  // INVALID_ARGUMENT, `lazy` with a data set that is no image-folder, or with
  // no data_dir; fewer than two classes; test images of a class that there is
  // nothing of to train on.
  absl::Status LoadDataShard(int shard_id, int num_shards,
                             const train::Config& config);

  // The other methods return FAILED_PRECONDITION before LoadDataShard.

  // Trains once over the shard in an order drawn for `epoch`. Returns what
  // TrainLoop::EndEpoch does. Errors: ABORTED, no batch had a finite loss, of
  // those that loop.on_non_finite lets be left out.
  absl::StatusOr<train::Metrics> TrainEpoch(int epoch);

  // On batches [first, first + count) of it, fewer where it ends, for
  // TrainerOptions::sync_every. Returns what TrainLoop::EndEpoch does, of these
  // batches, and their number as "steps"; GetProgress is of these batches, too.
  // Errors: INVALID_ARGUMENT, first or count below 0, or count no multiple of
  // loop.accumulate. ABORTED, with the last batch of the epoch, as of
  // TrainEpoch.
  absl::StatusOr<train::Metrics> TrainSteps(int epoch, int64_t first,
                                            int64_t count);

  // Over a part of the test split: "accuracy" and "loss", means. Neither for a
  // shard beyond the last test picture of an image-folder.
  absl::StatusOr<train::Metrics> EvaluateShard(int shard, int num_shards);

  // For the parameter server. Running statistics of BatchNorm are among the
  // weights and averaged like them; the optimizer's momentum stays with the
  // worker.
  absl::StatusOr<NamedTensors> GetWeights() const;
  absl::StatusOr<ReadOnly<NamedTensors>> LendWeights() const;
  absl::Status SetWeights(const ReadOnly<NamedTensors>& weights);
  absl::StatusOr<std::vector<std::string>> BufferNames() const;
  absl::StatusOr<int64_t> NumSamples() const;

  // The model as it is, as the bytes of a file (classifier_file.h).
  absl::StatusOr<std::string> ModelFile() const;

  // For checkpoints of a trainer. Order and augmentation of the images are
  // functions of the epoch.
  absl::StatusOr<train::CheckpointFiles> SaveCheckpoint();
  absl::Status LoadCheckpoint(const train::CheckpointFiles& files);

  // How far the epoch is. From any thread.
  train::Progress GetProgress() const;

 private:
  absl::Status CheckLoaded() const;
  absl::StatusOr<train::Metrics> TrainBatches(int epoch, int64_t first,
                                              int64_t count);
  // What the network depends on.
  ClassifierOptions NetworkOptions(const ImageSource& images) const;

  const ClassifierWorkerOptions options_;
  std::optional<ImageSource> images_;
  int shard_id_ = 0;
  std::optional<BatchSampler> sampler_;  // Set together with images_.
  std::optional<EpochBatches> batches_;  // Of the epoch trained last.
  int batches_epoch_ = -1;
  // No batch of this epoch, which this worker saw begin, had a finite loss yet.
  bool lacks_loss_ = false;
  std::unique_ptr<Classifier> classifier_;
  // classifier_, once it is there: for GetProgress.
  std::atomic<const Classifier*> seen_ = nullptr;
};
MINIRAY_ACTOR(ClassifierWorker, Constructor<ClassifierWorkerOptions>,
              &ClassifierWorker::LoadDataShard, &ClassifierWorker::TrainEpoch,
              &ClassifierWorker::TrainSteps, &ClassifierWorker::EvaluateShard,
              &ClassifierWorker::GetWeights, &ClassifierWorker::LendWeights,
              &ClassifierWorker::SetWeights, &ClassifierWorker::BufferNames,
              &ClassifierWorker::NumSamples, &ClassifierWorker::ModelFile,
              &ClassifierWorker::SaveCheckpoint,
              &ClassifierWorker::LoadCheckpoint,
              &ClassifierWorker::GetProgress);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLASSIFY_CLASSIFIER_WORKER_H_
