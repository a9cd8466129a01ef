// The head's tables and rules: nodes, actors, names, jobs, and which actor runs
// where. Knows nothing of gRPC or processes, and takes its clock from outside,
// so that every rule is tested without either. The class is one, since its
// tables change together under one lock; its parts have a file each:
// cluster_nodes.cc, cluster_actors.cc, cluster_jobs.cc, cluster_scheduling.cc.

#ifndef MINIRAY_RUNTIME_HEAD_CLUSTER_STATE_H_
#define MINIRAY_RUNTIME_HEAD_CLUSTER_STATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/head.pb.h"
#include "runtime/head/cluster_records.h"
#include "runtime/head/resources.h"

namespace miniray {

// Thread-safe.
class ClusterState {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(10);
    absl::Duration driver_grace = absl::Seconds(2);
    absl::Duration infeasible_timeout = absl::Seconds(30);
    std::function<absl::Time()> clock = &absl::Now;  // Tests pass a fake.
  };
  // A session is told apart by its address: a stream that broke late must not
  // end the one that replaced it.
  using Session = const void*;
  using ActorCallback = std::function<void(absl::StatusOr<v1::ActorInfo>)>;

  explicit ClusterState(Options options) : options_(std::move(options)) {}

  // --- Worker daemons.

  // Adds the node, or takes it back after a break: actors that the head
  // believes there but the daemon does not list have died; those that the
  // daemon lists but the head has given up are ordered to stop. Errors:
  // FAILED_PRECONDITION, the node was given up. INVALID_ARGUMENT.
  absl::Status RegisterNode(const v1::RegisterNode& request,
                            std::shared_ptr<NodeLink> link);
  void NodeDisconnected(const std::string& node_id, const NodeLink* link);
  void NodeLeft(const std::string& node_id);
  // Errors: NOT_FOUND.
  absl::Status RenewLease(const std::string& node_id);
  void ActorStarted(const std::string& node_id, const v1::ActorStarted& event);
  void ActorExited(const std::string& node_id, const v1::ActorExited& event);

  // --- Drivers.

  // Opens the job, or takes the driver back after a break. An ended job's id
  // may be used again. Errors: ALREADY_EXISTS, another driver runs this job.
  absl::Status RegisterDriver(const v1::RegisterDriver& request,
                              Session session);
  void DriverLeft(const std::string& job_id, Session session);
  void DriverDisconnected(const std::string& job_id, Session session);

  // --- Actors.

  // Errors: ALREADY_EXISTS, INVALID_ARGUMENT, FAILED_PRECONDITION (the job has
  // ended).
  absl::StatusOr<v1::ActorInfo> CreateActor(const v1::ActorSpec& spec);
  // Runs `done` now, or when the record is new enough or the time is up;
  // outside the lock.
  void GetActor(const v1::GetActorRequest& request, ActorCallback done);
  absl::Status KillActor(const std::string& actor_id, bool no_restart);

  v1::GetClusterStateResponse Snapshot() const;

  // Does what is due: leases, graces, waits. Call it about every 50 ms.
  void Tick();

  // Answers everybody who waits; from now on nobody does.
  void StopWaiting();

 private:
  using Node = NodeRecord;
  using Actor = ActorRecord;
  using Job = JobRecord;
  struct Waiter {
    std::string actor_id;
    int64_t min_version;
    absl::Time deadline;
    ActorCallback done;
  };
  // Callbacks to run once the lock is released.
  using Deferred = std::vector<std::function<void()>>;

  void Schedule() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Node* PickNode(const ResourceSet& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Feasible(const ResourceSet& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string DescribeNodes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Touch(Actor* actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseResources(Actor* actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ActorDied(Actor* actor, const std::string& cause, bool may_restart)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MarkDead(Actor* actor, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Orders the process to end: now, or when its node is back.
  void OrderStop(Actor* actor, const std::string& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Orders the process to end (if there is one) and marks the actor DEAD.
  void StopActor(Actor* actor, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoseNode(Node* node, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndJob(Job* job, v1::JobState state, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Actor* FindActor(const std::string& actor_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Actor* FindByName(const std::string& name, const std::string& space)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes out the waiters that are due.
  Deferred DueWaiters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeExit(const std::string& node_id, const v1::ActorExited& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetNodesAndJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;

  mutable absl::Mutex mu_;
  std::map<std::string, Node> nodes_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::unique_ptr<Actor>> actors_ ABSL_GUARDED_BY(mu_);
  // Actors that wait for resources, in order.
  std::deque<std::string> queue_ ABSL_GUARDED_BY(mu_);
  // (namespace, name) of living actors.
  std::map<std::pair<std::string, std::string>, std::string> names_
      ABSL_GUARDED_BY(mu_);
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
  bool stop_waiting_ ABSL_GUARDED_BY(mu_) = false;
  // Dead actors in the order of their death, for forgetting the oldest.
  std::deque<std::string> graveyard_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> dead_nodes_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> ended_jobs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_CLUSTER_STATE_H_
