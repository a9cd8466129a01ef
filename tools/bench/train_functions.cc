// Measures a train function whose ranks average their gradients against
// PyTorch's own DistributedDataParallel on the same machine, and how soon ranks
// hear of another's death.
//
//   bazel-bin/tools/bench/train_functions [--batch=N] [--steps=N] [--rounds=N]
//       [--json] [--check]

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/peers/plain_resnet.h"
#include "tools/bench/peers/torch_ddp.h"
#include "tools/bench/resnet_training.h"
#include "tools/bench/resnet_work.h"
#include "train/callback.h"
#include "train/functions/prepare_model.h"
#include "train/functions/torch_trainer.h"

ABSL_FLAG(int, batch, 32, "Images in a batch of each rank.");
ABSL_FLAG(int, steps, 25, "Steps that are measured at a time.");
ABSL_FLAG(absl::Duration, collective_timeout, absl::Minutes(5),
          "RunConfig::collective_timeout.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures how fast the ranks of a train function train a ResNet-20 together, in
samples a second of all ranks: images of CIFAR-10's shape, SGD with momentum, two
ranks of one compute thread, gradients averaged by Context::PrepareModel.

  train_functions [FLAGS]

Beside it, with the same network, batches and number of steps:
  2 plain processes  LibTorch's loop in two processes that know nothing of each
                     other: what the machine can do
  PyTorch DDP        DistributedDataParallel over Gloo, started by torchrun;
                     where python3 can import torch
Each measurement starts its processes, and ends them; steps at the beginning do
not count. The ranks must end with the same weights. Plain processes have malloc's
settings that actors have; PyTorch is as torchrun starts it.

And the time from SIGKILL of one of three ranks until the last of the others has
been told to stop, while they wait for nothing else.

  --batch=N    images in a batch of each rank (default 32)
  --steps=N    steps that are measured at a time (default 25)
  --collective_timeout=DURATION
               how long ranks wait for one that hangs in a step (default 5m))";

constexpr char kWhat[] = "2 ranks of a train function";
constexpr char kCeilingName[] = "2 plain processes";
constexpr char kTorchName[] = "PyTorch DDP";
constexpr char kDeath[] = "3 ranks, one is killed, the others are told";
constexpr int64_t kWarmUp = 3;
constexpr double kMaxDeathMs = 1000;

// Metrics of the function.
constexpr char kPace[] = "samples_per_second";
constexpr char kWaited[] = "waited";  // For gradients, of the time.
constexpr char kParameters[] = "parameters";
constexpr char kWeights[] = "weights";  // Their sum.

void TrainResNet(train::Context& ctx) {
  at::set_num_threads(1);
  auto model = ctx.PrepareModel(ResNet20());
  ResNetTraining training(model.model(), ctx.rank(),
                          ctx.config<int64_t>("batch_size"));
  training.Train(ctx.config<int64_t>("warm_up"));
  const absl::Duration waited = model.distributed().stats().waited;
  const absl::Time start = absl::Now();
  const double pace = training.Train(ctx.config<int64_t>("steps"));
  const double seconds = SecondsSince(start);
  ctx.Report({{kPace, pace},
              {kWaited, absl::ToDoubleSeconds(
                            model.distributed().stats().waited - waited) /
                            seconds},
              {kParameters, static_cast<double>(training.num_parameters())},
              {kWeights, training.SumOfWeights()}});
}
MINIRAY_TRAIN_FUNC(TrainResNet);

constexpr char kPid[] = "pid";
constexpr char kTold[] = "told";  // When, in microseconds since the epoch.

// Waits until the trainer says to stop; in the next generation, tells when that
// was. The processes of ranks that live stay.
void AwaitWord(train::Context& ctx) {
  static absl::Time told = absl::UnixEpoch();
  ctx.Report({{kPid, getpid()}, {kTold, absl::ToUnixMicros(told)}},
             {{"file", ""}});
  if (ctx.generation() > 0) return;
  absl::Notification word;
  const auto handler = ctx.OnAbort([&](const absl::Status&) {
    told = absl::Now();
    word.Notify();
  });
  word.WaitForNotification();
  throw train::PeerFailure("told to stop");
}
MINIRAY_TRAIN_FUNC(AwaitWord);

// Kills the last rank at the first report.
class Killer : public train::Callback {
 public:
  void OnEpochEnd(train::TrainContext& context,
                  const train::EpochResult& result) override {
    if (result.epoch != 0) return;
    const auto pid = static_cast<pid_t>(result.per_worker.back().at(kPid));
    killed_ = absl::Now();
    kill(pid, SIGKILL);
  }
  absl::Time killed() const { return killed_; }

 private:
  absl::Time killed_ = absl::InfiniteFuture();
};

// In milliseconds.
absl::StatusOr<double> TimeOfDeathNotice(const Cluster& cluster) {
  const auto killer = std::make_shared<Killer>();
  train::TorchTrainer trainer(
      AwaitWord,
      {.scaling = {.num_workers = 3},
       .run = {.failure = {.max_failures = 1}, .callbacks = {killer}},
       .cluster = cluster});
  MR_ASSIGN_OR_RETURN(const train::Result result, trainer.Fit());
  absl::Time told = absl::InfinitePast();
  for (int rank = 0; rank < 2; ++rank) {
    const double micros = result.history.back().per_worker.at(rank).at(kTold);
    told = std::max(told, absl::FromUnixMicros(static_cast<int64_t>(micros)));
  }
  if (told <= killer->killed()) {
    return absl::InternalError("no rank was told of the death");
  }
  return absl::ToDoubleMilliseconds(told - killer->killed());
}

absl::Status CheckFlags() {
  for (const auto& [name, value] :
       {std::pair("batch", absl::GetFlag(FLAGS_batch)),
        std::pair("steps", absl::GetFlag(FLAGS_steps))}) {
    if (value >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " is ", value, "; expected 1 or more"));
  }
  return absl::OkStatus();
}

// *waited: the share of the time in which ranks waited for gradients.
absl::StatusOr<ResNetPace> TrainFunction(const Cluster& cluster,
                                         const ResNetWork& work,
                                         double* waited) {
  train::TorchTrainer trainer(
      TrainResNet,
      {.config = {{"batch_size", work.batch_size},
                  {"warm_up", work.warm_up},
                  {"steps", work.steps}},
       .scaling = {.num_workers = work.ranks},
       .run = {.collective_timeout = absl::GetFlag(FLAGS_collective_timeout)},
       .cluster = cluster});
  MR_ASSIGN_OR_RETURN(const train::Result result, trainer.Fit());
  if (result.history.empty()) {
    return absl::InternalError("the train function has reported nothing");
  }
  const train::EpochResult& report = result.history.back();
  if (report.min.at(kWeights) != report.max.at(kWeights)) {
    return absl::InternalError(absl::StrFormat(
        "the ranks' weights differ, their sums are %.17g and %.17g: they have "
        "not averaged their gradients",
        report.min.at(kWeights), report.max.at(kWeights)));
  }
  ResNetPace pace = {.num_parameters =
                         static_cast<int64_t>(report.metrics.at(kParameters))};
  *waited = 0;
  for (const train::Metrics& rank : report.per_worker) {
    pace.samples_per_second += rank.at(kPace);
    *waited += rank.at(kWaited) / work.ranks;
  }
  return pace;
}

// A measurement whose network must have as many parameters as those of the
// others, which *num_parameters holds from the first one on.
Measurement Checked(std::string name, int64_t* num_parameters,
                    std::function<absl::StatusOr<ResNetPace>()> train) {
  return {name, [=]() -> absl::StatusOr<double> {
            MR_ASSIGN_OR_RETURN(const ResNetPace pace, train());
            if (*num_parameters == 0) *num_parameters = pace.num_parameters;
            if (pace.num_parameters == *num_parameters) {
              return pace.samples_per_second;
            }
            return absl::InternalError(absl::StrCat(
                "the network of ", name, " has ", pace.num_parameters,
                " parameters, that of the others ", *num_parameters));
          }};
}

absl::Status Measure(Table* table) {
  MR_RETURN_IF_ERROR(CheckFlags());
  const ResNetWork work = {.ranks = 2,
                           .batch_size = absl::GetFlag(FLAGS_batch),
                           .warm_up = kWarmUp,
                           .steps = absl::GetFlag(FLAGS_steps)};
  MR_ASSIGN_OR_RETURN(const Cluster cluster,
                      Cluster::Connect({.embedded_num_cpus = 4}));
  const std::optional<TorchDdp> torch = TorchDdp::Find();
  int64_t num_parameters = 0;
  std::vector<double> waited;
  std::vector<Measurement> measurements = {
      Checked(kWhat, &num_parameters,
              [&] {
                waited.emplace_back();
                return TrainFunction(cluster, work, &waited.back());
              }),
      Checked(kCeilingName, &num_parameters,
              [&] { return TrainPlainResNets(work); })};
  if (torch.has_value()) {
    measurements.push_back(Checked(kTorchName, &num_parameters,
                                   [&] { return torch->Train(work); }));
  }
  measurements.push_back({kDeath, [&] { return TimeOfDeathNotice(cluster); }});
  MR_ASSIGN_OR_RETURN(const std::vector<double> medians,
                      MeasureInTurn(measurements, table));
  table->Add({.what = kWhat,
              .unit = "samples/s",
              .ours = medians[0],
              .peer_name = kCeilingName,
              .peer = medians[1],
              .note = absl::StrFormat("%d parameters; waits for gradients %.1f "
                                      "%% of the time",
                                      num_parameters, 100 * Median(waited))});
  if (torch.has_value()) {
    table->Add({.what = kWhat,
                .unit = "samples/s",
                .ours = medians[0],
                .peer_name = kTorchName,
                .peer = medians[2],
                .note = absl::StrCat("PyTorch ", torch->version()),
                .at_least = 1.0});
  } else {
    table->Add({.what = kWhat,
                .unit = "samples/s",
                .ours = medians[0],
                .peer_name = kNoTorchDdp});
  }
  table->Add({.what = kDeath,
              .unit = "ms",
              .ours = medians.back(),
              .at_most = kMaxDeathMs});
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(
      argc, argv,
      {.name = "train_functions",
       .help = bench::kHelp,
       .measure = bench::Measure,
       .roles = {{bench::kPlainResNetRole, bench::ServePlainResNet}}});
}
