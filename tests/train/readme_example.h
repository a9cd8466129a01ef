// The example of train/README.md; a test compares the two.

#ifndef MINIRAY_TESTS_TRAIN_README_EXAMPLE_H_
#define MINIRAY_TESTS_TRAIN_README_EXAMPLE_H_

// README begins.
#include <iostream>

#include "runtime/api/miniray.h"
#include "torch/torch.h"
#include "train/data_parallel_trainer.h"
#include "train/state_dict.h"

namespace train = miniray::train;

// Learns y = 2 a - b from 1,200 points, of which it gets its share.
class LineWorker {
 public:
  explicit LineWorker(double lr) : optimizer_(model_->parameters(), lr) {}

  void LoadDataShard(int shard_id, int num_shards) {
    torch::manual_seed(shard_id);
    x_ = torch::randn({1200 / num_shards, 2});
    y_ = x_.matmul(torch::tensor({2.0f, -1.0f})).unsqueeze(1);
  }
  train::Metrics TrainEpoch(int epoch) {
    optimizer_.zero_grad();
    torch::Tensor loss = torch::mse_loss(model_->forward(x_), y_);
    loss.backward();
    optimizer_.step();
    return {{"loss", loss.item<double>()}, {"samples", x_.size(0)}};
  }
  miniray::NamedTensors GetWeights() { return train::StateDict(*model_); }
  absl::Status SetWeights(const miniray::NamedTensors& weights) {
    return train::LoadStateDict(*model_, weights);
  }

 private:
  torch::nn::Linear model_{2, 1};
  torch::optim::SGD optimizer_;
  torch::Tensor x_, y_;  // [N, 2] and [N, 1]
};
MINIRAY_ACTOR(LineWorker, Constructor<double>, &LineWorker::LoadDataShard,
              &LineWorker::TrainEpoch, &LineWorker::GetWeights,
              &LineWorker::SetWeights);

class LineTrainer : public train::DataParallelTrainer<LineWorker> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

 protected:
  absl::StatusOr<miniray::ActorHandle<LineWorker>> CreateWorker(
      int worker_id, const train::Config& config) override {
    MR_ASSIGN_OR_RETURN(double lr, config.GetDouble("lr", 0.1));
    return cluster().CreateActor<LineWorker>(WorkerOptions(worker_id), lr);
  }
  void OnEpochEnd(int epoch, const train::EpochResult& result) override {
    std::cout << "epoch " << epoch << " loss " << result.metrics.at("loss")
              << (result.synced ? ", averaged\n" : "\n");
  }
};
// README ends.

#endif  // MINIRAY_TESTS_TRAIN_README_EXAMPLE_H_
