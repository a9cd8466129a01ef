// A data-parallel training that goes on a few epochs at a time.

#ifndef MINIRAY_TOOLS_BENCH_TRAIN_TEAM_H_
#define MINIRAY_TOOLS_BENCH_TRAIN_TEAM_H_

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tools/bench/train_worker.h"
#include "train/data_parallel_trainer.h"

namespace miniray::bench {

// A DataParallelTrainer whose Train runs in a thread of its own and rests
// between measurements: workers are started once. Functions that are public
// here are for one thread.
class TrainTeam : public train::DataParallelTrainer<TrainWorker> {
 public:
  // Starts the workers, of one compute thread each; each has trained one epoch
  // then.
  //
  // samples: in an epoch of each worker. Errors: of Train.
  static absl::StatusOr<std::unique_ptr<TrainTeam>> Start(
      train::TrainerOptions options, int64_t samples, int64_t batch_size);
  // Ends training.
  ~TrainTeam() override;

  // Trains so many epochs, with the synchronisations that are due. Returns
  // samples a second, of all workers together, from now until the trainer has
  // the last epoch's result. Errors: of Train.
  absl::StatusOr<double> TrainEpochs(int epochs);

  // The mean loss of worker 0's last epoch.
  double last_loss() const;
  // Where the time of all TrainEpochs went, and its sum in seconds.
  train::Timing timing() const;
  double seconds() const { return seconds_; }

 protected:
  absl::StatusOr<ActorHandle<TrainWorker>> CreateWorker(
      int worker_id, const train::Config& config) override;
  // Rests until more epochs are asked for.
  void OnEpochEnd(int epoch, const train::EpochResult& result) override;

 private:
  TrainTeam(train::TrainerOptions options, int64_t samples, int64_t batch_size);

  // Waits until so many epochs are done. Errors: of Train.
  absl::Status AwaitEpochs(int epochs);

  const int64_t samples_;
  const int64_t batch_size_;
  double seconds_ = 0;

  mutable absl::Mutex team_mu_;
  int wanted_ ABSL_GUARDED_BY(team_mu_) = 1;
  int done_ ABSL_GUARDED_BY(team_mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(team_mu_) = false;
  bool ended_ ABSL_GUARDED_BY(team_mu_) = false;   // Train has returned,
  absl::Status status_ ABSL_GUARDED_BY(team_mu_);  // this.
  double samples_done_ ABSL_GUARDED_BY(team_mu_) = 0;
  train::EpochResult last_ ABSL_GUARDED_BY(team_mu_);
  train::Timing timing_sum_ ABSL_GUARDED_BY(team_mu_);
  std::thread thread_;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_TRAIN_TEAM_H_
