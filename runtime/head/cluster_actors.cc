// The part of ClusterState about the life of actors.

#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/cluster_state.h"

namespace miniray {

namespace {

// The first restart comes at once, the next ones after 0.1 s, 0.2 s, ... A
// process that lived for long enough begins anew. How they grow is internal;
// their limit, and what long enough is, are flags.
constexpr absl::Duration kFirstRestartDelay = absl::Milliseconds(100);

absl::Duration RestartDelay(int quick_restarts, absl::Duration longest) {
  if (quick_restarts <= 1) return absl::ZeroDuration();
  const int doublings = std::min(quick_restarts - 2, 20);
  return std::min(kFirstRestartDelay * (1 << doublings), longest);
}

absl::Status CheckSpec(const v1::ActorSpec& spec) {
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
  MR_RETURN_IF_ERROR(CheckNameLength("an actor's name", spec.name()));
  return CheckNameLength("an actor's namespace", spec.actor_namespace());
}

v1::ActorInfo NewInfo(const v1::ActorSpec& spec, const ResourceSet& request) {
  v1::ActorInfo info;
  info.set_actor_id(spec.actor_id());
  info.set_class_name(spec.class_name());
  info.set_name(spec.name());
  info.set_actor_namespace(spec.actor_namespace());
  info.set_job_id(spec.job_id());
  info.set_state(v1::ACTOR_STATE_PENDING);
  info.set_max_restarts(spec.max_restarts());
  *info.mutable_resources() = request.ToProto();
  info.set_detached(spec.detached());
  info.set_placement_group_id(spec.placement_group_id());
  info.set_package_id(spec.package_id());
  info.set_max_retries(spec.max_retries());
  info.set_max_pending_calls(spec.max_pending_calls());
  info.set_max_pending_bytes(spec.max_pending_bytes());
  return info;
}

}  // namespace

void ClusterState::CreateActor(const v1::ActorSpec& spec, ActorCallback done) {
  if (absl::Status status = CheckSpec(spec); !status.ok()) return done(status);
  const absl::StatusOr<ResourceSet> request =
      ResourceSet::FromRequest(spec.resources());
  if (!request.ok()) return done(request.status());
  Turn turn(this);
  absl::StatusOr<const Actor*> actor = Admit(spec, *request);
  if (!actor.ok()) {
    return Reply([done, status = actor.status()] { done(status); });
  }
  Schedule();
  ReplyActor(**actor, std::move(done));
}

absl::StatusOr<const ClusterState::Actor*> ClusterState::Admit(
    const v1::ActorSpec& spec, const ResourceSet& request) {
  if (const Actor* known = FindActor(spec.actor_id()); known != nullptr) {
    return known;  // A repeated request.
  }
  if (auto job = jobs_.find(spec.job_id());
      job != jobs_.end() && job->second.info.state() != v1::JOB_STATE_RUNNING) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", spec.job_id(), " has ended"));
  }
  if (const Actor* creator = FindActor(spec.job_id());
      creator != nullptr && !IsLive(creator->info)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the detached actor ", spec.job_id(),
                     ", which creates it, is dead: ", creator->info.cause()));
  }
  MR_RETURN_IF_ERROR(CheckGroupOf(spec, request));
  const absl::Status room = CheckRoomToWait(waiting_actors_, "actors");
  if (!spec.name().empty()) {
    const Actor* holder = FindByName(spec.name(), spec.actor_namespace());
    if (holder != nullptr && spec.get_if_exists() &&
        holder->info.class_name() == spec.class_name()) {
      return holder;
    }
    if (holder != nullptr) {
      return absl::AlreadyExistsError(absl::StrCat(
          "a living actor has the name '", spec.name(),
          "': ", holder->info.class_name(), " (", holder->info.actor_id(),
          ", job ", holder->info.job_id(), ")"));
    }
    MR_RETURN_IF_ERROR(room);
    names_[{spec.actor_namespace(), spec.name()}] = spec.actor_id();
  }
  MR_RETURN_IF_ERROR(room);
  auto actor = std::make_unique<Actor>();
  actor->spec = std::make_shared<v1::ActorSpec>(spec);
  actor->request = request;
  actor->info = NewInfo(spec, request);
  actor->info.set_create_unix_ms(absl::ToUnixMillis(WallNow()));
  if (!spec.detached()) job_actors_[spec.job_id()].insert(spec.actor_id());
  if (!spec.placement_group_id().empty()) {
    groups_.find(spec.placement_group_id())
        ->second.actors.insert(spec.actor_id());
  }
  Enqueue(actor.get());
  Touch(actor.get());
  return (actors_[spec.actor_id()] = std::move(actor)).get();
}

void ClusterState::KillActor(const v1::KillActorRequest& request,
                             StatusCallback done) {
  const std::string& actor_id = request.actor_id();
  Turn turn(this);
  Actor* actor = FindActor(actor_id);
  if (actor == nullptr) {
    return Reply([done = std::move(done), actor_id] {
      done(absl::NotFoundError(
          absl::StrCat("the head knows no actor ", actor_id)));
    });
  }
  constexpr char kReason[] = "killed by request (Kill)";
  // The process that is meant has ended already.
  const bool late =
      request.has_incarnation() && request.incarnation() != actor->incarnation;
  if (!IsLive(actor->info)) {
    // Nothing to do.
  } else if (request.no_restart()) {
    StopActor(actor, kReason);
    Schedule();
  } else if (HasProcess(actor->info)) {
    // Comes back through ActorExited.
    if (!late) OrderStop(actor, kReason);
  } else if (actor->info.state() == v1::ACTOR_STATE_PENDING &&
             actor->spec->max_restarts() == 0) {
    StopActor(actor, kReason);  // It would not come back either.
    Schedule();
  }
  Reply([done = std::move(done)] { done(absl::OkStatus()); });
}

absl::Status ClusterState::CheckPresent(const std::string& actor_id,
                                        int32_t incarnation) const {
  absl::MutexLock lock(&mu_);
  const Actor* actor = FindActor(actor_id);
  if (actor == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("the head knows no actor ", actor_id));
  }
  if (!IsLive(actor->info)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the actor ", actor_id, " is dead: ", actor->info.cause()));
  }
  if (actor->incarnation != incarnation || !HasProcess(actor->info)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this process (start ", incarnation, ") of the actor ", actor_id,
        " was given up by the head: ", actor->info.cause()));
  }
  return absl::OkStatus();
}

void ClusterState::UndoCreation(const std::string& actor_id) {
  Actor* actor = FindActor(actor_id);
  if (actor == nullptr) return;
  ReleaseResources(actor);  // No order has left.
  Dequeue(actor);
  Unlist(*actor);
  std::erase(graveyard_, actor_id);
  dirty_.actors.erase(actor_id);
  dirty_.created.erase(CreationOf(*actor));
  actors_.erase(actor_id);
  for (WaitList::Answer& answer :
       actor_waiters_.TakeChanged(actor_id, WaitList::kAnyVersion)) {
    answer();
  }
}

void ClusterState::Unlist(const Actor& actor) {
  if (!actor.spec->name().empty()) {
    const auto it =
        names_.find({actor.spec->actor_namespace(), actor.spec->name()});
    if (it != names_.end() && it->second == actor.info.actor_id()) {
      names_.erase(it);
    }
  }
  if (const auto it = groups_.find(actor.spec->placement_group_id());
      it != groups_.end()) {
    it->second.actors.erase(actor.info.actor_id());
  }
  if (const auto it = job_actors_.find(actor.spec->job_id());
      it != job_actors_.end()) {
    it->second.erase(actor.info.actor_id());
    if (it->second.empty()) job_actors_.erase(it);
  }
}

void ClusterState::ActorUp(Actor* actor, const std::string& address,
                           int64_t pid) {
  v1::ActorInfo& info = actor->info;
  if (info.state() == v1::ACTOR_STATE_ALIVE && info.address() == address &&
      info.pid() == pid) {
    return;  // Told again.
  }
  info.set_state(v1::ACTOR_STATE_ALIVE);
  info.set_address(address);
  info.set_pid(pid);
  info.set_start_unix_ms(absl::ToUnixMillis(WallNow()));
  actor->up_since = options_.clock();
  Touch(actor);
}

void ClusterState::ActorDied(Actor* actor, const std::string& cause,
                             bool may_restart) {
  ReleaseResources(actor);
  const bool restarts_left =
      actor->spec->max_restarts() == -1 ||
      actor->info.restarts() < actor->spec->max_restarts();
  if (!may_restart || !restarts_left) {
    MarkDead(actor, cause);
    return;
  }
  LOG(WARNING) << "actor " << actor->info.class_name() << " ("
               << actor->info.actor_id() << ") is restarted: " << cause;
  const bool lived_long =
      actor->info.state() == v1::ACTOR_STATE_ALIVE &&
      options_.clock() - actor->up_since >= options_.long_life;
  actor->quick_restarts = lived_long ? 1 : actor->quick_restarts + 1;
  ++actor->incarnation;
  actor->stop_reason.clear();
  actor->info.set_restarts(actor->info.restarts() + 1);
  ++actor_restarts_;
  actor->info.set_state(v1::ACTOR_STATE_RESTARTING);
  actor->info.set_cause(cause);
  actor->info.clear_address();
  actor->info.clear_pid();
  actor->info.clear_node_id();
  actor->info.clear_hostname();
  Touch(actor);
  const absl::Duration delay =
      RestartDelay(actor->quick_restarts, options_.max_restart_delay);
  if (delay == absl::ZeroDuration()) return Enqueue(actor);
  actor->restart_at = options_.clock() + delay;
  delayed_.emplace(actor->restart_at, actor->info.actor_id());
}

void ClusterState::EnqueueDelayed(absl::Time now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    Actor* const actor = FindActor(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
    actor->restart_at = absl::InfinitePast();
    Enqueue(actor);
  }
}

void ClusterState::OrderStop(Actor* actor, const std::string& reason) {
  actor->stop_reason = reason;
  Dirty(actor);
  SendStop(*actor);
}

void ClusterState::StopActor(Actor* actor, const std::string& cause) {
  if (HasProcess(actor->info)) OrderStop(actor, cause);
  // Its room is free once the process is gone: see ActorExited.
  MarkDead(actor, cause);
}

void ClusterState::MarkDead(Actor* actor, const std::string& cause) {
  Dequeue(actor);
  actor->info.set_state(v1::ACTOR_STATE_DEAD);
  actor->info.set_cause(cause);
  actor->info.clear_address();
  actor->info.set_end_unix_ms(absl::ToUnixMillis(WallNow()));
  Unlist(*actor);
  // May be large, and is needed no more.
  if (actor->spec->constructor_args_size() > 0) {
    auto spec = std::make_shared<v1::ActorSpec>(*actor->spec);
    spec->clear_constructor_args();
    actor->spec = std::move(spec);
  }
  graveyard_.push_back(actor->info.actor_id());
  if (options_.actor_ended) {
    Reply([this, id = actor->info.actor_id()] { options_.actor_ended(id); });
  }
  LOG(INFO) << "actor " << actor->info.class_name() << " ("
            << actor->info.actor_id() << ") ended: " << cause;
  Touch(actor);
  if (actor->spec->detached()) {
    EndLifetime(
        actor->info.actor_id(),
        absl::StrCat("the detached actor that created it has ended: ", cause));
  }
  ForgetActors();
}

void ClusterState::Touch(Actor* actor) {
  actor->info.set_version(actor->info.version() + 1);
  touched_actors_.insert(actor->info.actor_id());
  Dirty(actor);
}

}  // namespace miniray
