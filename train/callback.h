// Callbacks: what is to happen around a training, beside what the trainer's own
// hooks do. One class can serve any trainer, and a trainer can have many.
//
//   // Ends training once the loss has not fallen for five epochs.
//   class StopEarly : public train::Callback {
//    public:
//     void OnEpochEnd(train::TrainContext& context,
//                     const train::EpochResult& result) override {
//       const double loss = result.metrics.at("loss");
//       if (loss < best_) best_epoch_ = result.epoch;
//       best_ = std::min(best_, loss);
//       if (result.epoch - best_epoch_ >= 5) context.RequestStop();
//     }
//
//    private:
//     double best_ = INFINITY;
//     int best_epoch_ = 0;
//   };
//
//   MyTrainer trainer({.num_workers = 4,
//                      .callbacks = {std::make_shared<StopEarly>()}});

#ifndef MINIRAY_TRAIN_CALLBACK_H_
#define MINIRAY_TRAIN_CALLBACK_H_

#include <string>
#include <vector>

#include "ps/sync_result.h"
#include "train/checkpoint.h"
#include "train/result.h"

namespace miniray::train {

// One call of Train, as a callback sees it. Not thread-safe.
class TrainContext {
 public:
  TrainContext() = default;
  TrainContext(int num_workers, int epochs)
      : num_workers_(num_workers), epochs_(epochs) {}

  int num_workers() const { return num_workers_; }  // Now, with max_workers.
  int epochs() const { return epochs_; }            // Asked for.

  // Ends training after the epoch that runs, or has just ended.
  void RequestStop() { stop_requested_ = true; }
  bool stop_requested() const { return stop_requested_; }

  // Logs something that is wrong but does not end training, and keeps it for
  // Result::warnings: once, however often it is said.
  void Warn(const std::string& warning);
  const std::vector<std::string>& warnings() const { return warnings_; }

  // For the trainer.
  void set_num_workers(int num_workers) { num_workers_ = num_workers; }

 private:
  int num_workers_ = 0;
  int epochs_ = 0;
  bool stop_requested_ = false;
  std::vector<std::string> warnings_;
};

// All calls come from the thread that runs Train, each right after the
// trainer's own hook of that name; several callbacks are called in the order in
// which they stand in TrainerOptions::callbacks. Exceptions pass through Train.
class Callback {
 public:
  virtual ~Callback() = default;

  // The workers are there and have their data.
  virtual void OnTrainStart(TrainContext& context) {}
  // After OnTrainStart, where training goes on from a checkpoint: the epochs
  // that it has had, in which this object may have seen nothing.
  virtual void OnResume(TrainContext& context,
                        const std::vector<EpochResult>& history) {}
  virtual void OnEpochStart(TrainContext& context, int epoch) {}
  // A worker has failed; see TrainerBase. Epochs that are trained again because
  // of it come with their hooks again.
  virtual void OnWorkerFailure(TrainContext& context,
                               const WorkerFailure& failure) {}
  // A synchronisation is done; `epoch` is the one that runs or has just ended.
  virtual void OnSync(TrainContext& context, int epoch,
                      const ps::SyncResult& result) {}
  virtual void OnEpochEnd(TrainContext& context, const EpochResult& result) {}
  // An evaluation beside training (TrainerOptions::num_evaluators) is done:
  // `result` is of the epoch that was evaluated, and has it in its metrics. It
  // comes between epochs or before the end, but not in the order of OnEpochEnd.
  virtual void OnEvaluation(TrainContext& context, const EpochResult& result) {}
  // A checkpoint is on the disk. It may have been taken epochs ago.
  virtual void OnCheckpoint(TrainContext& context, const CheckpointInfo& info) {
  }
  // Train is about to return. Unlike the trainer's hook this one is called
  // after an error too (result.error says which), and before the workers are
  // shut down; also, and then without OnTrainStart before, where they did not
  // even start.
  virtual void OnTrainEnd(TrainContext& context, const Result& result) {}
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_CALLBACK_H_
