// The second example of train/functions/README.md; a test compares the two.

#ifndef MINIRAY_TESTS_TRAIN_FUNCTIONS_README_STEPS_H_
#define MINIRAY_TESTS_TRAIN_FUNCTIONS_README_STEPS_H_

#include <string>
#include <utility>

#include "runtime/api/miniray.h"
#include "torch/torch.h"
#include "train/functions/train_functions.h"

namespace train = miniray::train;

// README begins.
absl::Status TrainBySteps(train::Context& ctx) {
  auto model = ctx.PrepareModel(torch::nn::Linear(2, 1));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  torch::manual_seed(0);  // The same data set on all ranks.
  auto loader = ctx.PrepareDataLoader(
      torch::data::datasets::TensorDataset(torch::randn({240, 2})),
      {.batch_size = 20, .seed = 1});
  ctx.RestoreFrom(model, optimizer);
  if (const train::CheckpointFiles* files = ctx.GetCheckpoint()) {
    MR_RETURN_IF_ERROR(loader.Restore(files->at("loader")));
  }
  while (loader.epoch() < ctx.config<int>("epochs")) {
    int64_t batches = 0;
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const torch::Tensor loss = torch::mse_loss(
          model(batch.data), batch.data.sum(1, /*keepdim=*/true));
      loss.backward();
      optimizer.step();
      if (++batches % 2 != 0) continue;
      train::CheckpointFiles files =
          ctx.Checkpoint(model, optimizer, static_cast<int>(loader.epoch()));
      if (ctx.checkpoint_is_due()) files["loader"] = loader.State();
      ctx.Report({{"loss", loss.item<double>()}}, std::move(files));
    }
  }
  return absl::OkStatus();
}
MINIRAY_TRAIN_FUNC(TrainBySteps);
// README ends.

#endif  // MINIRAY_TESTS_TRAIN_FUNCTIONS_README_STEPS_H_
