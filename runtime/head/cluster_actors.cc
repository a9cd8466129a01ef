// The part of ClusterState about the life of actors.

#include <glog/logging.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/cluster_state.h"

namespace miniray {

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

void ClusterState::Touch(Actor* actor) {
  actor->info.set_version(actor->info.version() + 1);
}

void ClusterState::ReleaseResources(Actor* actor) {
  if (!actor->holds_resources) return;
  actor->holds_resources = false;
  auto node = nodes_.find(actor->info.node_id());
  if (node != nodes_.end()) node->second.available.Add(actor->request);
}

}  // namespace miniray
