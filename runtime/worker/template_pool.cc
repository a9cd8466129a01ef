#include "runtime/worker/template_pool.h"

#include <fcntl.h>
#include <glog/logging.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

// Loading a program may take long on a busy machine; what fails here starts
// without a template. Internal.
constexpr absl::Duration kStartTimeout = absl::Seconds(60);
constexpr absl::Duration kForkTimeout = absl::Seconds(20);

}  // namespace

TemplatePool::TemplatePool(Options options, ProcessSupervisor* supervisor,
                           OutputCapture* capture)
    : options_(std::move(options)),
      supervisor_(supervisor),
      capture_(capture) {}

absl::StatusOr<pid_t> TemplatePool::Fork(
    const Program& program, const std::map<std::string, std::string>& env,
    int socket, int output) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<Template> entry, Get(program));
  v1::ForkActor request;
  for (const auto& [name, value] : env) {
    (*request.mutable_env())[name] = value;
  }
  std::vector<ScopedFd> fds;
  for (const int fd : {socket, output}) {
    fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!fds.back().valid()) return ErrnoStatus(errno, "dup");
  }
  absl::MutexLock lock(&mu_);
  request.set_request_id(++last_id_);
  entry->last_use = absl::Now();
  if (absl::Status sent = supervisor_->Send(
          entry->key, request.SerializeAsString(), std::move(fds));
      !sent.ok()) {
    return absl::UnavailableError(sent.message());
  }
  auto answered = [&] {
    mu_.AssertHeld();
    return closed_ || entry->state != State::kReady ||
           entry->answers.contains(request.request_id());
  };
  const bool in_time =
      mu_.AwaitWithTimeout(absl::Condition(&answered), kForkTimeout);
  const auto answer = entry->answers.find(request.request_id());
  if (answer == entry->answers.end()) {
    if (closed_) return absl::CancelledError("the daemon is stopping");
    if (!in_time) supervisor_->Stop(entry->key, absl::ZeroDuration());
    return absl::UnavailableError(in_time ? "the template process died"
                                          : "the template does not answer");
  }
  const v1::ForkedActor forked = std::move(answer->second);
  entry->answers.erase(answer);
  const absl::Status status = FromProto(forked.status());
  if (!status.ok()) return absl::UnavailableError(status.message());
  return static_cast<pid_t>(forked.pid());
}

absl::StatusOr<std::shared_ptr<TemplatePool::Template>> TemplatePool::Get(
    const Program& program) {
  std::shared_ptr<Template> entry;
  bool is_new = false;
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return absl::CancelledError("the daemon is stopping");
    std::shared_ptr<Template>& slot = templates_[program.key];
    // What a plug-in lacks may have been installed meanwhile; threads before
    // main stay.
    if (slot == nullptr || slot->state == State::kGone ||
        (slot->state == State::kUnfit &&
         absl::IsFailedPrecondition(slot->status))) {
      slot = std::make_shared<Template>();
      slot->key = absl::StrCat("template-", ++last_id_);
      slot->last_use = absl::Now();
      is_new = true;
    }
    entry = slot;
    if (is_new) MakeRoom();
  }
  if (is_new) {
    if (absl::Status status = StartTemplate(program, entry); !status.ok()) {
      OnExit(entry);
      return absl::UnavailableError(status.message());
    }
  }
  absl::MutexLock lock(&mu_);
  auto settled = [&] {
    mu_.AssertHeld();
    return closed_ || entry->state != State::kStarting;
  };
  mu_.AwaitWithTimeout(absl::Condition(&settled), kStartTimeout);
  switch (entry->state) {
    case State::kReady:
      return entry;
    case State::kUnfit:
      return entry->status;
    case State::kGone:
      return absl::UnavailableError("the template process died at its start");
    case State::kStarting:
      if (closed_) return absl::CancelledError("the daemon is stopping");
      supervisor_->Stop(entry->key, absl::ZeroDuration());
      return absl::UnavailableError("the template process does not answer");
  }
  return absl::InternalError("a template in no state");
}

absl::Status TemplatePool::StartTemplate(
    const Program& program, const std::shared_ptr<Template>& entry) {
  ProcessSupervisor::Command command;
  command.key = entry->key;
  command.executable = program.executable;
  command.args = {program.name};
  command.env = program.env;
  command.socket_variable = kTemplateFdVariable;
  command.pad_mark = true;
  // Says why the program does not run, which no actor's log would.
  MR_ASSIGN_OR_RETURN(
      command.output,
      capture_->Open(absl::StrCat(options_.log_folder, "/", entry->key, ".log"),
                     {}));
  command.on_message = [this, entry](pid_t, const std::string& message) {
    OnMessage(entry, message);
  };
  command.on_exit = [this, entry, files = program.files](int) {
    OnExit(entry);
  };
  return supervisor_->Start(command);
}

void TemplatePool::MakeRoom() {
  while (true) {
    int count = 0;
    std::shared_ptr<Template> oldest;
    for (const auto& [key, entry] : templates_) {
      if (entry->state == State::kGone || entry->state == State::kUnfit) {
        continue;
      }
      ++count;
      if (oldest == nullptr || entry->last_use < oldest->last_use) {
        oldest = entry;
      }
    }
    if (count <= options_.max_templates || oldest == nullptr) break;
    oldest->state = State::kGone;
    supervisor_->Stop(oldest->key, absl::ZeroDuration());
  }
  std::vector<std::shared_ptr<Template>> unfit;
  for (const auto& [key, entry] : templates_) {
    if (entry->state == State::kUnfit) unfit.push_back(entry);
  }
  if (unfit.size() > options_.max_unfit) {
    const auto kept = unfit.end() - static_cast<ptrdiff_t>(options_.max_unfit);
    std::nth_element(
        unfit.begin(), kept, unfit.end(),
        [](const auto& a, const auto& b) { return a->last_use < b->last_use; });
    std::for_each(unfit.begin(), kept,
                  [](const auto& entry) { entry->state = State::kGone; });
  }
  std::erase_if(templates_, [](const auto& item) {
    return item.second->state == State::kGone;
  });
}

void TemplatePool::OnMessage(const std::shared_ptr<Template>& entry,
                             const std::string& message) {
  absl::MutexLock lock(&mu_);
  if (entry->state == State::kStarting) {
    v1::TemplateReady ready;
    if (!ready.ParseFromString(message)) return;
    const absl::Status status = FromProto(ready.status());
    if (status.ok()) {
      entry->state = State::kReady;
      return;
    }
    LOG(WARNING) << entry->key << ": " << status.message();
    entry->state = State::kUnfit;
    entry->status = ready.fatal()
                        ? absl::FailedPreconditionError(status.message())
                        : absl::UnavailableError(status.message());
    supervisor_->Stop(entry->key, absl::ZeroDuration());
    return;
  }
  v1::ForkedActor forked;
  if (entry->state != State::kReady || !forked.ParseFromString(message)) return;
  const uint64_t id = forked.request_id();
  entry->answers[id] = std::move(forked);
}

void TemplatePool::OnExit(const std::shared_ptr<Template>& entry) {
  absl::MutexLock lock(&mu_);
  // What was found unfit stays so: the program would be again.
  if (entry->state != State::kUnfit) entry->state = State::kGone;
}

void TemplatePool::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

}  // namespace miniray
