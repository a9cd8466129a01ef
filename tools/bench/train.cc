// Measures data-parallel training against plain LibTorch processes on the same
// machine.
//
//   bazel-bin/tools/bench/train [--epoch_samples=N] [--batch=N] [--rounds=N]
//       [--json] [--check]

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/peers/plain_training.h"
#include "tools/bench/train_team.h"

ABSL_FLAG(int, epoch_samples, 2048, "Images in an epoch of each process.");
ABSL_FLAG(int, batch, 64, "Images in a batch.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures how fast a DataParallelTrainer trains, in images a second of all its
workers: a convolutional network with 136,000 parameters, images of CIFAR-10's
shape, SGD with momentum, one compute thread a process.

  train [FLAGS]

Beside it, on the same batches, with parameters in shared memory like the workers':
  plain LibTorch loop   one process that only trains
  2 plain processes     two of them at once that know nothing of each other: what
                        the machine can do
  ..., in step          each epoch begins once both have ended the one before: what
                        it can do where workers are brought together
Workers train with a TrainLoop. Every step: sync_every = 1, so the weights of both
workers are averaged after each batch; overlapped: while the next batch is trained,
one step stale. 5 epochs are measured at a time, after one that is
not; the 2 workers that are synchronised every 5 epochs are so once in that time. All
processes are started anew for each measurement. One worker
must end with the loss of the plain loop, to the last bit.

  --epoch_samples=N  images in an epoch of each process (default 2048)
  --batch=N          images in a batch (default 64))";

// Measured at a time.
constexpr int kEpochs = 5;
constexpr char kPlainName[] = "plain LibTorch loop";
constexpr char kCeilingName[] = "2 plain processes";
constexpr char kInStepName[] = "2 plain processes, in step";

// One of the trainings that are measured, and what it must reach.
struct Case {
  std::string what;
  int workers;
  int sync_interval;
  int64_t sync_every;
  bool overlap;
  // Of what plain processes reach, as many as workers.
  std::optional<double> at_least;
};

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>(
      {{"1 worker, sync every epoch", 1, 1, 0, false, 0.98},
       {"2 workers, sync every epoch", 2, 1, 0, false, 0.97},
       {"2 workers, sync every 5 epochs", 2, kEpochs, 0, false, 0.97},
       {"2 workers, sync every step", 2, 1, 1, false, 0.88},
       {"2 workers, sync every step, overlapped", 2, 1, 1, true, {}}});
  return *cases;
}

absl::Status CheckFlags() {
  const int batch = absl::GetFlag(FLAGS_batch);
  const int samples = absl::GetFlag(FLAGS_epoch_samples);
  if (batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch is ", batch, "; expected 1 or more"));
  }
  if (samples < batch) {
    return absl::InvalidArgumentError(absl::StrCat("--epoch_samples is ",
                                                   samples, "; expected ",
                                                   batch, " or more, a batch"));
  }
  return absl::OkStatus();
}

// How processes or actors that train together are measured: anew each time,
// since how fast a process is hangs on where its memory happens to lie, by
// several percent for all of its life.
struct Team {
  Case what;
  double seconds = 0;  // Sums over all rounds.
  train::Timing timing;
  double last_loss = 0;  // Of worker 0, in the last round.

  absl::StatusOr<double> Train(const Cluster& cluster, int64_t samples,
                               int64_t batch) {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<TrainTeam> team,
                        TrainTeam::Start({.num_workers = what.workers,
                                          .cluster = cluster,
                                          .sync_interval = what.sync_interval,
                                          .sync_every = what.sync_every,
                                          .overlap_sync = what.overlap},
                                         samples, batch));
    MR_ASSIGN_OR_RETURN(const double rate, team->TrainEpochs(kEpochs));
    seconds += team->seconds();
    const train::Timing time = team->timing();
    timing.compute += time.compute;
    timing.wait += time.wait;
    timing.sync += time.sync;
    last_loss = team->last_loss();
    return rate;
  }

  // "compute 98.1 %, wait 0.9 %, sync 1.2 %": wait is a part of compute.
  std::string Shares() const {
    const double percent = 100 / seconds;
    return absl::StrFormat("compute %.1f %%, of it wait %.1f %%; sync %.1f %%",
                           timing.compute * percent, timing.wait * percent,
                           timing.sync * percent);
  }
};

// The plain loop and the worker alone have seen the same batches as often.
absl::Status CheckSameTraining(double plain_loss, double worker_loss) {
  if (worker_loss == plain_loss) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "the worker's loss is %.17g and the plain loop's %.17g: they have not "
      "done the same",
      worker_loss, plain_loss));
}

absl::Status Measure(Table* table) {
  MR_RETURN_IF_ERROR(CheckFlags());
  const int64_t samples = absl::GetFlag(FLAGS_epoch_samples);
  const int64_t batch = absl::GetFlag(FLAGS_batch);
  MR_ASSIGN_OR_RETURN(const Cluster cluster,
                      Cluster::Connect({.embedded_num_cpus = 3}));
  double plain_loss = 0;
  std::vector<Measurement> measurements = {
      {kPlainName,
       [&]() -> absl::StatusOr<double> {
         MR_ASSIGN_OR_RETURN(const auto plain,
                             PlainTraining::Start(1, samples, batch));
         MR_ASSIGN_OR_RETURN(const double rate, plain->Train(kEpochs));
         MR_ASSIGN_OR_RETURN(plain_loss, plain->LastLoss());
         return rate;
       }},
      {kCeilingName,
       [&]() -> absl::StatusOr<double> {
         MR_ASSIGN_OR_RETURN(const auto plain,
                             PlainTraining::Start(2, samples, batch));
         return plain->Train(kEpochs);
       }},
      {kInStepName, [&]() -> absl::StatusOr<double> {
         MR_ASSIGN_OR_RETURN(const auto plain,
                             PlainTraining::Start(2, samples, batch));
         return plain->TrainInStep(kEpochs);
       }}};
  const size_t first_team = measurements.size();
  std::vector<Team> teams;
  for (const Case& c : Cases()) teams.push_back({.what = c});
  for (Team& team : teams) {
    measurements.push_back(
        {team.what.what, [&] { return team.Train(cluster, samples, batch); }});
  }
  MR_ASSIGN_OR_RETURN(const std::vector<double> medians,
                      MeasureInTurn(measurements, table));
  MR_RETURN_IF_ERROR(CheckSameTraining(plain_loss, teams[0].last_loss));
  for (size_t i = 0; i < teams.size(); ++i) {
    const Case& c = teams[i].what;
    table->Add({.what = c.what,
                .unit = "images/s",
                .ours = medians[first_team + i],
                .peer_name = c.workers == 1 ? kPlainName : kCeilingName,
                .peer = c.workers == 1 ? medians[0] : medians[1],
                .note = teams[i].Shares(),
                .at_least = c.at_least});
    if (c.workers == 1 || c.sync_interval > 1 || c.sync_every > 0) continue;
    table->Add({.what = c.what,
                .unit = "images/s",
                .ours = medians[first_team + i],
                .peer_name = kInStepName,
                .peer = medians[2]});
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(
      argc, argv,
      {.name = "train",
       .help = bench::kHelp,
       .measure = bench::Measure,
       .roles = {{bench::kPlainTrainingRole, bench::ServePlainTraining}}});
}
