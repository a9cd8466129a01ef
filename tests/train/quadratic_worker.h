// A worker small enough to follow by hand: its model is one number x, and an
// epoch is one step of gradient descent on (x - target)^2 / 2.

#ifndef MINIRAY_TESTS_TRAIN_QUADRATIC_WORKER_H_
#define MINIRAY_TESTS_TRAIN_QUADRATIC_WORKER_H_

#include <signal.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "tests/ps/tensors.h"
#include "train/data_parallel_trainer.h"
#include "train/sharding.h"

namespace miniray::train {

// What goes wrong in a worker, and when.
struct Fault {
  int epoch = -1;   // -1: never.
  std::string how;  // "throw", "kill" or "hang"
};
MINIRAY_STRUCT(Fault, epoch, how);

class QuadraticWorker {
 public:
  QuadraticWorker(int worker_id, float start, float target, float lr,
                  Fault fault)
      : worker_id_(worker_id),
        x_(start),
        target_(target),
        lr_(lr),
        fault_(std::move(fault)) {}

  Metrics TrainEpoch(int epoch) {
    if (epoch == fault_.epoch) Fail();
    if (worker_id_ == 0) absl::SleepFor(absl::Seconds(epoch_seconds_));
    x_ -= lr_ * (x_ - target_);
    ++epochs_trained_;
    return {{"x", x_},
            {"epoch", static_cast<double>(epoch)},
            {"samples", static_cast<double>(items_.size())}};
  }

  NamedTensors GetWeights() const { return {{"x", ps::Floats({x_})}}; }

  absl::Status SetWeights(const NamedTensors& weights) {
    x_ = weights.at(0).second.item<float>();
    return absl::OkStatus();
  }

  // Of 10 samples: worker 0 of 2 has 5 of them.
  absl::Status LoadDataShard(int shard_id, int num_shards,
                             const Config& config) {
    if (shard_id != worker_id_) return absl::InternalError("another's shard");
    MR_ASSIGN_OR_RETURN(const int64_t samples, config.GetInt("samples", 10));
    MR_ASSIGN_OR_RETURN(const Sharding sharding, ShardingFromConfig(config));
    MR_ASSIGN_OR_RETURN(items_,
                        ShardItems(samples, shard_id, num_shards, sharding));
    MR_ASSIGN_OR_RETURN(epoch_seconds_, config.GetDouble("epoch_seconds", 0));
    return absl::OkStatus();
  }

  std::vector<int64_t> Items() const { return items_; }
  int EpochsTrained() const { return epochs_trained_; }
  int64_t Pid() const { return getpid(); }
  double Scaled(double factor) const { return x_ * factor; }
  void Nudge(float by) { x_ += by; }

 private:
  void Fail() {
    if (fault_.how == "throw") throw std::runtime_error("loss went up");
    if (fault_.how == "kill") kill(getpid(), SIGKILL);
    while (true) pause();
  }

  const int worker_id_;
  float x_;
  const float target_;
  const float lr_;
  const Fault fault_;
  std::vector<int64_t> items_;
  double epoch_seconds_ = 0;  // How slow worker 0 is.
  int epochs_trained_ = 0;
};
MINIRAY_ACTOR(QuadraticWorker, Constructor<int, float, float, float, Fault>,
              &QuadraticWorker::TrainEpoch, &QuadraticWorker::GetWeights,
              &QuadraticWorker::SetWeights, &QuadraticWorker::LoadDataShard,
              &QuadraticWorker::EpochsTrained, &QuadraticWorker::Items,
              &QuadraticWorker::Pid, &QuadraticWorker::Scaled,
              &QuadraticWorker::Nudge);

// Worker i starts at 0 and goes for targets[i], half of the way each epoch.
struct Problem {
  std::vector<float> targets = {4, 8};
  std::map<int, Fault> faults;  // By worker.
};

// Records every hook that runs.
class QuadraticTrainer : public DataParallelTrainer<QuadraticWorker> {
 public:
  QuadraticTrainer(TrainerOptions options, Problem problem)
      : DataParallelTrainer(std::move(options)), problem_(std::move(problem)) {}

  std::vector<std::string> events;
  std::vector<Config> configs;  // As CreateWorker got them.
  int stop_after = -1;          // Asks for a stop in OnEpochEnd.
  std::function<void(int epoch)> at_epoch_end;

 protected:
  absl::StatusOr<ActorHandle<QuadraticWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    configs.push_back(config);
    MR_ASSIGN_OR_RETURN(const double lr, config.GetDouble("lr", 0.5));
    auto fault = problem_.faults.find(worker_id);
    return cluster().CreateActor<QuadraticWorker>(
        WorkerOptions(worker_id), worker_id, 0.f,
        problem_.targets[worker_id % problem_.targets.size()],
        static_cast<float>(lr),
        fault == problem_.faults.end() ? Fault() : fault->second);
  }

  void OnTrainStart() override { events.push_back("train start"); }
  void OnEpochStart(int epoch) override { Add("epoch start", epoch); }
  void OnSync(int epoch, const ps::SyncResult& result) override {
    Add("sync", epoch);
  }
  void OnEpochEnd(int epoch, const EpochResult& result) override {
    Add("epoch end", epoch);
    if (epoch == stop_after) RequestStop();
    if (at_epoch_end) at_epoch_end(epoch);
  }
  void OnTrainEnd(const Result& result) override {
    events.push_back("train end");
  }

 private:
  void Add(const std::string& what, int epoch) {
    events.push_back(what + " " + std::to_string(epoch));
  }

  const Problem problem_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_QUADRATIC_WORKER_H_
