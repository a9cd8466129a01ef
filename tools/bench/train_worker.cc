#include "tools/bench/train_worker.h"

#include <algorithm>

#include "runtime/base/status_macros.h"
#include "tools/bench/training_task.h"
#include "train/overlapped_weights.h"
#include "train/state_dict.h"
#include "train/train_loop.h"

namespace miniray::bench {

struct TrainWorker::State {
  State(int shard, int64_t samples, int64_t batch_size)
      : task(shard, samples, batch_size) {}

  TrainingTask task;
  std::unique_ptr<train::TrainLoop> loop;
  train::OverlappedWeights overlapped{
      [this] { return train::LendStateDict(task.network); },
      [this](const NamedTensors& weights) {
        return train::LoadStateDict(task.network, weights);
      }};
};

TrainWorker::TrainWorker(int64_t samples, int64_t batch_size)
    : samples_(samples), batch_size_(batch_size) {}
TrainWorker::~TrainWorker() = default;

absl::Status TrainWorker::LoadDataShard(int shard_id, int num_shards) {
  state_ = std::make_unique<State>(shard_id, samples_, batch_size_);
  train::ShareParameters(state_->task.network);
  MR_ASSIGN_OR_RETURN(state_->loop,
                      train::TrainLoop::Create(state_->task.optimizer, {}));
  loop_ = state_->loop.get();
  return absl::OkStatus();
}

absl::StatusOr<train::Metrics> TrainWorker::TrainEpoch(int epoch) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return TrainSteps(epoch, 0, state_->task.num_batches());
}

absl::StatusOr<train::Metrics> TrainWorker::TrainSteps(int epoch, int64_t first,
                                                       int64_t count) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  TrainingTask& task = state_->task;
  const int64_t end = std::min(first + count, task.num_batches());
  state_->loop->BeginEpoch(epoch, (end - first) * task.batch_size);
  for (int64_t batch = first; batch < end; ++batch) {
    MR_RETURN_IF_ERROR(
        state_->loop->Step(task.batch_size, [&] { return task.Loss(batch); })
            .status());
  }
  MR_ASSIGN_OR_RETURN(train::Metrics metrics, state_->loop->EndEpoch());
  metrics["steps"] = static_cast<double>(end - first);
  return metrics;
}

train::Progress TrainWorker::GetProgress() const {
  const train::TrainLoop* const loop = loop_;
  return loop == nullptr ? train::Progress() : loop->Now();
}

absl::StatusOr<NamedTensors> TrainWorker::GetWeights() {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return train::StateDict(state_->task.network);
}

absl::StatusOr<ReadOnly<NamedTensors>> TrainWorker::LendWeights() {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return state_->overlapped.Lend();
}

absl::Status TrainWorker::SetWeights(const ReadOnly<NamedTensors>& weights) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return state_->overlapped.Receive(weights.value);
}

absl::Status TrainWorker::SnapshotWeights() {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return state_->overlapped.Snapshot();
}

absl::Status TrainWorker::ApplyWeights(bool trained) {
  MR_RETURN_IF_ERROR(CheckLoaded());
  return state_->overlapped.Apply(trained);
}

absl::Status TrainWorker::CheckLoaded() const {
  if (state_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the worker has no data yet: call LoadDataShard first");
}

}  // namespace miniray::bench
