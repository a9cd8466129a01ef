// TorchTrainer: runs a train function on all ranks of a group.
//
//   void TrainDigits(train::Context& ctx) {
//     ...
//     const int start = ctx.RestoreFrom(model, optimizer);
//     for (int epoch = start; epoch < ctx.config<int>("epochs"); ++epoch) {
//       ...
//       ctx.Report({{"loss", loss}}, ctx.Checkpoint(model, optimizer, epoch));
//     }
//   }
//   MINIRAY_TRAIN_FUNC(TrainDigits);
//
//   train::TorchTrainer trainer(
//       TrainDigits, {.config = {{"epochs", 10}},
//                     .scaling = {.num_workers = 4},
//                     .run = {.name = "digits",
//                             .storage_path = "runs",
//                             .failure = {.max_failures = 2}}});
//   absl::StatusOr<train::Result> result = trainer.Fit();
//
// Programs include train_functions.h, which has this and the rest.

#ifndef MINIRAY_TRAIN_FUNCTIONS_TORCH_TRAINER_H_
#define MINIRAY_TRAIN_FUNCTIONS_TORCH_TRAINER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/functions/context.h"
#include "train/functions/generation.h"
#include "train/functions/messages.h"
#include "train/functions/run_record.h"
#include "train/functions/train_function.h"
#include "train/functions/trainer_config.h"
#include "train/functions/worker_group.h"
#include "train/result.h"

namespace miniray::train {

// Not thread-safe.
class TorchTrainer {
 public:
  // function: registered with MINIRAY_TRAIN_FUNC. Nothing happens yet.
  TorchTrainer(void (*function)(Context&), TorchTrainerOptions options);
  TorchTrainer(absl::Status (*function)(Context&), TorchTrainerOptions options);
  TorchTrainer(const TorchTrainer&) = delete;
  TorchTrainer& operator=(const TorchTrainer&) = delete;

  // Runs the function on all ranks until it has returned on all of them, and
  // ends the workers. May be called again: with run.resume and a run.name that
  // goes on from the last checkpoint.
  //
  // With num_workers {min, max} the group grows when there is room: behind a
  // report with a checkpoint all ranks leave the function, and begin again
  // there together with the new ones.
  //
  // Failures: see FailureConfig. A rank that throws, returns an error, dies,
  // hangs or does not come to a Report stops the others; with max_failures, all
  // begin again from the last checkpoint.
  //
  // Errors: INVALID_ARGUMENT, options that cannot be; FAILED_PRECONDITION, the
  // function is not registered; both before anything is created.
  // ALREADY_EXISTS, see RunConfig::resume. DEADLINE_EXCEEDED, no places within
  // start_timeout; FAILED_PRECONDITION, no nodes could ever hold the workers.
  // Those of RunFolder, CheckpointStore and Cluster::Connect. Else the first
  // failure, with its rank and the function's own text, and what came later
  // behind it.
  absl::StatusOr<Result> Fit();

  // What the last Fit has come to; after an error too, with the reports before
  // it.
  const Result& last_result() const { return result_; }

  const TorchTrainerOptions& options() const { return options_; }

 private:
  absl::Status Run();
  // One generation, from its workers to its end. *rank: who failed.
  // *gives_up: another try mends nothing.
  absl::Status RunGeneration(const std::optional<Checkpoint>& checkpoint,
                             int generation, int* rank, bool* gives_up);
  absl::Status RunWorkers(GenerationStart start,
                          const std::optional<Checkpoint>& checkpoint,
                          int* rank, bool* gives_up);
  // What all ranks get alike.
  SharedStart Shared(const std::optional<Checkpoint>& checkpoint) const;
  // Waits for a node that takes it, for start_timeout. Errors: UNAVAILABLE,
  // there is none; RESOURCE_EXHAUSTED, its store is full; both may pass. Those
  // of data sets that cannot travel.
  absl::StatusOr<ObjectRef<SharedStart>> PutShared(
      const std::optional<Checkpoint>& checkpoint) const;
  absl::Status RunLocally(GenerationStart start,
                          const std::optional<Checkpoint>& checkpoint,
                          int* rank);
  absl::Status Connect();
  // Of all ranks; where there is room for more ranks, and a checkpoint for them
  // to begin from, they are told to end the generation.
  ReportReply Take(std::vector<RankReport> reports, const ReportTimes& times);
  void Pause();

  const internal::TrainFunctionPointer function_;
  const TorchTrainerOptions options_;
  std::string function_name_;
  // While Fit runs:
  std::optional<Cluster> cluster_;
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<WorkerGroup> group_;
  bool grows_ = false;  // The next generation begins because of that.
  Result result_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_TORCH_TRAINER_H_
