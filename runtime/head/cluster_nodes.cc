// The part of ClusterState about worker daemons.

#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

// Between two warnings of one node in the log; internal.
constexpr absl::Duration kWarningPeriod = absl::Minutes(5);

// Of an end's cause, which is kept and is in every answer about the actor; of
// what the process printed last there is less.
constexpr size_t kMaxCauseBytes = 16 << 10;

// Thirty years: what is beyond it was not read from a clock.
constexpr int64_t kMaxClockUs = int64_t{30} * 365 * 24 * 3600 * 1000000;

bool IsSensible(const v1::ClockReading& clock) {
  return clock.error_us() >= 0 && clock.error_us() <= kMaxClockUs &&
         clock.ahead_us() >= -kMaxClockUs && clock.ahead_us() <= kMaxClockUs;
}

// Those that live, and of which something was heard.
void AddUsage(const std::string& id, const NodeRecord& node,
              v1::GetUsageResponse* response) {
  if (node.info.state() == v1::NODE_STATE_DEAD || node.usage.cpus() == 0) {
    return;
  }
  v1::NodeUsage& usage = *response->add_nodes();
  usage = node.usage;
  usage.set_node_id(id);
  usage.set_memory_used_bytes(node.info.memory_used_bytes());
  usage.set_memory_total_bytes(node.info.memory_total_bytes());
}

void AddUsage(const ActorRecord& actor, v1::GetUsageResponse* response) {
  if (actor.info.state() == v1::ACTOR_STATE_ALIVE && actor.usage.has_value() &&
      actor.usage->incarnation() == actor.incarnation) {
    *response->add_actors() = *actor.usage;
  }
}

}  // namespace

absl::Status ClusterState::RegisterNode(const v1::RegisterNode& request,
                                        std::shared_ptr<NodeLink> link) {
  if (request.node_id().empty()) {
    return absl::InvalidArgumentError("a node needs an id");
  }
  MR_ASSIGN_OR_RETURN(const ResourceSet total,
                      ResourceSet::FromProto(request.total()));
  if (total.GpuUnits() > ResourceSet::kMaxGpus * ResourceSet::kUnit) {
    return absl::InvalidArgumentError(
        absl::StrCat("a node offers at most ", ResourceSet::kMaxGpus, " GPUs"));
  }
  {
    Turn turn(this);
    auto [it, is_new] = nodes_.try_emplace(request.node_id());
    Node& node = it->second;
    if (!is_new && node.info.state() == v1::NODE_STATE_DEAD) {
      return absl::FailedPreconditionError(
          absl::StrCat("the head gave this node up: ", node.info.death_cause(),
                       "; it must join as a new node"));
    }
    // Before anything is placed there again.
    for (const std::string& id : request.replaced_node_ids()) {
      const auto old = nodes_.find(id);
      if (id == request.node_id() || old == nodes_.end() ||
          old->second.info.state() == v1::NODE_STATE_DEAD) {
        continue;
      }
      ++nodes_lost_;
      LoseNode(&old->second,
               "its daemon had no contact with the head, ended what ran there "
               "and joined as a new node");
    }
    node.info.set_node_id(request.node_id());
    node.info.set_hostname(request.hostname());
    node.info.set_address(request.address());
    node.info.set_object_address(request.object_address());
    node.info.set_pid(request.pid());
    node.info.set_state(v1::NODE_STATE_ALIVE);
    node.info.clear_death_cause();
    *node.info.mutable_labels() = request.labels();
    node.info.set_object_address(request.object_address());
    node.metrics_address = request.metrics_address();
    node.link = std::move(link);
    node.lease_end = options_.clock() + options_.lease;
    first_lease_end_ = std::min(first_lease_end_, node.lease_end);
    Dirty(&node);
    if (is_new) {
      node.total = total;
      node.total.NumberGpus();
      node.available = node.total;
      node.info.set_start_unix_ms(absl::ToUnixMillis(WallNow()));
      LOG(INFO) << "node joined: " << NodeName(node.info) << " with "
                << total.ToString();
    }
    ++node_epoch_;
    NodeChanged(node, /*gained=*/true);
    for (DemandClass* demands :
         std::vector<DemandClass*>(blocked_.begin(), blocked_.end())) {
      if (!demands->demand.group_id.empty()) MakeReady(demands);
    }
    v1::NodeCommand registered;
    registered.mutable_registered()->set_lease_ms(
        absl::ToInt64Milliseconds(options_.lease));
    *registered.mutable_registered()->mutable_periods() =
        PeriodsFor(options_.lease);
    Send(node, std::move(registered));

    for (const v1::ActorExited& exited : request.exited_actors()) {
      TakeExit(request.node_id(), exited);
    }
    std::set<std::pair<std::string, int32_t>> live;
    for (const v1::LiveActor& actor : request.live_actors()) {
      live.emplace(actor.actor_id(), actor.incarnation());
      Actor* known = FindActor(actor.actor_id());
      const bool ours = known != nullptr &&
                        known->incarnation == actor.incarnation() &&
                        known->info.node_id() == request.node_id();
      if (ours && IsLive(known->info) && known->stop_reason.empty()) {
        if (!actor.address().empty()) {
          ActorUp(known, actor.address(), actor.pid());
        }
        continue;
      }
      // A stop may have been lost with the last stream.
      const bool ordered = ours && !known->stop_reason.empty();
      v1::NodeCommand stop;
      stop.mutable_stop_actor()->set_actor_id(actor.actor_id());
      stop.mutable_stop_actor()->set_incarnation(actor.incarnation());
      stop.mutable_stop_actor()->set_reason(
          ordered ? known->stop_reason : "the head does not know it");
      Send(node, std::move(stop));
    }
    for (const std::string& id : std::set<std::string>(node.actors)) {
      Actor* actor = FindActor(id);
      if (live.contains({id, actor->incarnation})) continue;
      if (!HasProcess(actor->info)) {
        ReleaseResources(actor);  // Killed before, and ended meanwhile.
      } else if (actor->info.address().empty() && actor->stop_reason.empty()) {
        // The order to start it was lost with the last stream, or with the last
        // head; nobody has called it yet.
        SendStart(*actor);
      } else {
        ActorDied(actor,
                  WithReason(actor->stop_reason,
                             "ended while its node was cut from the head"),
                  true);
      }
    }
    TakeJobsOf(request, &node);
    TellLifetimes(request, node);
    Schedule();
  }
  return absl::OkStatus();
}

void ClusterState::NodeDisconnected(const std::string& node_id,
                                    const NodeLink* link) {
  Turn turn(this);
  auto it = nodes_.find(node_id);
  if (it == nodes_.end() || it->second.link.get() != link) return;
  it->second.link.reset();
  if (it->second.info.state() != v1::NODE_STATE_ALIVE) return;
  it->second.info.set_state(v1::NODE_STATE_DISCONNECTED);
  it->second.link_end = options_.clock();
  it->second.next_warning = absl::InfinitePast();
  ++node_epoch_;  // Who waits for it is told so.
  NodeChanged(it->second, /*gained=*/false);
  // A daemon that lives dials again at once; a stream that broke without that
  // is most likely a daemon that died, so its callers need not wait a whole
  // lease.
  // Unless it is the head that was away: then it has a whole lease to return.
  it->second.lease_end = std::min(
      it->second.lease_end,
      std::max(options_.clock() + options_.lease / 3, return_time_end_));
  first_lease_end_ = std::min(first_lease_end_, it->second.lease_end);
  LOG(WARNING) << "node disconnected: " << NodeName(it->second.info);
  Schedule();
}

void ClusterState::NodeStopping(const std::string& node_id) {
  Turn turn(this);
  const auto it = nodes_.find(node_id);
  if (it == nodes_.end()) return;
  it->second.stopping = true;
  ++node_epoch_;
  NodeChanged(it->second, /*gained=*/false);
}

void ClusterState::NodeLeft(const std::string& node_id) {
  Turn turn(this);
  auto it = nodes_.find(node_id);
  if (it == nodes_.end() || it->second.info.state() == v1::NODE_STATE_DEAD) {
    return;
  }
  LoseNode(&it->second, "its worker daemon was stopped");
  Schedule();
}

absl::Status ClusterState::RenewLease(const std::string& node_id,
                                      const v1::ClockReading* clock) {
  absl::MutexLock lock(&mu_);  // No turn: nothing leaves.
  auto it = nodes_.find(node_id);
  if (it == nodes_.end() || it->second.info.state() == v1::NODE_STATE_DEAD) {
    return absl::NotFoundError(
        absl::StrCat("the head knows no living node ", node_id));
  }
  it->second.lease_end = options_.clock() + options_.lease;
  if (clock != nullptr && IsSensible(*clock)) it->second.clock = *clock;
  return absl::OkStatus();
}

std::vector<v1::NodeClock> ClusterState::NodeClocks() const {
  std::vector<v1::NodeClock> clocks;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, node] : nodes_) {
    if (!node.clock.has_value()) continue;
    v1::NodeClock& clock = clocks.emplace_back();
    clock.set_node_id(id);
    clock.set_hostname(node.info.hostname());
    *clock.mutable_reading() = *node.clock;
  }
  return clocks;
}

void ClusterState::AfterStandstill(absl::Duration length) {
  absl::MutexLock lock(&mu_);  // No turn: nothing leaves.
  LOG(WARNING) << "the head stood still for " << absl::FormatDuration(length)
               << ": leases are longer by that";
  return_time_end_ = options_.clock() + options_.lease;
  for (auto& [id, node] : nodes_) {
    node.lease_end += length;
    if (node.info.state() == v1::NODE_STATE_ALIVE) {
      node.lease_end = std::max(node.lease_end, return_time_end_);
    }
  }
  for (auto& [id, job] : jobs_) job.grace_end += length;
}

void ClusterState::TellOfNoStream(absl::Time now, Node* node) {
  if (now - node->link_end < options_.lease) return;
  node->info.set_death_cause(absl::StrCat(
      "it renews its lease, but has had no stream to the head since ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC",
                       WallNow() - (now - node->link_end), absl::UTCTimeZone()),
      ": nothing starts there; the log of its daemon says why"));
  if (now < node->next_warning) return;
  node->next_warning = now + kWarningPeriod;
  LOG(WARNING) << "node disconnected: " << NodeName(node->info) << ": "
               << node->info.death_cause();
}

void ClusterState::LoseNode(Node* node, const std::string& cause) {
  LOG(WARNING) << "node lost: " << NodeName(node->info) << ": " << cause;
  node->info.set_state(v1::NODE_STATE_DEAD);
  node->info.set_death_cause(cause);
  Dirty(node);
  dead_nodes_.push_back(node->info.node_id());
  node->link.reset();
  ++node_epoch_;
  NodeChanged(*node, /*gained=*/false);
  for (DemandClass* demands :
       std::vector<DemandClass*>(blocked_.begin(), blocked_.end())) {
    // They may go elsewhere now.
    if (demands->demand.soft) MakeReady(demands);
  }
  for (const std::string& id : std::set<std::string>(node->actors)) {
    Actor* actor = FindActor(id);
    if (HasProcess(actor->info)) {
      actor->quick_restarts = 0;  // It is not to blame.
      ActorDied(actor,
                WithReason(actor->stop_reason,
                           absl::StrCat("node ", NodeName(node->info),
                                        " was lost: ", cause)),
                true);
    } else {
      ReleaseResources(actor);
    }
  }
  LoseBundlesOf(node);
  try_groups_ = true;  // Some may be infeasible now.
  LoseJobsOf(*node, cause);
}

void ClusterState::ActorStarted(const std::string& node_id,
                                const v1::ActorStarted& event) {
  Turn turn(this);
  Actor* actor = FindActor(event.actor_id());
  if (actor == nullptr || actor->incarnation != event.incarnation() ||
      actor->info.node_id() != node_id || !HasProcess(actor->info)) {
    return;
  }
  ActorUp(actor, event.address(), event.pid());
}

void ClusterState::ActorExited(const std::string& node_id,
                               const v1::ActorExited& event) {
  Turn turn(this);
  TakeExit(node_id, event);
  Schedule();
}

void ClusterState::NodeStats(const std::string& node_id,
                             const v1::NodeStats& stats) {
  Turn turn(this);
  const auto it = nodes_.find(node_id);
  if (it == nodes_.end()) return;
  it->second.info.set_memory_used_bytes(stats.memory_used_bytes());
  it->second.info.set_memory_total_bytes(stats.memory_total_bytes());
  it->second.usage.set_cpus_busy(stats.cpus_busy());
  it->second.usage.set_cpus(stats.cpus());
  *it->second.usage.mutable_gpus() = stats.gpus();
  for (const v1::ActorUsage& usage : stats.actors()) {
    Actor* actor = FindActor(usage.actor_id());
    if (actor != nullptr && actor->info.node_id() == node_id) {
      actor->usage = usage;
    }
  }
}

v1::GetUsageResponse ClusterState::Usage() const {
  v1::GetUsageResponse response;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, node] : nodes_) AddUsage(id, node, &response);
  for (const auto& [id, actor] : actors_) AddUsage(*actor, &response);
  return response;
}

v1::GetUsageResponse ClusterState::Usage(
    const std::vector<std::string>& actor_ids) const {
  v1::GetUsageResponse response;
  absl::MutexLock lock(&mu_);
  for (const auto& [id, node] : nodes_) AddUsage(id, node, &response);
  for (const std::string& id : actor_ids) {
    const Actor* actor = FindActor(id);
    if (actor != nullptr) AddUsage(*actor, &response);
  }
  return response;
}

void ClusterState::TakeExit(const std::string& node_id,
                            const v1::ActorExited& event) {
  Actor* actor = FindActor(event.actor_id());
  if (actor == nullptr || actor->incarnation != event.incarnation() ||
      actor->info.node_id() != node_id) {
    return;
  }
  if (!event.log_file().empty()) actor->info.set_log_file(event.log_file());
  if (!HasProcess(actor->info)) {
    // Killed before: only its room was still taken.
    return ReleaseResources(actor);
  }
  std::string cause = Shorten(event.cause(), kMaxCauseBytes);
  if (auto it = nodes_.find(node_id); it != nodes_.end()) {
    absl::StrAppend(&cause, " on node ", NodeName(it->second.info));
  }
  cause += Shorten(event.last_output(), kMaxCauseBytes);
  ActorDied(actor, cause, event.may_restart());
}

}  // namespace miniray
