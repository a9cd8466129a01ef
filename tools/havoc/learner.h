// A worker that learns a line from a few points: linear regression with
// gradient descent and momentum, in double and on one thread, so that the same
// training comes to the same bits.

#ifndef MINIRAY_TOOLS_HAVOC_LEARNER_H_
#define MINIRAY_TOOLS_HAVOC_LEARNER_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/api/miniray.h"
#include "train/data_parallel_trainer.h"

namespace miniray::havoc {

class Learner {
 public:
  // config: "epoch_seconds", how long an epoch takes; "forget": a checkpoint is
  // not put back, to see that this is noticed.
  absl::Status LoadDataShard(int shard_id, int num_shards,
                             const train::Config& config);
  // Metrics: "loss", the mean over the epoch's steps of the squared error.
  train::Metrics TrainEpoch(int epoch);
  NamedTensors GetWeights() const;
  absl::Status SetWeights(const NamedTensors& weights);
  absl::StatusOr<train::CheckpointFiles> SaveCheckpoint() const;
  absl::Status LoadCheckpoint(const train::CheckpointFiles& files);

 private:
  static constexpr int kInputs = 8;
  using Vector = std::array<double, kInputs>;

  // One step; returns the loss before it.
  double Step();

  Vector weights_ = {};
  Vector momentum_ = {};
  std::vector<Vector> x_;
  std::vector<double> y_;
  double epoch_seconds_ = 0;
  bool forgets_ = false;
};
MINIRAY_ACTOR(Learner, Constructor<>, &Learner::LoadDataShard,
              &Learner::TrainEpoch, &Learner::GetWeights, &Learner::SetWeights,
              &Learner::SaveCheckpoint, &Learner::LoadCheckpoint);

class LearnerTrainer : public train::DataParallelTrainer<Learner> {
 public:
  using DataParallelTrainer::DataParallelTrainer;

 protected:
  absl::StatusOr<ActorHandle<Learner>> CreateWorker(
      int worker_id, const train::Config& config) override {
    return cluster().CreateActor<Learner>(WorkerOptions(worker_id));
  }
};

}  // namespace miniray::havoc

#endif  // MINIRAY_TOOLS_HAVOC_LEARNER_H_
