// Measures train functions on a GPU against a plain loop of LibTorch's there.
//
//   bazel-bin/tools/bench/gpu_training [--batch=N] [--steps=N] [--rounds=N]
//       [--json]

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/resnet_training.h"
#include "train/device.h"
#include "train/functions/prepare_model.h"
#include "train/functions/torch_trainer.h"

ABSL_FLAG(int, batch, 128, "Images in a batch of each rank.");
ABSL_FLAG(int, steps, 200, "Steps that are measured at a time.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures how fast train functions train a ResNet-20 on the first CUDA device, in
samples a second of all ranks: images of CIFAR-10's shape, SGD with momentum.

  gpu_training [FLAGS]

  one rank           which has the GPU alone; gradients go through NCCL where
                     LibTorch brings it
  two ranks          which share the GPU, half of it each; gradients are averaged
                     through the CPU's memory
Beside them a plain loop of LibTorch's in this process, with the same network and
batches.

  --batch=N    images in a batch of each rank (default 128)
  --steps=N    steps that are measured at a time (default 200))";

constexpr int64_t kWarmUp = 20;
constexpr char kPace[] = "samples_per_second";
constexpr char kWaited[] = "waited";  // For gradients, of the time.

void TrainOnGpu(train::Context& ctx) {
  auto model = ctx.PrepareModel(ResNet20());
  ResNetTraining training(model.model(), ctx.rank(),
                          ctx.config<int64_t>("batch_size"));
  training.Train(kWarmUp);
  const absl::Duration waited = model.distributed().stats().waited;
  const absl::Time start = absl::Now();
  const double pace = training.Train(ctx.config<int64_t>("steps"));
  const double seconds = SecondsSince(start);
  ctx.Report({{kPace, pace},
              {kWaited, absl::ToDoubleSeconds(
                            model.distributed().stats().waited - waited) /
                            seconds}});
}
MINIRAY_TRAIN_FUNC(TrainOnGpu);

// *waited: the share of the time in which ranks waited for gradients.
absl::StatusOr<double> TrainFunction(const Cluster& cluster, int ranks,
                                     double* waited) {
  train::ScalingConfig scaling = {.num_workers = ranks, .use_gpu = true};
  scaling.resources_per_worker.gpu = 1.0 / ranks;
  train::TorchTrainer trainer(
      TrainOnGpu, {.config = {{"batch_size", absl::GetFlag(FLAGS_batch)},
                              {"steps", absl::GetFlag(FLAGS_steps)}},
                   .scaling = scaling,
                   .cluster = cluster});
  MR_ASSIGN_OR_RETURN(const train::Result result, trainer.Fit());
  double pace = 0;
  *waited = 0;
  for (const train::Metrics& rank : result.history.back().per_worker) {
    pace += rank.at(kPace);
    *waited += rank.at(kWaited) / ranks;
  }
  return pace;
}

absl::StatusOr<double> PlainLoop() {
  MR_ASSIGN_OR_RETURN(const c10::Device device, train::ChooseDevice("cuda"));
  ResNet20 network;
  network->to(device);
  ResNetTraining training(network, 0, absl::GetFlag(FLAGS_batch));
  training.Train(kWarmUp);
  return training.Train(absl::GetFlag(FLAGS_steps));
}

absl::Status Measure(Table* table) {
  for (const auto& [name, value] :
       {std::pair("batch", absl::GetFlag(FLAGS_batch)),
        std::pair("steps", absl::GetFlag(FLAGS_steps))}) {
    if (value >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " is ", value, "; expected 1 or more"));
  }
  // Before anything starts: where there is no GPU.
  MR_RETURN_IF_ERROR(train::ChooseDevice("cuda").status());
  MR_ASSIGN_OR_RETURN(
      const Cluster cluster,
      Cluster::Connect({.embedded_num_cpus = 4, .embedded_num_gpus = 1}));
  std::vector<double> waited[2];
  const auto train_function = [&](int ranks) {
    waited[ranks - 1].emplace_back();
    return TrainFunction(cluster, ranks, &waited[ranks - 1].back());
  };
  const std::vector<Measurement> measurements = {
      {"one rank", [&] { return train_function(1); }},
      {"two ranks", [&] { return train_function(2); }},
      {"plain loop", PlainLoop}};
  MR_ASSIGN_OR_RETURN(const std::vector<double> medians,
                      MeasureInTurn(measurements, table));
  for (const int ranks : {1, 2}) {
    table->Add({.what = absl::StrCat(ranks, " rank(s) of a train function"),
                .unit = "samples/s",
                .ours = medians[ranks - 1],
                .peer_name = "plain loop",
                .peer = medians[2],
                .note = absl::StrFormat("waits for gradients %.1f %% of the "
                                        "time",
                                        100 * Median(waited[ranks - 1]))});
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(argc, argv,
                     {.name = "gpu_training",
                      .help = bench::kHelp,
                      .measure = bench::Measure});
}
