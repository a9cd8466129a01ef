#include "runtime/head/cluster_state.h"

#include <glog/logging.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"

namespace miniray {
namespace {

// Records of dead actors that are kept for `status` and for late callers.
constexpr size_t kMaxDeadActors = 10000;
constexpr size_t kMaxDeadNodes = 1000;
constexpr absl::Duration kMaxWait = absl::Minutes(1);
constexpr size_t kMaxEndedJobs = 10000;

// A node is filled up to this share before the next one is used, so that small
// jobs stay together; beyond it load is spread.
constexpr double kPackUntil = 0.5;

std::string NodeName(const v1::NodeInfo& node) {
  return absl::StrCat(node.node_id(), " (", node.hostname(), ", ",
                      node.address(), ")");
}

bool IsLive(const v1::ActorInfo& info) {
  return info.state() != v1::ACTOR_STATE_DEAD;
}

bool HasProcess(const v1::ActorInfo& info) {
  return info.state() == v1::ACTOR_STATE_STARTING ||
         info.state() == v1::ACTOR_STATE_ALIVE ||
         (info.state() == v1::ACTOR_STATE_RESTARTING &&
          !info.node_id().empty());
}

}  // namespace

// --- Worker daemons.

absl::Status ClusterState::RegisterNode(const v1::RegisterNode& request,
                                        std::shared_ptr<NodeLink> link) {
  if (request.node_id().empty()) {
    return absl::InvalidArgumentError("a node needs an id");
  }
  MR_ASSIGN_OR_RETURN(const ResourceSet total,
                      ResourceSet::FromProto(request.total()));
  Deferred deferred;
  {
    absl::MutexLock lock(&mu_);
    auto [it, is_new] = nodes_.try_emplace(request.node_id());
    Node& node = it->second;
    if (!is_new && node.info.state() == v1::NODE_STATE_DEAD) {
      return absl::FailedPreconditionError(
          absl::StrCat("the head gave this node up: ", node.info.death_cause(),
                       "; it must join as a new node"));
    }
    node.info.set_node_id(request.node_id());
    node.info.set_hostname(request.hostname());
    node.info.set_address(request.address());
    node.info.set_pid(request.pid());
    node.info.set_state(v1::NODE_STATE_ALIVE);
    node.link = std::move(link);
    node.lease_end = options_.clock() + options_.lease;
    if (is_new) {
      node.total = total;
      node.available = total;
      LOG(INFO) << "node joined: " << NodeName(node.info) << " with "
                << total.ToString();
    }
    v1::NodeCommand registered;
    registered.mutable_registered()->set_lease_ms(
        absl::ToInt64Milliseconds(options_.lease));
    node.link->Send(std::move(registered));

    for (const v1::ActorExited& exited : request.exited_actors()) {
      TakeExit(request.node_id(), exited);
    }
    std::set<std::pair<std::string, int32_t>> live;
    for (const v1::LiveActor& actor : request.live_actors()) {
      live.emplace(actor.actor_id(), actor.incarnation());
      const Actor* known = FindActor(actor.actor_id());
      const bool ours = known != nullptr &&
                        known->incarnation == actor.incarnation() &&
                        known->info.node_id() == request.node_id();
      if (ours && IsLive(known->info) && known->stop_reason.empty()) continue;
      // A stop may have been lost with the last stream.
      const bool ordered = ours && !known->stop_reason.empty();
      v1::NodeCommand stop;
      stop.mutable_stop_actor()->set_actor_id(actor.actor_id());
      stop.mutable_stop_actor()->set_incarnation(actor.incarnation());
      stop.mutable_stop_actor()->set_reason(
          ordered ? known->stop_reason : "the head does not know it");
      node.link->Send(std::move(stop));
    }
    for (auto& [id, actor] : actors_) {
      if (actor->info.node_id() != request.node_id() ||
          live.contains({id, actor->incarnation})) {
        continue;
      }
      if (HasProcess(actor->info)) {
        ActorDied(actor.get(), "ended while its node was cut from the head",
                  true);
      } else {
        ReleaseResources(actor.get());  // Killed before, and ended meanwhile.
      }
    }
    Schedule();
    deferred = DueWaiters();
  }
  for (auto& run : deferred) run();
  return absl::OkStatus();
}

void ClusterState::NodeDisconnected(const std::string& node_id,
                                    const NodeLink* link) {
  absl::MutexLock lock(&mu_);
  auto it = nodes_.find(node_id);
  if (it == nodes_.end() || it->second.link.get() != link) return;
  it->second.link.reset();
  if (it->second.info.state() != v1::NODE_STATE_ALIVE) return;
  it->second.info.set_state(v1::NODE_STATE_DISCONNECTED);
  // A daemon that lives dials again at once; a stream that broke without that
  // is most likely a daemon that died, so its callers need not wait a whole
  // lease.
  it->second.lease_end =
      std::min(it->second.lease_end, options_.clock() + options_.lease / 3);
  LOG(WARNING) << "node disconnected: " << NodeName(it->second.info);
}

void ClusterState::NodeLeft(const std::string& node_id) {
  Deferred deferred;
  {
    absl::MutexLock lock(&mu_);
    auto it = nodes_.find(node_id);
    if (it == nodes_.end() || it->second.info.state() == v1::NODE_STATE_DEAD) {
      return;
    }
    LoseNode(&it->second, "its worker daemon was stopped");
    Schedule();
    deferred = DueWaiters();
  }
  for (auto& run : deferred) run();
}

absl::Status ClusterState::RenewLease(const std::string& node_id) {
  absl::MutexLock lock(&mu_);
  auto it = nodes_.find(node_id);
  if (it == nodes_.end() || it->second.info.state() == v1::NODE_STATE_DEAD) {
    return absl::NotFoundError(
        absl::StrCat("the head knows no living node ", node_id));
  }
  it->second.lease_end = options_.clock() + options_.lease;
  return absl::OkStatus();
}

void ClusterState::LoseNode(Node* node, const std::string& cause) {
  LOG(WARNING) << "node lost: " << NodeName(node->info) << ": " << cause;
  node->info.set_state(v1::NODE_STATE_DEAD);
  node->info.set_death_cause(cause);
  dead_nodes_.push_back(node->info.node_id());
  node->link.reset();
  for (auto& [id, actor] : actors_) {
    if (actor->info.node_id() != node->info.node_id()) continue;
    if (HasProcess(actor->info)) {
      ActorDied(
          actor.get(),
          absl::StrCat("node ", NodeName(node->info), " was lost: ", cause),
          true);
    } else {
      ReleaseResources(actor.get());
    }
  }
}

void ClusterState::ActorStarted(const std::string& node_id,
                                const v1::ActorStarted& event) {
  Deferred deferred;
  {
    absl::MutexLock lock(&mu_);
    Actor* actor = FindActor(event.actor_id());
    if (actor == nullptr || actor->incarnation != event.incarnation() ||
        actor->info.node_id() != node_id || !HasProcess(actor->info)) {
      return;
    }
    actor->info.set_state(v1::ACTOR_STATE_ALIVE);
    actor->info.set_address(event.address());
    actor->info.set_pid(event.pid());
    Touch(actor);
    deferred = DueWaiters();
  }
  for (auto& run : deferred) run();
}

void ClusterState::ActorExited(const std::string& node_id,
                               const v1::ActorExited& event) {
  Deferred deferred;
  {
    absl::MutexLock lock(&mu_);
    TakeExit(node_id, event);
    Schedule();
    deferred = DueWaiters();
  }
  for (auto& run : deferred) run();
}

void ClusterState::TakeExit(const std::string& node_id,
                            const v1::ActorExited& event) {
  Actor* actor = FindActor(event.actor_id());
  if (actor == nullptr || actor->incarnation != event.incarnation() ||
      actor->info.node_id() != node_id) {
    return;
  }
  if (!HasProcess(actor->info)) {
    // Killed before: only its room was still taken.
    return ReleaseResources(actor);
  }
  std::string cause = event.cause();
  if (auto it = nodes_.find(node_id); it != nodes_.end()) {
    absl::StrAppend(&cause, " on node ", NodeName(it->second.info));
  }
  cause += event.last_output();
  ActorDied(actor, cause, event.may_restart());
}

// --- Drivers.

absl::Status ClusterState::RegisterDriver(const v1::RegisterDriver& request,
                                          Session session) {
  absl::MutexLock lock(&mu_);
  auto [it, is_new] = jobs_.try_emplace(request.job_id());
  Job& job = it->second;
  if (!is_new && job.session_id != request.session_id()) {
    if (job.info.state() == v1::JOB_STATE_RUNNING) {
      return absl::AlreadyExistsError(
          absl::StrCat("job '", request.job_id(), "' is running: driver ",
                       job.info.program(), ", pid ", job.info.pid(), " on ",
                       job.info.hostname(), "; choose another job id"));
    }
    job = Job();
    is_new = true;
  }
  job.session = session;
  job.session_id = request.session_id();
  job.grace_end = absl::InfiniteFuture();
  if (!is_new) return absl::OkStatus();
  job.info.set_job_id(request.job_id());
  job.info.set_program(request.program());
  job.info.set_hostname(request.hostname());
  job.info.set_pid(request.pid());
  job.info.set_state(v1::JOB_STATE_RUNNING);
  job.info.set_start_unix_ms(absl::ToUnixMillis(options_.clock()));
  LOG(INFO) << "job " << request.job_id() << ": driver " << request.program()
            << ", pid " << request.pid() << " on " << request.hostname();
  return absl::OkStatus();
}

void ClusterState::DriverLeft(const std::string& job_id, Session session) {
  Deferred deferred;
  {
    absl::MutexLock lock(&mu_);
    auto it = jobs_.find(job_id);
    if (it == jobs_.end() || it->second.session != session) return;
    EndJob(&it->second, v1::JOB_STATE_SUCCEEDED, "its driver has ended");
    deferred = DueWaiters();
  }
  for (auto& run : deferred) run();
}

void ClusterState::DriverDisconnected(const std::string& job_id,
                                      Session session) {
  absl::MutexLock lock(&mu_);
  auto it = jobs_.find(job_id);
  if (it == jobs_.end() || it->second.session != session) return;
  it->second.session = nullptr;
  if (it->second.info.state() == v1::JOB_STATE_RUNNING) {
    it->second.grace_end = options_.clock() + options_.driver_grace;
  }
}

void ClusterState::EndJob(Job* job, v1::JobState state,
                          const std::string& cause) {
  if (job->info.state() != v1::JOB_STATE_RUNNING) return;
  job->info.set_state(state);
  job->info.set_end_unix_ms(absl::ToUnixMillis(options_.clock()));
  job->grace_end = absl::InfiniteFuture();
  ended_jobs_.push_back(job->info.job_id());
  LOG(INFO) << "job " << job->info.job_id() << " ended: " << cause;
  for (auto& [id, actor] : actors_) {
    if (actor->spec.job_id() == job->info.job_id() && !actor->spec.detached() &&
        IsLive(actor->info)) {
      StopActor(actor.get(), cause);
    }
  }
  Schedule();
}

// --- Actors.

absl::StatusOr<v1::ActorInfo> ClusterState::CreateActor(
    const v1::ActorSpec& spec) {
  if (spec.actor_id().empty() || spec.class_name().empty() ||
      spec.package_id().empty()) {
    return absl::InvalidArgumentError(
        "an actor needs an id, a class and a package");
  }
  if (spec.max_restarts() < -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_restarts = ", spec.max_restarts(),
                     ": must be -1 (for ever), 0 or more"));
  }
  MR_ASSIGN_OR_RETURN(const ResourceSet request,
                      ResourceSet::FromProto(spec.resources()));
  absl::MutexLock lock(&mu_);
  if (const Actor* known = FindActor(spec.actor_id()); known != nullptr) {
    return known->info;  // A repeated request.
  }
  if (auto job = jobs_.find(spec.job_id());
      job != jobs_.end() && job->second.info.state() != v1::JOB_STATE_RUNNING) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", spec.job_id(), " has ended"));
  }
  if (!spec.name().empty()) {
    if (const Actor* holder = FindByName(spec.name(), spec.actor_namespace());
        holder != nullptr) {
      return absl::AlreadyExistsError(absl::StrCat(
          "a living actor has the name '", spec.name(),
          "': ", holder->info.class_name(), " (", holder->info.actor_id(),
          ", job ", holder->info.job_id(), ")"));
    }
    names_[{spec.actor_namespace(), spec.name()}] = spec.actor_id();
  }
  auto actor = std::make_unique<Actor>();
  actor->spec = spec;
  actor->request = request;
  v1::ActorInfo& info = actor->info;
  info.set_actor_id(spec.actor_id());
  info.set_class_name(spec.class_name());
  info.set_name(spec.name());
  info.set_actor_namespace(spec.actor_namespace());
  info.set_job_id(spec.job_id());
  info.set_state(v1::ACTOR_STATE_PENDING);
  info.set_max_restarts(spec.max_restarts());
  *info.mutable_resources() = request.ToProto();
  info.set_version(1);
  Actor* added = actor.get();
  actors_[spec.actor_id()] = std::move(actor);
  queue_.push_back(spec.actor_id());
  Schedule();
  return added->info;
}

void ClusterState::GetActor(const v1::GetActorRequest& request,
                            ActorCallback done) {
  absl::StatusOr<v1::ActorInfo> result;
  {
    absl::MutexLock lock(&mu_);
    const Actor* actor =
        request.actor_id().empty()
            ? FindByName(request.name(), request.actor_namespace())
            : FindActor(request.actor_id());
    if (actor == nullptr) {
      result = absl::NotFoundError(
          request.actor_id().empty()
              ? absl::StrCat("no living actor has the name '", request.name(),
                             "' in the namespace '", request.actor_namespace(),
                             "'")
              : absl::StrCat("the head knows no actor ", request.actor_id()));
    } else if (actor->info.version() < request.min_version() &&
               request.wait_ms() > 0 && IsLive(actor->info) && !stop_waiting_) {
      waiters_.push_back(
          {actor->info.actor_id(), request.min_version(),
           options_.clock() +
               std::min<absl::Duration>(absl::Milliseconds(request.wait_ms()),
                                        kMaxWait),
           std::move(done)});
      return;
    } else {
      result = actor->info;
    }
  }
  done(std::move(result));
}

absl::Status ClusterState::KillActor(const std::string& actor_id,
                                     bool no_restart) {
  Deferred deferred;
  {
    absl::MutexLock lock(&mu_);
    Actor* actor = FindActor(actor_id);
    if (actor == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("the head knows no actor ", actor_id));
    }
    if (!IsLive(actor->info)) return absl::OkStatus();
    if (no_restart || !HasProcess(actor->info)) {
      StopActor(actor, "killed by request (Kill)");
    } else {
      OrderStop(actor, "killed by request (Kill)");
      // Comes back through ActorExited.
    }
    Schedule();
    deferred = DueWaiters();
  }
  for (auto& run : deferred) run();
  return absl::OkStatus();
}

void ClusterState::ActorDied(Actor* actor, const std::string& cause,
                             bool may_restart) {
  ReleaseResources(actor);
  const bool restarts_left =
      actor->spec.max_restarts() == -1 ||
      actor->info.restarts() < actor->spec.max_restarts();
  if (!may_restart || !restarts_left) {
    MarkDead(actor, cause);
    return;
  }
  LOG(WARNING) << "actor " << actor->info.class_name() << " ("
               << actor->info.actor_id() << ") is restarted: " << cause;
  ++actor->incarnation;
  actor->stop_reason.clear();
  actor->info.set_restarts(actor->info.restarts() + 1);
  actor->info.set_state(v1::ACTOR_STATE_RESTARTING);
  actor->info.set_cause(cause);
  actor->info.clear_address();
  actor->info.clear_pid();
  actor->info.clear_node_id();
  actor->info.clear_hostname();
  Touch(actor);
  queue_.push_back(actor->spec.actor_id());
}

void ClusterState::OrderStop(Actor* actor, const std::string& reason) {
  actor->stop_reason = reason;
  auto node = nodes_.find(actor->info.node_id());
  if (node == nodes_.end() || node->second.link == nullptr) return;
  v1::NodeCommand command;
  command.mutable_stop_actor()->set_actor_id(actor->info.actor_id());
  command.mutable_stop_actor()->set_incarnation(actor->incarnation);
  command.mutable_stop_actor()->set_reason(reason);
  node->second.link->Send(std::move(command));
}

void ClusterState::StopActor(Actor* actor, const std::string& cause) {
  if (HasProcess(actor->info)) OrderStop(actor, cause);
  // Its room is free once the process is gone: see ActorExited.
  MarkDead(actor, cause);
}

void ClusterState::MarkDead(Actor* actor, const std::string& cause) {
  actor->info.set_state(v1::ACTOR_STATE_DEAD);
  actor->info.set_cause(cause);
  actor->info.clear_address();
  if (!actor->spec.name().empty()) {
    auto it = names_.find({actor->spec.actor_namespace(), actor->spec.name()});
    if (it != names_.end() && it->second == actor->spec.actor_id()) {
      names_.erase(it);
    }
  }
  actor->spec.clear_constructor_args();  // May be large, and is needed no more.
  graveyard_.push_back(actor->spec.actor_id());
  LOG(INFO) << "actor " << actor->info.class_name() << " ("
            << actor->info.actor_id() << ") ended: " << cause;
  Touch(actor);
  Forget();
}

void ClusterState::Forget() {
  while (graveyard_.size() > kMaxDeadActors) {
    auto it = actors_.find(graveyard_.front());
    // One whose process has not ended yet stays until the next time.
    if (it != actors_.end() && it->second->holds_resources) return;
    if (it != actors_.end()) actors_.erase(it);
    graveyard_.pop_front();
  }
}

void ClusterState::ForgetNodesAndJobs() {
  while (dead_nodes_.size() > kMaxDeadNodes) {
    nodes_.erase(dead_nodes_.front());
    dead_nodes_.pop_front();
  }
  while (ended_jobs_.size() > kMaxEndedJobs) {
    auto it = jobs_.find(ended_jobs_.front());
    // An id may have been used again.
    if (it != jobs_.end() && it->second.info.state() != v1::JOB_STATE_RUNNING) {
      jobs_.erase(it);
    }
    ended_jobs_.pop_front();
  }
}

void ClusterState::Touch(Actor* actor) {
  actor->info.set_version(actor->info.version() + 1);
}

void ClusterState::ReleaseResources(Actor* actor) {
  if (!actor->holds_resources) return;
  actor->holds_resources = false;
  auto node = nodes_.find(actor->info.node_id());
  if (node != nodes_.end()) node->second.available.Add(actor->request);
}

ClusterState::Actor* ClusterState::FindActor(const std::string& actor_id) {
  auto it = actors_.find(actor_id);
  return it == actors_.end() ? nullptr : it->second.get();
}

ClusterState::Actor* ClusterState::FindByName(const std::string& name,
                                              const std::string& space) {
  auto it = names_.find({space, name});
  return it == names_.end() ? nullptr : FindActor(it->second);
}

// --- Scheduling.

ClusterState::Node* ClusterState::PickNode(const ResourceSet& request) {
  Node* best = nullptr;
  double best_score = 0;
  for (auto& [id, node] : nodes_) {
    if (node.info.state() != v1::NODE_STATE_ALIVE || node.link == nullptr ||
        !node.available.Covers(request)) {
      continue;
    }
    ResourceSet after = node.available;
    after.Subtract(request);
    const double used = after.Utilisation(node.total, request);
    // Below the threshold the fuller node wins, above it the emptier one.
    const double score = used <= kPackUntil ? -used : 1 + used;
    if (best == nullptr || score < best_score) {
      best = &node;
      best_score = score;
    }
  }
  return best;
}

bool ClusterState::Feasible(const ResourceSet& request) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& item) {
    return item.second.info.state() != v1::NODE_STATE_DEAD &&
           item.second.total.Covers(request);
  });
}

std::string ClusterState::DescribeNodes() const {
  std::vector<std::string> parts;
  for (const auto& [id, node] : nodes_) {
    if (node.info.state() == v1::NODE_STATE_DEAD) continue;
    parts.push_back(absl::StrCat(node.info.hostname(), " (", id, ") has ",
                                 node.total.ToString()));
  }
  if (parts.empty()) return "the cluster has no nodes";
  return absl::StrJoin(parts, "; ");
}

void ClusterState::Schedule() {
  std::deque<std::string> waiting;
  waiting.swap(queue_);
  for (const std::string& id : waiting) {
    Actor* actor = FindActor(id);
    if (actor == nullptr || !IsLive(actor->info)) continue;
    Node* node = PickNode(actor->request);
    if (node == nullptr) {
      queue_.push_back(id);
      const bool feasible = Feasible(actor->request);
      if (feasible) {
        actor->infeasible_since = absl::InfiniteFuture();
      } else if (actor->infeasible_since == absl::InfiniteFuture()) {
        actor->infeasible_since = options_.clock();
      }
      if (actor->info.state() == v1::ACTOR_STATE_PENDING) {
        actor->info.set_cause(absl::StrCat(
            "waits for ", actor->request.ToString(),
            feasible ? ": all of it is in use" : ": no node has that much"));
      }
      continue;
    }
    actor->infeasible_since = absl::InfiniteFuture();
    node->available.Subtract(actor->request);
    actor->holds_resources = true;
    if (actor->info.state() == v1::ACTOR_STATE_PENDING) {
      actor->info.set_state(v1::ACTOR_STATE_STARTING);
      actor->info.clear_cause();
    }
    actor->info.set_node_id(node->info.node_id());
    actor->info.set_hostname(node->info.hostname());
    Touch(actor);
    v1::NodeCommand command;
    *command.mutable_start_actor()->mutable_spec() = actor->spec;
    command.mutable_start_actor()->set_incarnation(actor->incarnation);
    node->link->Send(std::move(command));
  }
}

// --- Time.

void ClusterState::Tick() {
  Deferred deferred;
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = options_.clock();
    bool changed = false;
    for (auto& [id, node] : nodes_) {
      if (node.info.state() == v1::NODE_STATE_DEAD || now < node.lease_end) {
        continue;
      }
      LoseNode(&node, absl::StrCat("no sign of life for ",
                                   absl::FormatDuration(options_.lease)));
      changed = true;
    }
    for (auto& [id, job] : jobs_) {
      if (now >= job.grace_end) {
        EndJob(&job, v1::JOB_STATE_FAILED, "its driver vanished");
      }
    }
    for (const std::string& id : std::deque<std::string>(queue_)) {
      Actor* actor = FindActor(id);
      if (actor == nullptr || !IsLive(actor->info) ||
          now < actor->infeasible_since + options_.infeasible_timeout) {
        continue;
      }
      MarkDead(actor, absl::StrCat("cannot be placed: it asks for ",
                                   actor->request.ToString(), ", but ",
                                   DescribeNodes()));
      changed = true;
    }
    if (changed) Schedule();
    ForgetNodesAndJobs();
    deferred = DueWaiters();
  }
  for (auto& run : deferred) run();
}

ClusterState::Deferred ClusterState::DueWaiters() {
  Deferred due;
  if (waiters_.empty()) return due;
  const absl::Time now = options_.clock();
  std::vector<Waiter> left;
  for (Waiter& waiter : waiters_) {
    const Actor* actor = FindActor(waiter.actor_id);
    if (actor != nullptr && IsLive(actor->info) &&
        actor->info.version() < waiter.min_version && now < waiter.deadline &&
        !stop_waiting_) {
      left.push_back(std::move(waiter));
      continue;
    }
    absl::StatusOr<v1::ActorInfo> result =
        absl::NotFoundError("the head forgot this actor");
    if (actor != nullptr) result = actor->info;
    due.push_back([done = std::move(waiter.done),
                   result = std::move(result)]() { done(result); });
  }
  waiters_.swap(left);
  return due;
}

void ClusterState::StopWaiting() {
  Deferred deferred;
  {
    absl::MutexLock lock(&mu_);
    stop_waiting_ = true;
    deferred = DueWaiters();
  }
  for (auto& run : deferred) run();
}

v1::GetClusterStateResponse ClusterState::Snapshot() const {
  absl::MutexLock lock(&mu_);
  v1::GetClusterStateResponse response;
  for (const auto& [id, node] : nodes_) {
    v1::NodeInfo* info = response.add_nodes();
    *info = node.info;
    *info->mutable_total() = node.total.ToProto();
    *info->mutable_available() = node.available.ToProto();
  }
  for (const auto& [id, actor] : actors_) {
    *response.add_actors() = actor->info;
  }
  for (const auto& [id, job] : jobs_) *response.add_jobs() = job.info;
  response.set_head_version(kVersion);
  return response;
}

}  // namespace miniray
