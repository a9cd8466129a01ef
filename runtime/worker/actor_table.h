// The actors of a node: starts their processes on the head's orders, and tells
// the head what becomes of them.

#ifndef MINIRAY_RUNTIME_WORKER_ACTOR_TABLE_H_
#define MINIRAY_RUNTIME_WORKER_ACTOR_TABLE_H_

#include <sys/types.h>

#include <cstdint>
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
#include "proto/worker.pb.h"
#include "runtime/worker/head_link.h"
#include "runtime/worker/package_cache.h"
#include "runtime/worker/process_supervisor.h"

namespace miniray {

// Thread-safe.
class ActorTable {
 public:
  struct Options {
    std::string node_ip;  // Actors listen there.
    std::string head_address;
    std::string token;
    std::string log_folder;
    absl::Duration stop_grace;
  };

  // All outlive the table.
  ActorTable(Options options, HeadLink* link, PackageCache* packages,
             ProcessSupervisor* supervisor);
  ~ActorTable() { EndStarting("its node was stopped"); }

  // Starts an actor soon, from a thread of the table's own.
  void Start(const v1::StartActor& start);
  void Stop(const v1::StopActor& stop);

  // Adds the actors that live, or are to be started.
  void Describe(v1::RegisterNode* node);

  bool empty();

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
    std::string log_file;
    std::string construction_error;  // Set if the constructor failed.
    std::string stop_reason;         // Set once it was ordered to stop.
    bool ended_itself = false;
    std::string address;  // Once it is up.
    pid_t pid = 0;
  };

  void StarterLoop();
  std::deque<v1::StartActor>::iterator NextStart()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status StartProcess(const v1::StartActor& start,
                            const std::string& key);
  void OnMessage(const std::string& key, pid_t pid, const std::string& bytes);
  void OnExit(const std::string& key, const std::string& cause);

  const Options options_;
  HeadLink* const link_;
  PackageCache* const packages_;
  ProcessSupervisor* const supervisor_;

  // The link's lock may be taken while it is held.
  absl::Mutex mu_;
  bool start_ended_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::StartActor> starts_ ABSL_GUARDED_BY(mu_);
  // What the starters are busy with, by package: a slow download holds up
  // nothing else, and actors of one package start in order.
  std::set<std::string> busy_packages_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Hosted> actors_ ABSL_GUARDED_BY(mu_);

  std::vector<std::thread> starters_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_ACTOR_TABLE_H_
