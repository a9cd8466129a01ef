#include "ml/gan/gan_worker.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/image_dataset.h"
#include "ml/data/mix64.h"
#include "ml/data/prefetcher.h"
#include "ml/gan/architecture.h"
#include "ml/image/grid.h"
#include "ml/metrics/fid_worker.h"
#include "ps/option_map.h"
#include "runtime/base/status_macros.h"
#include "train/sharding.h"

namespace miniray::ml {
namespace {

// The streams of random numbers of a run. Weights and shards are the same for
// all workers; of the others each worker has its own.
enum class Stream : uint64_t {
  kWeights = 0,
  kNoise = 1,
  kOrder = 2,
  kShards = 3
};

ImageShape ShapeOf(const ImageSource& images) {
  return {images.channels(), images.height(), images.width()};
}

}  // namespace

GanOptions WorkerGanOptions(const GanWorkerOptions& options,
                            const ImageShape& shape, int64_t classes) {
  return {.shape = shape,
          .latent_dim = options.latent_dim,
          .architecture = options.architecture,
          .classes = options.conditional ? classes : 0,
          .lr = options.lr,
          .loss = options.loss,
          .label_smoothing = options.label_smoothing,
          .ema_decay = options.ema_decay,
          .sync_moments = options.sync_moments,
          .loop = options.loop,
          .device = options.device,
          .weights_seed = StreamSeed(options.seed, Stream::kWeights),
          .noise_seed =
              StreamSeed(options.seed, Stream::kNoise, options.worker_id)};
}

GanWorker::GanWorker(GanWorkerOptions options) : options_(std::move(options)) {}

absl::Status GanWorker::LoadDataShard(int shard_id, int num_shards) {
  if (options_.batch_size < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size is ", options_.batch_size,
                     "; BatchNorm needs at least 2 images in a batch"));
  }
  MR_ASSIGN_OR_RETURN(ImageSource images, LoadShard(shard_id, num_shards));
  if (images.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", shard_id, " of ", num_shards, " has ", images.size(),
        " image; training needs at least 2: use fewer workers or more images"));
  }
  const int64_t batch_size = std::min(options_.batch_size, images.size());
  MR_ASSIGN_OR_RETURN(
      BatchSampler sampler,
      BatchSampler::Create(
          images.size(), batch_size,
          StreamSeed(options_.seed, Stream::kOrder, options_.worker_id),
          /*drop_last=*/true));
  const GanOptions made =
      WorkerGanOptions(options_, ShapeOf(images), images.num_classes());
  if (gan_ == nullptr) {
    MR_ASSIGN_OR_RETURN(gan_, Gan::Create(made));
    seen_ = gan_.get();
  } else if (made.shape != gan_->options().shape) {
    return absl::InvalidArgumentError(
        absl::StrCat("the images are ", made.shape.ToString(),
                     "; the model is for ", gan_->options().shape.ToString()));
  } else if (made.classes != gan_->options().classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the images are of ", made.classes,
                     " classes; the model is for ", gan_->options().classes));
  }
  images_ = std::move(images);
  sampler_ = std::move(sampler);
  return absl::OkStatus();
}

absl::StatusOr<ImageSource> GanWorker::LoadShard(int shard_id,
                                                 int num_shards) const {
  ps::OptionMap config;
  config.Set("sharding", options_.sharding);
  MR_ASSIGN_OR_RETURN(train::Sharding sharding,
                      train::ShardingFromConfig(config));
  DatasetOptions load = {.name = options_.dataset,
                         .data_dir = options_.data_dir,
                         .selection = {.limit = options_.limit},
                         .image_folder = {.size = options_.image_size,
                                          .channels = options_.image_channels}};
  // "synthetic" makes as many images as are asked for.
  if (options_.limit > 0) load.synthetic.count = options_.limit;
  sharding.seed = StreamSeed(options_.seed, Stream::kShards);
  return ImageSource::Load(load, std::move(sharding), shard_id, num_shards,
                           options_.lazy);
}

absl::StatusOr<train::Metrics> GanWorker::TrainEpoch(int epoch) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  const absl::Time start = absl::Now();
  snapshot_.reset();
  const EpochBatches batches = sampler_->Epoch(epoch);
  const auto read = [&](int64_t b) { return images_->Read(batches[b]); };
  // From memory a batch comes at once.
  std::unique_ptr<Prefetcher<ImageBatch>> ahead;
  if (images_->on_disk()) {
    ahead = std::make_unique<Prefetcher<ImageBatch>>(batches.size(), read);
  }
  gan_->BeginEpoch(epoch, batches.size() * sampler_->batch_size());
  for (int64_t b = 0; b < batches.size(); ++b) {
    MR_ASSIGN_OR_RETURN(const ImageBatch batch,
                        ahead != nullptr ? ahead->Next() : read(b));
    MR_RETURN_IF_ERROR(
        gan_->TrainStep(ToUnitRange(batch.images),
                        options_.conditional ? batch.labels : at::Tensor()));
  }
  MR_ASSIGN_OR_RETURN(train::Metrics metrics, gan_->EndEpoch());
  if (!metrics.contains("g_loss") || !metrics.contains("d_loss")) {
    return absl::AbortedError(
        absl::StrCat("epoch ", epoch + 1,
                     ": no batch had a finite loss; train with an lr "
                     "below ",
                     options_.lr));
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  const double images = metrics.at(train::kSamplesMetric);
  metrics["images"] = images;
  metrics["images_per_sec"] = images / std::max(seconds, 1e-9);
  metrics["seconds"] = seconds;
  return metrics;
}

train::Progress GanWorker::GetProgress() const {
  const Gan* const gan = seen_;
  return gan != nullptr ? gan->Now() : train::Progress();
}

absl::StatusOr<NamedTensors> GanWorker::GetWeights() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return gan_->Weights();
}

absl::StatusOr<ReadOnly<NamedTensors>> GanWorker::LendWeights() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return ReadOnly<NamedTensors>{gan_->Weights()};
}

absl::StatusOr<std::vector<std::string>> GanWorker::BufferNames() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  std::vector<std::string> names;
  for (const TensorSpec& spec : GanWeightSpecs(gan_->options())) {
    if (spec.is_buffer) names.push_back(spec.name);
  }
  return names;
}

absl::StatusOr<int64_t> GanWorker::NumSamples() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return images_->size();
}

absl::Status GanWorker::SetWeights(NamedTensors weights) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return gan_->SetWeights(weights);
}

absl::StatusOr<ReadOnly<ps::WeightMessage>> GanWorker::SendWeights(
    const ps::WeightRequest& request) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return exchange_.Send(request, gan_->Weights());
}

absl::Status GanWorker::ReceiveWeights(
    const ReadOnly<ps::WeightMessage>& message) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return exchange_.Receive(message.value, [this](const NamedTensors& weights) {
    return gan_->SetWeights(weights);
  });
}

absl::StatusOr<train::CheckpointFiles> GanWorker::SaveCheckpoint() {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return gan_->SaveState();
}

absl::Status GanWorker::LoadCheckpoint(const train::CheckpointFiles& files) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return gan_->LoadState(files);
}

absl::StatusOr<GanShard> GanWorker::DescribeShard() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return GanShard{.images = images_->size(),
                  .channels = images_->channels(),
                  .height = images_->height(),
                  .width = images_->width(),
                  .class_names = images_->class_names()};
}

absl::StatusOr<at::Tensor> GanWorker::SampleImages(uint64_t seed,
                                                   int64_t count) const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  if (count < 1 || count > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrCat(
        count, " samples are asked for; expected 1 to ", kMaxSamples));
  }
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ImageGenerator> generator,
                      MakeGenerator());
  return ToUint8(generator->Generate(seed, 0, count));
}

absl::StatusOr<std::unique_ptr<ImageGenerator>> GanWorker::MakeGenerator()
    const {
  const GanSizes sizes = gan_->options().sizes();
  NamedTensors weights = gan_->EmaWeights();
  if (weights.empty()) weights = gan_->NetworkWeights(GanNetwork::kGenerator);
  return ImageGenerator::Create({.network = GanNetwork::kGenerator,
                                 .latent_dim = sizes.latent_dim,
                                 .shape = sizes.shape,
                                 .architecture = sizes.architecture,
                                 .classes = sizes.classes,
                                 .weights = std::move(weights)});
}

absl::Status GanWorker::LoadExtractor(const ExtractorFile& file) {
  MR_ASSIGN_OR_RETURN(extractor_, FeatureExtractor::Create(file));
  return absl::OkStatus();
}

absl::StatusOr<std::string> GanWorker::DescribeData() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  // As the program `fid` has it for a generator of such images, so that it
  // finds the statistics that are kept under this.
  return DataIdentity({.dataset = options_.dataset,
                       .data_dir = options_.data_dir,
                       .split = "train",
                       .limit = options_.limit,
                       .image_size = images_->height(),
                       .image_channels = images_->channels()});
}

absl::StatusOr<FeatureStatistics> GanWorker::RealStatistics() {
  MR_RETURN_IF_ERROR(CheckLoaded());
  MR_RETURN_IF_ERROR(CheckExtractor());
  const auto read = [this](int64_t begin,
                           int64_t end) -> absl::StatusOr<ImageBatch> {
    std::vector<int64_t> items(static_cast<size_t>(end - begin));
    std::iota(items.begin(), items.end(), begin);
    return images_->Read(items);
  };
  const int64_t size = images_->size();
  std::unique_ptr<Prefetcher<ImageBatch>> ahead;
  if (images_->on_disk()) {
    ahead = std::make_unique<Prefetcher<ImageBatch>>(
        (size + kFeatureBatch - 1) / kFeatureBatch, [&](int64_t batch) {
          const int64_t begin = batch * kFeatureBatch;
          return read(begin, std::min(begin + kFeatureBatch, size));
        });
  }
  return StatisticsOfImages(
      size,
      [&](int64_t begin, int64_t end) -> absl::StatusOr<at::Tensor> {
        MR_ASSIGN_OR_RETURN(ImageBatch batch, ahead != nullptr
                                                  ? ahead->Next()
                                                  : read(begin, end));
        return std::move(batch.images);
      },
      *extractor_, on_images_);
}

absl::Status GanWorker::SnapshotGenerator() {
  MR_RETURN_IF_ERROR(CheckLoaded());
  MR_ASSIGN_OR_RETURN(snapshot_, MakeGenerator());
  return absl::OkStatus();
}

absl::StatusOr<FeatureStatistics> GanWorker::GeneratedStatistics(
    uint64_t seed, int64_t first, int64_t count) {
  MR_RETURN_IF_ERROR(CheckExtractor());
  if (snapshot_ == nullptr) {
    return absl::FailedPreconditionError(
        "the worker has no copy of its generator: call SnapshotGenerator "
        "after the epoch");
  }
  return StatisticsOfGenerator(seed, first, count, *snapshot_, *extractor_,
                               on_images_);
}

absl::Status GanWorker::CheckExtractor() const {
  if (extractor_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has nothing to compare images by yet: call LoadExtractor "
      "first");
}

absl::Status GanWorker::CheckLoaded() const {
  if (gan_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has no data yet: call LoadDataShard first");
}

}  // namespace miniray::ml
