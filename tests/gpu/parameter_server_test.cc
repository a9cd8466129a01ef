// Workers whose modules are on a GPU, kept together by a parameter server.

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status_macros.h"
#include "tests/gpu/gpu.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "torch/torch.h"
#include "train/data_parallel_trainer.h"
#include "train/state_dict.h"
#include "train/train_loop.h"
#include "train/training_state.h"

namespace miniray::train {

// Learns y = 2 a - b from 1,200 points, of which it gets its share.
class PlaneWorker {
 public:
  explicit PlaneWorker(std::string device) : device_(device) {
    torch::manual_seed(4);
    // No bias before BatchNorm: its gradient is rounding, of which Adam makes
    // steps.
    model_ = torch::nn::Sequential(
        torch::nn::Linear(torch::nn::LinearOptions(2, 8).bias(false)),
        torch::nn::BatchNorm1d(8), torch::nn::Linear(8, 1));
    model_->to(device_);
    adam_ = std::make_unique<torch::optim::Adam>(model_->parameters(), 0.02);
    auto loop = TrainLoop::Create(*adam_, {});
    if (!loop.ok()) throw std::runtime_error(loop.status().ToString());
    loop_ = *std::move(loop);
  }

  void LoadDataShard(int shard_id, int num_shards) {
    const torch::Tensor all =
        torch::cos(torch::arange(2400).to(torch::kFloat32)).view({1200, 2});
    x_ = all.chunk(num_shards)[shard_id].to(device_);
    y_ = x_.matmul(torch::tensor({2.0f, -1.0f}).to(device_)).unsqueeze(1);
  }
  absl::StatusOr<Metrics> TrainEpoch(int epoch) {
    loop_->BeginEpoch(epoch);
    for (int i = 0; i < 10; ++i) {
      MR_RETURN_IF_ERROR(
          loop_
              ->Step(x_.size(0),
                     [&] { return torch::mse_loss(model_->forward(x_), y_); })
              .status());
    }
    return loop_->EndEpoch();
  }
  NamedTensors GetWeights() { return StateDict(*model_); }
  absl::Status SetWeights(const NamedTensors& weights) {
    return LoadStateDict(*model_, weights);
  }
  absl::StatusOr<CheckpointFiles> SaveCheckpoint() {
    return SaveTraining({.models = {{"model", &*model_}},
                         .optimizers = {{"adam", adam_.get()}}});
  }
  absl::Status LoadCheckpoint(const CheckpointFiles& files) {
    return LoadTraining(files, {.models = {{"model", &*model_}},
                                .optimizers = {{"adam", adam_.get()}}})
        .status();
  }

 private:
  const torch::Device device_;
  torch::nn::Sequential model_;
  std::unique_ptr<torch::optim::Adam> adam_;
  std::unique_ptr<TrainLoop> loop_;
  torch::Tensor x_, y_;  // [N, 2] and [N, 1]
};
MINIRAY_ACTOR(PlaneWorker, Constructor<std::string>,
              &PlaneWorker::LoadDataShard, &PlaneWorker::TrainEpoch,
              &PlaneWorker::GetWeights, &PlaneWorker::SetWeights,
              &PlaneWorker::SaveCheckpoint, &PlaneWorker::LoadCheckpoint);

namespace {

class PlaneTrainer : public DataParallelTrainer<PlaneWorker> {
 public:
  PlaneTrainer(TrainerOptions options, std::string device)
      : DataParallelTrainer(std::move(options)), device_(std::move(device)) {}

 protected:
  absl::StatusOr<ActorHandle<PlaneWorker>> CreateWorker(
      int worker_id, const Config&) override {
    return cluster().CreateActor<PlaneWorker>(WorkerOptions(worker_id),
                                              device_);
  }

 private:
  const std::string device_;
};

class GpuParameterServerTest : public ::testing::Test {
 protected:
  TrainerOptions Options(double gpus) {
    TrainerOptions options = {
        .num_workers = 2, .cluster = cluster_, .sync_interval = 1};
    options.worker_resources.gpu = gpus;
    return options;
  }

  static void ExpectClose(const NamedTensors& a, const NamedTensors& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(a[i].second.allclose(b[i].second, 1e-3, 1e-4))
          << a[i].first << " " << a[i].second << b[i].second;
    }
  }

  const c10::Device gpu_ = RequireGpu();
  TempFolder temp_;
  TestCluster nodes_{OneGpu()};
  Cluster cluster_ = nodes_.Connect();
};

TEST_F(GpuParameterServerTest, WorkersOnAGpuComeToWhatThoseOnTheCpuComeTo) {
  PlaneTrainer on_gpu(Options(0.5), "cuda");
  const absl::StatusOr<Result> result = on_gpu.Train({.epochs = 5});
  ASSERT_THAT(result, IsOk());
  PlaneTrainer on_cpu(Options(0), "cpu");
  const absl::StatusOr<Result> expected = on_cpu.Train({.epochs = 5});
  ASSERT_THAT(expected, IsOk());
  EXPECT_NEAR(result->metrics().at("loss"), expected->metrics().at("loss"),
              1e-3);
  ExpectClose(*on_gpu.PullWeights(), *on_cpu.PullWeights());
  for (const auto& worker : on_gpu.workers()) {
    ExpectClose(*worker.Call<&PlaneWorker::GetWeights>().Get(),
                *on_gpu.PullWeights());
  }
}

TEST_F(GpuParameterServerTest, GoesOnFromACheckpoint) {
  TrainerOptions options = Options(0.5);
  NamedTensors expected;
  {
    PlaneTrainer whole(options, "cuda");
    ASSERT_THAT(whole.Train({.epochs = 6}), IsOk());
    expected = *whole.PullWeights();
  }
  options.storage_path = temp_.path();
  options.name = "halves";
  options.checkpoint.frequency = 3;
  options.checkpoint.resume = "auto";
  {
    PlaneTrainer first(options, "cuda");
    ASSERT_THAT(first.Train({.epochs = 3}), IsOk());
  }
  PlaneTrainer second(options, "cuda");
  const absl::StatusOr<Result> result = second.Train({.epochs = 6});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->history.size(), 6u);
  ExpectClose(*second.PullWeights(), expected);
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
