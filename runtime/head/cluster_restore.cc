// The part of ClusterState that takes over what an earlier head has written.

#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/head_state.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

absl::Status BadRow(const StateStore& store, absl::string_view what) {
  return absl::DataLossError(
      absl::StrCat("the head's database ", store.path(), " holds ", what,
                   ": put back a copy of it, or move it away (with its -wal "
                   "and -shm files) to begin a new cluster"));
}

// Of one whose own specification was dropped when it died.
v1::ActorSpec SpecOfDead(const v1::ActorInfo& info) {
  v1::ActorSpec spec;
  spec.set_actor_id(info.actor_id());
  spec.set_class_name(info.class_name());
  spec.set_name(info.name());
  spec.set_actor_namespace(info.actor_namespace());
  spec.set_job_id(info.job_id());
  spec.set_max_restarts(info.max_restarts());
  spec.set_detached(info.detached());
  spec.set_package_id(info.package_id());
  *spec.mutable_resources() = info.resources();
  return spec;
}

}  // namespace

absl::Status ClusterState::Restore() {
  Turn turn(this);
  if (options_.store == nullptr) return absl::OkStatus();
  MR_RETURN_IF_ERROR(RestoreNodes());
  MR_RETURN_IF_ERROR(RestoreGroups());
  MR_RETURN_IF_ERROR(RestoreActors());
  return RestoreJobs();
}

absl::Status ClusterState::RestoreNodes() {
  const auto add = [this](int64_t key, absl::string_view bytes) {
    mu_.AssertHeld();
    v1::StoredNode row;
    if (!row.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return BadRow(*options_.store, "a node that cannot be read");
    }
    Node& node = nodes_[row.info().node_id()];
    node.key = key;
    node.info = row.info();
    MR_ASSIGN_OR_RETURN(node.total, ResourceSet::FromProto(row.info().total()));
    node.total.NumberGpus();
    node.available = node.total;
    node.lease_end = options_.clock() + options_.lease;
    if (node.info.state() == v1::NODE_STATE_DEAD) {
      dead_nodes_.push_back(node.info.node_id());
    } else {
      node.info.set_state(v1::NODE_STATE_DISCONNECTED);
      node.link_end = options_.clock();
    }
    next_key_ = std::max(next_key_, key + 1);
    return absl::OkStatus();
  };
  return options_.store->Read(StateStore::Table::kNodes, add);
}

absl::Status ClusterState::RestoreGroups() {
  const auto add = [this](int64_t key, absl::string_view bytes) {
    mu_.AssertHeld();
    v1::StoredPlacementGroup row;
    if (!row.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return BadRow(*options_.store, "a placement group that cannot be read");
    }
    const std::string& id = row.info().placement_group_id();
    Group& group = groups_[id];
    group.key = key;
    group.stored = true;
    group.spec = row.spec();
    group.info = row.info();
    group.info.clear_bundles();
    const bool removed =
        group.info.state() == v1::PLACEMENT_GROUP_STATE_REMOVED;
    for (const v1::BundleInfo& info : row.info().bundles()) {
      Bundle bundle;
      MR_ASSIGN_OR_RETURN(bundle.total, ResourceSet::FromProto(info.total()));
      const auto node = nodes_.find(info.node_id());
      if (!removed && node != nodes_.end() &&
          node->second.info.state() != v1::NODE_STATE_DEAD) {
        bundle.node_id = info.node_id();
        bundle.total = bundle.total.OnGpus(info.gpus());
        node->second.available.Subtract(bundle.total);
      }
      if (!removed) bundle.available = bundle.total;
      group.bundles.push_back(std::move(bundle));
    }
    next_key_ = std::max(next_key_, key + 1);
    if (removed) {
      removed_groups_.push_back(id);
      return absl::OkStatus();
    }
    if (!group.spec.detached()) job_groups_[group.spec.job_id()].insert(id);
    // Keys grow in the order of creation.
    group.queue_position = next_queue_position_++;
    if (group.info.state() != v1::PLACEMENT_GROUP_STATE_CREATED) {
      group.waits_since = options_.clock();
      group_queue_[group.queue_position] = id;
    }
    return absl::OkStatus();
  };
  return options_.store->Read(StateStore::Table::kPlacementGroups, add);
}

absl::Status ClusterState::RestoreActors() {
  std::map<int64_t, std::shared_ptr<const v1::ActorSpec>> specs;
  MR_RETURN_IF_ERROR(options_.store->Read(
      StateStore::Table::kActorSpecs,
      [&](int64_t key, absl::string_view bytes) {
        auto spec = std::make_shared<v1::ActorSpec>();
        if (!spec->ParseFromArray(bytes.data(),
                                  static_cast<int>(bytes.size()))) {
          return BadRow(*options_.store, "an actor that cannot be read");
        }
        specs[key] = std::move(spec);
        return absl::OkStatus();
      }));
  std::vector<const Actor*> dead;
  std::vector<Actor*> waiting;
  const auto add = [&](int64_t key, absl::string_view bytes) {
    mu_.AssertHeld();
    v1::StoredActor row;
    auto actor = std::make_unique<Actor>();
    if (!row.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return BadRow(*options_.store, "an actor that cannot be read");
    }
    actor->key = key;
    actor->info = row.info();
    actor->incarnation = row.incarnation();
    actor->stop_reason = row.stop_reason();
    actor->queue_position = row.queue_position();
    actor->log_node_id = row.log_node_id();
    actor->stored = true;
    MR_ASSIGN_OR_RETURN(actor->request,
                        ResourceSet::FromProto(row.info().resources()));
    const std::string& id = actor->info.actor_id();
    const bool live = IsLive(actor->info);
    if (const auto spec = specs.find(key); spec != specs.end()) {
      actor->spec = spec->second;
    } else if (!live) {
      actor->spec = std::make_shared<v1::ActorSpec>(SpecOfDead(actor->info));
    } else {
      return BadRow(*options_.store,
                    absl::StrCat("no specification of the actor ", id));
    }
    if (row.holds_resources()) {
      const auto node = nodes_.find(actor->info.node_id());
      if (node == nodes_.end()) {
        return BadRow(*options_.store, absl::StrCat("no node of actor ", id));
      }
      actor->bundle = row.bundle_index();
      const auto group = groups_.find(actor->info.placement_group_id());
      const bool in_bundle =
          actor->bundle >= 0 && group != groups_.end() &&
          actor->bundle < static_cast<int>(group->second.bundles.size()) &&
          group->second.bundles[actor->bundle].node_id == node->first;
      actor->taken = actor->request.OnGpus(row.info().gpus());
      if (in_bundle) {
        group->second.bundles[actor->bundle].available.Subtract(actor->taken);
      } else {
        node->second.available.Subtract(actor->taken);
      }
      node->second.actors.insert(id);
      actor->holds_resources = true;
      if (!actor->spec->detached()) {
        job_processes_[actor->spec->job_id()].insert(id);
      }
    }
    if (!live) {
      dead.push_back(actor.get());
    } else {
      if (!actor->spec->name().empty()) {
        names_[{actor->spec->actor_namespace(), actor->spec->name()}] = id;
      }
      if (!actor->spec->detached()) {
        job_actors_[actor->spec->job_id()].insert(id);
      }
      if (const auto group = groups_.find(actor->spec->placement_group_id());
          group != groups_.end()) {
        group->second.actors.insert(id);
      }
      if (!HasProcess(actor->info)) waiting.push_back(actor.get());
    }
    next_key_ = std::max(next_key_, key + 1);
    actors_[id] = std::move(actor);
    return absl::OkStatus();
  };
  MR_RETURN_IF_ERROR(options_.store->Read(StateStore::Table::kActors, add));
  std::stable_sort(dead.begin(), dead.end(), [](const auto* a, const auto* b) {
    return a->info.end_unix_ms() < b->info.end_unix_ms();
  });
  for (const Actor* actor : dead) {
    graveyard_.push_back(actor->info.actor_id());
  }
  std::sort(waiting.begin(), waiting.end(), [](const auto* a, const auto* b) {
    return a->queue_position < b->queue_position;
  });
  for (Actor* actor : waiting) Enqueue(actor);
  return absl::OkStatus();
}

absl::Status ClusterState::RestoreJobs() {
  const auto add = [this](int64_t key, absl::string_view bytes) {
    mu_.AssertHeld();
    v1::StoredJob row;
    if (!row.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return BadRow(*options_.store, "a job that cannot be read");
    }
    Job& job = jobs_[row.info().job_id()];
    job.key = key;
    job.info = row.info();
    job.session_id = row.session_id();
    job.stored = true;
    job.stop_reason = row.stop_reason();
    // Until its driver is back and says: a process that starts before then is
    // asked for its output now or never.
    job.wants_output = !HasEnded(job.info);
    if (row.has_spec()) {
      job.spec = std::make_shared<v1::JobSpec>(row.spec());
      MR_ASSIGN_OR_RETURN(job.request,
                          ResourceSet::FromProto(row.spec().resources()));
    }
    if (row.holds_resources()) {
      const auto node = nodes_.find(job.info.node_id());
      if (node == nodes_.end()) {
        return BadRow(*options_.store,
                      absl::StrCat("no node of job ", job.info.job_id()));
      }
      job.taken = job.request.OnGpus(row.info().gpus());
      node->second.available.Subtract(job.taken);
      job.holds_resources = true;
    }
    if (job.spec != nullptr && !HasEnded(job.info)) {
      // One that runs ends with its process.
      if (!job.holds_resources) job_queue_.push_back(job.info.job_id());
    } else if (job.info.state() == v1::JOB_STATE_RUNNING) {
      job.grace_end =
          options_.clock() + std::max(options_.lease, options_.driver_grace);
    } else {
      ended_jobs_.push_back(job.info.job_id());
    }
    next_key_ = std::max(next_key_, key + 1);
    return absl::OkStatus();
  };
  return options_.store->Read(StateStore::Table::kJobs, add);
}

}  // namespace miniray
