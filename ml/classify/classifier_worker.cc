#include "ml/classify/classifier_worker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ml/classify/classifier_file.h"
#include "ml/data/augment.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/mix64.h"
#include "ml/data/prefetcher.h"
#include "ml/data/split.h"
#include "runtime/base/status_macros.h"
#include "train/sharding.h"

namespace miniray::ml {
namespace {

// The streams of random numbers of a run.
enum class Stream : uint64_t {
  kWeights = 0,
  kShards = 1,
  kOrder = 2,
  kAugment = 3
};

// All of a split.
DatasetOptions SplitOptions(const ClassifierWorkerOptions& options,
                            const std::string& split) {
  DatasetOptions load = {.name = options.dataset,
                         .data_dir = options.data_dir,
                         .split = split,
                         .selection = {.limit = options.limit},
                         .image_folder = {.size = options.image_size,
                                          .channels = options.image_channels}};
  // "synthetic" makes as many images as are asked for.
  if (options.limit > 0) load.synthetic.count = options.limit;
  return load;
}

}  // namespace

ClassifierWorker::ClassifierWorker(ClassifierWorkerOptions options)
    : options_(std::move(options)) {}

int64_t ClassifierWorker::Images::size() const {
  return folder.has_value() ? folder->size() : dataset.size();
}

absl::StatusOr<ImageBatch> ClassifierWorker::Images::Read(
    absl::Span<const int64_t> items) const {
  return folder.has_value() ? folder->ReadBatch(items)
                            : GatherBatch(dataset, items);
}

absl::StatusOr<ClassifierWorker::Images> ClassifierWorker::LoadImages(
    int shard_id, int num_shards, const train::Config& config) const {
  MR_ASSIGN_OR_RETURN(train::Sharding sharding,
                      train::ShardingFromConfig(config));
  const DatasetOptions load = SplitOptions(options_, "train");
  Images images;
  if (!options_.lazy) {
    MR_ASSIGN_OR_RETURN(images.dataset,
                        LoadImageShard(load, sharding, shard_id, num_shards));
    return images;
  }
  if (options_.dataset != "image-folder") {
    return absl::InvalidArgumentError(
        absl::StrCat("only an image-folder can stay on the disk (lazy), not '",
                     options_.dataset, "'"));
  }
  if (options_.data_dir.empty()) {
    return absl::InvalidArgumentError(
        "data set 'image-folder': needs data_dir, a folder with train and "
        "test, in which there is a folder of .png and .jpg files for each "
        "class");
  }
  MR_ASSIGN_OR_RETURN(const ImageFolder all,
                      ImageFolder::Open(load.data_dir, Split::kTrain,
                                        load.image_folder, load.selection));
  sharding.labels = all.labels();
  MR_ASSIGN_OR_RETURN(
      const std::vector<int64_t> items,
      train::ShardItems(all.size(), shard_id, num_shards, sharding));
  images.folder = all.Select(items);
  return images;
}

ClassifierOptions ClassifierWorker::NetworkOptions(const Images& images) const {
  ClassifierOptions network = {.network = options_.network,
                               .hidden = options_.hidden};
  if (images.folder.has_value()) {
    network.channels = images.folder->options().channels;
    network.height = images.folder->options().size;
    network.width = images.folder->options().size;
    network.classes = static_cast<int64_t>(images.folder->class_names().size());
  } else {
    network.channels = images.dataset.channels();
    network.height = images.dataset.height();
    network.width = images.dataset.width();
    network.classes = images.dataset.num_classes();
  }
  return network;
}

absl::Status ClassifierWorker::LoadDataShard(int shard_id, int num_shards,
                                             const train::Config& config) {
  MR_ASSIGN_OR_RETURN(Images images, LoadImages(shard_id, num_shards, config));
  MR_ASSIGN_OR_RETURN(
      BatchSampler sampler,
      BatchSampler::Create(images.size(),
                           std::min(options_.batch_size, images.size()),
                           StreamSeed(options_.seed, Stream::kOrder, shard_id),
                           /*drop_last=*/true));
  if (classifier_ == nullptr) {
    ClassifierOptions classifier = NetworkOptions(images);
    classifier.optimizer = options_.optimizer;
    classifier.momentum = options_.momentum;
    classifier.weight_decay = options_.weight_decay;
    classifier.lr = options_.lr;
    classifier.loop = options_.loop;
    classifier.device = options_.device;
    classifier.seed = StreamSeed(options_.seed, Stream::kWeights);
    MR_ASSIGN_OR_RETURN(classifier_, Classifier::Create(classifier));
    seen_ = classifier_.get();
  }
  images_ = std::move(images);
  sampler_ = std::move(sampler);
  shard_id_ = shard_id;
  return absl::OkStatus();
}

absl::StatusOr<train::Metrics> ClassifierWorker::TrainEpoch(int epoch) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  const EpochBatches batches = sampler_->Epoch(epoch);
  const uint64_t seed = StreamSeed(options_.seed, Stream::kAugment, shard_id_) +
                        static_cast<uint64_t>(epoch);
  const auto read = [&](int64_t b) -> absl::StatusOr<ImageBatch> {
    MR_ASSIGN_OR_RETURN(ImageBatch batch, images_.Read(batches[b]));
    if (options_.augment) {
      batch.images =
          FlipAndShift(batch.images, kUsualShift,
                       Mix64(Mix64(seed) + static_cast<uint64_t>(b)));
    }
    return batch;
  };
  // From memory a batch comes at once.
  std::unique_ptr<Prefetcher<ImageBatch>> ahead;
  if (images_.folder.has_value()) {
    ahead = std::make_unique<Prefetcher<ImageBatch>>(batches.size(), read);
  }
  classifier_->BeginEpoch(epoch, batches.size() * sampler_->batch_size());
  for (int64_t b = 0; b < batches.size(); ++b) {
    MR_ASSIGN_OR_RETURN(const ImageBatch batch,
                        ahead != nullptr ? ahead->Next() : read(b));
    MR_RETURN_IF_ERROR(classifier_->TrainStep(batch).status());
  }
  return classifier_->EndEpoch();
}

absl::StatusOr<train::Metrics> ClassifierWorker::EvaluateShard(int shard,
                                                               int num_shards) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  MR_ASSIGN_OR_RETURN(
      const ImageDataset test,
      LoadImageShard(SplitOptions(options_, "test"), {}, shard, num_shards));
  const Evaluation evaluation = classifier_->Evaluate(test);
  return train::Metrics{
      {"accuracy", evaluation.accuracy},
      {"loss", evaluation.loss},
      {train::kSamplesMetric, static_cast<double>(test.size())}};
}

absl::StatusOr<NamedTensors> ClassifierWorker::GetWeights() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->Weights();
}

absl::StatusOr<ReadOnly<NamedTensors>> ClassifierWorker::LendWeights() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->LendWeights();
}

absl::Status ClassifierWorker::SetWeights(
    const ReadOnly<NamedTensors>& weights) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->SetWeights(weights.value);
}

absl::StatusOr<std::vector<std::string>> ClassifierWorker::BufferNames() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->BufferNames();
}

absl::StatusOr<int64_t> ClassifierWorker::NumSamples() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return images_.size();
}

absl::StatusOr<std::string> ClassifierWorker::ModelFile() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  const ClassifierOptions network = NetworkOptions(images_);
  return SerializeClassifier({.network = network.network,
                              .channels = network.channels,
                              .height = network.height,
                              .width = network.width,
                              .hidden = network.hidden,
                              .classes = network.classes,
                              .dataset = options_.dataset,
                              .weights = classifier_->Weights()});
}

absl::StatusOr<train::CheckpointFiles> ClassifierWorker::SaveCheckpoint() {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->SaveState();
}

absl::Status ClassifierWorker::LoadCheckpoint(
    const train::CheckpointFiles& files) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->LoadState(files);
}

train::Progress ClassifierWorker::GetProgress() const {
  const Classifier* const classifier = seen_;
  return classifier != nullptr ? classifier->Now() : train::Progress();
}

absl::Status ClassifierWorker::CheckLoaded() const {
  if (classifier_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has no data yet: call LoadDataShard first");
}

}  // namespace miniray::ml
