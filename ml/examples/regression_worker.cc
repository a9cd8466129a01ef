#include "ml/examples/regression_worker.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "ml/data/csv_reader.h"
#include "ml/data/friedman.h"
#include "ml/data/mix64.h"
#include "runtime/base/status_macros.h"
#include "train/sharding.h"

namespace miniray::ml {
namespace {

// Deviations below this part of a mean are none.
constexpr double kConstant = 1e-10;

// The streams of random numbers of a run.
enum class Stream : uint64_t { kWeights = 0, kSplit = 1, kOrder = 2 };

absl::StatusOr<NumberTable> LoadTable(const RegressionWorkerOptions& options) {
  if (!options.data.empty()) return ReadCsv(options.data);
  return MakeFriedmanTable(options.made_rows, options.seed);
}

// double [N, C].
at::Tensor ToTensor(const NumberTable& table) {
  at::Tensor values =
      at::empty({table.num_rows(), table.num_columns()}, at::kDouble);
  std::copy(table.values.begin(), table.values.end(),
            values.data_ptr<double>());
  return values;
}

// The order that a seed draws; the rows to test come first.
absl::StatusOr<at::Tensor> DrawOrder(int64_t rows, uint64_t seed) {
  MR_ASSIGN_OR_RETURN(
      const BatchSampler sampler,
      BatchSampler::Create(rows, rows, seed, /*drop_last=*/false));
  return at::tensor(sampler.Epoch(0).order());
}

}  // namespace

RegressionWorker::RegressionWorker(RegressionWorkerOptions options)
    : options_(std::move(options)) {}

absl::Status RegressionWorker::LoadDataShard(int shard_id, int num_shards) {
  MR_ASSIGN_OR_RETURN(const NumberTable table, LoadTable(options_));
  int64_t target = table.num_columns() - 1;
  if (!options_.target.empty()) {
    MR_ASSIGN_OR_RETURN(target, ColumnIndex(table, options_.target));
  }
  const int64_t rows = table.num_rows();
  const auto tests = static_cast<int64_t>(
      std::llround(options_.test_share * static_cast<double>(rows)));
  if (table.num_columns() < 2) {
    return absl::InvalidArgumentError("the table has no column but the target");
  }
  if (tests < 1 || tests >= rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "of ", rows, " rows, ", options_.test_share,
        " for the test leaves none to ", tests < 1 ? "test" : "train", " on"));
  }
  MR_ASSIGN_OR_RETURN(
      const train::ShardRange shard,
      train::ContiguousShard(rows - tests, shard_id, num_shards));
  MR_ASSIGN_OR_RETURN(
      const at::Tensor order,
      DrawOrder(rows, StreamSeed(options_.seed, Stream::kSplit)));

  at::Tensor values = ToTensor(table).index_select(0, order);
  const at::Tensor train = values.slice(0, tests);
  const at::Tensor mean = train.mean(0);
  at::Tensor scale = train.std(0, /*unbiased=*/false);
  // Of a constant column rounding may leave a little.
  scale =
      at::where(scale > kConstant * mean.abs(), scale, at::ones_like(scale));
  target_scale_ = scale[target].item<double>();
  values = ((values - mean) / scale).to(at::kFloat);

  std::vector<int64_t> columns;
  for (int64_t i = 0; i < table.num_columns(); ++i) {
    if (i != target) columns.push_back(i);
  }
  const at::Tensor features = values.index_select(1, at::tensor(columns));
  const at::Tensor targets = values.select(1, target).contiguous();
  const auto cut = [&](int64_t begin, int64_t end) {
    return Rows{.features = features.slice(0, begin, end).clone(),
                .targets = targets.slice(0, begin, end).clone()};
  };
  test_ = cut(0, tests);
  train_ = cut(tests + shard.begin, tests + shard.end);
  MR_ASSIGN_OR_RETURN(
      sampler_, BatchSampler::Create(
                    shard.size(), std::min(options_.batch_size, shard.size()),
                    StreamSeed(options_.seed, Stream::kOrder, shard_id),
                    /*drop_last=*/false));
  MR_ASSIGN_OR_RETURN(
      regressor_,
      Regressor::Create({.inputs = features.size(1),
                         .hidden = options_.hidden,
                         .lr = options_.lr,
                         .loop = options_.loop,
                         .device = options_.device,
                         .seed = StreamSeed(options_.seed, Stream::kWeights)}));
  return absl::OkStatus();
}

absl::StatusOr<train::Metrics> RegressionWorker::TrainEpoch(int epoch) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  const EpochBatches batches = sampler_->Epoch(epoch);
  regressor_->BeginEpoch(epoch, sampler_->size());
  for (int64_t b = 0; b < batches.size(); ++b) {
    const at::Tensor items =
        at::tensor(at::ArrayRef<int64_t>(batches[b].data(), batches[b].size()));
    MR_RETURN_IF_ERROR(regressor_
                           ->TrainStep(train_.features.index_select(0, items),
                                       train_.targets.index_select(0, items))
                           .status());
  }
  return regressor_->EndEpoch();
}

absl::StatusOr<train::Metrics> RegressionWorker::EvaluateShard(int shard,
                                                               int num_shards) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  const int64_t tests = test_.targets.size(0);
  if (shard >= tests) return train::Metrics{{train::kSamplesMetric, 0}};
  MR_ASSIGN_OR_RETURN(const train::ShardRange range,
                      train::ContiguousShard(tests, shard,
                                             static_cast<int>(std::min<int64_t>(
                                                 num_shards, tests))));
  const at::Tensor targets = test_.targets.slice(0, range.begin, range.end);
  const RegressionErrors errors = regressor_->Evaluate(
      test_.features.slice(0, range.begin, range.end), targets);
  const double constant =
      targets.to(at::kDouble).square().mean().item<double>();
  const double squared_scale = target_scale_ * target_scale_;
  return train::Metrics{
      {"squared_error", errors.squared * squared_scale},
      {"absolute_error", errors.absolute * target_scale_},
      {"constant_squared_error", constant * squared_scale},
      {train::kSamplesMetric, static_cast<double>(range.size())}};
}

absl::StatusOr<NamedTensors> RegressionWorker::GetWeights() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return regressor_->Weights();
}

absl::StatusOr<ReadOnly<NamedTensors>> RegressionWorker::LendWeights() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return regressor_->LendWeights();
}

absl::Status RegressionWorker::SetWeights(
    const ReadOnly<NamedTensors>& weights) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return regressor_->SetWeights(weights.value);
}

absl::StatusOr<int64_t> RegressionWorker::NumSamples() const {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return train_.targets.size(0);
}

absl::StatusOr<train::CheckpointFiles> RegressionWorker::SaveCheckpoint() {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return regressor_->SaveState();
}

absl::Status RegressionWorker::LoadCheckpoint(
    const train::CheckpointFiles& files) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return regressor_->LoadState(files);
}

absl::Status RegressionWorker::CheckLoaded() const {
  if (regressor_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has no data yet: call LoadDataShard first");
}

}  // namespace miniray::ml
