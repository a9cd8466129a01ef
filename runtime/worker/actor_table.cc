#include "runtime/worker/actor_table.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/utf8.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

constexpr int kStarters = 3;
constexpr int64_t kLogTailBytes = 600;
// For processes that were killed to be gone; internal.
constexpr absl::Duration kGiveUpTimeout = absl::Seconds(10);

constexpr char kFasterDaemon[] =
    "; with a lower miniray start --memory_limit the daemon kills first, and "
    "says what used how much";

std::string Key(const std::string& actor_id, int32_t incarnation) {
  return absl::StrCat(actor_id, ".", incarnation);
}

// What the process wrote last often says why it died.
std::string LastOutput(const std::string& log_file) {
  absl::StatusOr<std::string> tail = ReadFileTail(log_file, kLogTailBytes);
  if (!tail.ok()) return "";
  const absl::string_view text = absl::StripTrailingAsciiWhitespace(*tail);
  if (text.empty()) return "";
  return absl::StrCat("; its last output (", log_file, "): ", text);
}

}  // namespace

ActorTable::ActorTable(Options options, Parts parts)
    : options_(std::move(options)), parts_(parts) {
  for (int i = 0; i < kStarters; ++i) {
    starters_.emplace_back([this] { StarterLoop(); });
  }
  grace_ = std::thread([this] { GraceLoop(); });
}

void ActorTable::Start(const v1::StartActor& start) {
  absl::MutexLock lock(&mu_);
  if (!start_ended_) starts_.push_back(start);
}

void ActorTable::Describe(v1::RegisterNode* node) {
  absl::MutexLock lock(&mu_);
  for (const auto& [key, hosted] : actors_) {
    v1::LiveActor* live = node->add_live_actors();
    live->set_actor_id(hosted.spec.actor_id());
    live->set_incarnation(hosted.incarnation);
    live->set_address(hosted.address);
    live->set_pid(hosted.pid);
  }
  for (const v1::StartActor& start : starts_) {
    v1::LiveActor* live = node->add_live_actors();
    live->set_actor_id(start.spec().actor_id());
    live->set_incarnation(start.incarnation());
  }
}

bool ActorTable::Lives(const std::string& actor_id) {
  absl::MutexLock lock(&mu_);
  const std::string prefix = absl::StrCat(actor_id, ".");
  const auto it = actors_.lower_bound(prefix);
  return (it != actors_.end() && absl::StartsWith(it->first, prefix)) ||
         std::any_of(starts_.begin(), starts_.end(),
                     [&](const v1::StartActor& start) {
                       return start.spec().actor_id() == actor_id;
                     });
}

std::set<std::string> ActorTable::LogFiles() {
  absl::MutexLock lock(&mu_);
  std::set<std::string> files;
  for (const auto& [key, process] : processes_) files.insert(process.log_file);
  for (const auto& [key, hosted] : actors_) {
    files.insert(LogPath(hosted.spec.class_name(), key));
  }
  return files;
}

bool ActorTable::empty() {
  absl::MutexLock lock(&mu_);
  return actors_.empty() && starts_.empty();
}

ProcessCalls ActorTable::CallsOf(const std::string& process_key) const {
  const auto sum = [&](const char* metric) {
    // A process may tell anything.
    const double told = parts_.metrics->Sum(process_key, metric);
    return told > 0 ? static_cast<int64_t>(std::min(told, 1e18)) : 0;
  };
  return {.done = sum("miniray_calls_total"),
          .waiting = sum("miniray_calls_waiting"),
          .running = sum("miniray_calls_running")};
}

std::vector<ActorProcess> ActorTable::Running() {
  absl::MutexLock lock(&mu_);
  std::vector<ActorProcess> running;
  std::map<std::string, ProcessCalls> calls;  // Of many actors, perhaps.
  for (const auto& [key, hosted] : actors_) {
    if (hosted.pid <= 0) continue;
    const auto [it, is_new] = calls.try_emplace(hosted.process);
    if (is_new) it->second = CallsOf(hosted.process);
    running.push_back({.actor_id = hosted.spec.actor_id(),
                       .incarnation = hosted.incarnation,
                       .pid = hosted.pid,
                       .calls = it->second});
  }
  return running;
}

std::vector<MemoryMonitor::Victim> ActorTable::Victims() {
  absl::MutexLock lock(&mu_);
  std::vector<MemoryMonitor::Victim> victims;
  for (const auto& [key, process] : processes_) {
    const pid_t pid = parts_.supervisor->PidOf(key);
    if (pid > 0 && process.kill_cause.empty()) victims.push_back({key, pid});
  }
  return victims;
}

void ActorTable::KillForMemory(const std::string& process_key,
                               const std::string& cause) {
  absl::MutexLock lock(&mu_);
  const auto it = processes_.find(process_key);
  if (it == processes_.end()) return;
  it->second.kill_cause = cause;
  ++memory_kills_;
  shared_.erase(it->second.group);
  parts_.supervisor->Stop(process_key, absl::ZeroDuration());
}

ActorTable::Counts ActorTable::counts() const {
  absl::MutexLock lock(&mu_);
  return {.actors = static_cast<int64_t>(actors_.size() + starts_.size()),
          .processes = static_cast<int64_t>(processes_.size()),
          .memory_kills = memory_kills_};
}

void ActorTable::GiveUp(const std::string& reason) {
  absl::MutexLock lock(&mu_);
  starts_.clear();
  for (auto& [key, hosted] : actors_) hosted.stop_reason = reason;
  for (const auto& [key, process] : processes_) {
    parts_.supervisor->Stop(key, absl::ZeroDuration());
  }
  auto none_left = [this] {
    mu_.AssertHeld();
    return actors_.empty();
  };
  mu_.AwaitWithTimeout(absl::Condition(&none_left), kGiveUpTimeout);
}

void ActorTable::EndStarting(const std::string& reason) {
  {
    absl::MutexLock lock(&mu_);
    starts_.clear();
    for (auto& [key, hosted] : actors_) {
      if (hosted.stop_reason.empty()) hosted.stop_reason = reason;
    }
    start_ended_ = true;
  }
  parts_.packages->Close();
  parts_.templates->Close();
  for (std::thread& starter : starters_) {
    if (starter.joinable()) starter.join();
  }
  if (grace_.joinable()) grace_.join();
}

void ActorTable::Stop(const v1::StopActor& stop) {
  const std::string key = Key(stop.actor_id(), stop.incarnation());
  absl::MutexLock lock(&mu_);
  auto queued = std::find_if(
      starts_.begin(), starts_.end(), [&](const v1::StartActor& start) {
        return start.spec().actor_id() == stop.actor_id() &&
               start.incarnation() == stop.incarnation();
      });
  if (queued != starts_.end()) {
    starts_.erase(queued);
    v1::NodeMessage message;
    v1::ActorExited* exited = message.mutable_actor_exited();
    exited->set_actor_id(stop.actor_id());
    exited->set_incarnation(stop.incarnation());
    exited->set_cause(stop.reason());
    exited->set_may_restart(true);
    return parts_.link->Send(std::move(message));
  }
  auto it = actors_.find(key);
  if (it == actors_.end()) return;
  it->second.stop_reason = stop.reason();
  StopInProcess(key);
}

void ActorTable::StopInProcess(const std::string& key) {
  const auto actor = actors_.find(key);
  if (actor == actors_.end()) return;
  const auto process = processes_.find(actor->second.process);
  if (process == processes_.end()) return;  // Not yet in one.
  if (process->second.actors.size() == 1) {
    // Nobody else is hurt. No further actor may join meanwhile.
    shared_.erase(process->second.group);
    return parts_.supervisor->Stop(process->first, options_.stop_grace);
  }
  v1::ActorControl control;
  v1::StopHostedActor* stop = control.mutable_stop_actor();
  stop->set_actor_id(actor->second.spec.actor_id());
  stop->set_incarnation(actor->second.incarnation);
  stop->set_reason(actor->second.stop_reason);
  // If the process has just ended, OnExit comes.
  (void)parts_.supervisor->Send(process->first, control.SerializeAsString());
  graces_.emplace(absl::Now() + options_.stop_grace, key);
}

void ActorTable::GraceLoop() {
  absl::MutexLock lock(&mu_);
  while (!start_ended_) {
    auto due = [this] {
      mu_.AssertHeld();
      return start_ended_ ||
             (!graces_.empty() && graces_.begin()->first <= absl::Now());
    };
    const absl::Time next =
        graces_.empty() ? absl::InfiniteFuture() : graces_.begin()->first;
    auto changed = [this, next, &due] {
      mu_.AssertHeld();
      return due() || (!graces_.empty() && graces_.begin()->first < next);
    };
    mu_.AwaitWithDeadline(absl::Condition(&changed), next);
    while (!graces_.empty() && graces_.begin()->first <= absl::Now()) {
      const std::string key = graces_.begin()->second;
      graces_.erase(graces_.begin());
      const auto it = actors_.find(key);
      // It ended in time, or its process is about to.
      if (it == actors_.end()) continue;
      const auto process = processes_.find(it->second.process);
      if (process == processes_.end()) continue;
      if (process->second.actors.size() == 1) {
        shared_.erase(process->second.group);
        parts_.supervisor->Stop(process->first, absl::ZeroDuration());
        continue;
      }
      // Its method does not return, and a thread cannot be killed.
      LeaveProcess(key);
      TellEnd(key, "", "");
    }
  }
}

void ActorTable::OnMessage(const std::string& process_key, pid_t pid,
                           const std::string& bytes) {
  v1::ActorEvent event;
  if (!event.ParseFromString(bytes)) {
    LOG(ERROR) << process_key << ": sent a malformed message";
    return;
  }
  if (event.has_call_records()) {
    v1::NodeMessage message;
    v1::CallRecords* records = message.mutable_call_records();
    records->mutable_records()->Swap(
        event.mutable_call_records()->mutable_records());
    records->set_dropped(event.call_records().dropped());
    // Lost where the head cannot keep up: it is only for the timeline.
    (void)parts_.link->TrySend(std::move(message));
    return;
  }
  absl::MutexLock lock(&mu_);
  const auto process = processes_.find(process_key);
  if (process == processes_.end()) return;
  if (event.has_metrics()) {
    return parts_.metrics->Add(process_key, event.metrics());
  }
  if (process->second.actors.empty()) return;
  const std::string key = event.actor_id().empty()
                              ? *process->second.actors.begin()
                              : Key(event.actor_id(), event.incarnation());
  auto it = actors_.find(key);
  if (it == actors_.end() || it->second.process != process_key) return;
  Hosted& hosted = it->second;
  if (event.has_ready()) {
    hosted.address = event.ready().address();
    hosted.pid = pid;
    v1::NodeMessage message;
    v1::ActorStarted* started = message.mutable_actor_started();
    started->set_actor_id(hosted.spec.actor_id());
    started->set_incarnation(hosted.incarnation);
    started->set_address(hosted.address);
    started->set_pid(pid);
    return parts_.link->Send(std::move(message));
  }
  if (event.has_construction_failed()) {
    hosted.construction_error =
        FromProto(event.construction_failed()).ToString();
  } else if (event.has_ending()) {
    const absl::Status status = FromProto(event.ending().status());
    hosted.ended_itself = status.ok() && hosted.stop_reason.empty();
    if (!status.ok() && hosted.stop_reason.empty()) {
      hosted.stop_reason = std::string(status.message());
    }
  } else {
    return;
  }
  // A process of its own ends now, and is heard of again.
  if (process->second.shared_name.empty()) return;
  LeaveProcess(key);
  TellEnd(key, "", "");
}

void ActorTable::LeaveProcess(const std::string& key) {
  const auto process = processes_.find(actors_.at(key).process);
  if (process == processes_.end()) return;
  process->second.actors.erase(key);
  if (!process->second.actors.empty()) return;
  shared_.erase(process->second.group);
  parts_.supervisor->Stop(process->first, options_.stop_grace);
}

void ActorTable::OnExit(const std::string& process_key, int wait_status) {
  std::string object_owner;
  {
    absl::MutexLock lock(&mu_);
    const auto it = processes_.find(process_key);
    if (it != processes_.end()) object_owner = it->second.object_owner;
  }
  parts_.objects->EndOwner(object_owner);
  absl::MutexLock lock(&mu_);
  const auto it = processes_.find(process_key);
  if (it == processes_.end()) return;
  const Process process = std::move(it->second);
  processes_.erase(it);
  parts_.metrics->End(process_key);
  const auto shared = shared_.find(process.group);
  if (shared != shared_.end() && shared->second == process_key) {
    shared_.erase(shared);
  }
  std::string cause = process.kill_cause;
  if (cause.empty()) {
    cause = DescribeExit(wait_status);
    // Asked only where it is told: each kill explains one end.
    if (std::any_of(process.actors.begin(), process.actors.end(),
                    [this](const std::string& key) {
                      mu_.AssertHeld();
                      return EndsUnexplained(key);
                    })) {
      const std::string kernel = parts_.oom_kills->Explain(wait_status);
      absl::StrAppend(&cause, kernel, kernel.empty() ? "" : kFasterDaemon);
    }
  }
  if (process.actors.size() > 1) {
    absl::StrAppend(&cause, " (the shared process '", process.shared_name,
                    "', which took its ", process.actors.size(),
                    " actors with it)");
  }
  const std::string last_output = LastOutput(process.log_file);
  for (const std::string& key : process.actors) {
    TellEnd(key, cause, last_output);
  }
}

bool ActorTable::EndsUnexplained(const std::string& key) const {
  const auto it = actors_.find(key);
  return it != actors_.end() && it->second.construction_error.empty() &&
         !it->second.ended_itself && it->second.stop_reason.empty();
}

void ActorTable::TellEnd(const std::string& key, const std::string& cause,
                         const std::string& last_output) {
  auto it = actors_.find(key);
  if (it == actors_.end()) return;
  const Hosted& hosted = it->second;
  v1::NodeMessage message;
  v1::ActorExited* exited = message.mutable_actor_exited();
  exited->set_actor_id(hosted.spec.actor_id());
  exited->set_incarnation(hosted.incarnation);
  exited->set_log_file(ToUtf8(LogPath(hosted.spec.class_name(), key)));
  exited->set_may_restart(hosted.may_restart);
  if (!hosted.construction_error.empty()) {
    exited->set_cause(ToUtf8(
        absl::StrCat("its constructor failed: ", hosted.construction_error)));
    exited->set_may_restart(false);
  } else if (hosted.ended_itself) {
    exited->set_cause("it ended itself (ExitActor)");
    exited->set_exited_itself(true);
    exited->set_may_restart(false);
  } else if (!hosted.stop_reason.empty()) {
    exited->set_cause(ToUtf8(hosted.stop_reason));
  } else {
    exited->set_cause(ToUtf8(cause));
    exited->set_last_output(ToUtf8(last_output));
  }
  LOG(INFO) << "actor " << hosted.spec.class_name() << " " << key << ": "
            << exited->cause() << exited->last_output();
  actors_.erase(it);
  parts_.link->Send(std::move(message));
}

}  // namespace miniray
