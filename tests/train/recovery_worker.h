// A worker that fails where and how a file says, small enough to follow by
// hand: its model is one number x, which an epoch moves half of the way to the
// worker's target.

#ifndef MINIRAY_TESTS_TRAIN_RECOVERY_WORKER_H_
#define MINIRAY_TESTS_TRAIN_RECOVERY_WORKER_H_

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ps/weight_exchange.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "tests/ps/tensors.h"
#include "tests/train/file_at_log_line.h"
#include "train/data_parallel_trainer.h"

namespace miniray::train {

class RecoveryWorker {
 public:
  explicit RecoveryWorker(int worker_id) : worker_id_(worker_id) {}

  // config: "fault_file", what this worker may find there; "epoch_seconds", how
  // long an epoch takes, with progress every tenth of it.
  absl::Status LoadDataShard(int shard_id, int num_shards,
                             const Config& config) {
    if (shard_id != worker_id_) return absl::InternalError("another's shard");
    MR_ASSIGN_OR_RETURN(fault_file_, config.GetString("fault_file", ""));
    MR_ASSIGN_OR_RETURN(epoch_seconds_, config.GetDouble("epoch_seconds", 0));
    return absl::OkStatus();
  }

  absl::StatusOr<Metrics> TrainEpoch(int epoch) {
    meter_.Begin(epoch, 10);
    MR_RETURN_IF_ERROR(MaybeFail("TrainEpoch"));
    for (int i = 0; i < 10; ++i) {
      absl::SleepFor(absl::Seconds(epoch_seconds_ / 10));
      meter_.Advance(1);
    }
    Step();
    meter_.Finish();
    return Metrics{{"x", x_}, {"epoch", epoch}};
  }

  // An epoch in two steps, each as far as TrainEpoch goes.
  absl::StatusOr<Metrics> TrainSteps(int epoch, int64_t first, int64_t count) {
    MR_RETURN_IF_ERROR(MaybeFail(absl::StrCat("TrainSteps", first)));
    const int64_t steps = std::clamp<int64_t>(2 - first, 0, count);
    for (int64_t i = 0; i < steps; ++i) Step();
    return Metrics{{"x", x_},
                   {"epoch", epoch},
                   {"steps", static_cast<double>(steps)},
                   {"samples", static_cast<double>(steps)}};
  }

  absl::StatusOr<Metrics> EvaluateShard(int shard, int num_shards) {
    MR_RETURN_IF_ERROR(MaybeFail("EvaluateShard"));
    return Metrics{{"x", x_}, {"samples", 1}};
  }

  absl::StatusOr<NamedTensors> GetWeights() {
    MR_RETURN_IF_ERROR(MaybeFail("GetWeights"));
    return Weights();
  }
  absl::Status SetWeights(const NamedTensors& weights) {
    MR_RETURN_IF_ERROR(MaybeFail("SetWeights"));
    x_ = weights.at(0).second.item<float>();
    return absl::OkStatus();
  }
  absl::StatusOr<ReadOnly<ps::WeightMessage>> SendWeights(
      const ps::WeightRequest& request) {
    MR_RETURN_IF_ERROR(MaybeFail("SendWeights"));
    return exchange_.Send(request, Weights());
  }
  absl::Status ReceiveWeights(const ReadOnly<ps::WeightMessage>& message) {
    MR_RETURN_IF_ERROR(MaybeFail("ReceiveWeights"));
    return exchange_.Receive(
        message.value,
        [this](const NamedTensors& weights) { return SetWeights(weights); });
  }
  Progress GetProgress() const { return meter_.Now(); }
  int64_t Pid() const { return getpid(); }

 private:
  void Step() { x_ += (4.f + 4.f * static_cast<float>(worker_id_) - x_) / 2; }
  // Two tensors, for two shards.
  NamedTensors Weights() const {
    return {{"x", ps::Floats({x_})}, {"one", ps::Floats({1})}};
  }
  // The file has "WORKER METHOD HOW"; it is removed by whom it means, unless
  // HOW is "always". One with the worker's number behind its name is for that
  // worker alone.
  absl::Status MaybeFail(const std::string& method) const {
    MR_RETURN_IF_ERROR(MaybeFail(method, fault_file_));
    return MaybeFail(method, absl::StrCat(fault_file_, worker_id_));
  }
  absl::Status MaybeFail(const std::string& method,
                         const std::string& file) const {
    const absl::StatusOr<std::string> text = ReadFile(file);
    if (!text.ok()) return absl::OkStatus();
    const std::vector<std::string> words = absl::StrSplit(*text, ' ');
    if (words.at(0) != absl::StrCat(worker_id_) || words.at(1) != method) {
      // "Its" worker's end makes the others lose their connections.
      return words.at(2) == "follow"
                 ? absl::UnavailableError("connection reset by peer")
                 : absl::OkStatus();
    }
    const std::string& how = words.at(2);
    if (how == "follow") AwaitFile(file + ".heard");
    if (how != "always") std::remove(file.c_str());
    if (how == "kill" || how == "follow") kill(getpid(), SIGKILL);
    if (how == "stop") kill(getpid(), SIGSTOP);
    while (how != "throw" && how != "always") pause();  // Or "hang".
    throw std::runtime_error("loss went up");
  }

  const int worker_id_;
  std::string fault_file_;
  double epoch_seconds_ = 0;
  float x_ = 0;
  EpochMeter meter_;
  ps::WeightExchange exchange_;
};
MINIRAY_ACTOR(RecoveryWorker, Constructor<int>, &RecoveryWorker::LoadDataShard,
              &RecoveryWorker::TrainEpoch, &RecoveryWorker::TrainSteps,
              &RecoveryWorker::EvaluateShard, &RecoveryWorker::GetWeights,
              &RecoveryWorker::SetWeights, &RecoveryWorker::SendWeights,
              &RecoveryWorker::ReceiveWeights, &RecoveryWorker::GetProgress,
              &RecoveryWorker::Pid);

class RecoveryTrainer : public DataParallelTrainer<RecoveryWorker> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

  int num_train_starts = 0;
  std::vector<int> created;  // Worker ids, in the order of CreateWorker.
  std::vector<WorkerFailure> failures;
  std::function<void(int epoch)> at_epoch_start;  // May be empty.

 protected:
  absl::StatusOr<ActorHandle<RecoveryWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    created.push_back(worker_id);
    return cluster().CreateActor<RecoveryWorker>(WorkerOptions(worker_id),
                                                 worker_id);
  }
  void OnTrainStart() override { ++num_train_starts; }
  void OnEpochStart(int epoch) override {
    if (at_epoch_start) at_epoch_start(epoch);
  }
  void OnWorkerFailure(const WorkerFailure& failure) override {
    failures.push_back(failure);
  }
};

// Sees the failures of any trainer.
class FailureObserver : public Callback {
 public:
  std::vector<WorkerFailure> failures;
  std::function<void(const WorkerFailure&)> at_failure;  // May be empty.
  bool stops = false;                  // Asks for the end of training then.
  std::vector<size_t> resumed_epochs;  // At each OnResume.

  void OnWorkerFailure(TrainContext& context,
                       const WorkerFailure& failure) override {
    failures.push_back(failure);
    if (at_failure) at_failure(failure);
    if (stops) context.RequestStop();
  }
  void OnResume(TrainContext& context,
                const std::vector<EpochResult>& history) override {
    resumed_epochs.push_back(history.size());
  }
};

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_RECOVERY_WORKER_H_
