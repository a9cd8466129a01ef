// A worker whose training depends on everything that a checkpoint must hold:
// model, optimizer, both kinds of random numbers, and its place in the data.

#ifndef MINIRAY_TESTS_TRAIN_CHECKPOINT_WORKER_H_
#define MINIRAY_TESTS_TRAIN_CHECKPOINT_WORKER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/weight_exchange.h"
#include "runtime/api/miniray.h"
#include "train/data_parallel_trainer.h"

namespace miniray::train {

// Fits a small net with dropout (LibTorch's default generator) to 64 points,
// whose order a generator of its own shuffles. A third of the batches of an
// epoch are left to the next one.
class CheckpointWorker {
 public:
  // optimizer: "adam" or "momentum".
  CheckpointWorker(int worker_id, const std::string& optimizer);
  ~CheckpointWorker();

  // config: "epoch_seconds", how long an epoch takes besides; "bytes", of a
  // file more in the checkpoint; "fault_file": the worker whose epoch begins
  // while it is there removes it and does what it says: "throw", "kill" or
  // "hang"; "loading_file": it is made, and the data never come.
  absl::Status LoadDataShard(int shard_id, int num_shards,
                             const Config& config);
  Metrics TrainEpoch(int epoch);
  NamedTensors GetWeights() const;
  absl::Status SetWeights(const NamedTensors& weights);
  absl::StatusOr<ReadOnly<ps::WeightMessage>> SendWeights(
      const ps::WeightRequest& request);
  absl::Status ReceiveWeights(const ReadOnly<ps::WeightMessage>& message);
  absl::StatusOr<CheckpointFiles> SaveCheckpoint();
  absl::Status LoadCheckpoint(const CheckpointFiles& files);
  int64_t Pid() const;

 private:
  struct Parts;
  void ShuffleAgain();
  void MaybeFail() const;

  const std::unique_ptr<Parts> parts_;
  int64_t position_ = 0;  // In the order of the samples.
  double epoch_seconds_ = 0;
  int64_t bytes_ = 0;
  std::string fault_file_;
  ps::WeightExchange exchange_;
};
MINIRAY_ACTOR(CheckpointWorker, Constructor<int, std::string>,
              &CheckpointWorker::LoadDataShard, &CheckpointWorker::TrainEpoch,
              &CheckpointWorker::GetWeights, &CheckpointWorker::SetWeights,
              &CheckpointWorker::SendWeights, &CheckpointWorker::ReceiveWeights,
              &CheckpointWorker::SaveCheckpoint,
              &CheckpointWorker::LoadCheckpoint, &CheckpointWorker::Pid);

class CheckpointTrainer : public DataParallelTrainer<CheckpointWorker> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

  std::vector<CheckpointInfo> checkpoints;        // As OnCheckpoint had them.
  std::function<void(int epoch)> at_epoch_start;  // May be empty.
  std::function<void(int epoch)> at_epoch_end;

 protected:
  absl::StatusOr<ActorHandle<CheckpointWorker>> CreateWorker(
      int worker_id, const Config& config) override {
    MR_ASSIGN_OR_RETURN(const std::string optimizer,
                        config.GetString("optimizer", "adam"));
    return cluster().CreateActor<CheckpointWorker>(WorkerOptions(worker_id),
                                                   worker_id, optimizer);
  }
  void OnEpochStart(int epoch) override {
    if (at_epoch_start) at_epoch_start(epoch);
  }
  void OnEpochEnd(int epoch, const EpochResult& result) override {
    if (at_epoch_end) at_epoch_end(epoch);
  }
  void OnCheckpoint(const CheckpointInfo& info) override {
    checkpoints.push_back(info);
  }
};

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_CHECKPOINT_WORKER_H_
