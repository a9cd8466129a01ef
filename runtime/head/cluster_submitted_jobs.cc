// The part of ClusterState about submitted jobs: drivers that a node of the
// cluster runs.

#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/base/job_id.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/cluster_state.h"

namespace miniray {
namespace {

constexpr absl::Duration kMaxWait = absl::Minutes(1);
// How a node begins what it says of output that its disk did not take.
constexpr char kOutputLost[] = "; output lost: ";

absl::Status CheckSpec(const v1::JobSpec& spec) {
  MR_RETURN_IF_ERROR(CheckJobId(spec.job_id()));
  if (spec.command().empty() || spec.package_id().empty()) {
    return absl::InvalidArgumentError("a job needs a command and a package");
  }
  return absl::OkStatus();
}

std::string BaseName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

void ClusterState::SubmitJob(const v1::JobSpec& spec, JobCallback done) {
  if (absl::Status status = CheckSpec(spec); !status.ok()) return done(status);
  const absl::StatusOr<ResourceSet> request =
      ResourceSet::FromRequest(spec.resources());
  if (!request.ok()) return done(request.status());
  Turn turn(this);
  if (const auto it = jobs_.find(spec.job_id()); it != jobs_.end()) {
    const Job& job = it->second;
    if (job.spec != nullptr && !spec.submission_id().empty() &&
        job.spec->submission_id() == spec.submission_id()) {
      return ReplyJob(job, std::move(done));  // A repeated request.
    }
    return Reply([done = std::move(done), info = job.info] {
      done(absl::AlreadyExistsError(absl::StrCat(
          "there is a job '", info.job_id(), "' already (", info.program(),
          ", ", HasEnded(info) ? "ended" : "not ended",
          "); choose another job id")));
    });
  }
  if (absl::Status room = CheckRoomToWait(
          static_cast<int64_t>(job_queue_.size()), "submitted jobs");
      !room.ok()) {
    return Reply([done = std::move(done), room] { done(room); });
  }
  Job& job = jobs_[spec.job_id()];
  job.spec = std::make_shared<v1::JobSpec>(spec);
  job.request = *request;
  job.info.set_job_id(spec.job_id());
  job.info.set_program(BaseName(spec.command(0)));
  job.info.set_state(v1::JOB_STATE_PENDING);
  job.info.set_submitted(true);
  *job.info.mutable_command() = spec.command();
  *job.info.mutable_resources() = request->ToProto();
  job.info.set_submitter(spec.submitter());
  job.info.set_submit_unix_ms(absl::ToUnixMillis(WallNow()));
  LOG(INFO) << "job " << spec.job_id() << ": submitted by " << spec.submitter();
  Touch(&job);
  job_queue_.push_back(spec.job_id());
  Schedule();
  ReplyJob(job, std::move(done));
}

void ClusterState::GetJob(const v1::GetJobRequest& request, JobCallback done) {
  Turn turn(this);
  const std::string& id = request.job_id();
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) {
    return Reply([done = std::move(done), id] {
      done(absl::NotFoundError(absl::StrCat("the head knows no job ", id)));
    });
  }
  const v1::JobInfo& info = it->second.info;
  if (info.version() >= request.min_version() || request.wait_ms() <= 0 ||
      HasEnded(info) || stop_waiting_) {
    return ReplyJob(it->second, std::move(done));
  }
  job_waiters_.Add(
      id, request.min_version(),
      options_.clock() + std::min<absl::Duration>(
                             absl::Milliseconds(request.wait_ms()), kMaxWait),
      [this, id, done = std::move(done)]() mutable {
        mu_.AssertHeld();
        if (const auto job = jobs_.find(id); job != jobs_.end()) {
          return ReplyJob(job->second, std::move(done));
        }
        Reply([done = std::move(done)] {
          done(absl::NotFoundError("the head forgot this job"));
        });
      });
}

void ClusterState::StopJob(const std::string& job_id, StatusCallback done) {
  Turn turn(this);
  const auto it = jobs_.find(job_id);
  if (it == jobs_.end()) {
    return Reply([done = std::move(done), job_id] {
      done(absl::NotFoundError(absl::StrCat("the head knows no job ", job_id)));
    });
  }
  Job& job = it->second;
  constexpr char kReason[] = "stopped by request (miniray job stop)";
  if (HasEnded(job.info)) {
    // Nothing to do.
  } else if (job.holds_resources) {
    // Ends with its process: see JobExited.
    job.stop_reason = kReason;
    Touch(&job);
    SendStop(job);
  } else {
    EndJob(&job, v1::JOB_STATE_STOPPED, kReason);
    LetDriverLeave(&job);
    Schedule();
  }
  Reply([done = std::move(done)] { done(absl::OkStatus()); });
}

void ClusterState::JobStarted(const std::string& node_id,
                              const v1::JobStarted& event) {
  Turn turn(this);
  Job* job = JobOn(node_id, event.job_id());
  if (job == nullptr) return;
  job->info.set_pid(event.pid());
  job->info.set_log_file(event.log_file());
  JobRuns(job);
}

void ClusterState::JobRuns(Job* job) {
  if (job->info.state() == v1::JOB_STATE_PENDING) {
    job->info.set_state(v1::JOB_STATE_RUNNING);
    job->info.clear_cause();
    job->info.set_start_unix_ms(absl::ToUnixMillis(WallNow()));
    LOG(INFO) << "job " << job->info.job_id() << ": runs on node "
              << job->info.node_id();
  }
  Touch(job);
}

void ClusterState::JobExited(const std::string& node_id,
                             const v1::JobExited& event) {
  Turn turn(this);
  TakeJobExit(node_id, event);
  Schedule();
}

void ClusterState::TakeJobExit(const std::string& node_id,
                               const v1::JobExited& event) {
  Job* job = JobOn(node_id, event.job_id());
  if (job == nullptr) return;
  ReleaseResources(job);
  job->info.set_exit_code(event.exit_code());
  if (!job->stop_reason.empty()) {
    EndJob(job, v1::JOB_STATE_STOPPED,
           absl::StrCat(job->stop_reason,
                        absl::StartsWith(event.last_output(), kOutputLost)
                            ? event.last_output()
                            : ""));
  } else if (event.exit_code() == 0 && event.cause().empty()) {
    EndJob(job, v1::JOB_STATE_SUCCEEDED, "");
    // A full disk of the node is no failure of the program.
    absl::string_view lost = event.last_output();
    absl::ConsumePrefix(&lost, "; ");
    job->info.set_cause(std::string(lost));
  } else {
    const auto node = nodes_.find(node_id);
    EndJob(job, v1::JOB_STATE_FAILED,
           absl::StrCat(
               event.cause(), " on node ",
               node == nodes_.end() ? node_id : NodeName(node->second.info),
               event.last_output()));
  }
}

ClusterState::Job* ClusterState::JobOn(const std::string& node_id,
                                       const std::string& job_id) {
  const auto it = jobs_.find(job_id);
  return it != jobs_.end() && it->second.holds_resources &&
                 it->second.info.node_id() == node_id
             ? &it->second
             : nullptr;
}

void ClusterState::TakeJobsOf(const v1::RegisterNode& request, Node* node) {
  for (const v1::JobExited& exited : request.exited_jobs()) {
    TakeJobExit(request.node_id(), exited);
  }
  const std::set<std::string> live(request.live_jobs().begin(),
                                   request.live_jobs().end());
  for (const std::string& id : live) {
    Job* job = JobOn(request.node_id(), id);
    if (job != nullptr && job->stop_reason.empty()) continue;
    // Given up, or the order to stop it was lost with the last stream.
    v1::NodeCommand stop;
    stop.mutable_stop_job()->set_job_id(id);
    stop.mutable_stop_job()->set_reason(
        job == nullptr ? "the head does not know it" : job->stop_reason);
    Send(*node, std::move(stop));
  }
  for (auto& [id, job] : jobs_) {
    if (!job.holds_resources || job.info.node_id() != request.node_id() ||
        live.contains(id)) {
      continue;
    }
    if (job.info.state() == v1::JOB_STATE_PENDING && job.stop_reason.empty()) {
      // The order to start it was lost with the last stream.
      SendStart(job);
      continue;
    }
    ReleaseResources(&job);
    EndJob(
        &job,
        job.stop_reason.empty() ? v1::JOB_STATE_FAILED : v1::JOB_STATE_STOPPED,
        job.stop_reason.empty() ? "ended while its node was cut from the head"
                                : job.stop_reason);
  }
}

void ClusterState::LoseJobsOf(const Node& node, const std::string& cause) {
  for (auto& [id, job] : jobs_) {
    if (!job.holds_resources || job.info.node_id() != node.info.node_id()) {
      continue;
    }
    ReleaseResources(&job);
    EndJob(
        &job,
        job.stop_reason.empty() ? v1::JOB_STATE_FAILED : v1::JOB_STATE_STOPPED,
        WithReason(job.stop_reason, absl::StrCat("node ", NodeName(node.info),
                                                 " was lost: ", cause)));
  }
}

void ClusterState::UndoSubmission(const std::string& job_id) {
  const auto it = jobs_.find(job_id);
  if (it == jobs_.end()) return;
  ReleaseResources(&it->second);  // No order has left.
  ++capacity_epoch_;
  std::erase(job_queue_, job_id);
  std::erase(ended_jobs_, job_id);
  dirty_.jobs.erase(job_id);
  dirty_.created.erase(CreationOf(it->second));
  jobs_.erase(it);
  for (WaitList::Answer& answer :
       job_waiters_.TakeChanged(job_id, WaitList::kAnyVersion)) {
    answer();
  }
}

void ClusterState::ReleaseResources(Job* job) {
  if (!job->holds_resources) return;
  job->holds_resources = false;
  const auto node = nodes_.find(job->info.node_id());
  if (node != nodes_.end()) Give(&node->second, job->taken);
  job->info.clear_gpus();
}

void ClusterState::ScheduleJobs() {
  std::deque<std::string> waiting;
  waiting.swap(job_queue_);
  for (const std::string& id : waiting) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end() || it->second.spec == nullptr ||
        it->second.holds_resources || HasEnded(it->second.info)) {
      continue;
    }
    Job& job = it->second;
    Node* node = PickNode(job.request);
    if (node != nullptr) {
      job.infeasible_since = absl::InfiniteFuture();
      job.taken = Take(node, job.request);
      for (const int gpu : job.taken.Gpus()) job.info.add_gpus(gpu);
      job.holds_resources = true;
      job.info.set_node_id(node->info.node_id());
      job.info.set_hostname(node->info.hostname());
      job.info.clear_cause();
      Touch(&job);
      SendStart(job);
      continue;
    }
    job_queue_.push_back(id);
    const bool feasible = Feasible(job.request);
    if (feasible) {
      job.infeasible_since = absl::InfiniteFuture();
    } else if (job.infeasible_since == absl::InfiniteFuture()) {
      job.infeasible_since = options_.clock();
    }
    const Demand demand{job.request};
    const std::string cause = absl::StrCat(
        "waits for ", demand.ToString(), ": ",
        feasible ? WhyNoRoom(demand) : std::string(NoNodeReason(demand)));
    if (cause == job.info.cause()) continue;
    job.info.set_cause(cause);
    Touch(&job);
  }
}

void ClusterState::FailInfeasibleJobs(absl::Time now) {
  for (const std::string& id : std::deque<std::string>(job_queue_)) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end() || HasEnded(it->second.info) ||
        now < it->second.infeasible_since + options_.infeasible_timeout) {
      continue;
    }
    EndJob(&it->second, v1::JOB_STATE_FAILED,
           absl::StrCat("cannot be placed: it asks for ",
                        Demand{it->second.request}.ToString(), ", but ",
                        DescribeNodes()));
  }
}

void ClusterState::Touch(Job* job) {
  job->info.set_version(job->info.version() + 1);
  touched_jobs_.insert(job->info.job_id());
  Dirty(job);
}

void ClusterState::ReplyJob(const Job& job, JobCallback done) {
  Effect effect;
  if (job.spec != nullptr && !job.stored) {
    effect.creation = CreationOf(job);
    effect.failed = [done](const absl::Status& status) { done(status); };
  }
  effect.run = [done = std::move(done), info = job.info] { done(info); };
  effects_.push_back(std::move(effect));
}

void ClusterState::SendStart(const Job& job) {
  const auto node = nodes_.find(job.info.node_id());
  if (node == nodes_.end()) return;
  v1::NodeCommand command;
  *command.mutable_start_job()->mutable_spec() = *job.spec;
  *command.mutable_start_job()->mutable_gpus() = job.info.gpus();
  Send(node->second, std::move(command), job.stored ? "" : CreationOf(job));
}

void ClusterState::SendStop(const Job& job) {
  const auto node = nodes_.find(job.info.node_id());
  if (node == nodes_.end()) return;
  v1::NodeCommand command;
  command.mutable_stop_job()->set_job_id(job.info.job_id());
  command.mutable_stop_job()->set_reason(job.stop_reason);
  Send(node->second, std::move(command));
}

}  // namespace miniray
