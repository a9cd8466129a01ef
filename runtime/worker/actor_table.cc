#include "runtime/worker/actor_table.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/actor/registry.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace {

constexpr int kStarters = 3;
constexpr int64_t kLogTailBytes = 600;
constexpr absl::Duration kGiveUpTimeout = absl::Seconds(10);

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

int ComputeThreads(const v1::ActorSpec& spec) {
  if (spec.num_threads() > 0) return spec.num_threads();
  const auto cpu = spec.resources().quantity().find("CPU");
  return cpu == spec.resources().quantity().end()
             ? 1
             : std::max(1, static_cast<int>(std::floor(cpu->second)));
}

}  // namespace

ActorTable::ActorTable(Options options, HeadLink* link, PackageCache* packages,
                       ProcessSupervisor* supervisor)
    : options_(std::move(options)),
      link_(link),
      packages_(packages),
      supervisor_(supervisor) {
  for (int i = 0; i < kStarters; ++i) {
    starters_.emplace_back([this] { StarterLoop(); });
  }
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

bool ActorTable::empty() {
  absl::MutexLock lock(&mu_);
  return actors_.empty() && starts_.empty();
}

void ActorTable::GiveUp(const std::string& reason) {
  std::set<std::string> keys;
  {
    absl::MutexLock lock(&mu_);
    for (auto& [key, hosted] : actors_) {
      hosted.stop_reason = reason;
      keys.insert(key);
    }
    starts_.clear();
  }
  for (const std::string& key : keys) {
    supervisor_->Stop(key, absl::ZeroDuration());
  }
  absl::MutexLock lock(&mu_);
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
  packages_->Close();
  for (std::thread& starter : starters_) {
    if (starter.joinable()) starter.join();
  }
}

std::deque<v1::StartActor>::iterator ActorTable::NextStart() {
  return std::find_if(
      starts_.begin(), starts_.end(), [this](const v1::StartActor& start) {
        mu_.AssertHeld();
        return !busy_packages_.contains(start.spec().package_id());
      });
}

void ActorTable::StarterLoop() {
  absl::MutexLock lock(&mu_);
  while (true) {
    auto work = [this] {
      mu_.AssertHeld();
      return start_ended_ || NextStart() != starts_.end();
    };
    mu_.Await(absl::Condition(&work));
    if (start_ended_) return;
    const auto next = NextStart();
    const v1::StartActor start = std::move(*next);
    starts_.erase(next);
    const std::string key = Key(start.spec().actor_id(), start.incarnation());
    Hosted& hosted = actors_[key];
    hosted.spec = start.spec();
    hosted.spec.clear_constructor_args();
    hosted.incarnation = start.incarnation();
    hosted.log_file = absl::StrCat(
        options_.log_folder, "/",
        internal::ShortClassName(start.spec().class_name()), "-", key, ".log");
    busy_packages_.insert(start.spec().package_id());
    mu_.Unlock();
    const absl::Status status = StartProcess(start, key);
    if (!status.ok()) {
      OnExit(key,
             absl::StrCat(
                 "could not be started: ",
                 status.ToString(absl::StatusToStringMode::kWithNoExtraData)));
    }
    mu_.Lock();
    busy_packages_.erase(start.spec().package_id());
  }
}

absl::Status ActorTable::StartProcess(const v1::StartActor& start,
                                      const std::string& key) {
  const v1::ActorSpec& spec = start.spec();
  ProcessSupervisor::Command command;
  command.key = key;
  MR_ASSIGN_OR_RETURN(command.executable, packages_->Fetch(spec.package_id()));
  command.args = {spec.package_name()};
  v1::ActorControl control;
  v1::HostActor* host = control.mutable_host();
  *host->mutable_spec() = spec;
  host->set_incarnation(start.incarnation());
  host->set_node_id(link_->node_id());
  host->set_listen_host(options_.node_ip);
  host->set_head_address(options_.head_address);
  host->set_token(options_.token);
  host->set_tls_dir(TlsDir());
  command.first_message = control.SerializeAsString();
  command.on_message = [this, key](pid_t pid, const std::string& message) {
    OnMessage(key, pid, message);
  };
  command.on_exit = [this, key](const std::string& cause) {
    OnExit(key, cause);
  };
  command.env["OMP_NUM_THREADS"] = absl::StrCat(ComputeThreads(spec));
  // Huge pages for malloc: fresh tensors cost a fraction of the page faults.
  command.env["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1";
  for (const auto& [name, value] : spec.env()) command.env[name] = value;
  auto stop_reason = [&]() -> std::string {
    absl::MutexLock lock(&mu_);
    const auto it = actors_.find(key);
    return it == actors_.end() ? "" : it->second.stop_reason;
  };
  if (const std::string reason = stop_reason(); !reason.empty()) {
    return absl::CancelledError(reason);
  }
  {
    absl::MutexLock lock(&mu_);
    const auto it = actors_.find(key);
    if (it == actors_.end()) return absl::OkStatus();
    command.log_file = it->second.log_file;
  }
  MR_RETURN_IF_ERROR(supervisor_->Start(command));
  // A stop that came while it started found no process.
  if (!stop_reason().empty()) supervisor_->Stop(key, options_.stop_grace);
  return absl::OkStatus();
}

void ActorTable::Stop(const v1::StopActor& stop) {
  const std::string key = Key(stop.actor_id(), stop.incarnation());
  {
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
      return link_->Send(std::move(message));
    }
    auto it = actors_.find(key);
    if (it != actors_.end()) it->second.stop_reason = stop.reason();
  }
  supervisor_->Stop(key, options_.stop_grace);
}

void ActorTable::OnMessage(const std::string& key, pid_t pid,
                           const std::string& bytes) {
  v1::ActorEvent event;
  if (!event.ParseFromString(bytes)) {
    LOG(ERROR) << key << ": sent a malformed message";
    return;
  }
  absl::MutexLock lock(&mu_);
  auto it = actors_.find(key);
  if (it == actors_.end()) return;
  Hosted& hosted = it->second;
  if (event.has_construction_failed()) {
    hosted.construction_error =
        FromProto(event.construction_failed()).ToString();
  } else if (event.has_ending()) {
    const absl::Status status = FromProto(event.ending().status());
    hosted.ended_itself = status.ok();
    if (!status.ok() && hosted.stop_reason.empty()) {
      hosted.stop_reason = status.ToString();
    }
  } else if (event.has_ready()) {
    hosted.address = event.ready().address();
    hosted.pid = pid;
    v1::NodeMessage message;
    v1::ActorStarted* started = message.mutable_actor_started();
    started->set_actor_id(hosted.spec.actor_id());
    started->set_incarnation(hosted.incarnation);
    started->set_address(hosted.address);
    started->set_pid(pid);
    link_->Send(std::move(message));
  }
}

void ActorTable::OnExit(const std::string& key, const std::string& cause) {
  absl::MutexLock lock(&mu_);
  auto it = actors_.find(key);
  if (it == actors_.end()) return;
  const Hosted& hosted = it->second;
  v1::NodeMessage message;
  v1::ActorExited* exited = message.mutable_actor_exited();
  exited->set_actor_id(hosted.spec.actor_id());
  exited->set_incarnation(hosted.incarnation);
  exited->set_log_file(ToUtf8(hosted.log_file));
  exited->set_may_restart(hosted.construction_error.empty());
  if (!hosted.construction_error.empty()) {
    exited->set_cause(ToUtf8(
        absl::StrCat("its constructor failed: ", hosted.construction_error)));
  } else if (hosted.ended_itself) {
    exited->set_cause("it ended itself (ExitActor)");
    exited->set_exited_itself(true);
    exited->set_may_restart(false);
  } else if (!hosted.stop_reason.empty()) {
    exited->set_cause(ToUtf8(hosted.stop_reason));
  } else {
    exited->set_cause(ToUtf8(cause));
    exited->set_last_output(ToUtf8(LastOutput(hosted.log_file)));
  }
  LOG(INFO) << "actor " << hosted.spec.class_name() << " " << key << ": "
            << exited->cause() << exited->last_output();
  actors_.erase(it);
  link_->Send(std::move(message));
}

}  // namespace miniray
