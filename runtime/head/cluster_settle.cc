// The part of ClusterState that lets answers and orders leave.

#include <glog/logging.h>

#include <utility>

#include "runtime/head/cluster_state.h"

namespace miniray {

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
  if (settling_) return;
  settling_ = true;
  while (!effects_.empty()) {
    const std::vector<Effect> effects = std::exchange(effects_, {});
    mu_.Unlock();
    for (const Effect& effect : effects) effect.run();
    mu_.Lock();
  }
  settling_ = false;
}

void ClusterState::Reply(std::function<void()> reply) {
  effects_.push_back({.run = std::move(reply)});
}

void ClusterState::ReplyActor(const Actor& actor, ActorCallback done) {
  Effect effect;
  if (!actor.stored) {
    effect.creation = actor.info.actor_id();
    effect.failed = [done](const absl::Status& status) { done(status); };
  }
  effect.run = [done = std::move(done), info = actor.info] { done(info); };
  effects_.push_back(std::move(effect));
}

void ClusterState::Send(const Node& node, v1::NodeCommand command) {
  if (node.link == nullptr) return;
  effects_.push_back(
      {.run = [link = node.link, command = std::move(command)]() mutable {
        link->Send(std::move(command));
      }});
}

void ClusterState::SendStart(const Actor& actor) {
  const auto node = nodes_.find(actor.info.node_id());
  if (node == nodes_.end() || node->second.link == nullptr) return;
  const auto job = jobs_.find(actor.info.job_id());
  effects_.push_back(
      {.run =
           [link = node->second.link, spec = actor.spec,
            incarnation = actor.incarnation,
            stream_output = job != jobs_.end() && job->second.wants_output] {
             v1::NodeCommand command;
             *command.mutable_start_actor()->mutable_spec() = *spec;
             command.mutable_start_actor()->set_incarnation(incarnation);
             command.mutable_start_actor()->set_stream_output(stream_output);
             link->Send(std::move(command));
           },
       .creation = actor.stored ? "" : actor.info.actor_id()});
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
