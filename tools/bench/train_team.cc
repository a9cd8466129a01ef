#include "tools/bench/train_team.h"

#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"

namespace miniray::bench {

TrainTeam::TrainTeam(train::TrainerOptions options, int64_t samples,
                     int64_t batch_size)
    : DataParallelTrainer(std::move(options)),
      samples_(samples),
      batch_size_(batch_size) {}

absl::StatusOr<std::unique_ptr<TrainTeam>> TrainTeam::Start(
    train::TrainerOptions options, int64_t samples, int64_t batch_size) {
  std::unique_ptr<TrainTeam> team =
      absl::WrapUnique(new TrainTeam(std::move(options), samples, batch_size));
  team->thread_ = std::thread([team = team.get()] {
    const absl::Status status =
        team->Train({.epochs = std::numeric_limits<int>::max()}).status();
    const absl::MutexLock lock(&team->team_mu_);
    team->ended_ = true;
    team->status_ = status;
  });
  MR_RETURN_IF_ERROR(team->AwaitEpochs(1));
  return team;
}

TrainTeam::~TrainTeam() {
  {
    const absl::MutexLock lock(&team_mu_);
    ending_ = true;
  }
  thread_.join();
  Shutdown();
}

absl::StatusOr<double> TrainTeam::TrainEpochs(int epochs) {
  int wanted;
  double samples_before;
  const absl::Time start = absl::Now();
  {
    const absl::MutexLock lock(&team_mu_);
    samples_before = samples_done_;
    wanted = wanted_ += epochs;
  }
  MR_RETURN_IF_ERROR(AwaitEpochs(wanted));
  const double seconds = SecondsSince(start);
  seconds_ += seconds;
  const absl::MutexLock lock(&team_mu_);
  return (samples_done_ - samples_before) / seconds;
}

absl::Status TrainTeam::AwaitEpochs(int epochs) {
  const absl::MutexLock lock(&team_mu_);
  const auto ready = [&]() ABSL_SHARED_LOCKS_REQUIRED(team_mu_) {
    return ended_ || done_ >= epochs;
  };
  team_mu_.Await(absl::Condition(&ready));
  if (done_ >= epochs) return absl::OkStatus();
  if (!status_.ok()) return status_;
  return absl::InternalError("Train has returned before its last epoch");
}

double TrainTeam::last_loss() const {
  const absl::MutexLock lock(&team_mu_);
  // As the worker gave it: a mean over the workers may round.
  return last_.per_worker.front().at("loss");
}

train::Timing TrainTeam::timing() const {
  const absl::MutexLock lock(&team_mu_);
  return timing_sum_;
}

absl::StatusOr<ActorHandle<TrainWorker>> TrainTeam::CreateWorker(
    int worker_id, const train::Config& config) {
  ActorOptions options = WorkerOptions(worker_id);
  options.num_threads = 1;
  return cluster().CreateActor<TrainWorker>(options, samples_, batch_size_);
}

void TrainTeam::OnEpochEnd(int epoch, const train::EpochResult& result) {
  const absl::MutexLock lock(&team_mu_);
  done_ = epoch + 1;
  last_ = result;
  samples_done_ += result.metrics.at(train::kSamplesMetric);
  if (epoch > 0) {  // The first one warms up.
    timing_sum_.compute += result.timing.compute;
    timing_sum_.wait += result.timing.wait;
    timing_sum_.sync += result.timing.sync;
  }
  const auto ready = [&]() ABSL_SHARED_LOCKS_REQUIRED(team_mu_) {
    return ending_ || wanted_ > done_;
  };
  team_mu_.Await(absl::Condition(&ready));
  if (ending_) RequestStop();
}

}  // namespace miniray::bench
