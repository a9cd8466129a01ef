// The part of ClusterState that lets answers and orders leave.

#include <glog/logging.h>

#include <optional>
#include <thread>
#include <utility>

#include "proto/head_state.pb.h"
#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

// Of what the disk did not take; internal.
constexpr absl::Duration kRetryPeriod = absl::Seconds(1);

// The row with this `info`, which is lent to it instead of copied.
template <class Row, class Info>
std::string SerializeWith(const Info& info, Row* row) {
  row->unsafe_arena_set_allocated_info(const_cast<Info*>(&info));
  std::string bytes = row->SerializeAsString();
  row->unsafe_arena_release_info();
  return bytes;
}

}  // namespace

ClusterState::~ClusterState() {
  absl::MutexLock lock(&mu_);
  auto settled = [this] {
    mu_.AssertHeld();
    return !settling_;
  };
  mu_.Await(absl::Condition(&settled));
}

void ClusterState::Settle() {
  for (const std::string& id : std::exchange(touched_actors_, {})) {
    const Actor* actor = FindActor(id);
    const bool final = actor == nullptr || !IsLive(actor->info);
    for (WaitList::Answer& answer : actor_waiters_.TakeChanged(
             id, final ? WaitList::kAnyVersion : actor->info.version())) {
      answer();
    }
  }
  for (const std::string& id : std::exchange(touched_jobs_, {})) {
    const auto job = jobs_.find(id);
    const bool final = job == jobs_.end() || HasEnded(job->second.info);
    for (WaitList::Answer& answer : job_waiters_.TakeChanged(
             id, final ? WaitList::kAnyVersion : job->second.info.version())) {
      answer();
    }
  }
  for (const std::string& id : std::exchange(touched_groups_, {})) {
    const auto group = groups_.find(id);
    const bool final =
        group == groups_.end() ||
        group->second.info.state() == v1::PLACEMENT_GROUP_STATE_REMOVED;
    for (WaitList::Answer& answer :
         group_waiters_.TakeChanged(id, final ? WaitList::kAnyVersion
                                              : group->second.info.version())) {
      answer();
    }
  }
  if (settling_) return;
  settling_ = true;
  while (true) {
    if (!dirty_.created.empty()) {
      // Requests that wait for a core of a busy machine share this write: a
      // twentieth more actors a second.
      mu_.Unlock();
      std::this_thread::yield();
      mu_.Lock();
    }
    Written written;
    const std::vector<StateStore::Change> changes = TakeChanges(&written);
    std::vector<Effect> effects = std::exchange(effects_, {});
    if (changes.empty() && effects.empty()) break;
    if (!changes.empty()) {
      mu_.Unlock();
      const absl::Status status = options_.store->Write(changes);
      mu_.Lock();
      if (status.ok()) {
        ChangesWritten(written);
      } else {
        ChangesFailed(written, status, &effects);
      }
    }
    mu_.Unlock();
    for (const Effect& effect : effects) effect.run();
    effects.clear();
    mu_.Lock();
  }
  settling_ = false;
}

std::vector<StateStore::Change> ClusterState::TakeChanges(Written* written) {
  std::vector<StateStore::Change> changes;
  if (options_.store == nullptr) return changes;
  if (dirty_.created.empty() && options_.clock() < next_write_) return changes;
  *written = std::exchange(dirty_, {});
  changes = written->erased;
  using Table = StateStore::Table;
  for (const std::string& id : written->nodes) {
    const auto it = nodes_.find(id);
    if (it == nodes_.end()) continue;
    v1::StoredNode row;
    *row.mutable_info() = it->second.info;
    *row.mutable_info()->mutable_total() = it->second.total.ToProto();
    changes.push_back({Table::kNodes, it->second.key, row.SerializeAsString()});
  }
  for (const std::string& id : written->actors) {
    const Actor* actor = FindActor(id);
    if (actor == nullptr) continue;
    v1::StoredActor row;
    row.set_incarnation(actor->incarnation);
    row.set_holds_resources(actor->holds_resources);
    row.set_stop_reason(actor->stop_reason);
    row.set_queue_position(actor->queue_position);
    row.set_log_node_id(actor->log_node_id);
    row.set_bundle_index(actor->bundle);
    changes.push_back(
        {Table::kActors, actor->key, SerializeWith(actor->info, &row)});
    if (!IsLive(actor->info)) {
      changes.push_back({Table::kActorSpecs, actor->key, std::nullopt});
    } else if (!actor->stored) {
      changes.push_back(
          {Table::kActorSpecs, actor->key, actor->spec->SerializeAsString()});
    }
  }
  for (const std::string& id : written->jobs) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) continue;
    v1::StoredJob row;
    *row.mutable_info() = it->second.info;
    row.set_session_id(it->second.session_id);
    if (it->second.spec != nullptr) *row.mutable_spec() = *it->second.spec;
    row.set_holds_resources(it->second.holds_resources);
    row.set_stop_reason(it->second.stop_reason);
    changes.push_back({Table::kJobs, it->second.key, row.SerializeAsString()});
  }
  for (const std::string& id : written->groups) {
    const auto it = groups_.find(id);
    if (it == groups_.end()) continue;
    v1::StoredPlacementGroup row;
    *row.mutable_spec() = it->second.spec;
    *row.mutable_info() = Told(it->second);
    changes.push_back(
        {Table::kPlacementGroups, it->second.key, row.SerializeAsString()});
  }
  return changes;
}

void ClusterState::ChangesWritten(const Written& written) {
  if (written.created.empty()) return;
  for (const std::string& id : written.actors) {
    if (Actor* actor = FindActor(id); actor != nullptr) actor->stored = true;
  }
  for (const std::string& id : written.jobs) {
    if (const auto it = jobs_.find(id); it != jobs_.end()) {
      it->second.stored = true;
    }
  }
  for (const std::string& id : written.groups) {
    if (const auto it = groups_.find(id); it != groups_.end()) {
      it->second.stored = true;
    }
  }
}

void ClusterState::ChangesFailed(const Written& written,
                                 const absl::Status& status,
                                 std::vector<Effect>* effects) {
  LOG(ERROR) << status.message() << "; meanwhile nothing can be created, and "
             << "if the head were killed now, the next one would not know what "
             << "happened since";
  next_write_ = options_.clock() + kRetryPeriod;
  for (const std::string& id : written.actors) {
    const Actor* actor = FindActor(id);
    if (actor != nullptr && !actor->stored) UndoCreation(id);
  }
  for (const std::string& id : written.jobs) {
    const auto it = jobs_.find(id);
    if (it != jobs_.end() && it->second.spec != nullptr && !it->second.stored) {
      UndoSubmission(id);
    }
  }
  for (const std::string& id : written.groups) {
    const auto it = groups_.find(id);
    if (it != groups_.end() && !it->second.stored) UndoGroup(id);
  }
  if (!written.created.empty()) Schedule();
  dirty_.nodes.insert(written.nodes.begin(), written.nodes.end());
  dirty_.actors.insert(written.actors.begin(), written.actors.end());
  dirty_.jobs.insert(written.jobs.begin(), written.jobs.end());
  dirty_.groups.insert(written.groups.begin(), written.groups.end());
  dirty_.erased.insert(dirty_.erased.end(), written.erased.begin(),
                       written.erased.end());
  const absl::Status answer(absl::StatusCode::kResourceExhausted,
                            status.message());
  for (std::vector<Effect>* list : {effects, &effects_}) {
    for (Effect& effect : *list) {
      if (!written.created.contains(effect.creation)) continue;
      effect.run = [failed = effect.failed, answer] {
        if (failed) failed(answer);
      };
    }
  }
}

void ClusterState::Dirty(Node* node) {
  if (options_.store == nullptr) return;
  if (node->key == 0) node->key = next_key_++;
  dirty_.nodes.insert(node->info.node_id());
}

void ClusterState::Dirty(Actor* actor) {
  if (options_.store == nullptr) return;
  if (actor->key == 0) actor->key = next_key_++;
  dirty_.actors.insert(actor->info.actor_id());
  if (!actor->stored) dirty_.created.insert(CreationOf(*actor));
}

void ClusterState::Dirty(Job* job) {
  if (options_.store == nullptr) return;
  if (job->key == 0) job->key = next_key_++;
  dirty_.jobs.insert(job->info.job_id());
  if (job->spec != nullptr && !job->stored) {
    dirty_.created.insert(CreationOf(*job));
  }
}

void ClusterState::Dirty(Group* group) {
  if (options_.store == nullptr) return;
  if (group->key == 0) group->key = next_key_++;
  dirty_.groups.insert(group->info.placement_group_id());
  if (!group->stored) dirty_.created.insert(CreationOf(*group));
}

void ClusterState::EraseRow(StateStore::Table table, int64_t key) {
  if (key != 0) dirty_.erased.push_back({table, key, std::nullopt});
}

void ClusterState::Reply(std::function<void()> reply) {
  effects_.push_back({.run = std::move(reply)});
}

void ClusterState::ReplyActor(const Actor& actor, ActorCallback done) {
  Effect effect;
  if (!actor.stored) {
    effect.creation = CreationOf(actor);
    effect.failed = [done](const absl::Status& status) { done(status); };
  }
  effect.run = [done = std::move(done), info = Told(actor)]() mutable {
    done(std::move(info));
  };
  effects_.push_back(std::move(effect));
}

void ClusterState::Send(const Node& node, v1::NodeCommand command,
                        std::string creation) {
  if (node.link == nullptr) return;
  effects_.push_back(
      {.run =
           [link = node.link, command = std::move(command)]() mutable {
             link->Send(std::move(command));
           },
       .creation = std::move(creation)});
}

void ClusterState::SendStart(const Actor& actor) {
  const auto node = nodes_.find(actor.info.node_id());
  if (node == nodes_.end() || node->second.link == nullptr) return;
  const Job* const job = JobOfDriver(actor.info.job_id());
  effects_.push_back(
      {.run =
           [link = node->second.link, spec = actor.spec,
            incarnation = actor.incarnation, gpus = actor.info.gpus(),
            stream_output = job != nullptr && job->wants_output] {
             v1::NodeCommand command;
             *command.mutable_start_actor()->mutable_spec() = *spec;
             command.mutable_start_actor()->set_incarnation(incarnation);
             command.mutable_start_actor()->set_stream_output(stream_output);
             *command.mutable_start_actor()->mutable_gpus() = gpus;
             link->Send(std::move(command));
           },
       .creation = actor.stored ? "" : CreationOf(actor)});
}

void ClusterState::SendStop(const Actor& actor) {
  const auto node = nodes_.find(actor.info.node_id());
  if (node == nodes_.end()) return;
  v1::NodeCommand command;
  command.mutable_stop_actor()->set_actor_id(actor.info.actor_id());
  command.mutable_stop_actor()->set_incarnation(actor.incarnation);
  command.mutable_stop_actor()->set_reason(actor.stop_reason);
  Send(node->second, std::move(command));
}

}  // namespace miniray
