// The part of ClusterState about what processes print: on its way to drivers,
// and where it lies.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

constexpr size_t kNamedCandidates = 5;

std::string OfActor(const v1::ActorInfo& info) {
  return absl::StrCat("actor ", info.actor_id());
}

std::string OfJob(const v1::JobInfo& info) {
  return absl::StrCat("job ", info.job_id());
}

}  // namespace

void ClusterState::Output(v1::ProcessOutput output) {
  std::shared_ptr<DriverLink> link;
  {
    absl::MutexLock lock(&mu_);  // No turn: nothing changes.
    const Job* const job = JobOfDriver(output.job_id());
    if (job == nullptr || !job->wants_output) return;
    link = job->link;
  }
  // In order with what follows from the same node: that is read only later.
  if (link != nullptr) link->Output(std::move(output));
}

absl::StatusOr<ClusterState::LogPlace> ClusterState::FindLog(
    const v1::ReadLogRequest& request) const {
  absl::MutexLock lock(&mu_);
  const Actor* actor = nullptr;
  const Job* job = nullptr;
  std::vector<std::string> candidates;
  const auto look_for_actor = [&](const std::string& id) {
    mu_.AssertHeld();
    if ((actor = FindActor(id)) != nullptr) return;
    // By name: the living one, else the one that died last.
    for (const auto& [actor_id, known] : actors_) {
      if (known->info.name() != id || id.empty()) continue;
      if (actor == nullptr || IsLive(known->info) ||
          (!IsLive(actor->info) &&
           known->info.end_unix_ms() > actor->info.end_unix_ms())) {
        actor = known.get();
      }
      if (IsLive(known->info)) return;
    }
    if (actor != nullptr) return;
    for (auto it = actors_.lower_bound(id);
         it != actors_.end() && absl::StartsWith(it->first, id); ++it) {
      candidates.push_back(OfActor(it->second->info));
      actor = it->second.get();
    }
  };
  const auto look_for_job = [&](const std::string& id) {
    mu_.AssertHeld();
    if (const auto it = jobs_.find(id); it != jobs_.end()) {
      job = &it->second;
      return;
    }
    for (auto it = jobs_.lower_bound(id);
         it != jobs_.end() && absl::StartsWith(it->first, id); ++it) {
      candidates.push_back(OfJob(it->second.info));
      job = &it->second;
    }
  };
  const std::string& wanted = !request.any_id().empty()   ? request.any_id()
                              : !request.job_id().empty() ? request.job_id()
                                                          : request.actor_id();
  if (wanted.empty()) {
    return absl::InvalidArgumentError("say whose log: an actor's or a job's");
  }
  if (request.job_id().empty()) look_for_actor(wanted);
  // An exact match of one kind is no rival of a prefix of the other.
  if (request.actor_id().empty() && (actor == nullptr || !candidates.empty())) {
    look_for_job(wanted);
    if (job != nullptr && job->info.job_id() == wanted) {
      candidates.clear();
      actor = nullptr;
    }
  }
  if (candidates.size() > 1) {
    const size_t count = candidates.size();
    candidates.resize(std::min(count, kNamedCandidates));
    return absl::InvalidArgumentError(
        absl::StrCat("'", wanted, "' may be ", count,
                     " things: ", absl::StrJoin(candidates, ", "),
                     count > kNamedCandidates ? ", ..." : ""));
  }
  if (actor == nullptr && job == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "no ", request.job_id().empty() ? "actor " : "",
        request.any_id().empty() ? "" : "or ",
        request.actor_id().empty() ? "job " : "", "is called '", wanted, "'"));
  }
  LogPlace place;
  std::string who, node_id, file, cause;
  if (actor != nullptr) {
    place.request.set_actor_id(actor->info.actor_id());
    who = OfActor(actor->info);
    node_id =
        actor->log_node_id.empty() ? actor->info.node_id() : actor->log_node_id;
    file = actor->info.log_file();
    cause = Told(*actor).cause();
  } else {
    if (!job->info.submitted()) {
      return absl::FailedPreconditionError(
          absl::StrCat(OfJob(job->info), " was not submitted: its driver ",
                       HasEnded(job->info) ? "ran" : "runs", " at ",
                       job->info.hostname(), " (pid ", job->info.pid(),
                       ") and ", HasEnded(job->info) ? "printed" : "prints",
                       " there; its actors have logs"));
    }
    place.request.set_job_id(job->info.job_id());
    who = OfJob(job->info);
    node_id = job->info.node_id();
    file = job->info.log_file();
    cause = job->info.cause();
  }
  place.request.set_tail_lines(std::max<int64_t>(request.tail_lines(), 0));
  place.request.set_follow(request.follow());
  place.request.set_skip_bytes(std::max<int64_t>(request.skip_bytes(), 0));
  place.request.set_min_incarnation(std::max(request.min_incarnation(), 0));
  if (node_id.empty()) {
    const bool may_run =
        actor != nullptr ? IsLive(actor->info) : !HasEnded(job->info);
    if (may_run && request.follow()) return place;
    return absl::FailedPreconditionError(
        absl::StrCat(who, may_run ? " has not run yet" : " has never run",
                     cause.empty() ? "" : absl::StrCat(": ", cause)));
  }
  const auto node = nodes_.find(node_id);
  if (node != nodes_.end()) place.link = node->second.link;
  if (place.link != nullptr) return place;
  const bool gone =
      node == nodes_.end() || node->second.info.state() == v1::NODE_STATE_DEAD;
  // An actor's next process has a log elsewhere.
  if (gone && request.follow() && actor != nullptr && IsLive(actor->info)) {
    return place;
  }
  const std::string where = absl::StrCat(
      "the log of ", who, " is on node ",
      node == nodes_.end() ? node_id : NodeName(node->second.info));
  if (gone) {
    return absl::NotFoundError(absl::StrCat(
        where, ", which is gone",
        file.empty() ? "" : absl::StrCat("; the file was ", file)));
  }
  return absl::UnavailableError(
      absl::StrCat(where, ", which is cut from the head",
                   file.empty() ? "" : absl::StrCat("; the file is ", file)));
}

}  // namespace miniray
