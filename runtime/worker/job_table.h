// The submitted jobs of a node: runs their drivers on the head's orders, and
// tells the head what becomes of them.

#ifndef MINIRAY_RUNTIME_WORKER_JOB_TABLE_H_
#define MINIRAY_RUNTIME_WORKER_JOB_TABLE_H_

#include <deque>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"
#include "runtime/worker/head_link.h"
#include "runtime/worker/oom_kills.h"
#include "runtime/worker/output_capture.h"
#include "runtime/worker/package_cache.h"
#include "runtime/worker/process_supervisor.h"

namespace miniray {

// Thread-safe.
class JobTable {
 public:
  struct Options {
    std::string head_address;
    std::string token;
    std::string folder;      // A folder in it for each job; created if missing.
    std::string log_folder;  // Exists.
    std::vector<std::string> gpu_ids;  // See gpus.h.
    // Between SIGTERM and SIGKILL: a driver may have a model to save.
    absl::Duration stop_grace = absl::Seconds(5);
  };
  // All outlive the table.
  struct Parts {
    HeadLink* link;
    PackageCache* packages;
    ProcessSupervisor* supervisor;
    OutputCapture* capture;
    OomKills* oom_kills;
  };

  JobTable(Options options, Parts parts);
  ~JobTable() { EndStarting("its node was stopped"); }

  // Starts a job's driver soon, from a thread of the table's own.
  void Start(const v1::StartJob& start);
  void Stop(const v1::StopJobProcess& stop);

  // Adds the jobs whose drivers live, or are to be started.
  void Describe(v1::RegisterNode* node);

  bool empty();
  bool Lives(const std::string& job_id);
  std::string LogPath(const std::string& job_id) const;
  // Of the drivers that live.
  std::set<std::string> LogFiles();

  // As those of ActorTable.
  void GiveUp(const std::string& reason);
  void EndStarting(const std::string& reason);

 private:
  struct Hosted {
    bool told_started = false;
    std::string stop_reason;  // Set once it was ordered to stop.
  };

  void StarterLoop();
  absl::Status StartProcess(const v1::StartJob& start);
  // Makes the job's folder: the program, and the working folder.
  absl::Status Prepare(const v1::JobSpec& spec,
                       ProcessSupervisor::Command* command);
  std::string StopReason(const std::string& job_id);
  std::string FolderOf(const std::string& job_id) const;
  void OnExit(const std::string& job_id, int wait_status);
  // Before its end is told, once.
  void TellStarted(const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellEnd(const std::string& job_id, int exit_code,
               const std::string& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const Parts parts_;

  // The link's lock may be taken while it is held.
  absl::Mutex mu_;
  bool start_ended_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::StartJob> starts_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Hosted> jobs_ ABSL_GUARDED_BY(mu_);
  // Folders of jobs that have ended, to be removed.
  std::deque<std::string> leftovers_ ABSL_GUARDED_BY(mu_);

  std::vector<std::thread> starters_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_JOB_TABLE_H_
