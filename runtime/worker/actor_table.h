// The actors of a node: starts their processes on the head's orders, and tells
// the head what becomes of them.
//
// Mostly an actor has a process of its own. Actors with
// ActorSpec.shared_process share one with those of the same job, program and
// name; it ends with the last of them.

#ifndef MINIRAY_RUNTIME_WORKER_ACTOR_TABLE_H_
#define MINIRAY_RUNTIME_WORKER_ACTOR_TABLE_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"
#include "proto/worker.pb.h"
#include "runtime/metrics/metric_totals.h"
#include "runtime/objects/object_store.h"
#include "runtime/worker/head_link.h"
#include "runtime/worker/memory_monitor.h"
#include "runtime/worker/oom_kills.h"
#include "runtime/worker/output_capture.h"
#include "runtime/worker/package_cache.h"
#include "runtime/worker/process_supervisor.h"
#include "runtime/worker/template_pool.h"
#include "runtime/worker/usage_meter.h"

namespace miniray {

// Thread-safe.
class ActorTable {
 public:
  struct Options {
    std::string node_ip;  // Actors listen there.
    std::string head_address;
    std::string token;
    std::string object_address;  // HOST:PORT of the node's object store
    std::string log_folder;
    absl::Duration stop_grace;
    bool use_templates = true;
    int64_t shared_memory_mb = -1;
    std::vector<std::string> gpu_ids;  // See gpus.h.
  };
  // Parts of the daemon; all outlive the table.
  struct Parts {
    HeadLink* link;
    PackageCache* packages;
    ProcessSupervisor* supervisor;
    OutputCapture* capture;
    TemplatePool* templates;
    ObjectStore* objects;
    OomKills* oom_kills;
    MetricTotals* metrics;
  };

  ActorTable(Options options, Parts parts);
  ~ActorTable() { EndStarting("its node was stopped"); }

  // Starts an actor soon, from a thread of the table's own.
  void Start(const v1::StartActor& start);
  void Stop(const v1::StopActor& stop);

  // Adds the actors that live, or are to be started.
  void Describe(v1::RegisterNode* node);

  bool empty();
  // True if a process of the actor lives, or is to be started.
  bool Lives(const std::string& actor_id);

  // Of the processes that live.
  std::set<std::string> LogFiles();
  // Those that are up.
  std::vector<ActorProcess> Running();

  // Processes that may be killed for their memory; the cause goes to all actors
  // of the process.
  std::vector<MemoryMonitor::Victim> Victims();
  void KillForMemory(const std::string& process_key, const std::string& cause);

  struct Counts {
    int64_t actors = 0;  // That live, or are to be started.
    int64_t processes = 0;
    int64_t memory_kills = 0;  // KillForMemory that met a process.
  };
  Counts counts() const;

  // Kills all actors, which the head has given up, and tells nobody of their
  // ends; returns when none is left, or after some seconds.
  void GiveUp(const std::string& reason);

  // Starts no more actors; those that live are about to be stopped for
  // `reason`. Idempotent.
  void EndStarting(const std::string& reason);

 private:
  struct Hosted {
    v1::ActorSpec spec;  // Without the constructor's arguments.
    int32_t incarnation = 0;
    std::string process;             // Key; empty until it is in one.
    std::string construction_error;  // Set if the constructor failed.
    bool may_restart = true;
    std::string stop_reason;  // Set once it was ordered to stop.
    bool ended_itself = false;
    std::string address;  // Once it is up.
    pid_t pid = 0;
  };
  struct Process {
    std::string group;  // Of a shared one; see GroupOf.
    std::string shared_name;
    std::string log_file;
    std::set<std::string> actors;  // Keys.
    // Key of its first actor: of what the process puts into the object store.
    std::string object_owner;
    std::string kill_cause;  // Set once it was killed for its memory.
  };

  // actor_start.cc
  void StarterLoop();
  std::deque<v1::StartActor>::iterator NextStart()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status StartInProcess(const v1::StartActor& start,
                              const std::string& key);
  absl::StatusOr<TemplatePool::Program> FetchProgram(const v1::ActorSpec& spec);
  // True if it is in a shared process now that was there already.
  bool JoinSharedProcess(const v1::StartActor& start, const std::string& key,
                         const std::string& message);
  absl::Status StartProcess(const v1::StartActor& start, const std::string& key,
                            const TemplatePool::Program& program,
                            const std::string& message);
  std::string StopReason(const std::string& key);
  std::string LogPath(absl::string_view class_name,
                      const std::string& key) const;

  // actor_table.cc
  ProcessCalls CallsOf(const std::string& process_key) const;
  void OnMessage(const std::string& process_key, pid_t pid,
                 const std::string& bytes);
  void OnExit(const std::string& process_key, int wait_status);
  // Nothing but its process's end says why the actor ends.
  bool EndsUnexplained(const std::string& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the head, and forgets the actor.
  void TellEnd(const std::string& key, const std::string& cause,
               const std::string& last_output)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // An actor has left a shared process that goes on, unless it was the last.
  void LeaveProcess(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Stops an actor that is in a process.
  void StopInProcess(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GraceLoop();

  const Options options_;
  const Parts parts_;

  // The locks of the parts may be taken while it is held.
  mutable absl::Mutex mu_;
  bool start_ended_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::StartActor> starts_ ABSL_GUARDED_BY(mu_);
  // What the starters are busy with, by package: a slow download holds up
  // nothing else, and actors of one package start in order.
  std::set<std::string> busy_packages_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Hosted> actors_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Process> processes_ ABSL_GUARDED_BY(mu_);
  // Shared processes that take further actors, by group.
  std::map<std::string, std::string> shared_ ABSL_GUARDED_BY(mu_);
  int64_t shared_count_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t memory_kills_ ABSL_GUARDED_BY(mu_) = 0;
  // Actors in shared processes that were told to end, by when they count as
  // ended.
  std::multimap<absl::Time, std::string> graces_ ABSL_GUARDED_BY(mu_);

  std::vector<std::thread> starters_;
  std::thread grace_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_ACTOR_TABLE_H_
