#include "ml/classify/classifier_worker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ATen/ops/tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ml/classify/classifier_file.h"
#include "ml/data/augment.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/image_dataset.h"
#include "ml/data/image_folder_reader.h"
#include "ml/data/image_source.h"
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

// Numbers the classes of test images as those to train on are numbered: of a
// folder of pictures, the two need not have the same.
absl::Status NumberClassesAs(const std::vector<std::string>& classes,
                             ImageDataset* test) {
  if (test->class_names == classes) return absl::OkStatus();
  std::vector<int64_t> numbers;
  for (const std::string& name : test->class_names) {
    const auto found = std::find(classes.begin(), classes.end(), name);
    if (found == classes.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there are test images of the class '", name,
          "', and none of it to train on; add some, or take those away"));
    }
    numbers.push_back(found - classes.begin());
  }
  test->labels = test->labels.clone();
  int64_t* const labels = test->labels.data_ptr<int64_t>();
  for (int64_t i = 0; i < test->labels.numel(); ++i) {
    labels[i] = numbers[static_cast<size_t>(labels[i])];
  }
  test->class_names = classes;
  return absl::OkStatus();
}

bool IsPictures(const ClassifierWorkerOptions& options) {
  return options.dataset == "image-folder" && !options.data_dir.empty();
}

absl::StatusOr<ImageFolder> OpenTestPictures(
    const ClassifierWorkerOptions& options) {
  const DatasetOptions load = SplitOptions(options, "test");
  absl::StatusOr<ImageFolder> folder = ImageFolder::Open(
      load.data_dir, Split::kTest, load.image_folder, load.selection);
  if (!folder.ok()) return Annotate(folder.status(), "data set 'image-folder'");
  return folder;
}

// A worker's part of the test images, with the numbers that `classes` have.
// None where there are fewer pictures than shards.
absl::StatusOr<std::optional<ImageDataset>> LoadTestShard(
    const ClassifierWorkerOptions& options,
    const std::vector<std::string>& classes, int shard, int num_shards) {
  if (IsPictures(options)) {
    MR_ASSIGN_OR_RETURN(const ImageFolder all, OpenTestPictures(options));
    if (shard >= all.size()) return std::nullopt;
    num_shards = static_cast<int>(std::min<int64_t>(num_shards, all.size()));
  }
  MR_ASSIGN_OR_RETURN(
      ImageDataset test,
      LoadImageShard(SplitOptions(options, "test"), {}, shard, num_shards));
  MR_RETURN_IF_ERROR(NumberClassesAs(classes, &test));
  return test;
}

// Whether LoadTestShard will do; opens no picture.
absl::Status CheckTestShard(const ClassifierWorkerOptions& options,
                            const std::vector<std::string>& classes, int shard,
                            int num_shards) {
  if (!IsPictures(options)) {
    return LoadTestShard(options, classes, shard, num_shards).status();
  }
  MR_ASSIGN_OR_RETURN(const ImageFolder all, OpenTestPictures(options));
  ImageDataset labels = {.labels = at::tensor(all.labels()),
                         .class_names = all.class_names()};
  return NumberClassesAs(classes, &labels);
}

}  // namespace

ClassifierWorker::ClassifierWorker(ClassifierWorkerOptions options)
    : options_(std::move(options)) {}

ClassifierOptions ClassifierWorker::NetworkOptions(
    const ImageSource& images) const {
  return {.network = options_.network,
          .channels = images.channels(),
          .height = images.height(),
          .width = images.width(),
          .hidden = options_.hidden,
          .classes = images.num_classes()};
}

absl::Status ClassifierWorker::LoadDataShard(int shard_id, int num_shards,
                                             const train::Config& config) {
  MR_ASSIGN_OR_RETURN(const train::Sharding sharding,
                      train::ShardingFromConfig(config));
  MR_ASSIGN_OR_RETURN(
      ImageSource images,
      ImageSource::Load(SplitOptions(options_, "train"), sharding, shard_id,
                        num_shards, options_.lazy));
  if (images.num_classes() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data set '", options_.dataset, "': all images are of one class, '",
        absl::StrJoin(images.class_names(), ""),
        "', so that there is nothing to tell apart; expected two or more, of "
        "pictures a folder each"));
  }
  if (options_.evaluates) {
    const absl::Status test =
        CheckTestShard(options_, images.class_names(), shard_id, num_shards);
    MR_RETURN_IF_ERROR(Annotate(test,
                                "images to test on, without which "
                                "--evaluate=false trains"));
  }
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
  batches_.reset();
  shard_id_ = shard_id;
  return absl::OkStatus();
}

absl::StatusOr<train::Metrics> ClassifierWorker::TrainEpoch(int epoch) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return TrainBatches(epoch, 0, sampler_->num_batches());
}

absl::StatusOr<train::Metrics> ClassifierWorker::TrainSteps(int epoch,
                                                            int64_t first,
                                                            int64_t count) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  if (first < 0 || count < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps ", first, " and ", count,
                     " after it; expected 0 or more of both"));
  }
  // What is left of a piece would make a step of its own.
  if (const int64_t accumulate = options_.loop.accumulate;
      count % accumulate != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pieces of ", count, " batches (sync_every), and accumulate is ",
        accumulate, "; give a multiple of it"));
  }
  first = std::min(first, sampler_->num_batches());
  count = std::min(count, sampler_->num_batches() - first);
  MR_ASSIGN_OR_RETURN(train::Metrics metrics,
                      TrainBatches(epoch, first, count));
  metrics["steps"] = static_cast<double>(count);
  return metrics;
}

absl::StatusOr<train::Metrics> ClassifierWorker::TrainBatches(int epoch,
                                                              int64_t first,
                                                              int64_t count) {
  if (!batches_.has_value() || batches_epoch_ != epoch) {
    batches_ = sampler_->Epoch(epoch);
    batches_epoch_ = epoch;
  }
  const EpochBatches& batches = *batches_;
  const uint64_t seed = StreamSeed(options_.seed, Stream::kAugment, shard_id_) +
                        static_cast<uint64_t>(epoch);
  const auto read = [&](int64_t step) -> absl::StatusOr<ImageBatch> {
    const int64_t b = first + step;
    MR_ASSIGN_OR_RETURN(ImageBatch batch, images_->Read(batches[b]));
    if (options_.augment) {
      batch.images =
          FlipAndShift(batch.images, kUsualShift,
                       Mix64(Mix64(seed) + static_cast<uint64_t>(b)));
    }
    return batch;
  };
  // From memory a batch comes at once, unless its images are moved. One alone
  // has nothing to be made beside.
  std::unique_ptr<Prefetcher<ImageBatch>> ahead;
  if (images_->on_disk() || (options_.augment && count > 1)) {
    ahead = std::make_unique<Prefetcher<ImageBatch>>(count, read);
  }
  classifier_->BeginEpoch(epoch, count * sampler_->batch_size());
  for (int64_t step = 0; step < count; ++step) {
    MR_ASSIGN_OR_RETURN(const ImageBatch batch,
                        ahead != nullptr ? ahead->Next() : read(step));
    MR_RETURN_IF_ERROR(classifier_->TrainStep(batch).status());
  }
  MR_ASSIGN_OR_RETURN(train::Metrics metrics, classifier_->EndEpoch());
  if (first == 0) lacks_loss_ = true;
  if (metrics.contains("loss")) lacks_loss_ = false;
  const bool ends = count > 0 && first + count == sampler_->num_batches();
  if (!lacks_loss_ || !ends) return metrics;
  return absl::AbortedError(absl::StrCat(
      "epoch ", epoch + 1,
      ": no batch had a finite loss; train with an lr below ", options_.lr));
}

absl::StatusOr<train::Metrics> ClassifierWorker::EvaluateShard(int shard,
                                                               int num_shards) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  MR_ASSIGN_OR_RETURN(
      const std::optional<ImageDataset> test,
      LoadTestShard(options_, images_->class_names(), shard, num_shards));
  if (!test.has_value()) return train::Metrics{{train::kSamplesMetric, 0}};
  const Evaluation evaluation = classifier_->Evaluate(*test);
  return train::Metrics{
      {"accuracy", evaluation.accuracy},
      {"loss", evaluation.loss},
      {train::kSamplesMetric, static_cast<double>(test->size())}};
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
  return images_->size();
}

absl::StatusOr<std::string> ClassifierWorker::ModelFile() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  const ClassifierOptions network = NetworkOptions(*images_);
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
