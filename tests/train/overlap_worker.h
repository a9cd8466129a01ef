// A worker that trains while it is synchronised, small enough to follow by
// hand: its model is one number x, and a step is x <- x + t - x^2 / 8 with the
// worker's own t. (In a step that is linear in x, the mean would not show
// whether it comes late.)

#ifndef MINIRAY_TESTS_TRAIN_OVERLAP_WORKER_H_
#define MINIRAY_TESTS_TRAIN_OVERLAP_WORKER_H_

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tests/ps/tensors.h"
#include "train/data_parallel_trainer.h"
#include "train/overlapped_weights.h"

namespace miniray::train {

class OverlapWorker {
 public:
  explicit OverlapWorker(int worker_id) : worker_id_(worker_id) {}

  // config: "steps" of an epoch; "fault_file", see MaybeFail; "gate", the first
  // synchronisation waits until the second piece is being trained.
  absl::Status LoadDataShard(int shard_id, int num_shards,
                             const Config& config) {
    if (shard_id != worker_id_) return absl::InternalError("another's shard");
    MR_ASSIGN_OR_RETURN(steps_, config.GetInt("steps", 3));
    MR_ASSIGN_OR_RETURN(fault_file_, config.GetString("fault_file", ""));
    MR_ASSIGN_OR_RETURN(gate_, config.GetBool("gate", false));
    return absl::OkStatus();
  }

  absl::StatusOr<Metrics> TrainEpoch(int epoch) {
    return TrainSteps(epoch, 0, steps_);
  }

  absl::StatusOr<Metrics> TrainSteps(int epoch, int64_t first, int64_t count) {
    epoch_ = epoch;
    if (first > 0) {
      MR_RETURN_IF_ERROR(MaybeFail("TrainSteps"));
      if (!second_piece_.HasBeenNotified()) second_piece_.Notify();
    }
    const int64_t end = std::min(first + count, steps_);
    double x = X();
    for (int64_t step = first; step < end; ++step) {
      x += 2.0 + 2.0 * worker_id_ - x * x / 8;
    }
    Set(x);
    const auto steps = static_cast<double>(std::max<int64_t>(0, end - first));
    return Metrics{{"x", x}, {"samples", steps}, {"steps", steps}};
  }

  NamedTensors GetWeights() const { return {{"x", ps::Doubles({X()})}}; }
  absl::StatusOr<ReadOnly<NamedTensors>> LendWeights() {
    MR_RETURN_IF_ERROR(MaybeFail("LendWeights"));
    if (gate_ &&
        !second_piece_.WaitForNotificationWithTimeout(absl::Seconds(60))) {
      return absl::DeadlineExceededError(
          "the second piece does not begin before the first synchronisation "
          "is done");
    }
    return overlapped_.Lend();
  }
  absl::Status SetWeights(const ReadOnly<NamedTensors>& weights) {
    return overlapped_.Receive(weights.value);
  }
  absl::Status SnapshotWeights() { return overlapped_.Snapshot(); }
  absl::Status ApplyWeights(bool trained) { return overlapped_.Apply(trained); }

  CheckpointFiles SaveCheckpoint() const {
    const double x = X();
    return {{"x", std::string(reinterpret_cast<const char*>(&x), sizeof(x))}};
  }
  absl::Status LoadCheckpoint(const CheckpointFiles& files) {
    double x = 0;
    files.at("x").copy(reinterpret_cast<char*>(&x), sizeof(x));
    Set(x);
    return absl::OkStatus();
  }

 private:
  double X() const { return *x_.data_ptr<double>(); }
  void Set(double x) { *x_.data_ptr<double>() = x; }

  // The file has "WORKER METHOD EPOCH HOW"; whom it means removes it first.
  absl::Status MaybeFail(const std::string& method) const {
    const absl::StatusOr<std::string> text = ReadFile(fault_file_);
    if (!text.ok()) return absl::OkStatus();
    const std::string mine =
        absl::StrCat(worker_id_, " ", method, " ", epoch_.load(), " ");
    if (text->substr(0, mine.size()) != mine) return absl::OkStatus();
    std::remove(fault_file_.c_str());
    if (text->substr(mine.size()) == "kill") kill(getpid(), SIGKILL);
    return absl::InternalError("the weights are away");
  }

  const int worker_id_;
  int64_t steps_ = 3;
  std::string fault_file_;
  bool gate_ = false;
  std::atomic<int> epoch_ = 0;
  absl::Notification second_piece_;
  const at::Tensor x_ = ps::Doubles({0.0});
  OverlappedWeights overlapped_{[this] {
                                  return ReadOnly<NamedTensors>{{{"x", x_}}};
                                },
                                [this](const NamedTensors& weights) {
                                  Set(*weights.at(0).second.data_ptr<double>());
                                  return absl::OkStatus();
                                }};
};
MINIRAY_ACTOR(OverlapWorker, Constructor<int>, &OverlapWorker::LoadDataShard,
              &OverlapWorker::TrainEpoch, &OverlapWorker::TrainSteps,
              &OverlapWorker::GetWeights, &OverlapWorker::LendWeights,
              &OverlapWorker::SetWeights, &OverlapWorker::SnapshotWeights,
              &OverlapWorker::ApplyWeights, &OverlapWorker::SaveCheckpoint,
              &OverlapWorker::LoadCheckpoint);

class OverlapTrainer : public DataParallelTrainer<OverlapWorker> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

  int num_syncs = 0;  // As the hook has it.

 protected:
  absl::StatusOr<ActorHandle<OverlapWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    return cluster().CreateActor<OverlapWorker>(WorkerOptions(worker_id),
                                                worker_id);
  }
  void OnSync(int epoch, const ps::SyncResult& result) override { ++num_syncs; }
};

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_OVERLAP_WORKER_H_
