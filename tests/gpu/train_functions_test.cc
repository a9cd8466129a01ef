// Train functions whose ranks have a GPU: one alone, and two that share it.

#include "train/functions/train_functions.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/gpu/gpu.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/train/functions/curve.h"
#include "torch/torch.h"
#include "train/collective/nccl_backend.h"
#include "train/gradient_clipping.h"
#include "train/loss_scaler.h"
#include "train/mixed_precision.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int kEpochs = 4;

// A network with BatchNorm learns a plane. config: precision ("float32",
// "float16", "bfloat16"), compression (0, 1, 2), unused.
void FitPlane(Context& ctx) {
  torch::manual_seed(5 + ctx.rank());
  torch::nn::Sequential net(torch::nn::Linear(2, 16),
                            torch::nn::BatchNorm1d(16), torch::nn::ReLU(),
                            torch::nn::Linear(16, 1));
  auto model =
      ctx.PrepareModel(net, {.first_bucket_bytes = 64,
                             .bucket_bytes = 128,
                             .compression = static_cast<GradientCompression>(
                                 ctx.config<int>("compression"))});
  if (!model.device().is_cuda()) throw std::runtime_error("not on a GPU");
  const bool has_nccl =
      dynamic_cast<internal::NcclBackend*>(
          *ctx.process_group()->BackendFor(model.device())) != nullptr;
  const std::string name = ctx.config<std::string>("precision");
  const Precision precision = name == "float16"    ? Precision::kFloat16
                              : name == "bfloat16" ? Precision::kBfloat16
                                                   : Precision::kFloat32;
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  LossScaler scaler({.initial_scale = 1024});
  const torch::Tensor x =
      torch::cos(torch::arange(256).outer(torch::arange(1, 3)) +
                 ctx.rank() * 0.1)
          .to(model.device());
  const torch::Tensor y =
      x.matmul(torch::tensor({2.0f, -1.0f}).to(model.device())).unsqueeze(1);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    double loss_sum = 0;
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      torch::Tensor loss;
      {
        const Autocast autocast(precision, model.device());
        loss = torch::mse_loss(model(x).to(torch::kFloat32), y);
      }
      const double scale =
          precision == Precision::kFloat16 ? scaler.scale() : 1;
      (loss * scale).backward();
      bool finite = true;
      if (precision == Precision::kFloat16) {
        finite = scaler.Unscale(model.Gradients());
        scaler.Update(finite);
      }
      ClipByNorm(model.Gradients(), 10);
      if (finite) optimizer.step();
      loss_sum += loss.item<double>();
    }
    double weights = 0;
    for (const torch::Tensor& tensor : model->parameters()) {
      weights += tensor.detach().sum().item<double>();
    }
    double statistics = 0;
    for (const torch::Tensor& tensor : model->buffers()) {
      statistics += tensor.sum().item<double>();
    }
    ctx.Report({{"loss", loss_sum / 20},
                {"weights", weights},
                {"statistics", statistics},
                {"nccl", has_nccl ? 1.0 : 0.0}});
  }
}
MINIRAY_TRAIN_FUNC(FitPlane);

// What dropout on the GPU draws in each of the epochs.
void Draw(Context& ctx) {
  auto model = ctx.PrepareModel(
      torch::nn::Sequential(torch::nn::Linear(1, 1), torch::nn::Dropout(0.5)));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  torch::manual_seed(1);
  for (int epoch = ctx.RestoreFrom(model, optimizer);
       epoch < ctx.config<int>("epochs"); ++epoch) {
    const torch::Tensor drawn = torch::rand({}, model.device());
    ctx.Report({{"p0", drawn.item<double>()}},
               ctx.Checkpoint(model, optimizer, epoch));
  }
}
MINIRAY_TRAIN_FUNC(Draw);

class GpuTrainFunctionsTest : public ::testing::Test {
 protected:
  TorchTrainerOptions Options(int num_workers) {
    TorchTrainerOptions options;
    options.config = {{"epochs", kEpochs},
                      {"batch_size", 48 / num_workers},
                      {"precision", "float32"},
                      {"compression", 0}};
    options.scaling.num_workers = num_workers;
    options.scaling.use_gpu = true;
    options.scaling.resources_per_worker.gpu = 1.0 / num_workers;
    options.run.storage_path = temp_.path();
    options.cluster = cluster_;
    return options;
  }

  Result Fit(TorchTrainerOptions options, void (*function)(Context&)) {
    TorchTrainer trainer(function, std::move(options));
    EXPECT_THAT(trainer.Fit(), IsOk());
    return trainer.last_result();
  }

  // The reported parameters are the same, but for rounding.
  static void ExpectClose(const Result& actual, const Result& expected) {
    ASSERT_EQ(actual.history.size(), expected.history.size());
    const Metrics& values = actual.metrics();
    int compared = 0;
    for (const auto& [name, value] : expected.metrics()) {
      if (name[0] != 'p') continue;
      EXPECT_NEAR(values.at(name), value, 1e-5) << name;
      ++compared;
    }
    EXPECT_GT(compared, 20);
  }

  const c10::Device gpu_ = RequireGpu();
  TempFolder temp_;
  TestCluster nodes_{OneGpu()};
  Cluster cluster_ = nodes_.Connect();
};

TEST_F(GpuTrainFunctionsTest, RanksOnAGpuComeToWhatRanksOnTheCpuComeTo) {
  for (const auto function : {&FitCurve, &FitGan}) {
    TorchTrainerOptions cpu = Options(2);
    cpu.scaling.use_gpu = false;
    cpu.scaling.resources_per_worker.gpu = 0;
    const Result expected = Fit(cpu, function);
    ExpectClose(Fit(Options(2), function), expected);
    ExpectClose(Fit(Options(1), function), expected);
  }
}

TEST_F(GpuTrainFunctionsTest, AccumulationAndUnevenDataToo) {
  TorchTrainerOptions options = Options(2);
  options.config.Set("accumulate", 2);
  options.config.Set("uneven", true);
  TorchTrainerOptions cpu = options;
  cpu.scaling.use_gpu = false;
  cpu.scaling.resources_per_worker.gpu = 0;
  ExpectClose(Fit(options, FitCurve), Fit(cpu, FitCurve));
}

TEST_F(GpuTrainFunctionsTest, AllPrecisionsAndCompressions) {
  const double exact = Fit(Options(2), FitPlane).metrics().at("loss");
  for (const int ranks : {1, 2}) {
    for (const std::string precision : {"float32", "float16", "bfloat16"}) {
      for (const int compression : {0, 1, 2}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ", precision, " ", compression));
        TorchTrainerOptions options = Options(ranks);
        options.config.Set("precision", precision);
        options.config.Set("compression", compression);
        const Result result = Fit(options, FitPlane);
        ASSERT_THAT(result.history, SizeIs(kEpochs));
        const Metrics& metrics = result.metrics();
        EXPECT_EQ(metrics.at("nccl"), ranks == 1 ? 1 : 0);
        EXPECT_LT(metrics.at("loss"), 0.5);
        EXPECT_NEAR(metrics.at("loss"), exact, 0.05);
        for (const Metrics& rank : result.history.back().per_worker) {
          EXPECT_EQ(rank.at("weights"), metrics.at("weights"));
          EXPECT_EQ(rank.at("statistics"), metrics.at("statistics"));
        }
      }
    }
  }
}

TEST_F(GpuTrainFunctionsTest, GoesOnFromACheckpoint) {
  const Result whole = Fit(Options(2), FitCurve);
  TorchTrainerOptions half = Options(2);
  half.run.name = "halves";
  half.config.Set("epochs", kEpochs / 2);
  Fit(half, FitCurve);
  half.config.Set("epochs", kEpochs);
  const Result resumed = Fit(half, FitCurve);
  EXPECT_THAT(resumed.history, SizeIs(kEpochs));
  ExpectClose(resumed, whole);
}

TEST_F(GpuTrainFunctionsTest, CheckpointsHaveTheGpusRandomNumbers) {
  const Result whole = Fit(Options(1), Draw);
  TorchTrainerOptions half = Options(1);
  half.run.name = "halves";
  half.config.Set("epochs", kEpochs / 2);
  Fit(half, Draw);
  half.config.Set("epochs", kEpochs);
  const Result resumed = Fit(half, Draw);
  ASSERT_THAT(resumed.history, SizeIs(kEpochs));
  EXPECT_EQ(resumed.metrics().at("p0"), whole.metrics().at("p0"));
}

TEST_F(GpuTrainFunctionsTest, ADeadRankEndsTheBackwardPassOfTheOther) {
  const Result undisturbed = Fit(Options(2), FitCurve);
  for (const std::string how : {"kill", "throw"}) {
    SCOPED_TRACE(how);
    ASSERT_THAT(WriteFileAtomically(temp_ / "fault",
                                    absl::StrCat("1 2 backward ", how)),
                IsOk());
    TorchTrainerOptions options = Options(2);
    options.config.Set("fault_file", temp_ / "fault");
    options.run.failure.max_failures = 1;
    options.run.collective_timeout = absl::Minutes(30);
    const absl::Time start = absl::Now();
    const Result result = Fit(options, FitCurve);
    EXPECT_LT(absl::Now() - start, absl::Minutes(2));
    ExpectClose(result, undisturbed);
    ASSERT_THAT(result.failures, SizeIs(1));
    EXPECT_EQ(result.failures[0].worker_id, 1);
  }
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
