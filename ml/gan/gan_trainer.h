// GanTrainer: a GAN on many workers, in about twenty lines.

#ifndef MINIRAY_ML_GAN_GAN_TRAINER_H_
#define MINIRAY_ML_GAN_GAN_TRAINER_H_

#include <utility>

#include "ml/gan/gan_worker.h"
#include "train/data_parallel_trainer.h"

namespace miniray::ml {

class GanTrainer : public train::DataParallelTrainer<GanWorker> {
 public:
  // worker: of every worker; its worker_id is set here.
  // threads: compute threads of each.
  GanTrainer(train::TrainerOptions options, GanWorkerOptions worker,
             int threads = 1)
      : DataParallelTrainer(std::move(options)),
        worker_(std::move(worker)),
        threads_(threads) {}

 protected:
  absl::StatusOr<ActorHandle<GanWorker>> CreateWorker(
      int worker_id, const train::Config& config) override {
    ActorOptions options = WorkerOptions(worker_id);
    options.num_threads = threads_;
    GanWorkerOptions worker = worker_;
    worker.worker_id = worker_id;
    return cluster().CreateActor<GanWorker>(options, worker);
  }

 private:
  const GanWorkerOptions worker_;
  const int threads_;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_GAN_TRAINER_H_
