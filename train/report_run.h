// Tells the head of a training, for the dashboard and whoever else watches.

#ifndef MINIRAY_TRAIN_REPORT_RUN_H_
#define MINIRAY_TRAIN_REPORT_RUN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ps/sync_result.h"
#include "runtime/api/miniray.h"
#include "runtime/runs/run_reporter.h"
#include "train/callback.h"
#include "train/epoch_meter.h"

namespace miniray::train {

// A callback that trainers add themselves, behind all others
// (TrainerOptions::report). Nothing here waits but OnTrainEnd: for the head two
// seconds at most, for the parameter server half a second. What the head cannot
// be told is dropped, with a count.
//
// It reports: the beginning and the end; each epoch, with its metrics and those
// of each worker; synchronisations and what the parameter server says of
// itself; epochs, synchronisations and checkpoints as spans of a timeline. And
// once a second how far the workers are that it was given (Watch). If the head
// is asked to stop the run, it asks for a stop at the next hook.
//
// Callbacks as Callback says; Image from the same thread.
class ReportRun : public Callback {
 public:
  struct Options {
    // Of CheckRunId. Empty: as near to `name` as one can be; without a name one
    // is made up.
    std::string run_id;
    std::string name;
    std::string kind;    // "DataParallelTrainer"
    std::string folder;  // Of the run, absolute; empty: none.
  };

  // Null, with a line in the log that says why, where the head cannot be told:
  // training goes on without.
  static std::shared_ptr<ReportRun> Start(const Cluster& cluster,
                                          Options options);

  // Training begins with this epoch. Without it, this is told by OnResume or
  // the first epoch.
  void Begin(const TrainContext& context, int64_t first_epoch);

  // The actors of the epoch that begins or goes on. workers: all of them, by
  // worker, if they have GetProgress; empty: none is asked. server: may be
  // empty.
  void Watch(const std::vector<AnyActorHandle>& workers, AnyActorHandle server)
      ABSL_LOCKS_EXCLUDED(mu_);

  // A picture made in or behind this epoch. png: 2 MiB at most
  // (kMaxImageBytes).
  void Image(const std::string& name, int epoch, std::string png, int width,
             int height);

  void OnResume(TrainContext& context,
                const std::vector<EpochResult>& history) override;
  void OnEpochStart(TrainContext& context, int epoch) override;
  void OnSync(TrainContext& context, int epoch,
              const ps::SyncResult& result) override;
  void OnEpochEnd(TrainContext& context, const EpochResult& result) override;
  void OnEvaluation(TrainContext& context, const EpochResult& result) override;
  void OnCheckpoint(TrainContext& context, const CheckpointInfo& info) override;
  void OnTrainEnd(TrainContext& context, const Result& result) override;

 private:
  struct Watched {
    AnyActorHandle worker;
    ObjectRef<Progress> question;  // Empty if none is open.
    std::optional<Progress> last;  // Of this epoch.
    bool is_new = false;           // Not reported yet.
  };

  ReportRun(std::string job_id, Options options);
  absl::Status StartReporter(const Cluster& cluster, std::string run_id);

  // In the reporter's thread.
  void Poll() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes the answers that have come, and asks again.
  void AskWorkers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AskServer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void TellPoint(const std::string& metric, int worker, double epoch,
                 double value);
  void TellProgressOf(int worker, int64_t epoch, int64_t step, int64_t steps,
                      int64_t samples);
  // One that ends now.
  void TellSpan(const std::string& name, const std::string& track,
                double seconds);
  void HonourStop(TrainContext& context) const;

  const std::string job_id_;
  const Options options_;
  bool begun_ = false;
  int64_t num_syncs_ = 0;

  absl::Mutex mu_;
  int epoch_ ABSL_GUARDED_BY(mu_) = -1;  // That runs; between epochs, -1.
  std::vector<Watched> watched_ ABSL_GUARDED_BY(mu_);
  size_t next_asked_ ABSL_GUARDED_BY(mu_) = 0;
  AnyActorHandle server_ ABSL_GUARDED_BY(mu_);
  ObjectRef<ps::SyncStats> server_question_ ABSL_GUARDED_BY(mu_);
  bool server_changed_ ABSL_GUARDED_BY(mu_) = false;  // Since it was asked.
  absl::Time next_server_question_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();

  // Last: its thread uses the others. Set once, before it may poll.
  std::unique_ptr<RunReporter> reporter_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_REPORT_RUN_H_
