// The head's runs: what trainers tell of their trainings, in memory and within
// bounds, and what is answered of it. A RunStore keeps it on the disk.

#ifndef MINIRAY_RUNTIME_RUNS_RUN_TABLE_H_
#define MINIRAY_RUNTIME_RUNS_RUN_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/run.pb.h"
#include "proto/run_state.pb.h"
#include "runtime/runs/collected_run.h"

namespace miniray {

// Thread-safe. No call waits for anything but the lock, except AwaitChange.
class RunTable {
 public:
  struct Options {
    RunLimits limits;  // Of each run.
    // Beyond one of these the oldest ended runs go, and where all run, the
    // oldest pictures of the run that grows. A new run is refused then.
    size_t max_runs = 1000;
    size_t max_bytes = size_t{1} << 30;
    // A run of which nobody tells anything for so long is lost: reporters have
    // a sign of life every second.
    absl::Duration silence = absl::Minutes(5);
    std::function<absl::Time()> clock = &absl::Now;  // Tests pass a fake.
  };

  // Something that a store has not written yet, of one run.
  struct Change {
    int64_t key = 0;  // Of the run, unique for ever.
    bool erased = false;
    // All of it; what came before counts no more.
    std::optional<v1::StoredRun> snapshot;
    // What came since: serialized ReportRunRequests, in order.
    std::vector<std::string> reports;
    std::vector<std::pair<int64_t, PngBytes>> new_images;  // By image id.
    std::vector<int64_t> removed_images;
  };

  RunTable() : RunTable(Options()) {}
  explicit RunTable(Options options);
  RunTable(const RunTable&) = delete;
  RunTable& operator=(const RunTable&) = delete;

  // --- The calls of service RunCollector (proto/run.proto), with their errors.

  absl::StatusOr<v1::ReportRunResponse> Report(v1::ReportRunRequest request)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::ListRunsResponse> List(
      const v1::ListRunsRequest& request) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::GetRunResponse> Get(const v1::GetRunRequest& request) const
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::GetRunImageResponse> GetImage(
      const v1::GetRunImageRequest& request) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<v1::StopRunResponse> Stop(const v1::StopRunRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);

  // --- For who follows.

  // Blocks until there is another version than this one, at most for `timeout`;
  // returns the present one. It grows with every change of any run, and is that
  // of the run that changed last; after a restart of the head, too. Begin with
  // 0.
  int64_t AwaitChange(int64_t version, absl::Duration timeout) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // AwaitChange waits no more, from now on.
  void StopWaiting() ABSL_LOCKS_EXCLUDED(mu_);

  // --- For the head.

  // The job has ended: runs of it that have not are lost.
  void MarkLost(absl::string_view job_id) ABSL_LOCKS_EXCLUDED(mu_);
  // Does what is due by time. Call it every few seconds.
  void Tick() ABSL_LOCKS_EXCLUDED(mu_);

  // --- For a store.

  // Takes over a run that was stored, with what was told of it since the
  // snapshot. Those that run have the whole `silence` to tell of themselves.
  // Call it before all else. Errors: DATA_LOSS, it makes no sense; nothing is
  // taken over.
  absl::Status Restore(int64_t key, const v1::StoredRun& snapshot,
                       std::vector<v1::ReportRunRequest> reports)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A picture of it. False: nobody needs it.
  bool RestoreImage(int64_t key, int64_t image_id, std::string png)
      ABSL_LOCKS_EXCLUDED(mu_);
  // All is restored; from now on changes are kept for TakeChanges. wake: called
  // when one should not wait long; takes no lock that is held around a call to
  // this table, and does not block.
  void BeginKeeping(std::function<void()> wake) ABSL_LOCKS_EXCLUDED(mu_);
  // From now on they are not, and `wake` is not called.
  void EndKeeping() ABSL_LOCKS_EXCLUDED(mu_);
  // What has changed since the last call.
  std::vector<Change> TakeChanges() ABSL_LOCKS_EXCLUDED(mu_);
  // They could not be written: they are changes still.
  void ReturnChanges(std::vector<Change> changes) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What of a run is not written.
  struct Unsaved {
    bool snapshot = false;
    std::vector<std::string> reports;
    size_t report_bytes = 0;
    std::map<int64_t, PngBytes> new_images;
    std::vector<int64_t> removed_images;

    bool empty() const {
      return !snapshot && reports.empty() && new_images.empty() &&
             removed_images.empty();
    }
  };
  struct Entry {
    CollectedRun run;
    int64_t key = 0;
    absl::Time heard;
    Unsaved unsaved;
    // Written since the last snapshot, and of that one.
    size_t tail_bytes = 0;
    size_t snapshot_bytes = 0;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  // Errors: RESOURCE_EXHAUSTED, there is no room, and none can be made.
  absl::StatusOr<Entry*> FindOrAdd(const std::string& run_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const Entry* Find(absl::string_view run_id) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Whether there was one besides `kept`.
  bool DropOldestEnded(const Entry* kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // `grown` stays.
  void MakeRoom(Entry* grown) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Lose(Entry* entry, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Changed(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepReport(const v1::ReportRunRequest& request,
                  const CollectedRun::Applied& applied, Entry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepSnapshot(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void KeepRemoval(int64_t image_id, Entry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  Entries runs_ ABSL_GUARDED_BY(mu_);
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;  // Of all runs.
  // Begins with the time in microseconds, so that no later head has one that an
  // earlier one had.
  int64_t version_ ABSL_GUARDED_BY(mu_);
  int64_t next_key_ ABSL_GUARDED_BY(mu_) = 1;
  int64_t next_order_ ABSL_GUARDED_BY(mu_) = 1;
  bool stop_waiting_ ABSL_GUARDED_BY(mu_) = false;
  bool keeping_ ABSL_GUARDED_BY(mu_) = false;
  std::function<void()> wake_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> erased_ ABSL_GUARDED_BY(mu_);  // Keys.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RUNS_RUN_TABLE_H_
