#include "ml/gan/gan_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/mix64.h"
#include "ml/gan/architecture.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/image_generator.h"
#include "ml/image/grid.h"
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

ImageShape ShapeOf(const ImageDataset& dataset) {
  return {dataset.channels(), dataset.height(), dataset.width()};
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
  MR_ASSIGN_OR_RETURN(ImageDataset dataset, LoadShard(shard_id, num_shards));
  if (dataset.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", shard_id, " of ", num_shards, " has ", dataset.size(),
        " image; training needs at least 2: use fewer workers or more images"));
  }
  const int64_t batch_size = std::min(options_.batch_size, dataset.size());
  MR_ASSIGN_OR_RETURN(
      BatchSampler sampler,
      BatchSampler::Create(
          dataset.size(), batch_size,
          StreamSeed(options_.seed, Stream::kOrder, options_.worker_id),
          /*drop_last=*/true));
  const GanOptions made =
      WorkerGanOptions(options_, ShapeOf(dataset), dataset.num_classes());
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
  dataset_ = std::move(dataset);
  sampler_ = std::move(sampler);
  return absl::OkStatus();
}

absl::StatusOr<ImageDataset> GanWorker::LoadShard(int shard_id,
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
  return LoadImageShard(std::move(load), sharding, shard_id, num_shards);
}

absl::StatusOr<train::Metrics> GanWorker::TrainEpoch(int epoch) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  const absl::Time start = absl::Now();
  const EpochBatches batches = sampler_->Epoch(epoch);
  gan_->BeginEpoch(epoch, batches.size() * sampler_->batch_size());
  for (int64_t b = 0; b < batches.size(); ++b) {
    MR_ASSIGN_OR_RETURN(const ImageBatch batch,
                        GatherBatch(dataset_, batches[b]));
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
  const GanOptions& options = gan_->options();
  std::vector<std::string> names;
  for (const TensorSpec& spec :
       GanWeightSpecs(options.sizes(), options.ema_decay > 0)) {
    if (spec.is_buffer) names.push_back(spec.name);
  }
  return names;
}

absl::StatusOr<int64_t> GanWorker::NumSamples() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return dataset_.size();
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
  return GanShard{.images = dataset_.size(),
                  .channels = dataset_.channels(),
                  .height = dataset_.height(),
                  .width = dataset_.width(),
                  .class_names = dataset_.class_names};
}

absl::StatusOr<at::Tensor> GanWorker::SampleImages(uint64_t seed,
                                                   int64_t count) const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  if (count < 1 || count > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrCat(
        count, " samples are asked for; expected 1 to ", kMaxSamples));
  }
  const GanSizes sizes = gan_->options().sizes();
  NamedTensors weights = gan_->EmaWeights();
  if (weights.empty()) weights = gan_->NetworkWeights(GanNetwork::kGenerator);
  MR_ASSIGN_OR_RETURN(
      const std::unique_ptr<ImageGenerator> generator,
      ImageGenerator::Create({.network = GanNetwork::kGenerator,
                              .latent_dim = sizes.latent_dim,
                              .shape = sizes.shape,
                              .architecture = sizes.architecture,
                              .classes = sizes.classes,
                              .weights = std::move(weights)}));
  return ToUint8(generator->Generate(seed, 0, count));
}

absl::Status GanWorker::CheckLoaded() const {
  if (gan_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has no data yet: call LoadDataShard first");
}

}  // namespace miniray::ml
