// The blocks of "Train functions: Ray Train, block by block" in
// train/README.md, but for the last; a test compares them.

#ifndef MINIRAY_TESTS_TRAIN_FUNCTIONS_RAY_GUIDE_H_
#define MINIRAY_TESTS_TRAIN_FUNCTIONS_RAY_GUIDE_H_

// README begins.
#include <cstdlib>
#include <iostream>
#include <string>

#include "runtime/api/miniray.h"
#include "torch/torch.h"
#include "train/functions/train_functions.h"

namespace train = miniray::train;

// Every worker runs it whole. Such a function loads the model and the data,
// trains, saves checkpoints and reports metrics; this one only says where it
// is.
void TrainFunc(train::Context& ctx) {
  ctx.Report({{"rank", ctx.rank()}, {"workers", ctx.world_size()}});
}
MINIRAY_TRAIN_FUNC(TrainFunc);
// README ends.

// README begins.
// One worker with a CPU.
train::ScalingConfig OneCpu() { return {.num_workers = 1, .use_gpu = false}; }

// One worker with a GPU.
train::ScalingConfig OneGpu() { return {.num_workers = 1, .use_gpu = true}; }

// Several workers, each with a GPU.
train::ScalingConfig FourGpus() { return {.num_workers = 4, .use_gpu = true}; }
// README ends.

// README begins.
absl::StatusOr<train::Result> RunTrainFunc(
    const train::ScalingConfig& scaling) {
  train::TorchTrainer trainer(TrainFunc, {.scaling = scaling});
  return trainer.Fit();
}
// README ends.

// README begins.
// 640 points [10] with the sums of their coordinates [1]. Any data set of
// LibTorch that is asked for samples by index will do.
class Points : public torch::data::datasets::Dataset<Points> {
 public:
  torch::data::Example<> get(size_t i) override {
    const torch::Tensor x = torch::cos(torch::arange(1, 11) * (i + 1.0));
    return {x, x.sum(0, /*keepdim=*/true)};
  }
  torch::optional<size_t> size() const override { return 640; }
};

void TrainPoints(train::Context& ctx) {
  torch::manual_seed(7);  // Each run begins with the same model.
  // The model: its gradients are averaged over the workers from here on.
  auto model = ctx.PrepareModel(torch::nn::Linear(10, 1));
  // The data: this worker's samples; 64 of all workers make a step.
  auto loader =
      ctx.PrepareDataLoader(Points(), {.batch_size = 64 / ctx.world_size()});
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int epoch = 0; epoch < 10; ++epoch) {
    double loss_sum = 0;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const torch::Tensor loss =
          torch::mse_loss(model(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
    }
    ctx.Report({{"loss", loss_sum / loader.steps()}});
  }
}
MINIRAY_TRAIN_FUNC(TrainPoints);

absl::StatusOr<train::Result> FitPoints(const train::ScalingConfig& scaling) {
  train::TorchTrainer trainer(TrainPoints, {.scaling = scaling});
  return trainer.Fit();
}
// README ends.

// README begins.
void TrainOnShard(train::Context& ctx) {
  // This worker's part of the records.
  train::DatasetShard shard = ctx.GetDatasetShard("train");
  auto model = ctx.PrepareModel(torch::nn::Linear(2, 1));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int epoch = 0; epoch < 10; ++epoch) {
    double loss_sum = 0;
    int64_t rows = 0;
    for (const train::Batch& batch :
         shard.IterBatches({.batch_size = 32, .shuffle_buffer = 1000})) {
      optimizer.zero_grad();
      const torch::Tensor loss =
          torch::mse_loss(model(batch["x"]).squeeze(1), batch["y"]);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>() * batch.size();
      rows += batch.size();
    }
    ctx.Report({{"loss", loss_sum / rows}, {"rows", rows}});
  }
}
MINIRAY_TRAIN_FUNC(TrainOnShard);

// The folder holds CSV files with the fields a, b and sum, at this path on all
// machines.
absl::StatusOr<train::Result> FitOnFiles(const std::string& folder,
                                         const train::ScalingConfig& scaling) {
  MR_ASSIGN_OR_RETURN(
      const train::Dataset rows,
      train::Dataset::FromCsv(
          {folder}, {.columns = {{"x", {"a", "b"}}, {"y", {"sum"}}}}));
  train::TorchTrainer trainer(
      TrainOnShard, {.datasets = {{"train", rows}}, .scaling = scaling});
  return trainer.Fit();
}
// README ends.

// README begins.
// One pass over this worker's samples; returns the mean of its losses.
double TrainOneEpoch(auto& model, auto& loader,
                     torch::optim::Optimizer& optimizer) {
  double loss_sum = 0;
  for (auto& batch : loader) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(model(batch.data), batch.target);
    loss.backward();
    optimizer.step();
    loss_sum += loss.item<double>();
  }
  return loss_sum / loader.steps();
}

void TrainWithCheckpoints(train::Context& ctx) {
  torch::manual_seed(7);
  auto model = ctx.PrepareModel(torch::nn::Linear(10, 1));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  auto loader =
      ctx.PrepareDataLoader(Points(), {.batch_size = 64 / ctx.world_size()});
  // The epoch behind the checkpoint that training goes on from; 0 without one.
  const int start = ctx.RestoreFrom(model, optimizer);
  const int epochs = ctx.config<int>("epochs");
  for (int epoch = start; epoch < epochs; ++epoch) {
    loader.SetEpoch(epoch);  // Its order of samples.
    const double loss = TrainOneEpoch(model, loader, optimizer);
    // With .frequency = 10, Checkpoint makes files for every tenth report, and
    // none for the others, but for the last.
    const bool last = epoch + 1 == epochs;
    ctx.Report({{"epoch", epoch}, {"loss", loss}},
               ctx.Checkpoint(model, optimizer, epoch, /*always=*/last));
  }
}
MINIRAY_TRAIN_FUNC(TrainWithCheckpoints);

// previous_checkpoint: Result::checkpoint of another run; empty: from the
// start.
absl::StatusOr<train::Result> FitWithCheckpoints(
    const std::string& name, int epochs,
    const std::string& previous_checkpoint = "") {
  train::TorchTrainer trainer(TrainWithCheckpoints,
                              {.config = {{"epochs", epochs}},
                               .scaling = {.num_workers = 2},
                               .run = {.name = name,
                                       .storage_path = "runs",
                                       .checkpoint = {.frequency = 10}},
                               .resume_from_checkpoint = previous_checkpoint});
  return trainer.Fit();
}
// README ends.

// README begins.
void TrainInHalfPrecision(train::Context& ctx) {
  torch::manual_seed(7);
  auto model = ctx.PrepareModel(torch::nn::Linear(10, 1));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  auto loader =
      ctx.PrepareDataLoader(Points(), {.batch_size = 64 / ctx.world_size()});
  const torch::Device device = model.device();
  const train::Precision precision = device.is_cuda()
                                         ? train::Precision::kFloat16
                                         : train::Precision::kBfloat16;
  train::LossScaler scaler({});
  for (int epoch = 0; epoch < 10; ++epoch) {
    double loss_sum = 0;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      torch::Tensor loss;
      {
        const train::Autocast autocast(precision, device);
        loss = torch::mse_loss(model(batch.data.to(device)),
                               batch.target.to(device));
      }
      (loss * scaler.scale()).backward();  // Outside of Autocast.
      const bool finite = scaler.Unscale(model.Gradients());
      if (finite) optimizer.step();
      scaler.Update(finite);
      loss_sum += loss.item<double>();
    }
    ctx.Report(
        {{"loss", loss_sum / loader.steps()}, {"scale", scaler.scale()}});
  }
}
MINIRAY_TRAIN_FUNC(TrainInHalfPrecision);
// README ends.

// README begins.
void TrainWithAccumulation(train::Context& ctx) {
  torch::manual_seed(7);
  constexpr int kAccumulationSteps = 4;
  auto model = ctx.PrepareModel(torch::nn::Linear(10, 1));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  auto loader =
      ctx.PrepareDataLoader(Points(), {.batch_size = 16 / ctx.world_size()});
  for (int epoch = 0; epoch < 10; ++epoch) {
    double loss_sum = 0;
    int64_t i = 0;
    for (auto& batch : loader) {
      const bool step = ++i % kAccumulationSteps == 0;
      // Only the last pass before a step averages gradients: the sums of all.
      const auto no_sync = model.NoSync(!step);
      const torch::Tensor loss =
          torch::mse_loss(model(batch.data), batch.target);
      (loss / kAccumulationSteps).backward();
      if (step) {
        optimizer.step();
        optimizer.zero_grad();
      }
      loss_sum += loss.item<double>();
    }
    ctx.Report({{"loss", loss_sum / loader.steps()}});
  }
}
MINIRAY_TRAIN_FUNC(TrainWithAccumulation);
// README ends.

// README begins.
train::TorchTrainerOptions Tuned(int epochs) {
  return {.config = {{"epochs", epochs}},
          .scaling = {.num_workers = 8,
                      .use_gpu = true,
                      .resources_per_worker = {.cpu = 4, .gpu = 1}},
          .run = {.name = "tuned",
                  .storage_path = "runs",
                  .checkpoint = {.frequency = 10,      // Every 10th report's;
                                 .num_to_keep = 3}}};  // 3 of them stay.
}

absl::StatusOr<train::Result> FitTuned() {
  train::TorchTrainer trainer(TrainWithCheckpoints, Tuned(/*epochs=*/100));
  return trainer.Fit();
}
// README ends.

#endif  // MINIRAY_TESTS_TRAIN_FUNCTIONS_RAY_GUIDE_H_
