// The head's tables and rules: nodes, actors, names, jobs, and which actor runs
// where. Knows nothing of gRPC or processes, and takes its clock from outside,
// so that every rule is tested without either. The class is one, since its
// tables change together under one lock; its parts have a file each:
// cluster_nodes.cc, cluster_actors.cc, cluster_jobs.cc,
// cluster_submitted_jobs.cc, cluster_output.cc, cluster_scheduling.cc,
// cluster_groups.cc, cluster_group_scheduling.cc, cluster_settle.cc (what
// leaves the head), cluster_restore.cc, cluster_counts.cc.

#ifndef MINIRAY_RUNTIME_HEAD_CLUSTER_STATE_H_
#define MINIRAY_RUNTIME_HEAD_CLUSTER_STATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/head.pb.h"
#include "runtime/head/cluster_counts.h"
#include "runtime/head/cluster_records.h"
#include "runtime/head/demand.h"
#include "runtime/head/resources.h"
#include "runtime/head/state_store.h"
#include "runtime/head/wait_list.h"

namespace miniray {

// Thread-safe. Every operation is a Turn: it changes the tables under the lock,
// and what is to leave the head because of it (answers, orders to nodes) leaves
// in order, without the lock, once the change is on disk. Several threads'
// turns may be written together, by one of them; an operation may therefore
// return before its answer has left.
class ClusterState {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(10);
    absl::Duration driver_grace = absl::Seconds(2);
    absl::Duration infeasible_timeout = absl::Seconds(30);
    // See Placement groups, below.
    absl::Duration group_patience = absl::Seconds(10);
    absl::Duration group_hold = absl::Seconds(30);
    absl::Duration max_restart_delay = absl::Seconds(30);
    absl::Duration long_life = absl::Minutes(1);
    // What nodes and drivers are told; max_reconnect_pause: a part of the lease
    // or grace that they come back in, if that is less.
    absl::Duration reconnect_timeout = absl::Seconds(60);
    absl::Duration session_life = absl::Minutes(5);
    absl::Duration max_reconnect_pause = absl::Seconds(1);
    // As many actors, placement groups and submitted jobs may wait, each; what
    // would be one more is refused with RESOURCE_EXHAUSTED.
    int64_t max_waiting = 100000;
    // For periods: it must not be set. Tests pass a fake.
    std::function<absl::Time()> clock = &absl::Now;
    // For what is shown and kept. Null: clock.
    std::function<absl::Time()> wall_clock;
    // Told when an actor is dead for good.
    std::function<void(const std::string& actor_id)> actor_ended;
    // Told when a job has ended, however it did.
    std::function<void(const std::string& job_id)> job_ended;
    // Where the tables are kept; outlives this. Null: nowhere.
    StateStore* store = nullptr;
  };
  // A session is told apart by its address: a stream that broke late must not
  // end the one that replaced it.
  using Session = const void*;
  using ActorCallback = std::function<void(absl::StatusOr<v1::ActorInfo>)>;
  using JobCallback = std::function<void(absl::StatusOr<v1::JobInfo>)>;
  using GroupCallback =
      std::function<void(absl::StatusOr<v1::PlacementGroupInfo>)>;
  using StatusCallback = std::function<void(absl::Status)>;

  explicit ClusterState(Options options) : options_(std::move(options)) {}
  ~ClusterState();

  // Takes over what an earlier head left in the store: its nodes are
  // disconnected and have a whole lease to come back, and so have the drivers
  // of its running jobs. Call it first, once. Errors: those of the store.
  // DATA_LOSS, a row makes no sense.
  absl::Status Restore();

  // --- Worker daemons.

  // Adds the node, or takes it back after a break: actors that the head
  // believes there but the daemon does not list have died, or are started if
  // the order to start them got lost; those that the daemon lists but the head
  // has given up are ordered to stop. Errors: FAILED_PRECONDITION, the node was
  // given up. INVALID_ARGUMENT.
  absl::Status RegisterNode(const v1::RegisterNode& request,
                            std::shared_ptr<NodeLink> link);
  void NodeDisconnected(const std::string& node_id, const NodeLink* link);
  // It begins to stop its actors, so none is to be placed there.
  void NodeStopping(const std::string& node_id);
  void NodeLeft(const std::string& node_id);
  // clock: how the node's clock stands to this machine's, if it knows; what
  // makes no sense is passed over. Errors: NOT_FOUND.
  absl::Status RenewLease(const std::string& node_id,
                          const v1::ClockReading* clock = nullptr);
  // Of the nodes that have told, also of those lost since; sorted by id.
  std::vector<v1::NodeClock> NodeClocks() const;
  void ActorStarted(const std::string& node_id, const v1::ActorStarted& event);
  void ActorExited(const std::string& node_id, const v1::ActorExited& event);
  void NodeStats(const std::string& node_id, const v1::NodeStats& stats);
  // What living nodes and actors use.
  v1::GetUsageResponse Usage() const;
  // The same; of the actors, only these.
  v1::GetUsageResponse Usage(const std::vector<std::string>& actor_ids) const;

  // --- Drivers.

  // Opens the job, or takes the driver back after a break. An ended job's id
  // may be used again. The link is sent `registered`. Errors: ALREADY_EXISTS,
  // another driver runs this job. FAILED_PRECONDITION, it was stopped, or it is
  // a submitted one that does not run.
  absl::Status RegisterDriver(const v1::RegisterDriver& request,
                              Session session,
                              std::shared_ptr<DriverLink> link = nullptr);
  // Stops the job's actors, and ends the link once what they printed has been
  // sent.
  void DriverLeft(const std::string& job_id, Session session);
  void DriverDisconnected(const std::string& job_id, Session session);

  // --- Submitted jobs.

  // Errors: ALREADY_EXISTS, INVALID_ARGUMENT, RESOURCE_EXHAUSTED (the disk is
  // full).
  void SubmitJob(const v1::JobSpec& spec, JobCallback done);
  // Answers when the record is new enough or the time is up.
  void GetJob(const v1::GetJobRequest& request, JobCallback done);
  // A driver's job too. Errors: NOT_FOUND.
  void StopJob(const std::string& job_id, StatusCallback done);
  void JobStarted(const std::string& node_id, const v1::JobStarted& event);
  void JobExited(const std::string& node_id, const v1::JobExited& event);

  // --- What processes print.

  // Passes it on to the job's driver.
  void Output(v1::ProcessOutput output);
  struct LogPlace {
    std::shared_ptr<NodeLink> link;  // Null: it has not run yet, and may.
    v1::ReadNodeLog request;
  };
  // Errors: NOT_FOUND. INVALID_ARGUMENT, ambiguous. FAILED_PRECONDITION, it has
  // no log (yet, unless `follow` is set). UNAVAILABLE, its node is not there;
  // says which file it was.
  absl::StatusOr<LogPlace> FindLog(const v1::ReadLogRequest& request) const;

  // --- Actors.

  // Errors: ALREADY_EXISTS, INVALID_ARGUMENT, FAILED_PRECONDITION (the job has
  // ended), RESOURCE_EXHAUSTED (the disk is full).
  void CreateActor(const v1::ActorSpec& spec, ActorCallback done);
  // Answers when the record is new enough or the time is up.
  void GetActor(const v1::GetActorRequest& request, ActorCallback done);
  // Errors: NOT_FOUND.
  void KillActor(const v1::KillActorRequest& request, StatusCallback done);

  // OK if this is the actor's present process, as far as the head knows.
  // Errors: FAILED_PRECONDITION, NOT_FOUND.
  absl::Status CheckPresent(const std::string& actor_id,
                            int32_t incarnation) const;

  // --- Placement groups.
  //
  // Bundles are reserved all or none. Groups that wait are tried in the order
  // of their creation, and before jobs and actors; one that fits does not wait
  // behind an older one that does not, and neither do jobs and actors. So that
  // these do not take what is freed for ever, the nodes of the oldest group
  // that would fit the nodes if they were empty are held for it after
  // group_patience: nothing else starts there until it has its bundles. After
  // group_hold the nodes to hold are chosen anew, in case actors that never end
  // run on those.
  //
  // Bundles on a node that is lost are placed anew, in the group's old place in
  // the queue; the others stay where they are, with their actors. A group that
  // no nodes could ever hold is removed after infeasible_timeout; one that was
  // placed once waits for other nodes, and only the actors that wait for its
  // lost bundles fail.

  // Errors: INVALID_ARGUMENT, FAILED_PRECONDITION (the job has ended),
  // RESOURCE_EXHAUSTED (the disk is full).
  void CreatePlacementGroup(const v1::PlacementGroupSpec& spec,
                            GroupCallback done);
  // Answers when the record is new enough or the time is up.
  void GetPlacementGroup(const v1::GetPlacementGroupRequest& request,
                         GroupCallback done);
  // Its actors are killed; detached ones too. What they use of the bundles is
  // free when their processes have ended, the rest at once. Errors: NOT_FOUND.
  void RemovePlacementGroup(const std::string& id, StatusCallback done);

  // The tables asked for; none: all of them. keep_actor: of the actors, only
  // those for which it is true; it must not call back.
  v1::GetClusterStateResponse Snapshot(
      const std::set<v1::Table>& tables = {},
      const std::function<bool(const v1::ActorInfo&)>& keep_actor =
          nullptr) const;
  // The same in wire format, many times faster where there are many actors.
  std::string SerializedSnapshot(const std::set<v1::Table>& tables = {}) const;
  // Is another one when something in the tables has changed; for who looks
  // often whether there is news. Means nothing to another process.
  uint64_t Fingerprint() const;

  ClusterCounts Counts() const;

  // Of living actors and of jobs that have not ended.
  std::set<std::string> PackagesInUse() const;

  // Does what is due: leases, graces, waits. Call it about every 50 ms.
  void Tick();

  // The head itself stood still for so long (a busy, stopped or suspended
  // machine): nobody's silence counts for that time.
  void AfterStandstill(absl::Duration length);

  // Answers everybody who waits; from now on nobody does.
  void StopWaiting();

 private:
  using Node = NodeRecord;
  using Actor = ActorRecord;
  using Job = JobRecord;
  using Group = GroupRecord;
  using Bundle = BundleRecord;

  // Holds the lock; what was gathered meanwhile leaves at its end.
  class Turn {
   public:
    explicit Turn(ClusterState* state) ABSL_NO_THREAD_SAFETY_ANALYSIS
        : state_(state) {
      state_->mu_.Lock();
    }
    ~Turn() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      state_->Settle();
      state_->mu_.Unlock();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    ClusterState* const state_;
  };

  absl::Time WallNow() const {
    return options_.wall_clock ? options_.wall_clock() : options_.clock();
  }

  // What a node or driver is told that must be back within `grace` once the
  // head is.
  v1::ClusterPeriods PeriodsFor(absl::Duration grace) const;

  // Rows that are on their way to the store, by record.
  struct Written {
    std::set<std::string> nodes, actors, jobs, groups;
    std::set<std::string> created;  // See CreationOf.
    std::vector<StateStore::Change> erased;
  };

  // Names a creation among all others.
  static std::string CreationOf(const Actor& actor) {
    return "actor " + actor.info.actor_id();
  }
  static std::string CreationOf(const Job& job) {
    return "job " + job.info.job_id();
  }
  static std::string CreationOf(const Group& group) {
    return "group " + group.info.placement_group_id();
  }

  // What leaves the head at the end of a turn.
  struct Effect {
    std::function<void()> run;
    // The creation that it depends on, if that is not on disk yet, and what to
    // do instead of `run` if it cannot be written. May be empty.
    std::string creation;
    std::function<void(const absl::Status&)> failed;
  };

  // Writes what has changed and lets the effects leave, unless another thread
  // is at it, which takes both along. Releases and takes the lock.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What changed since the last time, for the store.
  std::vector<StateStore::Change> TakeChanges(Written* written)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ChangesWritten(const Written& written)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes back the creations that are not on disk, and puts their callers'
  // failure into `effects` in place of success. All other changes are tried
  // again later.
  void ChangesFailed(const Written& written, const absl::Status& status,
                     std::vector<Effect>* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UndoCreation(const std::string& actor_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UndoSubmission(const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The record's row must be written.
  void Dirty(Node* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Dirty(Actor* actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Dirty(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Dirty(Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EraseRow(StateStore::Table table, int64_t key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Status RestoreNodes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RestoreGroups() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RestoreActors() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RestoreJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Queue an effect.
  void Reply(std::function<void()> reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReplyActor(const Actor& actor, ActorCallback done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Send(const Node& node, v1::NodeCommand command,
            std::string creation = "") ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // To the actor's node. Nothing while that is cut off.
  void SendStart(const Actor& actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendStop(const Actor& actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Schedule() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static bool IsUsable(const Node& node);
  static std::optional<double> Score(const Demand& demand, const Node& node);
  // Whether the node, if it were idle, could do.
  static bool CouldHold(const Demand& demand, const Node& node);
  Node* PickNode(const ResourceSet& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Node* PickNode(DemandClass* demands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Feasible(const Demand& demand) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Feasible(const ResourceSet& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return Feasible(Demand{.request = request});
  }
  std::string DescribeNodes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // All changes of what a node has to give pass through these. Take returns
  // what was taken: see ResourceSet::Take.
  ResourceSet Take(Node* node, const ResourceSet& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Give(Node* node, const ResourceSet& amount)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NodeChanged(const Node& node, bool gained)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether one more may wait where `waiting` do. `what`: "actors".
  absl::Status CheckRoomToWait(int64_t waiting, absl::string_view what) const;
  // Lets the actor wait, at the end of the queue; takes it out.
  void Enqueue(Actor* actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Dequeue(Actor* actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Enqueues those whose restart was put off until now.
  void EnqueueDelayed(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whoever waits there is looked at again; has to wait on.
  void MakeReady(DemandClass* demands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Block(DemandClass* demands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckFeasible(DemandClass* demands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailInfeasible(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why nobody could ever hold something.
  absl::string_view NoNodeReason(const Demand& demand) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string WaitReason(const DemandClass& demands) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of what some node could hold.
  std::string WhyNoRoom(const Demand& demand) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts the first one that waits there, if there is room.
  bool Place(DemandClass* demands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseResources(Actor* actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What others are told about it: with the reason why it waits.
  v1::ActorInfo Told(const Actor& actor) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // That is no more than its `info`.
  static bool IsToldAsKept(const Actor& actor) {
    return actor.waits_in == nullptr &&
           actor.restart_at == absl::InfinitePast();
  }
  v1::GetClusterStateResponse SnapshotWithoutActors(
      const std::set<v1::Table>& tables) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The placement group is there and can hold it.
  absl::Status CheckGroupOf(const v1::ActorSpec& spec,
                            const ResourceSet& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool GroupCouldHold(const Demand& demand) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the node of the bundle that the actor gets; null: none has room.
  Node* TakeBundle(const Demand& demand, Actor* actor)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False if what the actor holds belongs to its node.
  bool ReleaseBundle(Actor* actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeGroupReady(const std::string& group_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False if it waits for a lost bundle that the nodes could never hold.
  bool GroupFeasible(const Demand& demand) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ScheduleGroups() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool PlaceGroup(Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True if there may be a way to place what is not placed on nodes that hold
  // nothing else.
  bool Feasible(const Group& group) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Says what it waits for.
  void LetWait(Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HoldNodes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseHold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoseBundlesOf(Node* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends those that are infeasible for too long, and looks at patience.
  void TickGroups(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Stops its actors and frees its room.
  void EndGroup(Group* group, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndGroupsOf(const std::string& job_id, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetGroups() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::PlacementGroupInfo Told(const Group& group) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Touch(Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReplyGroup(const Group& group, GroupCallback done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void UndoGroup(const std::string& group_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Adds the actor to the tables and the queue, or finds the one that is there.
  absl::StatusOr<const Actor*> Admit(const v1::ActorSpec& spec,
                                     const ResourceSet& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The record has changed: it gets a new version.
  void Touch(Actor* actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ActorUp(Actor* actor, const std::string& address, int64_t pid)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ActorDied(Actor* actor, const std::string& cause, bool may_restart)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes it out of the indexes of living actors.
  void Unlist(const Actor& actor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
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
  // Loses the nodes whose leases are over.
  void EndLeases(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Says why nothing runs on a node that lives, but does not get its stream
  // back.
  void TellOfNoStream(absl::Time now, Node* node)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndJob(Job* job, v1::JobState state, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Actor* FindActor(const std::string& actor_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Actor* FindByName(const std::string& name, const std::string& space) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeExit(const std::string& node_id, const v1::ActorExited& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // --- Lifetimes: what actors, groups and objects end with. A job is one, by
  // its id; and a detached actor, by its own id, of what it creates and puts.

  // Stops the actors and groups that end with it.
  void StopActorsOf(const std::string& id, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same, and tells the nodes.
  void EndLifetime(const std::string& id, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool LifetimeEnded(const std::string& id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the node may not have heard.
  void TellLifetimes(const v1::RegisterNode& request, const Node& node)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendEnded(const Node& node, const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendBegan(const Node& node, const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The job whose driver started it all; null: it is forgotten.
  const Job* JobOfDriver(const std::string& id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the driver's stream, at once or when its actors have ended.
  void LetDriverLeave(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndDriverLink(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The submitted job if this node runs it, else null.
  Job* JobOn(const std::string& node_id, const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckSubmitted(const v1::RegisterDriver& request,
                              const Job& job) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void JobRuns(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeJobExit(const std::string& node_id, const v1::JobExited& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeJobsOf(const v1::RegisterNode& request, Node* node)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoseJobsOf(const Node& node, const std::string& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ScheduleJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailInfeasibleJobs(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseResources(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Touch(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReplyJob(const Job& job, JobCallback done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendStart(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendStop(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Drop the oldest records of what has ended.
  void ForgetActors() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetNodesAndJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;

  mutable absl::Mutex mu_;
  std::map<std::string, Node> nodes_ ABSL_GUARDED_BY(mu_);
  // No lease ends before; a renewal leaves it as it is.
  absl::Time first_lease_end_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // After a standstill of the head: nodes whose streams broke in it have until
  // then.
  absl::Time return_time_end_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::map<std::string, std::unique_ptr<Actor>> actors_ ABSL_GUARDED_BY(mu_);

  // Actors that wait for resources, by what they wait for.
  std::unordered_map<std::string, std::unique_ptr<DemandClass>> demands_
      ABSL_GUARDED_BY(mu_);
  // Actors whose restart is put off, with when it is due.
  std::set<std::pair<absl::Time, std::string>> delayed_ ABSL_GUARDED_BY(mu_);
  // Those where somebody waits: by the position of the first, who may have
  // luck; and those who had none, until there is more room.
  std::set<std::pair<int64_t, DemandClass*>> ready_ ABSL_GUARDED_BY(mu_);
  std::set<DemandClass*> blocked_ ABSL_GUARDED_BY(mu_);
  int64_t next_queue_position_ ABSL_GUARDED_BY(mu_) = 1;
  int64_t waiting_actors_ ABSL_GUARDED_BY(mu_) = 0;
  // Ids of the nodes that changed, and the number of the first change in it.
  std::vector<std::string> node_changes_ ABSL_GUARDED_BY(mu_);
  int64_t node_changes_begin_ ABSL_GUARDED_BY(mu_) = 0;
  // Grow when there is more room, and when nodes come or go; with what was seen
  // of them last.
  int64_t capacity_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t node_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t scheduled_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  size_t scheduled_jobs_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t feasible_epoch_ ABSL_GUARDED_BY(mu_) = 0;

  std::map<std::string, Group> groups_ ABSL_GUARDED_BY(mu_);
  // By queue_position: groups with bundles that wait for room.
  std::map<int64_t, std::string> group_queue_ ABSL_GUARDED_BY(mu_);
  // There may be more room, or less, than when groups were tried last.
  bool try_groups_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time next_group_try_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // The group that nodes are held for, and until when; empty: none are.
  std::string held_for_ ABSL_GUARDED_BY(mu_);
  absl::Time hold_end_ ABSL_GUARDED_BY(mu_);
  // By job: groups that end with it.
  std::map<std::string, std::set<std::string>> job_groups_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> removed_groups_ ABSL_GUARDED_BY(mu_);

  // (namespace, name) of living actors.
  std::map<std::pair<std::string, std::string>, std::string> names_
      ABSL_GUARDED_BY(mu_);
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mu_);
  // Submitted jobs that wait for resources, in order.
  std::deque<std::string> job_queue_ ABSL_GUARDED_BY(mu_);
  // By job: actors that end with it and hold resources, dead ones too.
  std::map<std::string, std::set<std::string>> job_processes_
      ABSL_GUARDED_BY(mu_);
  // By job: living actors that end with it.
  std::map<std::string, std::set<std::string>> job_actors_ ABSL_GUARDED_BY(mu_);
  // Dead actors in the order of their death, for forgetting the oldest.
  std::deque<std::string> graveyard_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> dead_nodes_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> ended_jobs_ ABSL_GUARDED_BY(mu_);
  // See ClusterCounts.
  int64_t actor_restarts_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t nodes_lost_ ABSL_GUARDED_BY(mu_) = 0;

  WaitList actor_waiters_ ABSL_GUARDED_BY(mu_);
  WaitList job_waiters_ ABSL_GUARDED_BY(mu_);
  WaitList group_waiters_ ABSL_GUARDED_BY(mu_);
  bool stop_waiting_ ABSL_GUARDED_BY(mu_) = false;

  // Of the turn that goes on.
  std::set<std::string> touched_actors_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> touched_jobs_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> touched_groups_ ABSL_GUARDED_BY(mu_);
  // In order; not left yet.
  std::vector<Effect> effects_ ABSL_GUARDED_BY(mu_);
  bool settling_ ABSL_GUARDED_BY(mu_) = false;

  // Not written yet.
  Written dirty_ ABSL_GUARDED_BY(mu_);
  int64_t next_key_ ABSL_GUARDED_BY(mu_) = 1;
  // After a failure what can wait is not tried before this.
  absl::Time next_write_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_CLUSTER_STATE_H_
