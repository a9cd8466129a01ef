// What is kept of a training by train functions: history, checkpoints,
// failures, the run's folder; and what callbacks hear of it.

#ifndef MINIRAY_TRAIN_FUNCTIONS_RUN_RECORD_H_
#define MINIRAY_TRAIN_FUNCTIONS_RUN_RECORD_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "runtime/base/backoff.h"
#include "train/callback.h"
#include "train/checkpoint.h"
#include "train/checkpoint_store.h"
#include "train/functions/generation.h"
#include "train/functions/messages.h"
#include "train/functions/trainer_config.h"
#include "train/result.h"
#include "train/run_folder.h"

namespace miniray::train {

class ReportRun;

// Not thread-safe. Exceptions of callbacks pass through.
class RunRecord {
 public:
  // Opens the run's folder, if there is to be one. options: valid.
  //
  // Errors: ALREADY_EXISTS, the folder has reports, and run.resume is false.
  // Those of RunFolder and CheckpointStore.
  static absl::StatusOr<std::unique_ptr<RunRecord>> Open(
      const TorchTrainerOptions& options);

  // From here on the head is told of the training, if it is to be.
  void BeginReport(const Cluster& cluster);

  // What training goes on from now: the last good checkpoint of this run, else
  // resume_from_checkpoint, else nothing. Waits for one that is being written.
  absl::StatusOr<std::optional<Checkpoint>> LastCheckpoint();

  // Training begins, or goes on, behind this checkpoint: makes its history the
  // run's, and puts later checkpoints aside. anew: after a failure.
  absl::Status BeginAt(const std::optional<Checkpoint>& checkpoint, bool anew,
                       int num_workers);

  // All ranks have made a report: the next epoch of the history. Begins to
  // write its checkpoint, once no try to write the one before runs.
  ReportReply Take(std::vector<RankReport> reports, const ReportTimes& times);

  // Whether the function reports checkpoints, in an earlier run of the same
  // folder too; whether the last report had one.
  bool has_checkpoints() const { return has_checkpoints_; }
  bool ends_with_checkpoint() const { return ends_with_checkpoint_; }
  // Whether training can go on from the last checkpoint: waits while a try to
  // write it runs.
  bool AwaitCheckpoint();

  // Notes a failure and tells the callbacks. Returns whether another generation
  // may follow. rank: -1 of no single one.
  bool BearFailure(int rank, const absl::Status& error);

  // How long to wait before the next generation: longer and longer, as long as
  // training comes no further than it was.
  absl::Duration PauseAfterFailure();

  // The first failure, and behind it what came of it; `last` ends training.
  absl::Status FirstError(const absl::Status& last) const;

  // Training is over: waits for the last checkpoint, tells the callbacks,
  // writes result.json.
  void End(const absl::Status& status);

  // A signal or a callback asks for the end.
  bool ShallEnd() const {
    return StoppedBySignal() || context_.stop_requested();
  }
  // A signal asks for the end. Only where signals are caught at all.
  bool StoppedBySignal() const;
  // Whether they are to be.
  bool CatchesSignals() const;

  const std::string& name() const { return name_; }
  const Result& result() const { return result_; }

 private:
  explicit RunRecord(const TorchTrainerOptions& options);

  int num_reports() const { return static_cast<int>(result_.history.size()); }
  void TakeCheckpoint(std::vector<RankReport> reports);
  void Note(const std::optional<CheckpointStore::Outcome>& outcome);
  void WarnAll(const std::vector<std::string>& warnings);

  const RunConfig config_;
  const std::string resume_from_;
  std::string name_;
  TrainContext context_;
  std::shared_ptr<RunFolder> folder_;       // Null without a storage_path.
  std::shared_ptr<ReportRun> report_;       // Null if nobody is told.
  std::unique_ptr<CheckpointStore> store_;  // Null without a storage_path.
  std::optional<Checkpoint> in_memory_;     // The last, without one.
  // The folder's, before those of the config.
  std::vector<std::shared_ptr<Callback>> callbacks_;
  std::optional<absl::Time> start_;  // Once training has begun.
  absl::Time last_report_;
  bool has_checkpoints_ = false;
  bool ends_with_checkpoint_ = false;
  bool signal_noticed_ = false;  // In an earlier report.
  int failures_in_a_row_ = 0;
  int reports_to_recover_ = 0;  // Then training has come further.
  Backoff backoff_{absl::Milliseconds(500), absl::Seconds(30)};
  Result result_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_RUN_RECORD_H_
