// A worker with all optional methods: a linear classifier of made-up points, in
// float64, trained with plain SGD.
//
// Shape letters: N points, B batch; 4 coordinates, 3 classes.

#ifndef MINIRAY_TESTS_TRAIN_POINTS_WORKER_H_
#define MINIRAY_TESTS_TRAIN_POINTS_WORKER_H_

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tests/runtime/test_cluster.h"
#include "torch/torch.h"
#include "train/data_parallel_trainer.h"
#include "train/state_dict.h"
#include "train/train_loop.h"
#include "train/training_state.h"

namespace miniray::train {

struct PointsOptions {
  int64_t batch = 8;
  int64_t test_points = 101;
  // Of each worker; empty: equal parts, so that batch b of one process with
  // batches n times as large are the batches b of n workers.
  std::vector<int64_t> shard_sizes;
  // Before this batch of epoch 0 it waits for Proceed; -1: never.
  int64_t pause_before = -1;
  TrainLoopOptions loop;
  // EvaluateShard waits for this file, which training makes in epoch 1; empty:
  // it does not.
  std::string gate_file;
  // EvaluateShard removes this file, if it is there, and fails: its process
  // ends, or it returns an error, as the file says ("kill", "error"). Empty: it
  // does not.
  std::string fault_file;
};
MINIRAY_STRUCT(PointsOptions, batch, test_points, shard_sizes, pause_before,
               loop, gate_file, fault_file);

class PointsWorker {
 public:
  static constexpr int64_t kPoints = 96;

  explicit PointsWorker(PointsOptions options) : options_(std::move(options)) {
    torch::manual_seed(1);
    model_ = torch::nn::Linear(4, 3);
    model_->to(torch::kDouble);
    sgd_ = std::make_unique<torch::optim::SGD>(model_->parameters(), /*lr=*/1);
    loop_ = *TrainLoop::Create(*sgd_, options_.loop);
    torch::manual_seed(7);
    x_ = torch::randn({kPoints, 4}, torch::kDouble);
    test_x_ = torch::randn({options_.test_points, 4}, torch::kDouble);
    const torch::Tensor rule = torch::randn({4, 3}, torch::kDouble);
    y_ = x_.matmul(rule).argmax(1);
    test_y_ = test_x_.matmul(rule).argmax(1);
  }

  absl::Status LoadDataShard(int shard, int num_shards) {
    std::vector<int64_t> items;
    if (options_.shard_sizes.empty()) {
      const int64_t stride = options_.batch * num_shards;
      for (int64_t i = 0; i < kPoints; ++i) {
        if (i % stride / options_.batch == shard) items.push_back(i);
      }
    } else {
      int64_t begin = 0;
      for (int i = 0; i < shard; ++i) begin += options_.shard_sizes[i];
      for (int64_t i = 0; i < options_.shard_sizes[shard]; ++i) {
        items.push_back(begin + i);
      }
    }
    const torch::Tensor index = torch::tensor(items);
    x_ = x_.index_select(0, index);
    y_ = y_.index_select(0, index);
    return absl::OkStatus();
  }

  absl::StatusOr<Metrics> TrainEpoch(int epoch) {
    return TrainSteps(epoch, 0, x_.size(0));
  }

  absl::StatusOr<Metrics> TrainSteps(int epoch, int64_t first, int64_t count) {
    if (epoch == 1 && !options_.gate_file.empty()) {
      std::ofstream(options_.gate_file).flush();
    }
    loop_->BeginEpoch(epoch, x_.size(0));
    int64_t steps = 0;
    for (; steps < count; ++steps) {
      const int64_t begin = (first + steps) * options_.batch;
      if (begin >= x_.size(0)) break;
      if (epoch == 0 && first + steps == options_.pause_before) {
        proceed_.WaitForNotification();
      }
      const int64_t end = std::min(begin + options_.batch, x_.size(0));
      MR_RETURN_IF_ERROR(
          loop_
              ->Step(end - begin,
                     [&] {
                       return torch::cross_entropy_loss(
                           model_->forward(x_.slice(0, begin, end)),
                           y_.slice(0, begin, end));
                     })
              .status());
    }
    MR_ASSIGN_OR_RETURN(Metrics metrics, loop_->EndEpoch());
    metrics["steps"] = static_cast<double>(steps);
    return metrics;
  }

  absl::StatusOr<Metrics> EvaluateShard(int shard, int num_shards) {
    MR_RETURN_IF_ERROR(MaybeFail());
    if (!options_.gate_file.empty() &&
        !Eventually([&] { return ReadFile(options_.gate_file).ok(); },
                    absl::Seconds(60))) {
      return absl::DeadlineExceededError("epoch 1 is not trained meanwhile");
    }
    const torch::NoGradGuard no_grad;
    const int64_t size = test_x_.size(0);
    const int64_t begin = size * shard / num_shards;
    const int64_t end = size * (shard + 1) / num_shards;
    if (begin == end) return Metrics{{"samples", 0}};
    const torch::Tensor logits = model_->forward(test_x_.slice(0, begin, end));
    const torch::Tensor labels = test_y_.slice(0, begin, end);
    const auto samples = static_cast<double>(end - begin);
    const auto right = logits.argmax(1).eq(labels).sum().item<double>();
    return Metrics{
        {"accuracy", right / samples},
        {"loss", torch::cross_entropy_loss(logits, labels).item<double>()},
        {"samples", samples}};
  }

  Progress GetProgress() const { return loop_->Now(); }
  void Proceed() { proceed_.Notify(); }
  int64_t NumSamples() const { return x_.size(0); }

  NamedTensors GetWeights() const { return StateDict(*model_); }
  absl::Status SetWeights(const NamedTensors& weights) {
    return LoadStateDict(*model_, weights);
  }
  absl::StatusOr<CheckpointFiles> SaveCheckpoint() {
    return SaveTraining({.models = {{"model", &*model_}}});
  }
  absl::Status LoadCheckpoint(const CheckpointFiles& files) {
    return LoadTraining(files, {.models = {{"model", &*model_}}}).status();
  }

 private:
  absl::Status MaybeFail() const {
    const absl::StatusOr<std::string> how = ReadFile(options_.fault_file);
    if (!how.ok() || std::remove(options_.fault_file.c_str()) != 0) {
      return absl::OkStatus();
    }
    if (*how == "kill") kill(getpid(), SIGKILL);
    return absl::InternalError("the test data are away");
  }

  const PointsOptions options_;
  torch::nn::Linear model_ = nullptr;
  std::unique_ptr<torch::optim::SGD> sgd_;
  std::unique_ptr<TrainLoop> loop_;
  torch::Tensor x_, y_;            // [N, 4] and [N]
  torch::Tensor test_x_, test_y_;  // Likewise.
  absl::Notification proceed_;
};
MINIRAY_ACTOR(PointsWorker, Constructor<PointsOptions>,
              &PointsWorker::LoadDataShard, &PointsWorker::TrainEpoch,
              &PointsWorker::TrainSteps, &PointsWorker::EvaluateShard,
              &PointsWorker::GetProgress, &PointsWorker::Proceed,
              &PointsWorker::NumSamples, &PointsWorker::GetWeights,
              &PointsWorker::SetWeights, &PointsWorker::SaveCheckpoint,
              &PointsWorker::LoadCheckpoint);

class PointsTrainer : public DataParallelTrainer<PointsWorker> {
 public:
  PointsTrainer(TrainerOptions options, PointsOptions points = {})
      : DataParallelTrainer(std::move(options)), points_(std::move(points)) {}

  std::function<void()> at_train_start;
  int stop_after = -1;              // Asks for a stop in OnEpochEnd.
  std::vector<std::string> events;  // Of OnEpochEnd and OnEvaluation.

 protected:
  absl::StatusOr<ActorHandle<PointsWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    ActorOptions options = WorkerOptions(worker_id);
    options.concurrency_groups.push_back(
        {.name = "control", .methods = {MethodName<&PointsWorker::Proceed>()}});
    return cluster().CreateActor<PointsWorker>(options, points_);
  }
  void OnTrainStart() override {
    if (at_train_start) at_train_start();
  }
  void OnEpochEnd(int epoch, const EpochResult& result) override {
    events.push_back(absl::StrCat("epoch end ", epoch));
    if (epoch == stop_after) RequestStop();
  }
  void OnEvaluation(int epoch, const EpochResult& result) override {
    events.push_back(absl::StrCat("evaluation ", epoch));
  }

 private:
  const PointsOptions points_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_POINTS_WORKER_H_
