// ActorTable: bringing an actor into a process.

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/actor/actor_malloc.h"
#include "runtime/actor/plugins.h"
#include "runtime/actor/registry.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/rpc/tls.h"
#include "runtime/worker/actor_table.h"
#include "runtime/worker/gpus.h"
#include "runtime/worker/process_scan.h"

namespace miniray {
namespace {

constexpr size_t kMaxNameInPath = 60;

std::string Key(const v1::StartActor& start) {
  return absl::StrCat(start.spec().actor_id(), ".", start.incarnation());
}

// A name that may be anything, as part of a file's name.
std::string InPath(absl::string_view name) {
  std::string text(name.substr(0, kMaxNameInPath));
  for (char& c : text) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-') c = '_';
  }
  return text;
}

// So that the log of a shared process is found by its actors.
void LinkLog(const std::string& log, const std::string& link) {
  if (symlink(log.c_str(), link.c_str()) != 0) {
    PLOG(WARNING) << "link " << link;
  }
}

int ComputeThreads(const v1::ActorSpec& spec) {
  if (spec.num_threads() > 0) return spec.num_threads();
  const auto cpu = spec.resources().quantity().find("CPU");
  return cpu == spec.resources().quantity().end()
             ? 1
             : std::max(1, static_cast<int>(std::floor(cpu->second)));
}

// Actors of one group share a process; what it sees of the GPUs is the same for
// all.
std::string GroupOf(const v1::StartActor& start,
                    const std::string& program_key) {
  return absl::StrCat(start.spec().job_id(), "\n", program_key, "\n",
                      absl::StrJoin(start.gpus(), ","), "\n",
                      start.spec().shared_process());
}

}  // namespace

std::deque<v1::StartActor>::iterator ActorTable::NextStart() {
  return std::find_if(
      starts_.begin(), starts_.end(), [this](const v1::StartActor& start) {
        mu_.AssertHeld();
        return !busy_packages_.contains(start.spec().package_id());
      });
}

void ActorTable::StarterLoop() {
  while (true) {
    v1::StartActor start;
    std::string key;
    {
      absl::MutexLock lock(&mu_);
      auto work = [this] {
        mu_.AssertHeld();
        return start_ended_ || NextStart() != starts_.end();
      };
      mu_.Await(absl::Condition(&work));
      if (start_ended_) return;
      const auto next = NextStart();
      start = std::move(*next);
      starts_.erase(next);
      key = Key(start);
      Hosted& hosted = actors_[key];
      hosted.spec = start.spec();
      hosted.spec.clear_constructor_args();
      hosted.incarnation = start.incarnation();
      busy_packages_.insert(start.spec().package_id());
    }
    const absl::Status status = StartInProcess(start, key);
    absl::MutexLock lock(&mu_);
    busy_packages_.erase(start.spec().package_id());
    if (status.ok()) continue;
    if (const auto it = actors_.find(key); it != actors_.end()) {
      // It would not run here the next time either.
      it->second.may_restart = !absl::IsFailedPrecondition(status);
    }
    TellEnd(key,
            absl::StrCat(
                "could not be started: ",
                status.ToString(absl::StatusToStringMode::kWithNoExtraData)),
            "");
  }
}

absl::Status ActorTable::StartInProcess(const v1::StartActor& start,
                                        const std::string& key) {
  const v1::ActorSpec& spec = start.spec();
  MR_ASSIGN_OR_RETURN(const TemplatePool::Program program, FetchProgram(spec));
  v1::ActorControl control;
  v1::HostActor* host = control.mutable_host();
  *host->mutable_spec() = spec;
  host->set_incarnation(start.incarnation());
  host->set_node_id(parts_.link->node_id());
  host->set_listen_host(options_.node_ip);
  host->set_head_address(options_.head_address);
  host->set_token(options_.token);
  host->set_tls_dir(TlsDir());
  host->set_object_address(options_.object_address);
  for (std::string& id : GpuIdsOf(start.gpus(), options_.gpu_ids)) {
    host->add_gpu_ids(std::move(id));
  }
  *host->mutable_periods() = parts_.link->periods();
  if (const std::string reason = StopReason(key); !reason.empty()) {
    return absl::CancelledError(reason);
  }
  const std::string message = control.SerializeAsString();
  if (spec.shared_process().empty() ||
      !JoinSharedProcess(start, key, message)) {
    MR_RETURN_IF_ERROR(StartProcess(start, key, program, message));
  }
  // A stop that came while it started found no process.
  if (!StopReason(key).empty()) {
    absl::MutexLock lock(&mu_);
    StopInProcess(key);
  }
  return absl::OkStatus();
}

std::string ActorTable::StopReason(const std::string& key) {
  absl::MutexLock lock(&mu_);
  const auto it = actors_.find(key);
  return it == actors_.end() ? "" : it->second.stop_reason;
}

absl::StatusOr<TemplatePool::Program> ActorTable::FetchProgram(
    const v1::ActorSpec& spec) {
  TemplatePool::Program program;
  auto uses = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  MR_ASSIGN_OR_RETURN(PackageCache::Package package,
                      parts_.packages->Fetch(spec.package_id()));
  program.key = spec.package_id();
  program.executable = package.path;
  program.name = spec.package_name();
  uses->push_back(std::move(package.use));
  std::string plugins;
  for (const v1::Plugin& plugin : spec.plugins()) {
    absl::StatusOr<PackageCache::Package> file =
        parts_.packages->Fetch(plugin.package_id());
    if (!file.ok()) {
      return Annotate(file.status(), absl::StrCat("plug-in ", plugin.name()));
    }
    uses->push_back(std::move(file->use));
    absl::StrAppend(&program.key, "+", plugin.package_id());
    absl::StrAppend(&plugins, file->path, "\t", plugin.name(), "\n");
  }
  if (!plugins.empty()) program.env[internal::kPluginFilesVariable] = plugins;
  program.env["OMP_NUM_THREADS"] = "1";
  program.env[kMallocVariable] = kActorMallocSettings;
  if (options_.shared_memory_mb >= 0) {
    program.env["MINIRAY_SHARED_MEMORY_MB"] =
        absl::StrCat(options_.shared_memory_mb);
  }
  program.files = std::move(uses);
  return program;
}

bool ActorTable::JoinSharedProcess(const v1::StartActor& start,
                                   const std::string& key,
                                   const std::string& message) {
  const v1::ActorSpec& spec = start.spec();
  absl::MutexLock lock(&mu_);
  std::string program_key = spec.package_id();
  for (const v1::Plugin& plugin : spec.plugins()) {
    absl::StrAppend(&program_key, "+", plugin.package_id());
  }
  const auto shared = shared_.find(GroupOf(start, program_key));
  const auto actor = actors_.find(key);
  if (shared == shared_.end() || actor == actors_.end()) return false;
  const auto process = processes_.find(shared->second);
  if (process == processes_.end() ||
      !parts_.supervisor->Send(shared->second, message).ok()) {
    return false;  // It has just ended.
  }
  process->second.actors.insert(key);
  actor->second.process = shared->second;
  LinkLog(process->second.log_file, LogPath(spec.class_name(), key));
  return true;
}

std::string ActorTable::LogPath(absl::string_view class_name,
                                const std::string& key) const {
  return absl::StrCat(options_.log_folder, "/",
                      InPath(internal::ShortClassName(class_name)), "-", key,
                      ".log");
}

absl::Status ActorTable::StartProcess(const v1::StartActor& start,
                                      const std::string& key,
                                      const TemplatePool::Program& program,
                                      const std::string& message) {
  const v1::ActorSpec& spec = start.spec();
  const bool shared = !spec.shared_process().empty();
  const std::string class_name(internal::ShortClassName(spec.class_name()));
  ProcessSupervisor::Command command;
  command.key = key;
  std::string log_file = LogPath(spec.class_name(), key);
  if (shared) {
    {
      absl::MutexLock lock(&mu_);
      command.key = absl::StrCat("shared-", ++shared_count_);
    }
    const std::string link = std::move(log_file);
    log_file =
        absl::StrCat(options_.log_folder, "/", InPath(spec.shared_process()),
                     "-", command.key, ".log");
    LinkLog(log_file, link);
  }
  v1::ProcessOutput origin;
  if (start.stream_output()) {
    origin.set_job_id(spec.job_id());
    origin.set_actor_id(spec.actor_id());
    origin.set_class_name(
        shared ? absl::StrCat(class_name, " in ", spec.shared_process())
               : class_name);
    origin.set_hostname(Hostname());
  }
  MR_ASSIGN_OR_RETURN(command.output,
                      parts_.capture->Open(log_file, std::move(origin)));
  command.executable = program.executable;
  command.args = {program.name};
  command.socket_variable = kActorFdVariable;
  command.first_message = message;
  command.env = program.env;
  // What a template has to be told too.
  std::map<std::string, std::string> own_env = {
      {"OMP_NUM_THREADS", absl::StrCat(ComputeThreads(spec))}};
  ShowGpus(GpuIdsOf(start.gpus(), options_.gpu_ids), spec.resources(),
           options_.gpu_ids, &own_env);
  for (const auto& [name, value] : own_env) command.env[name] = value;
  for (const auto& [name, value] : spec.env()) command.env[name] = value;
  command.on_message = [this, process = command.key](pid_t pid,
                                                     const std::string& bytes) {
    OnMessage(process, pid, bytes);
  };
  command.on_exit = [this, process = command.key, files = program.files](
                        int wait_status) { OnExit(process, wait_status); };
  {
    absl::MutexLock lock(&mu_);
    const auto it = actors_.find(key);
    if (it == actors_.end()) return absl::OkStatus();
    it->second.process = command.key;
    Process& process = processes_[command.key];
    process.log_file = log_file;
    process.actors = {key};
    process.object_owner = key;
    if (shared) {
      process.group = GroupOf(start, program.key);
      process.shared_name = spec.shared_process();
      shared_[process.group] = command.key;
    }
  }
  absl::Status status = absl::UnavailableError("no template");
  // A template has read its environment long ago.
  if (options_.use_templates && spec.env().empty()) {
    own_env[kMarkVariable] = parts_.supervisor->MarkOf(command.key);
    ProcessSupervisor::Command forked = command;
    forked.spawn = [&](int socket, int output) {
      return parts_.templates->Fork(program, own_env, socket, output);
    };
    status = parts_.supervisor->Start(forked);
  }
  if (absl::IsUnavailable(status)) status = parts_.supervisor->Start(command);
  if (!status.ok()) {
    absl::MutexLock lock(&mu_);
    const auto it = processes_.find(command.key);
    if (it != processes_.end()) {
      if (shared) shared_.erase(it->second.group);
      processes_.erase(it);
    }
  }
  return status;
}

}  // namespace miniray
