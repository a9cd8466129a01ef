// The example of train/functions/README.md; a test compares the two.

#ifndef MINIRAY_TESTS_TRAIN_FUNCTIONS_README_EXAMPLE_H_
#define MINIRAY_TESTS_TRAIN_FUNCTIONS_README_EXAMPLE_H_

// README begins.
#include <iostream>

#include "runtime/api/miniray.h"
#include "torch/torch.h"
#include "train/functions/train_functions.h"

namespace train = miniray::train;

// Learns y = 2 a - b, each rank from points of its own.
void TrainLine(train::Context& ctx) {
  auto model = ctx.PrepareModel(torch::nn::Linear(2, 1));
  torch::optim::SGD optimizer(model->parameters(), ctx.config<double>("lr"));
  torch::manual_seed(ctx.rank());
  const torch::Tensor x = torch::randn({600, 2});
  const torch::Tensor y = x.matmul(torch::tensor({2.0f, -1.0f})).unsqueeze(1);
  const int start = ctx.RestoreFrom(model, optimizer);
  for (int epoch = start; epoch < ctx.config<int>("epochs"); ++epoch) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(model(x), y);
    loss.backward();  // The gradients are the means over the ranks.
    optimizer.step();
    ctx.Report({{"loss", loss.item<double>()}},
               ctx.Checkpoint(model, optimizer, epoch));
  }
}
MINIRAY_TRAIN_FUNC(TrainLine);

absl::StatusOr<train::Result> Learn() {
  train::TorchTrainer trainer(TrainLine,
                              {.config = {{"lr", 0.2}, {"epochs", 40}},
                               .scaling = {.num_workers = 2},
                               .run = {.name = "line",
                                       .storage_path = "runs",
                                       .checkpoint = {.num_to_keep = 3},
                                       .failure = {.max_failures = 2}}});
  return trainer.Fit();
}
// README ends.

#endif  // MINIRAY_TESTS_TRAIN_FUNCTIONS_README_EXAMPLE_H_
