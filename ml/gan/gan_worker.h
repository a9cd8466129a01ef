// GanWorker trains a GAN on a part of a data set: as an actor under a
// GanTrainer, or as a plain object in the program that wants it.
//
//   GanWorker worker({.dataset = "fashion-mnist", .limit = 10000});
//   MR_RETURN_IF_ERROR(worker.LoadDataShard(0, 1));
//   MR_ASSIGN_OR_RETURN(train::Metrics metrics, worker.TrainEpoch(0));

#ifndef MINIRAY_ML_GAN_GAN_WORKER_H_
#define MINIRAY_ML_GAN_GAN_WORKER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/data/batch_sampler.h"
#include "ml/data/image_source.h"
#include "ml/gan/architecture.h"
#include "ml/gan/gan.h"
#include "ml/gan/gan_loss.h"
#include "ml/gan/image_generator.h"
#include "ml/gan/sync_moments.h"
#include "ml/metrics/extract_statistics.h"
#include "ml/metrics/feature_extractor.h"
#include "ml/metrics/feature_statistics.h"
#include "ps/weight_exchange.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/checkpoint.h"
#include "train/epoch_meter.h"
#include "train/metrics.h"
#include "train/train_loop_options.h"

namespace miniray::ml {

struct GanWorkerOptions {
  std::string dataset = "fashion-mnist";  // As LoadImageDataset knows it.
  std::string data_dir;                   // On the worker's machine.
  int64_t limit = 0;  // Images of the data set to use, before sharding; 0: all.
  // Of an image-folder; see ImageFolderOptions.
  int64_t image_size = 64;
  int64_t image_channels = 3;
  // Of an image-folder: pictures stay on the disk and are read by threads ahead
  // of the step, each epoch anew. For more of them than memory holds; trains
  // the same weights.
  bool lazy = false;
  // How the images are dealt to the workers (train/sharding.h): contiguous,
  // strided, shuffled (by `seed`) or by_class. All but the first read all
  // images before they keep theirs, unless those are lazy.
  std::string sharding = "contiguous";
  int64_t batch_size = 128;
  int64_t latent_dim = 100;
  GanArchitecture architecture = GanArchitecture::kMlp;
  // Images are made and judged by the labels of the data set.
  bool conditional = false;
  double lr = 2e-4;
  // See GanOptions; the next five as well.
  GanLoss loss = GanLoss::kNonSaturating;
  double label_smoothing = 0;
  double ema_decay = 0;
  SyncMoments sync_moments = SyncMoments::kKeep;
  train::TrainLoopOptions loop;
  std::string device = "auto";

  // The run depends on seed, worker_id, the shard and the number of threads
  // only. Workers of one run have the same seed and so the same first weights;
  // noise, dropout and the order of the images differ by worker_id.
  uint64_t seed = 1;
  int worker_id = 0;
};
MINIRAY_STRUCT(GanWorkerOptions, dataset, data_dir, limit, image_size,
               image_channels, lazy, sharding, batch_size, latent_dim,
               architecture, conditional, lr, loss, label_smoothing, ema_decay,
               sync_moments, loop, device, seed, worker_id);

// What a worker trains on.
struct GanShard {
  int64_t images = 0;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<std::string> class_names;  // Of the data set.

  ImageShape shape() const { return {channels, height, width}; }
};
MINIRAY_STRUCT(GanShard, images, channels, height, width, class_names);

// Not thread-safe but for GetProgress. Methods may throw what LibTorch throws.
class GanWorker {
 public:
  explicit GanWorker(GanWorkerOptions options);

  // Loads the worker's part of the training split and, the first time, makes
  // the model, whose sizes follow the images.
  //
  // Errors: those of ImageSource::Load and Gan::Create;
  // InvalidArgument for fewer than two images, batch_size below 2, or images of
  // another shape, or other classes, than the first time.
  absl::Status LoadDataShard(int shard_id, int num_shards);

  // The other methods return FailedPrecondition before LoadDataShard.

  // Trains once over the shard in an order drawn for `epoch`; a last batch that
  // would be smaller is left out.
  //
  // Returns what Gan::EndEpoch does (by "samples" trainers weight the others),
  // and images (trained on), seconds and images_per_sec.
  // Errors: Aborted if a loss is not finite; see GanOptions::loop.
  absl::StatusOr<train::Metrics> TrainEpoch(int epoch);

  // Parameters and buffers of both networks, and the generator's average; see
  // Gan::Weights. Running statistics of BatchNorm are among them, so a
  // synchronisation treats them like weights; Adam's moments are with
  // SyncMoments::kAverage, and else stay with the worker or are forgotten.
  absl::StatusOr<NamedTensors> GetWeights() const;
  // The model's own memory, for the parameter server.
  absl::StatusOr<ReadOnly<NamedTensors>> LendWeights() const;
  // Also for it: the running statistics, the generator's average and Adam's
  // moments, where they are among the weights; and the images of the shard.
  absl::StatusOr<std::vector<std::string>> BufferNames() const;
  absl::StatusOr<int64_t> NumSamples() const;
  absl::Status SetWeights(NamedTensors weights);
  // The same for weights that travel compressed, or to several shards.
  absl::StatusOr<ReadOnly<ps::WeightMessage>> SendWeights(
      const ps::WeightRequest& request);
  absl::Status ReceiveWeights(const ReadOnly<ps::WeightMessage>& message);

  // For checkpoints of a trainer; see Gan::SaveState. The order of the images
  // needs no place in them: it is a function of the epoch.
  absl::StatusOr<train::CheckpointFiles> SaveCheckpoint();
  absl::Status LoadCheckpoint(const train::CheckpointFiles& files);

  absl::StatusOr<GanShard> DescribeShard() const;

  // Returns the first images of the sequence that `seed` names, made with the
  // generator as it is now, or its average if there is one: uint8
  // [count, C, H, W]. See ImageGenerator. Changes nothing, LibTorch's random
  // numbers included, which are part of a checkpoint.
  //
  // Errors: InvalidArgument for a count outside [1, kMaxSamples].
  absl::StatusOr<at::Tensor> SampleImages(uint64_t seed, int64_t count) const;

  static constexpr int64_t kMaxSamples = int64_t{1} << 16;

  // For distances from the real images while training goes on (gan_fid_team.h).
  // All of these change nothing that is trained.

  // Takes what images are compared by. Errors: those of
  // FeatureExtractor::Create.
  absl::Status LoadExtractor(const ExtractorFile& file);
  // What the whole training split depends on, on this machine; see
  // ml::DataIdentity.
  absl::StatusOr<std::string> DescribeData() const;
  // Of the worker's own images. FailedPrecondition before LoadExtractor.
  absl::StatusOr<FeatureStatistics> RealStatistics();
  // Keeps a copy of the generator as it is now, or of its average if there is
  // one, until the next epoch.
  absl::Status SnapshotGenerator();
  // Of images [first, first + count) of the sequence that `seed` names, made
  // with that copy; none of them is kept.
  // Errors: FailedPrecondition without one, or before LoadExtractor; those of
  // StatisticsOfGenerator.
  absl::StatusOr<FeatureStatistics> GeneratedStatistics(uint64_t seed,
                                                        int64_t first,
                                                        int64_t count);
  // In this process: is told how far the statistics that run are.
  void set_on_images(OnImages hook) { on_images_ = std::move(hook); }

  // How far the epoch is, with g_loss and d_loss so far; before LoadDataShard,
  // in none. From any thread.
  train::Progress GetProgress() const;

 private:
  absl::Status CheckLoaded() const;
  absl::Status CheckExtractor() const;
  // Its weights are copies.
  absl::StatusOr<std::unique_ptr<ImageGenerator>> MakeGenerator() const;
  absl::StatusOr<ImageSource> LoadShard(int shard_id, int num_shards) const;

  const GanWorkerOptions options_;
  std::optional<ImageSource> images_;
  std::optional<BatchSampler> sampler_;  // Set together with images_ and gan_.
  std::unique_ptr<Gan> gan_;
  ps::WeightExchange exchange_;
  std::unique_ptr<FeatureExtractor> extractor_;  // Null before LoadExtractor.
  std::unique_ptr<ImageGenerator> snapshot_;     // Null in an epoch.
  OnImages on_images_;
  // gan_, once it is there: for GetProgress.
  std::atomic<const Gan*> seen_ = nullptr;
};
MINIRAY_ACTOR(GanWorker, Constructor<GanWorkerOptions>,
              &GanWorker::LoadDataShard, &GanWorker::TrainEpoch,
              &GanWorker::GetWeights, &GanWorker::LendWeights,
              &GanWorker::BufferNames, &GanWorker::NumSamples,
              &GanWorker::SetWeights, &GanWorker::SendWeights,
              &GanWorker::ReceiveWeights, &GanWorker::SaveCheckpoint,
              &GanWorker::LoadCheckpoint, &GanWorker::DescribeShard,
              &GanWorker::SampleImages, &GanWorker::LoadExtractor,
              &GanWorker::DescribeData, &GanWorker::RealStatistics,
              &GanWorker::SnapshotGenerator, &GanWorker::GeneratedStatistics,
              &GanWorker::GetProgress);

// Returns the options of the GAN that a worker trains. classes: of the data
// set.
GanOptions WorkerGanOptions(const GanWorkerOptions& options,
                            const ImageShape& shape, int64_t classes);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_GAN_WORKER_H_
