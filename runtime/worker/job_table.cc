#include "runtime/worker/job_table.h"

#include <glog/logging.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"
#include "runtime/base/job_id.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/packages/folder_archive.h"
#include "runtime/rpc/tls.h"
#include "runtime/worker/gpus.h"
#include "runtime/worker/log_file.h"

namespace miniray {
namespace {

constexpr int kStarters = 2;
constexpr int64_t kLogTailBytes = 600;
// For processes that were killed to be gone; internal.
constexpr absl::Duration kGiveUpTimeout = absl::Seconds(10);
// The submitter's limit is its own affair; this one guards the node's disk.
constexpr ArchiveLimits kFolderLimits = {.max_bytes = int64_t{100} << 30,
                                         .max_entries = 10000000};
// As shells say that a program could not be run.
constexpr int kCannotRun = 126;

std::string Key(const std::string& job_id) { return "job-" + job_id; }

std::string BaseName(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.empty() || name == "." || name == ".." ? "program" : name;
}

void RemoveFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) LOG(WARNING) << "remove " << path << ": " << error.message();
}

std::string LastOutput(const std::string& log_file) {
  absl::StatusOr<std::string> tail = ReadFileTail(log_file, kLogTailBytes);
  if (!tail.ok()) return "";
  const absl::string_view text = absl::StripTrailingAsciiWhitespace(*tail);
  if (text.empty()) return "";
  return absl::StrCat("; its last output (", log_file, "): ", text);
}

}  // namespace

JobTable::JobTable(Options options, Parts parts)
    : options_(std::move(options)), parts_(parts) {
  for (int i = 0; i < kStarters; ++i) {
    starters_.emplace_back([this] { StarterLoop(); });
  }
}

std::string JobTable::FolderOf(const std::string& job_id) const {
  return absl::StrCat(options_.folder, "/", job_id);
}

std::set<std::string> JobTable::LogFiles() {
  absl::MutexLock lock(&mu_);
  std::set<std::string> files;
  for (const auto& [id, job] : jobs_) files.insert(LogPath(id));
  for (const v1::StartJob& start : starts_) {
    files.insert(LogPath(start.spec().job_id()));
  }
  return files;
}

std::string JobTable::LogPath(const std::string& job_id) const {
  return absl::StrCat(options_.log_folder, "/", job_id, ".log");
}

void JobTable::Start(const v1::StartJob& start) {
  const std::string& id = start.spec().job_id();
  absl::MutexLock lock(&mu_);
  // It gives its name to files.
  if (start_ended_ || !CheckJobId(id).ok()) return;
  if (!jobs_.try_emplace(id).second) return;  // Told again.
  starts_.push_back(start);
}

void JobTable::Describe(v1::RegisterNode* node) {
  absl::MutexLock lock(&mu_);
  for (const auto& [id, job] : jobs_) node->add_live_jobs(id);
}

bool JobTable::empty() {
  absl::MutexLock lock(&mu_);
  return jobs_.empty();
}

bool JobTable::Lives(const std::string& job_id) {
  absl::MutexLock lock(&mu_);
  return jobs_.contains(job_id);
}

void JobTable::Stop(const v1::StopJobProcess& stop) {
  {
    absl::MutexLock lock(&mu_);
    const auto job = jobs_.find(stop.job_id());
    if (job == jobs_.end()) return;  // It has just ended.
    job->second.stop_reason = stop.reason();
    const auto queued = std::find_if(
        starts_.begin(), starts_.end(), [&](const v1::StartJob& start) {
          return start.spec().job_id() == stop.job_id();
        });
    if (queued != starts_.end()) {
      starts_.erase(queued);
      return TellEnd(stop.job_id(), 0, stop.reason());
    }
  }
  // Nothing where the process is only being started: StartProcess looks again.
  parts_.supervisor->Stop(Key(stop.job_id()), options_.stop_grace);
}

void JobTable::GiveUp(const std::string& reason) {
  std::set<std::string> ids;
  {
    absl::MutexLock lock(&mu_);
    for (const v1::StartJob& start : starts_) {
      jobs_.erase(start.spec().job_id());
    }
    starts_.clear();
    for (auto& [id, job] : jobs_) {
      job.stop_reason = reason;
      ids.insert(id);
    }
  }
  for (const std::string& id : ids) {
    parts_.supervisor->Stop(Key(id), absl::ZeroDuration());
  }
  absl::MutexLock lock(&mu_);
  auto none_left = [this] {
    mu_.AssertHeld();
    return jobs_.empty();
  };
  mu_.AwaitWithTimeout(absl::Condition(&none_left), kGiveUpTimeout);
}

void JobTable::EndStarting(const std::string& reason) {
  {
    absl::MutexLock lock(&mu_);
    for (const v1::StartJob& start : std::exchange(starts_, {})) {
      TellEnd(start.spec().job_id(), 0, reason);
    }
    for (auto& [id, job] : jobs_) {
      if (job.stop_reason.empty()) job.stop_reason = reason;
    }
    start_ended_ = true;
  }
  parts_.packages->Close();
  for (std::thread& starter : starters_) {
    if (starter.joinable()) starter.join();
  }
}

void JobTable::StarterLoop() {
  while (true) {
    v1::StartJob start;
    std::string leftover;
    {
      absl::MutexLock lock(&mu_);
      auto work = [this] {
        mu_.AssertHeld();
        return start_ended_ || !starts_.empty() || !leftovers_.empty();
      };
      mu_.Await(absl::Condition(&work));
      if (!leftovers_.empty()) {
        leftover = std::move(leftovers_.front());
        leftovers_.pop_front();
      } else if (!starts_.empty()) {
        start = std::move(starts_.front());
        starts_.pop_front();
      } else {
        return;
      }
    }
    if (!leftover.empty()) {
      RemoveFolder(leftover);
      continue;
    }
    const std::string& id = start.spec().job_id();
    const absl::Status status = StartProcess(start);
    if (status.ok()) continue;
    absl::MutexLock lock(&mu_);
    TellEnd(id, kCannotRun,
            absl::StrCat(
                "could not be started: ",
                status.ToString(absl::StatusToStringMode::kWithNoExtraData)));
  }
}

absl::Status JobTable::Prepare(const v1::JobSpec& spec,
                               ProcessSupervisor::Command* command) {
  MR_ASSIGN_OR_RETURN(const PackageCache::Package program,
                      parts_.packages->Fetch(spec.package_id()));
  const std::string folder = FolderOf(spec.job_id());
  RemoveFolder(folder);  // Of a daemon that was killed here before.
  MR_RETURN_IF_ERROR(MakeDirectories(folder + "/program", 0700));
  // Under its own name, for ps and top; as a link it needs no room, and stays
  // whatever becomes of the package.
  command->executable =
      absl::StrCat(folder, "/program/", BaseName(spec.command(0)));
  if (link(program.path.c_str(), command->executable.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("link ", command->executable));
  }
  command->working_dir = folder + "/files";
  if (spec.folder_id().empty()) {
    return MakeDirectories(command->working_dir, 0700);
  }
  MR_ASSIGN_OR_RETURN(const PackageCache::Package archive,
                      parts_.packages->Fetch(spec.folder_id()));
  return Annotate(
      UnpackFolder(archive.path, command->working_dir, kFolderLimits).status(),
      "unpack the working folder");
}

absl::Status JobTable::StartProcess(const v1::StartJob& start) {
  const v1::JobSpec& spec = start.spec();
  const std::string& id = spec.job_id();
  ProcessSupervisor::Command command;
  command.key = Key(id);
  MR_RETURN_IF_ERROR(Prepare(spec, &command));
  command.args.assign(spec.command().begin(), spec.command().end());
  const auto cpu = spec.resources().quantity().find("CPU");
  if (cpu != spec.resources().quantity().end()) {
    command.env["OMP_NUM_THREADS"] =
        absl::StrCat(std::max(1, static_cast<int>(std::floor(cpu->second))));
  }
  ShowGpus(GpuIdsOf(start.gpus(), options_.gpu_ids), spec.resources(),
           options_.gpu_ids, &command.env);
  for (const auto& [name, value] : spec.env()) command.env[name] = value;
  command.env["MINIRAY_ADDRESS"] = options_.head_address;
  command.env["MINIRAY_TOKEN"] = options_.token;
  command.env["MINIRAY_TLS_DIR"] = TlsDir();
  command.env["MINIRAY_JOB_ID"] = id;
  command.env["PWD"] = command.working_dir;
  // Who waits for the job reads its log; nothing goes to a driver.
  MR_ASSIGN_OR_RETURN(command.output,
                      parts_.capture->Open(LogPath(id), v1::ProcessOutput()));
  command.on_exit = [this, id](int wait_status) { OnExit(id, wait_status); };
  if (const std::string reason = StopReason(id); !reason.empty()) {
    return absl::CancelledError(reason);
  }
  MR_RETURN_IF_ERROR(parts_.supervisor->Start(command));
  {
    absl::MutexLock lock(&mu_);
    TellStarted(id);
  }
  // A stop that came while it started found no process.
  if (!StopReason(id).empty()) {
    parts_.supervisor->Stop(command.key, options_.stop_grace);
  }
  return absl::OkStatus();
}

std::string JobTable::StopReason(const std::string& job_id) {
  absl::MutexLock lock(&mu_);
  const auto job = jobs_.find(job_id);
  return job == jobs_.end() ? "" : job->second.stop_reason;
}

void JobTable::OnExit(const std::string& job_id, int wait_status) {
  const int exit_code = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                                 : WEXITSTATUS(wait_status);
  absl::MutexLock lock(&mu_);
  TellStarted(job_id);
  std::string cause = exit_code == 0 ? "" : DescribeExit(wait_status);
  const auto job = jobs_.find(job_id);
  if (job != jobs_.end() && job->second.stop_reason.empty()) {
    absl::StrAppend(&cause, parts_.oom_kills->Explain(wait_status));
  }
  TellEnd(job_id, exit_code, cause);
}

void JobTable::TellStarted(const std::string& job_id) {
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end() || std::exchange(job->second.told_started, true)) {
    return;
  }
  v1::NodeMessage message;
  v1::JobStarted* started = message.mutable_job_started();
  started->set_job_id(job_id);
  started->set_pid(parts_.supervisor->PidOf(Key(job_id)));
  started->set_log_file(ToUtf8(LogPath(job_id)));
  parts_.link->Send(std::move(message));
}

void JobTable::TellEnd(const std::string& job_id, int exit_code,
                       const std::string& cause) {
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return;
  v1::NodeMessage message;
  v1::JobExited* exited = message.mutable_job_exited();
  exited->set_job_id(job_id);
  exited->set_exit_code(exit_code);
  if (!cause.empty() && !job->second.stop_reason.empty()) {
    exited->set_cause(ToUtf8(job->second.stop_reason));
  } else if (!cause.empty()) {
    exited->set_cause(ToUtf8(cause));
    exited->set_last_output(ToUtf8(LastOutput(LogPath(job_id))));
  }
  if (const std::string lost = LostOutputOf(LogPath(job_id)).ToString();
      !lost.empty()) {
    exited->set_last_output(
        ToUtf8(absl::StrCat("; ", lost, exited->last_output())));
  }
  LOG(INFO) << "job " << job_id << ": "
            << (exited->cause().empty() ? "exited with code 0"
                                        : exited->cause());
  leftovers_.push_back(FolderOf(job_id));
  jobs_.erase(job);
  parts_.link->Send(std::move(message));
}

}  // namespace miniray
