// The part of ClusterState about placement groups.

#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

constexpr int kMaxBundles = 1000;
constexpr absl::Duration kMaxWait = absl::Minutes(1);
constexpr size_t kMaxRemovedGroups = 1000;

absl::StatusOr<std::vector<ResourceSet>> CheckSpec(
    const v1::PlacementGroupSpec& spec) {
  if (spec.placement_group_id().empty()) {
    return absl::InvalidArgumentError("a placement group needs an id");
  }
  MR_RETURN_IF_ERROR(CheckNameLength("a placement group's name", spec.name()));
  if (spec.strategy() == v1::PLACEMENT_STRATEGY_UNSPECIFIED ||
      !v1::PlacementStrategy_IsValid(spec.strategy())) {
    return absl::InvalidArgumentError(
        "a placement group needs a strategy: PACK, SPREAD, STRICT_PACK or "
        "STRICT_SPREAD");
  }
  if (spec.bundles().empty() || spec.bundles_size() > kMaxBundles) {
    return absl::InvalidArgumentError(
        absl::StrCat("a placement group has 1 to ", kMaxBundles,
                     " bundles, not ", spec.bundles_size()));
  }
  std::vector<ResourceSet> bundles;
  for (const v1::Resources& bundle : spec.bundles()) {
    const std::string what = absl::StrCat("bundle ", bundles.size());
    absl::StatusOr<ResourceSet> set = ResourceSet::FromRequest(bundle);
    MR_RETURN_IF_ERROR(Annotate(set.status(), what));
    if (set->ToProto().quantity().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " asks for nothing: a bundle reserves resources"));
    }
    bundles.push_back(*std::move(set));
  }
  return bundles;
}

std::string GroupName(const v1::PlacementGroupInfo& info) {
  return info.name().empty() ? info.placement_group_id()
                             : absl::StrCat("'", info.name(), "' (",
                                            info.placement_group_id(), ")");
}

}  // namespace

// --- Requests.

void ClusterState::CreatePlacementGroup(const v1::PlacementGroupSpec& spec,
                                        GroupCallback done) {
  const absl::StatusOr<std::vector<ResourceSet>> bundles = CheckSpec(spec);
  if (!bundles.ok()) return done(bundles.status());
  Turn turn(this);
  const std::string& id = spec.placement_group_id();
  if (const auto known = groups_.find(id); known != groups_.end()) {
    return ReplyGroup(known->second, std::move(done));  // A repeated request.
  }
  if (auto job = jobs_.find(spec.job_id());
      job != jobs_.end() && HasEnded(job->second.info)) {
    return Reply([done = std::move(done), job_id = spec.job_id()] {
      done(absl::FailedPreconditionError(
          absl::StrCat("job ", job_id, " has ended")));
    });
  }
  if (const Actor* creator = FindActor(spec.job_id());
      creator != nullptr && !IsLive(creator->info)) {
    return Reply([done = std::move(done), actor_id = spec.job_id()] {
      done(absl::FailedPreconditionError(absl::StrCat(
          "the detached actor ", actor_id, ", which creates it, is dead")));
    });
  }
  if (absl::Status room = CheckRoomToWait(
          static_cast<int64_t>(group_queue_.size()), "placement groups");
      !room.ok()) {
    return Reply([done = std::move(done), room] { done(room); });
  }
  Group& group = groups_[id];
  group.spec = spec;
  for (const ResourceSet& bundle : *bundles) {
    group.bundles.push_back({.total = bundle, .available = bundle});
  }
  group.info.set_placement_group_id(id);
  group.info.set_name(spec.name());
  group.info.set_job_id(spec.job_id());
  group.info.set_strategy(spec.strategy());
  group.info.set_state(v1::PLACEMENT_GROUP_STATE_PENDING);
  // Unless it is tried at once: see ScheduleGroups.
  group.info.set_cause("waits for its turn among many groups");
  group.info.set_detached(spec.detached());
  group.info.set_create_unix_ms(absl::ToUnixMillis(WallNow()));
  if (!spec.detached()) job_groups_[spec.job_id()].insert(id);
  group.waits_since = options_.clock();
  group.queue_position = next_queue_position_++;
  group_queue_[group.queue_position] = id;
  try_groups_ = true;
  Touch(&group);
  Schedule();
  ReplyGroup(group, std::move(done));
}

void ClusterState::GetPlacementGroup(
    const v1::GetPlacementGroupRequest& request, GroupCallback done) {
  Turn turn(this);
  const std::string& id = request.placement_group_id();
  const auto it = groups_.find(id);
  if (it == groups_.end()) {
    return Reply([done = std::move(done), id] {
      done(absl::NotFoundError(
          absl::StrCat("the head knows no placement group ", id)));
    });
  }
  const v1::PlacementGroupInfo& info = it->second.info;
  if (info.version() >= request.min_version() || request.wait_ms() <= 0 ||
      info.state() == v1::PLACEMENT_GROUP_STATE_REMOVED || stop_waiting_) {
    return ReplyGroup(it->second, std::move(done));
  }
  group_waiters_.Add(
      id, request.min_version(),
      options_.clock() + std::min<absl::Duration>(
                             absl::Milliseconds(request.wait_ms()), kMaxWait),
      [this, id, done = std::move(done)]() mutable {
        mu_.AssertHeld();
        if (const auto group = groups_.find(id); group != groups_.end()) {
          return ReplyGroup(group->second, std::move(done));
        }
        Reply([done = std::move(done)] {
          done(absl::NotFoundError("the head forgot this placement group"));
        });
      });
}

void ClusterState::RemovePlacementGroup(const std::string& id,
                                        StatusCallback done) {
  Turn turn(this);
  const auto it = groups_.find(id);
  if (it == groups_.end()) {
    return Reply([done = std::move(done), id] {
      done(absl::NotFoundError(
          absl::StrCat("the head knows no placement group ", id)));
    });
  }
  EndGroup(&it->second, "removed by request (RemovePlacementGroup)");
  Schedule();
  Reply([done = std::move(done)] { done(absl::OkStatus()); });
}

absl::Status ClusterState::CheckGroupOf(const v1::ActorSpec& spec,
                                        const ResourceSet& request) const {
  const std::string& id = spec.placement_group_id();
  if (id.empty()) {
    if (!spec.has_bundle_index()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "a bundle_index needs the placement group that the bundle is in");
  }
  const auto it = groups_.find(id);
  if (it == groups_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the head knows no placement group ", id));
  }
  const std::string name = GroupName(it->second.info);
  if (it->second.info.state() == v1::PLACEMENT_GROUP_STATE_REMOVED) {
    return absl::FailedPreconditionError(
        absl::StrCat("the placement group ", name,
                     " is no more: ", it->second.info.cause()));
  }
  if (!spec.node_id().empty() || !spec.node_labels().empty()) {
    return absl::InvalidArgumentError(
        "an actor in a placement group runs where its bundle is: it cannot ask "
        "for a node or for labels");
  }
  const std::vector<Bundle>& bundles = it->second.bundles;
  if (!spec.has_bundle_index()) {
    if (GroupCouldHold(Demand::Of(spec, request))) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the actor asks for ", request.ToString(),
                     ", and no bundle of its placement group ", name, " (",
                     bundles.size(), " bundles, the first of ",
                     bundles[0].total.ToString(), ") has that much"));
  }
  const int index = spec.bundle_index();
  if (index < 0 || index >= static_cast<int>(bundles.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("bundle_index = ", index, ": the placement group ", name,
                     " has ", bundles.size(), " bundles, counted from 0"));
  }
  const ResourceSet& total = bundles[static_cast<size_t>(index)].total;
  if (total.Covers(request)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the actor asks for ", request.ToString(), ", but bundle ", index,
      " of the placement group ", name, " has ", total.ToString()));
}

// --- Actors in groups.

bool ClusterState::GroupCouldHold(const Demand& demand) const {
  const auto it = groups_.find(demand.group_id);
  if (it == groups_.end()) return false;
  const std::vector<Bundle>& bundles = it->second.bundles;
  for (int i = 0; i < static_cast<int>(bundles.size()); ++i) {
    if (demand.bundle_index >= 0 && demand.bundle_index != i) continue;
    if (bundles[i].total.Covers(demand.request)) return true;
  }
  return false;
}

ClusterState::Node* ClusterState::TakeBundle(const Demand& demand,
                                             Actor* actor) {
  const auto it = groups_.find(demand.group_id);
  if (it == groups_.end()) return nullptr;
  std::vector<Bundle>& bundles = it->second.bundles;
  for (int i = 0; i < static_cast<int>(bundles.size()); ++i) {
    Bundle& bundle = bundles[i];
    if ((demand.bundle_index >= 0 && demand.bundle_index != i) ||
        bundle.node_id.empty() || !bundle.available.Covers(demand.request)) {
      continue;
    }
    const auto node = nodes_.find(bundle.node_id);
    if (node == nodes_.end() || !IsUsable(node->second)) continue;
    actor->taken = bundle.available.Take(demand.request);
    actor->bundle = i;
    return &node->second;
  }
  return nullptr;
}

bool ClusterState::ReleaseBundle(Actor* actor) {
  const int index = std::exchange(actor->bundle, -1);
  if (index < 0) return false;
  const auto it = groups_.find(actor->info.placement_group_id());
  if (it == groups_.end() ||
      it->second.info.state() == v1::PLACEMENT_GROUP_STATE_REMOVED) {
    return false;
  }
  Bundle& bundle = it->second.bundles[static_cast<size_t>(index)];
  if (bundle.node_id != actor->info.node_id()) return false;
  bundle.available.Add(actor->taken);
  MakeGroupReady(it->first);
  return true;
}

void ClusterState::MakeGroupReady(const std::string& group_id) {
  for (DemandClass* demands :
       std::vector<DemandClass*>(blocked_.begin(), blocked_.end())) {
    if (demands->demand.group_id == group_id) MakeReady(demands);
  }
}

// --- Their end.

void ClusterState::LoseBundlesOf(Node* node) {
  for (auto& [id, group] : groups_) {
    bool lost = false;
    for (Bundle& bundle : group.bundles) {
      if (bundle.node_id != node->info.node_id()) continue;
      // Its actors have left already.
      Give(node, bundle.available);
      bundle.node_id.clear();
      bundle.total.ForgetGpus();
      bundle.available = bundle.total;
      lost = true;
    }
    if (!lost) continue;
    if (group.info.state() == v1::PLACEMENT_GROUP_STATE_CREATED) {
      group_queue_[group.queue_position] = id;
      group.waits_since = options_.clock();
      group.info.set_state(v1::PLACEMENT_GROUP_STATE_RESCHEDULING);
    }
    group.lost_node =
        absl::StrCat("lost the node ", NodeName(node->info), " and ");
    group.info.set_cause(absl::StrCat(group.lost_node, "waits for room"));
    LOG(WARNING) << "placement group " << GroupName(group.info) << " "
                 << group.info.cause();
    Touch(&group);
  }
}

void ClusterState::EndGroup(Group* group, const std::string& cause) {
  if (group->info.state() == v1::PLACEMENT_GROUP_STATE_REMOVED) return;
  const std::string& id = group->info.placement_group_id();
  LOG(INFO) << "placement group " << GroupName(group->info)
            << " ends: " << cause;
  group->info.set_state(v1::PLACEMENT_GROUP_STATE_REMOVED);
  group->info.set_cause(cause);
  group->infeasible_since = absl::InfiniteFuture();
  group_queue_.erase(group->queue_position);
  if (held_for_ == id) ReleaseHold();
  const std::string of_actors =
      absl::StrCat("its placement group was removed: ", cause);
  for (const std::string& actor : std::set<std::string>(group->actors)) {
    StopActor(FindActor(actor), of_actors);
  }
  for (Bundle& bundle : group->bundles) {
    const auto node = nodes_.find(bundle.node_id);
    // What its actors hold follows when their processes have ended.
    if (node != nodes_.end()) Give(&node->second, bundle.available);
    bundle.node_id.clear();
    bundle.available = ResourceSet();
  }
  if (const auto job = job_groups_.find(group->info.job_id());
      job != job_groups_.end()) {
    job->second.erase(id);
    if (job->second.empty()) job_groups_.erase(job);
  }
  removed_groups_.push_back(id);
  Touch(group);
}

void ClusterState::EndGroupsOf(const std::string& job_id,
                               const std::string& cause) {
  const auto it = job_groups_.find(job_id);
  if (it == job_groups_.end()) return;
  for (const std::string& id : std::set<std::string>(it->second)) {
    EndGroup(&groups_.find(id)->second, cause);
  }
}

void ClusterState::ForgetGroups() {
  while (removed_groups_.size() > kMaxRemovedGroups) {
    const auto it = groups_.find(removed_groups_.front());
    if (it != groups_.end()) {
      touched_groups_.insert(it->first);
      EraseRow(StateStore::Table::kPlacementGroups, it->second.key);
      groups_.erase(it);
    }
    removed_groups_.pop_front();
  }
}

// --- Records.

v1::PlacementGroupInfo ClusterState::Told(const Group& group) const {
  v1::PlacementGroupInfo info = group.info;
  for (const Bundle& bundle : group.bundles) {
    v1::BundleInfo* entry = info.add_bundles();
    *entry->mutable_total() = bundle.total.ToProto();
    if (bundle.node_id.empty()) continue;
    *entry->mutable_available() = bundle.available.ToProto();
    entry->set_node_id(bundle.node_id);
    for (const int gpu : bundle.total.Gpus()) entry->add_gpus(gpu);
    if (const auto node = nodes_.find(bundle.node_id); node != nodes_.end()) {
      entry->set_hostname(node->second.info.hostname());
    }
  }
  return info;
}

void ClusterState::Touch(Group* group) {
  group->info.set_version(group->info.version() + 1);
  touched_groups_.insert(group->info.placement_group_id());
  Dirty(group);
}

void ClusterState::ReplyGroup(const Group& group, GroupCallback done) {
  Effect effect;
  if (!group.stored) {
    effect.creation = CreationOf(group);
    effect.failed = [done](const absl::Status& status) { done(status); };
  }
  effect.run = [done = std::move(done), info = Told(group)] { done(info); };
  effects_.push_back(std::move(effect));
}

void ClusterState::UndoGroup(const std::string& group_id) {
  const auto it = groups_.find(group_id);
  if (it == groups_.end()) return;
  EndGroup(&it->second, "it could not be written");
  std::erase(removed_groups_, group_id);
  dirty_.groups.erase(group_id);
  dirty_.created.erase(CreationOf(it->second));
  groups_.erase(it);
  for (WaitList::Answer& answer :
       group_waiters_.TakeChanged(group_id, WaitList::kAnyVersion)) {
    answer();
  }
}

}  // namespace miniray
