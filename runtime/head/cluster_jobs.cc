// The part of ClusterState about drivers and their jobs.

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

// For actors that end slowly, and what they print meanwhile: a driver waits no
// longer for it. They end all the same. Internal.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(5);

absl::Status WasStopped(const JobRecord& job) {
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job.info.job_id(), " was ", job.info.cause()));
}

absl::Status CameTooLate(const JobRecord& job) {
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job.info.job_id(), " has ended: ", job.info.cause(),
                   "; its actors are gone: start the program again"));
}

}  // namespace

absl::Status ClusterState::RegisterDriver(const v1::RegisterDriver& request,
                                          Session session,
                                          std::shared_ptr<DriverLink> link) {
  Turn turn(this);
  auto [it, is_new] = jobs_.try_emplace(request.job_id());
  Job& job = it->second;
  if (job.spec != nullptr) {
    MR_RETURN_IF_ERROR(CheckSubmitted(request, job));
    EndDriverLink(&job);  // Of a session that is over.
    JobRuns(&job);
  } else if (!is_new && job.session_id != request.session_id()) {
    if (job.info.state() == v1::JOB_STATE_RUNNING) {
      return absl::AlreadyExistsError(
          absl::StrCat("job '", request.job_id(), "' is running: driver ",
                       job.info.program(), ", pid ", job.info.pid(), " on ",
                       job.info.hostname(), "; choose another job id"));
    }
    EndDriverLink(&job);
    const int64_t version = job.info.version();  // Somebody may wait for more.
    const int64_t key = job.key;
    job = Job();
    job.info.set_version(version);
    job.key = key;
    is_new = true;
  } else if (job.info.state() == v1::JOB_STATE_STOPPED) {
    return WasStopped(job);
  } else if (HasEnded(job.info)) {
    return CameTooLate(job);
  }
  job.session = session;
  job.session_id = request.session_id();
  job.link = link;
  job.wants_output = request.wants_output();
  if (link != nullptr) {
    Reply([link, periods = PeriodsFor(options_.driver_grace)] {
      v1::DriverEvent event;
      *event.mutable_registered()->mutable_periods() = periods;
      link->Send(std::move(event));
    });
  }
  job.grace_end = absl::InfiniteFuture();
  if (!is_new) return absl::OkStatus();
  for (const auto& [id, node] : nodes_) SendBegan(node, request.job_id());
  job.info.set_job_id(request.job_id());
  job.info.set_program(request.program());
  job.info.set_hostname(request.hostname());
  job.info.set_pid(request.pid());
  job.info.set_state(v1::JOB_STATE_RUNNING);
  job.info.set_start_unix_ms(absl::ToUnixMillis(WallNow()));
  Touch(&job);
  LOG(INFO) << "job " << request.job_id() << ": driver " << request.program()
            << ", pid " << request.pid() << " on " << request.hostname();
  return absl::OkStatus();
}

void ClusterState::DriverLeft(const std::string& job_id, Session session) {
  Turn turn(this);
  auto it = jobs_.find(job_id);
  if (it == jobs_.end() || it->second.session != session) return;
  Job& job = it->second;
  constexpr char kCause[] = "its driver has ended";
  if (job.spec == nullptr) {
    EndJob(&job, v1::JOB_STATE_SUCCEEDED, kCause);
  } else {
    // The job goes on until its process ends.
    StopActorsOf(job_id, kCause);
  }
  job.session = nullptr;
  LetDriverLeave(&job);
  Schedule();
}

void ClusterState::LetDriverLeave(Job* job) {
  if (!job_processes_.contains(job->info.job_id())) return EndDriverLink(job);
  job->leaving_end = options_.clock() + kLeaveTimeout;
}

void ClusterState::EndDriverLink(Job* job) {
  job->leaving_end = absl::InfiniteFuture();
  job->wants_output = false;
  if (std::shared_ptr<DriverLink> link = std::exchange(job->link, {})) {
    absl::Status status;
    if (job->info.state() == v1::JOB_STATE_STOPPED) status = WasStopped(*job);
    Reply([link, status] { link->End(status); });
  }
}

absl::Status ClusterState::CheckSubmitted(const v1::RegisterDriver& request,
                                          const Job& job) const {
  if (HasEnded(job.info) || !job.holds_resources) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", request.job_id(), " was submitted and ",
        HasEnded(job.info)
            ? absl::StrCat("has ended: ", job.info.cause())
            : absl::StrCat("has not started yet: ", job.info.cause())));
  }
  if (job.session != nullptr && job.session_id != request.session_id()) {
    return absl::AlreadyExistsError(
        absl::StrCat("job ", request.job_id(), " has a driver already (pid ",
                     job.info.pid(), " on ", job.info.hostname(), ")"));
  }
  return absl::OkStatus();
}

void ClusterState::DriverDisconnected(const std::string& job_id,
                                      Session session) {
  Turn turn(this);
  auto it = jobs_.find(job_id);
  if (it == jobs_.end() || it->second.session != session) return;
  it->second.session = nullptr;
  it->second.link.reset();
  // A submitted job ends with its process.
  if (it->second.info.state() == v1::JOB_STATE_RUNNING &&
      it->second.spec == nullptr) {
    it->second.grace_end = options_.clock() + options_.driver_grace;
  }
}

void ClusterState::EndJob(Job* job, v1::JobState state,
                          const std::string& cause) {
  if (HasEnded(job->info)) return;
  job->info.set_state(state);
  job->info.set_cause(cause);
  job->info.set_end_unix_ms(absl::ToUnixMillis(WallNow()));
  job->grace_end = absl::InfiniteFuture();
  ended_jobs_.push_back(job->info.job_id());
  Touch(job);
  if (options_.job_ended) {
    Reply([this, id = job->info.job_id()] { options_.job_ended(id); });
  }
  LOG(INFO) << "job " << job->info.job_id() << " ended: "
            << (cause.empty() ? "its driver exited with code 0" : cause);
  EndLifetime(job->info.job_id(),
              cause.empty() ? "its driver has ended" : cause);
}

void ClusterState::EndLifetime(const std::string& id,
                               const std::string& cause) {
  StopActorsOf(id, cause);
  for (const auto& [node_id, node] : nodes_) SendEnded(node, id);
}

bool ClusterState::LifetimeEnded(const std::string& id) const {
  if (const auto job = jobs_.find(id); job != jobs_.end()) {
    return HasEnded(job->second.info);
  }
  const Actor* const actor = FindActor(id);
  return actor == nullptr || !IsLive(actor->info);
}

void ClusterState::TellLifetimes(const v1::RegisterNode& request,
                                 const Node& node) {
  for (const std::string& id : request.object_jobs()) {
    if (LifetimeEnded(id)) SendEnded(node, id);
  }
  for (const auto& [id, job] : jobs_) {
    if (job.info.state() == v1::JOB_STATE_RUNNING) SendBegan(node, id);
  }
}

void ClusterState::SendEnded(const Node& node, const std::string& job_id) {
  v1::NodeCommand command;
  command.mutable_job_ended()->set_job_id(job_id);
  Send(node, std::move(command));
}

void ClusterState::SendBegan(const Node& node, const std::string& job_id) {
  v1::NodeCommand command;
  command.mutable_job_began()->set_job_id(job_id);
  Send(node, std::move(command));
}

const ClusterState::Job* ClusterState::JobOfDriver(
    const std::string& id) const {
  const Actor* const actor = FindActor(id);
  const auto job = jobs_.find(actor == nullptr ? id : actor->info.job_id());
  return job == jobs_.end() ? nullptr : &job->second;
}

void ClusterState::StopActorsOf(const std::string& id,
                                const std::string& cause) {
  EndGroupsOf(id, cause);
  const auto it = job_actors_.find(id);
  if (it == job_actors_.end()) return;
  // A copy: those that end leave the set.
  for (const std::string& actor : std::set<std::string>(it->second)) {
    StopActor(FindActor(actor), cause);
  }
}

}  // namespace miniray
