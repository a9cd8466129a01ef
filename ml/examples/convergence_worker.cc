#include "ml/examples/convergence_worker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/mix64.h"
#include "ml/data/skewed_shard.h"
#include "runtime/base/status_macros.h"
#include "train/lr_schedule.h"

namespace miniray::ml {
namespace {

constexpr double kScale = 100;

// The streams of random numbers of a run.
enum class Stream : uint64_t { kWeights = 0, kShards = 1, kOrder = 2 };

// Falls linearly, to 0 after the last step.
train::LrSchedule Schedule(const ConvergenceWorkerOptions& options) {
  if (options.steps < 1) return {};
  return {.kind = train::LrSchedule::Kind::kLinear,
          .total_steps = options.steps};
}

NamedTensors Spoilt(NamedTensors weights, double factor) {
  for (auto& [name, tensor] : weights) tensor.mul_(factor);
  return weights;
}

}  // namespace

absl::StatusOr<ImageDataset> LoadSplit(const ConvergenceWorkerOptions& options,
                                       const std::string& split,
                                       int64_t limit) {
  DatasetOptions load = {.name = options.dataset,
                         .data_dir = options.data_dir,
                         .split = split,
                         .selection = {.limit = limit}};
  // "synthetic" makes as many images as are asked for.
  if (limit > 0) load.synthetic.count = limit;
  return LoadImageDataset(load);
}

ConvergenceWorker::ConvergenceWorker(ConvergenceWorkerOptions options)
    : options_(std::move(options)) {}

absl::Status ConvergenceWorker::LoadDataShard(int shard_id, int num_shards) {
  MR_ASSIGN_OR_RETURN(const ImageDataset all,
                      LoadSplit(options_, "train", options_.limit));
  const absl::Span<const int64_t> labels(
      all.labels.data_ptr<int64_t>(), static_cast<size_t>(all.labels.numel()));
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> items,
                      SkewedShard(labels, options_.skew,
                                  StreamSeed(options_.seed, Stream::kShards),
                                  shard_id, num_shards));
  MR_ASSIGN_OR_RETURN(ImageBatch shard, GatherBatch(all, items));
  dataset_ = {.images = std::move(shard.images),
              .labels = std::move(shard.labels),
              .class_names = all.class_names};
  MR_ASSIGN_OR_RETURN(
      sampler_,
      BatchSampler::Create(dataset_.size(),
                           std::min(options_.batch_size, dataset_.size()),
                           StreamSeed(options_.seed, Stream::kOrder, shard_id),
                           /*drop_last=*/true));
  MR_ASSIGN_OR_RETURN(
      classifier_, Classifier::Create(
                       {.channels = all.channels(),
                        .height = all.height(),
                        .width = all.width(),
                        .hidden = options_.hidden,
                        .classes = all.num_classes(),
                        .optimizer = options_.optimizer,
                        .fedprox_mu = options_.fedprox_mu,
                        .lr = options_.lr,
                        .loop = {.schedule = Schedule(options_)},
                        .device = options_.device,
                        .seed = StreamSeed(options_.seed, Stream::kWeights)}));
  return absl::OkStatus();
}

absl::StatusOr<train::Metrics> ConvergenceWorker::TrainEpoch(int epoch) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  const int64_t first = epoch * options_.steps_per_epoch;
  classifier_->BeginEpoch(epoch,
                          options_.steps_per_epoch * sampler_->batch_size());
  // Also of a successor, whose own first step this is.
  classifier_->set_steps(first);
  for (int64_t step = first; step < first + options_.steps_per_epoch; ++step) {
    MR_ASSIGN_OR_RETURN(const ImageBatch batch, BatchOf(step));
    MR_RETURN_IF_ERROR(classifier_->TrainStep(batch).status());
  }
  return classifier_->EndEpoch();
}

absl::StatusOr<ImageBatch> ConvergenceWorker::BatchOf(int64_t step) {
  const int64_t pass = step / sampler_->num_batches();
  if (!batches_.has_value() || pass != pass_) {
    batches_ = sampler_->Epoch(pass);
    pass_ = pass;
  }
  return GatherBatch(dataset_, (*batches_)[step % sampler_->num_batches()]);
}

absl::StatusOr<double> ConvergenceWorker::ComputeGradients(int64_t step) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  MR_ASSIGN_OR_RETURN(const ImageBatch batch, BatchOf(step));
  return classifier_->ComputeGradients(batch);
}

absl::StatusOr<ReadOnly<NamedTensors>> ConvergenceWorker::LendGradients()
    const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->Gradients();
}

absl::StatusOr<NamedTensors> ConvergenceWorker::GetWeights() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  switch (options_.fault) {
    case Fault::kNone:
      return classifier_->Weights();
    case Fault::kScaled:
      return Spoilt(classifier_->Weights(), kScale);
    case Fault::kNan:
      return Spoilt(classifier_->Weights(),
                    std::numeric_limits<double>::quiet_NaN());
  }
  return absl::InvalidArgumentError("there is no such fault");
}

absl::StatusOr<ReadOnly<NamedTensors>> ConvergenceWorker::LendWeights() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  if (options_.fault == Fault::kNone) return classifier_->LendWeights();
  MR_ASSIGN_OR_RETURN(NamedTensors weights, GetWeights());
  return ReadOnly<NamedTensors>{std::move(weights)};
}

absl::StatusOr<int64_t> ConvergenceWorker::NumSamples() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return dataset_.size();
}

absl::Status ConvergenceWorker::SetWeights(
    const ReadOnly<NamedTensors>& weights) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->SetWeights(weights.value);
}

absl::StatusOr<train::CheckpointFiles> ConvergenceWorker::SaveCheckpoint() {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->SaveState();
}

absl::Status ConvergenceWorker::LoadCheckpoint(
    const train::CheckpointFiles& files) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return classifier_->LoadState(files);
}

absl::Status ConvergenceWorker::CheckLoaded() const {
  if (classifier_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has no data yet: call LoadDataShard first");
}

}  // namespace miniray::ml
