// What a trainer tells of a training.

#ifndef MINIRAY_TRAIN_RESULT_H_
#define MINIRAY_TRAIN_RESULT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps/sync_result.h"
#include "train/metrics.h"

namespace miniray::train {

// Where the time went, in seconds, as the trainer's clock has it.
struct Timing {
  // From when TrainEpoch calls the workers until the slowest has answered, all
  // its calls together.
  double compute = 0;
  // The part of `compute` for which a worker, on average, had answered and
  // waited for the slowest: 0 if all are equally fast.
  double wait = 0;
  // In synchronisations.
  double sync = 0;
  // Behind the epoch and not in its `seconds`: what training waited for its
  // checkpoint, for the workers' and the parameter server's part of it and for
  // the checkpoint before, if that was still being written. Not in what is
  // written before: the epoch's line in history.jsonl, and that checkpoint.
  double checkpoint = 0;
};

struct EpochResult {
  int epoch = 0;
  Metrics metrics;  // Of all workers; see AverageMetrics.
  // The range over the workers; see RangeOfMetrics. Empty where the trainer's
  // own TrainEpoch does not fill them.
  Metrics min;
  Metrics max;
  std::vector<Metrics> per_worker;  // By worker, as they reported them.
  // By worker, where the class has GetNotes (optional_methods.h), or the
  // trainer's own TrainEpoch fills them.
  std::vector<Notes> notes;
  double seconds = 0;   // Synchronisation included.
  Timing timing;        // What is left of `seconds` is the trainer's own.
  bool synced = false;  // Synchronised in or after this epoch.
  // If synced; see AddSync for more than one.
  ps::SyncResult sync;

  // One line of JSON, whose fields are those above; "sync" only if synced,
  // "notes" only if there are any. Numbers that are not finite are the strings
  // "NaN", "Infinity", "-Infinity".
  std::string ToJson() const;
  // The other way. Errors: INVALID_ARGUMENT, it is no such line.
  static absl::StatusOr<EpochResult> FromJson(absl::string_view line);
};

// One line of JSON for an evaluation that was done after its epoch's line had
// been written: {"evaluation":{"epoch":3,"metrics":{...}}}.
std::string EvaluationToJson(int epoch, const Metrics& metrics);

// Adds a synchronisation to those before it in an epoch: bytes, seconds and
// workers that were left out are sums, all else is of the last one.
void AddSync(const ps::SyncResult& sync, ps::SyncResult* all);

// A worker that failed, was lost or hung, or whatever else a training has to
// recover from.
struct WorkerFailure {
  int epoch = 0;       // That ran, or had just ended.
  int worker_id = -1;  // -1: of no single worker, or not known of which.
  absl::Status error;  // With epoch, worker and the worker's own text.
  int number = 1;      // Among those of this Train, from 1.
  bool fatal = false;  // Ends Train: no more are borne.
};

// A checkpoint of the run that lies on the disk.
struct KeptCheckpoint {
  std::string path;
  int epochs = 0;   // Trained before it was taken.
  Metrics metrics;  // Of the last of them.
};

struct Result {
  std::vector<EpochResult> history;  // By epoch.
  double seconds = 0;                // From OnTrainStart to OnTrainEnd.
  // What ended training; also what Train has returned then: the first failure,
  // and behind it those that came of it or later.
  absl::Status error;
  // All failures, those that training has survived too, as they came.
  std::vector<WorkerFailure> failures;
  // What went wrong without ending training.
  std::vector<std::string> warnings;
  std::string path;  // The run folder; empty if there is none.
  // Folders of the last checkpoint and, with a score_metric, of the best; empty
  // if there is none.
  std::string checkpoint;
  std::string best_checkpoint;
  // All that are kept: with a score_metric the best first, else the newest.
  std::vector<KeptCheckpoint> best_checkpoints;
  // "SIGTERM" or "SIGINT" if one came: training has ended with the epoch that
  // ran, and whoever sent it wants the program to end.
  std::string stopped_by;

  // Metrics of the last epoch; empty if there was none.
  Metrics metrics() const {
    return history.empty() ? Metrics() : history.back().metrics;
  }

  // The sum over all epochs.
  Timing timing() const {
    Timing total;
    for (const EpochResult& epoch : history) {
      total.compute += epoch.timing.compute;
      total.wait += epoch.timing.wait;
      total.sync += epoch.timing.sync;
      total.checkpoint += epoch.timing.checkpoint;
    }
    return total;
  }

  // JSON for people, too: the fields and functions above; "error" is null or
  // has "code" ("UNAVAILABLE") and "message".
  std::string ToJson() const;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_RESULT_H_
