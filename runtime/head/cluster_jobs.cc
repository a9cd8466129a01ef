// The part of ClusterState about drivers and their jobs.

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/head/cluster_state.h"

namespace miniray {

absl::Status ClusterState::RegisterDriver(const v1::RegisterDriver& request,
                                          Session session,
                                          std::shared_ptr<DriverLink> link) {
  Turn turn(this);
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
  job.link = link;
  if (link != nullptr) {
    Reply([link] {
      v1::DriverEvent event;
      event.mutable_registered();
      link->Send(std::move(event));
    });
  }
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
  Turn turn(this);
  auto it = jobs_.find(job_id);
  if (it == jobs_.end() || it->second.session != session) return;
  EndJob(&it->second, v1::JOB_STATE_SUCCEEDED, "its driver has ended");
  if (std::shared_ptr<DriverLink> link = std::exchange(it->second.link, {})) {
    Reply([link] { link->End(); });
  }
}

void ClusterState::DriverDisconnected(const std::string& job_id,
                                      Session session) {
  Turn turn(this);
  auto it = jobs_.find(job_id);
  if (it == jobs_.end() || it->second.session != session) return;
  it->second.session = nullptr;
  it->second.link.reset();
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
  if (const auto it = job_actors_.find(job->info.job_id());
      it != job_actors_.end()) {
    // A copy: those that end leave the set.
    for (const std::string& id : std::set<std::string>(it->second)) {
      StopActor(FindActor(id), cause);
    }
  }
  Schedule();
}

}  // namespace miniray
