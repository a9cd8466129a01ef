#include "runtime/worker/worker_daemon.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "proto/head.grpc.pb.h"
#include "proto/worker.pb.h"
#include "runtime/actor/registry.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/head/package_store.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/worker/process_supervisor.h"

namespace miniray {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
constexpr int64_t kLogTailBytes = 600;
// Leases without contact after which a node ends its actors by itself.
constexpr int kFenceLeases = 3;

// Threads: `link_` holds the stream to the head and reads commands; `lease_`
// renews the lease and does nothing else; `starter_` fetches packages and
// starts processes, so that a slow download stops nothing; the supervisor's
// thread reports what becomes of them.
class WorkerDaemonImpl : public WorkerDaemon {
 public:
  WorkerDaemonImpl(Options options, std::string node_ip)
      : options_(std::move(options)),
        node_ip_(std::move(node_ip)),
        node_id_(NewId("node")),
        packages_(options_.session_dir + "/packages"),
        channel_(MakeChannel(options_.head_address)),
        stub_(v1::Head::NewStub(channel_)) {}

  ~WorkerDaemonImpl() override { Shutdown(); }

  absl::Status Begin() {
    MR_RETURN_IF_ERROR(MakeDirectories(options_.session_dir + "/logs", 0700));
    MR_ASSIGN_OR_RETURN(
        supervisor_,
        ProcessSupervisor::Create(
            {.on_message =
                 [this](const std::string& key, pid_t pid,
                        const std::string& message) {
                   OnActorMessage(key, pid, message);
                 },
             .on_exit =
                 [this](const std::string& key, const std::string& cause) {
                   OnActorExit(key, cause);
                 }}));
    starter_ = std::thread([this] { StarterLoop(); });
    link_ = std::thread([this] { LinkLoop(); });
    absl::MutexLock lock(&mu_);
    auto settled = [this] {
      mu_.AssertHeld();
      return registered_ || !fatal_.ok();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&settled),
                              options_.connect_timeout)) {
      return absl::UnavailableError(absl::StrCat(
          "no head answers at ", options_.head_address, " within ",
          absl::FormatDuration(options_.connect_timeout),
          last_error_.empty() ? "" : absl::StrCat(" (", last_error_, ")"),
          "; is it running, and is the port open?"));
    }
    if (!registered_) return fatal_;
    lease_ = std::thread([this] { LeaseLoop(); });
    return absl::OkStatus();
  }

  const std::string& node_id() const override { return node_id_; }

  void Shutdown() override {
    absl::MutexLock shutdown_lock(&shutdown_mu_);
    if (stopping_.HasBeenNotified()) return;
    stopping_.Notify();
    {
      absl::MutexLock lock(&mu_);
      starts_.clear();
      for (auto& [key, hosted] : actors_) {
        if (hosted.stop_reason.empty()) {
          hosted.stop_reason = "its node was stopped (miniray stop)";
        }
      }
      start_ended_ = true;
      if (fetch_context_ != nullptr) fetch_context_->TryCancel();
    }
    if (supervisor_ != nullptr) supervisor_->StopAll(options_.stop_grace);
    if (starter_.joinable()) starter_.join();
    v1::NodeMessage leaving;
    leaving.mutable_leaving();
    Send(std::move(leaving));
    {
      absl::MutexLock lock(&mu_);
      // What is queued has a moment to go out; then the stream is cut.
      auto sent = [this] {
        mu_.AssertHeld();
        return outbox_.empty() || stream_ == nullptr;
      };
      mu_.AwaitWithTimeout(absl::Condition(&sent), absl::Seconds(1));
      ended_ = true;
      if (context_ != nullptr) {
        if (stream_ != nullptr) stream_->WritesDone();
        context_->TryCancel();
      }
    }
    if (link_.joinable()) link_.join();
    if (lease_.joinable()) lease_.join();
    supervisor_.reset();
  }

 private:
  using Stream = grpc::ClientReaderWriter<v1::NodeMessage, v1::NodeCommand>;

  struct Hosted {
    v1::ActorSpec spec;
    int32_t incarnation = 0;
    std::string log_file;
    std::string construction_error;  // Set if the constructor failed.
    std::string stop_reason;         // Set once it was ordered to stop.
  };

  // --- The stream to the head.

  void LinkLoop() {
    absl::Duration backoff = kFirstBackoff;
    while (!stopping_.HasBeenNotified()) {
      const absl::Status status = RunStream(&backoff);
      if (stopping_.HasBeenNotified()) return;
      if (status.code() == absl::StatusCode::kFailedPrecondition) {
        LOG(ERROR) << status.message();
        GiveUpActors("the head gave this node up");
        continue;
      }
      {
        absl::MutexLock lock(&mu_);
        last_error_ = std::string(status.message());
        if (!registered_ &&
            (status.code() == absl::StatusCode::kUnauthenticated ||
             status.code() == absl::StatusCode::kInvalidArgument)) {
          fatal_ = status;
          return;
        }
      }
      LOG(WARNING) << "lost the head at " << options_.head_address << ": "
                   << status.message() << "; trying again";
      if (stopping_.WaitForNotificationWithTimeout(backoff)) return;
      backoff = std::min(backoff * 2, kMaxBackoff);
    }
  }

  absl::Status RunStream(absl::Duration* backoff) {
    auto context = std::make_unique<grpc::ClientContext>();
    AddToken(context.get(), options_.token);
    v1::NodeMessage registration;
    {
      absl::MutexLock lock(&mu_);
      if (ended_) return absl::CancelledError("stopping");
      context_ = context.get();
      registration = Registration();
    }
    // May take as long as a connection takes; Shutdown cancels the context.
    std::unique_ptr<Stream> stream = stub_->AttachNode(context.get());
    if (stream->Write(registration)) {
      absl::MutexLock lock(&mu_);
      // The registration told of these.
      int told = registration.register_node().exited_actors_size();
      std::erase_if(outbox_, [&told](const v1::NodeMessage& message) {
        return message.has_actor_exited() && told-- > 0;
      });
      stream_ = stream.get();
      FlushOutbox();
    }
    v1::NodeCommand command;
    while (stream->Read(&command)) {
      if (command.has_registered()) {
        absl::MutexLock lock(&mu_);
        registered_ = true;
        lease_period_ = absl::Milliseconds(command.registered().lease_ms()) / 3;
        *backoff = kFirstBackoff;
        LOG(INFO) << "joined the cluster at " << options_.head_address << " as "
                  << node_id_;
      } else if (command.has_start_actor()) {
        absl::MutexLock lock(&mu_);
        starts_.push_back(command.start_actor());
      } else if (command.has_stop_actor()) {
        StopActor(command.stop_actor());
      }
    }
    {
      absl::MutexLock lock(&mu_);
      stream_ = nullptr;
      context_ = nullptr;
    }
    const grpc::Status status = stream->Finish();
    if (status.ok())
      return absl::UnavailableError("the head closed the stream");
    return FromGrpcStatus(status);
  }

  v1::NodeMessage Registration() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    v1::NodeMessage message;
    v1::RegisterNode* node = message.mutable_register_node();
    node->set_node_id(node_id_);
    node->set_hostname(Hostname());
    node->set_address(node_ip_);
    node->set_pid(getpid());
    *node->mutable_total() = options_.resources;
    for (const auto& [key, hosted] : actors_) {
      v1::LiveActor* live = node->add_live_actors();
      live->set_actor_id(hosted.spec.actor_id());
      live->set_incarnation(hosted.incarnation);
    }
    for (const v1::NodeMessage& message : outbox_) {
      if (message.has_actor_exited()) {
        *node->add_exited_actors() = message.actor_exited();
      }
    }
    for (const v1::StartActor& start : starts_) {
      v1::LiveActor* live = node->add_live_actors();
      live->set_actor_id(start.spec().actor_id());
      live->set_incarnation(start.incarnation());
    }
    return message;
  }

  // Sends now, or after the next registration.
  void Send(v1::NodeMessage message) {
    absl::MutexLock lock(&mu_);
    outbox_.push_back(std::move(message));
    FlushOutbox();
  }

  void FlushOutbox() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (stream_ != nullptr && !outbox_.empty()) {
      if (!stream_->Write(outbox_.front())) {
        stream_ = nullptr;  // Read fails too, and the loop dials again.
        return;
      }
      outbox_.pop_front();
    }
  }

  void LeaseLoop() {
    absl::Time last_contact = absl::Now();
    while (true) {
      absl::Duration period;
      {
        absl::MutexLock lock(&mu_);
        period = lease_period_;
      }
      if (stopping_.WaitForNotificationWithTimeout(period)) return;
      grpc::ClientContext context;
      PrepareContext(&context, options_.token, period);
      v1::RenewLeaseRequest request;
      {
        absl::MutexLock lock(&mu_);
        request.set_node_id(node_id_);
      }
      v1::RenewLeaseResponse response;
      const grpc::Status status =
          stub_->RenewLease(&context, request, &response);
      if (!status.ok() && !stopping_.HasBeenNotified()) {
        LOG(WARNING) << "lease not renewed: " << status.error_message();
      }
      if (status.ok() || status.error_code() == grpc::StatusCode::NOT_FOUND) {
        last_contact = absl::Now();
      } else if (absl::Now() - last_contact > kFenceLeases * 3 * period &&
                 !stopping_.HasBeenNotified()) {
        // The head gave us up long ago, and may have started our actors
        // elsewhere; or it is gone, and nobody can end them any more.
        if (HasActors()) {
          LOG(ERROR) << "no contact with the head for "
                     << absl::FormatDuration(absl::Now() - last_contact)
                     << ": the actors of this node are stopped";
          GiveUpActors("its node had no contact with the head");
        }
        last_contact = absl::Now();
      }
      // We were silent for too long and given up, or the head is another one.
      // The stream need not have noticed: dial again, and hear what to do.
      if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
        absl::MutexLock lock(&mu_);
        if (context_ != nullptr) context_->TryCancel();
      }
    }
  }

  bool HasActors() {
    absl::MutexLock lock(&mu_);
    return !actors_.empty() || !starts_.empty();
  }

  // The head restarted our actors elsewhere, or will: ours must not go on.
  void GiveUpActors(const std::string& reason) {
    std::set<std::string> keys;
    {
      absl::MutexLock lock(&mu_);
      for (auto& [key, hosted] : actors_) {
        hosted.stop_reason = reason;
        keys.insert(key);
      }
      starts_.clear();
      outbox_.clear();
    }
    for (const std::string& key : keys) {
      supervisor_->Stop(key, absl::ZeroDuration());
    }
    absl::MutexLock lock(&mu_);
    auto none_left = [this] {
      mu_.AssertHeld();
      return actors_.empty();
    };
    mu_.AwaitWithTimeout(absl::Condition(&none_left), absl::Seconds(10));
    outbox_.clear();
    node_id_ = NewId("node");
  }

  // --- Actors.

  static std::string Key(const std::string& actor_id, int32_t incarnation) {
    return absl::StrCat(actor_id, ".", incarnation);
  }

  void StarterLoop() {
    while (true) {
      v1::StartActor start;
      std::string key;
      {
        absl::MutexLock lock(&mu_);
        auto work = [this] {
          mu_.AssertHeld();
          return start_ended_ || !starts_.empty();
        };
        mu_.Await(absl::Condition(&work));
        if (start_ended_) return;
        start = std::move(starts_.front());
        starts_.pop_front();
        key = Key(start.spec().actor_id(), start.incarnation());
        Hosted& hosted = actors_[key];
        hosted.spec = start.spec();
        hosted.spec.clear_constructor_args();
        hosted.incarnation = start.incarnation();
        hosted.log_file =
            absl::StrCat(options_.session_dir, "/logs/",
                         internal::ShortClassName(start.spec().class_name()),
                         "-", key, ".log");
      }
      const absl::Status status = StartProcess(start, key);
      if (!status.ok()) {
        OnActorExit(
            key, absl::StrCat("could not be started: ",
                              status.ToString(
                                  absl::StatusToStringMode::kWithNoExtraData)));
      }
    }
  }

  absl::Status StartProcess(const v1::StartActor& start,
                            const std::string& key) {
    const v1::ActorSpec& spec = start.spec();
    MR_RETURN_IF_ERROR(FetchPackage(spec.package_id()));
    v1::ActorControl control;
    v1::HostActor* host = control.mutable_host();
    *host->mutable_spec() = spec;
    host->set_incarnation(start.incarnation());
    host->set_listen_host(node_ip_);
    host->set_head_address(options_.head_address);
    host->set_token(options_.token);
    ProcessSupervisor::Command command;
    command.key = key;
    command.executable = packages_.PathOf(spec.package_id());
    command.name = spec.package_name();
    {
      absl::MutexLock lock(&mu_);
      host->set_node_id(node_id_);
      command.first_message = control.SerializeAsString();
      const auto it = actors_.find(key);
      if (it == actors_.end()) return absl::OkStatus();
      if (!it->second.stop_reason.empty()) {
        return absl::CancelledError(it->second.stop_reason);
      }
      command.log_file = it->second.log_file;
    }
    int threads = spec.num_threads();
    if (threads <= 0) {
      const auto cpu = spec.resources().quantity().find("CPU");
      threads = cpu == spec.resources().quantity().end()
                    ? 1
                    : std::max(1, static_cast<int>(std::floor(cpu->second)));
    }
    command.env["OMP_NUM_THREADS"] = absl::StrCat(threads);
    // Huge pages for malloc: fresh tensors cost a fraction of the page faults.
    command.env["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1";
    for (const auto& [name, value] : spec.env()) command.env[name] = value;
    MR_RETURN_IF_ERROR(supervisor_->Start(command));
    // A stop that came while it started found no process.
    bool stop = false;
    {
      absl::MutexLock lock(&mu_);
      const auto it = actors_.find(key);
      stop = it != actors_.end() && !it->second.stop_reason.empty();
    }
    if (stop) supervisor_->Stop(key, options_.stop_grace);
    return absl::OkStatus();
  }

  absl::Status FetchPackage(const std::string& package_id) {
    if (packages_.Has(package_id)) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(auto writer, packages_.Write(package_id));
    grpc::ClientContext context;
    PrepareContext(&context, options_.token, absl::Minutes(10));
    {
      absl::MutexLock lock(&mu_);
      if (start_ended_) return absl::CancelledError("the daemon is stopping");
      fetch_context_ = &context;
    }
    v1::GetPackageRequest request;
    request.set_package_id(package_id);
    auto reader = stub_->GetPackage(&context, request);
    v1::PackageChunk chunk;
    absl::Status status;
    while (status.ok() && reader->Read(&chunk)) {
      status = writer->Append(chunk.data());
    }
    if (!status.ok()) context.TryCancel();
    const grpc::Status finished = reader->Finish();
    {
      absl::MutexLock lock(&mu_);
      fetch_context_ = nullptr;
    }
    MR_RETURN_IF_ERROR(status);
    if (!finished.ok()) {
      return Annotate(FromGrpcStatus(finished), "fetch the package");
    }
    return writer->Commit();
  }

  void StopActor(const v1::StopActor& stop) {
    const std::string key = Key(stop.actor_id(), stop.incarnation());
    bool unstarted = false;
    {
      absl::MutexLock lock(&mu_);
      auto queued = std::find_if(
          starts_.begin(), starts_.end(), [&](const v1::StartActor& start) {
            return start.spec().actor_id() == stop.actor_id() &&
                   start.incarnation() == stop.incarnation();
          });
      if (queued != starts_.end()) {
        starts_.erase(queued);
        unstarted = true;
      }
      auto it = actors_.find(key);
      if (it != actors_.end()) it->second.stop_reason = stop.reason();
    }
    if (unstarted) {
      v1::NodeMessage message;
      v1::ActorExited* exited = message.mutable_actor_exited();
      exited->set_actor_id(stop.actor_id());
      exited->set_incarnation(stop.incarnation());
      exited->set_cause(stop.reason());
      exited->set_may_restart(true);
      return Send(std::move(message));
    }
    supervisor_->Stop(key, options_.stop_grace);
  }

  void OnActorMessage(const std::string& key, pid_t pid,
                      const std::string& bytes) {
    v1::ActorEvent event;
    if (!event.ParseFromString(bytes)) {
      LOG(ERROR) << key << ": sent a malformed message";
      return;
    }
    v1::NodeMessage message;
    {
      absl::MutexLock lock(&mu_);
      auto it = actors_.find(key);
      if (it == actors_.end()) return;
      if (event.has_construction_failed()) {
        it->second.construction_error =
            FromProto(event.construction_failed()).ToString();
        return;
      }
      if (!event.has_ready()) return;
      v1::ActorStarted* started = message.mutable_actor_started();
      started->set_actor_id(it->second.spec.actor_id());
      started->set_incarnation(it->second.incarnation);
      started->set_address(event.ready().address());
      started->set_pid(pid);
    }
    Send(std::move(message));
  }

  void OnActorExit(const std::string& key, const std::string& cause) {
    v1::NodeMessage message;
    {
      absl::MutexLock lock(&mu_);
      auto it = actors_.find(key);
      if (it == actors_.end()) return;
      const Hosted& hosted = it->second;
      v1::ActorExited* exited = message.mutable_actor_exited();
      exited->set_actor_id(hosted.spec.actor_id());
      exited->set_incarnation(hosted.incarnation);
      exited->set_may_restart(hosted.construction_error.empty());
      if (!hosted.construction_error.empty()) {
        exited->set_cause(ToUtf8(absl::StrCat("its constructor failed: ",
                                              hosted.construction_error)));
      } else if (!hosted.stop_reason.empty()) {
        exited->set_cause(hosted.stop_reason);
      } else {
        exited->set_cause(ToUtf8(cause));
        exited->set_last_output(ToUtf8(LastOutput(hosted.log_file)));
      }
      LOG(INFO) << "actor " << hosted.spec.class_name() << " " << key << ": "
                << exited->cause() << exited->last_output();
      actors_.erase(it);
    }
    Send(std::move(message));
  }

  // What the process wrote last often says why it died.
  static std::string LastOutput(const std::string& log_file) {
    absl::StatusOr<std::string> tail = ReadFileTail(log_file, kLogTailBytes);
    if (!tail.ok()) return "";
    const absl::string_view text = absl::StripTrailingAsciiWhitespace(*tail);
    if (text.empty()) return "";
    return absl::StrCat("; its last output (", log_file, "): ", text);
  }

  const Options options_;
  const std::string node_ip_;
  std::string node_id_;  // Changes under mu_ when the head gives the node up.
  PackageStore packages_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Head::Stub> stub_;
  std::unique_ptr<ProcessSupervisor> supervisor_;
  absl::Mutex shutdown_mu_;
  absl::Notification stopping_;

  absl::Mutex mu_;
  bool registered_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool start_ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status fatal_ ABSL_GUARDED_BY(mu_);
  std::string last_error_ ABSL_GUARDED_BY(mu_);
  absl::Duration lease_period_ ABSL_GUARDED_BY(mu_) = absl::Seconds(3);
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
  Stream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;
  grpc::ClientContext* fetch_context_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::deque<v1::NodeMessage> outbox_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::StartActor> starts_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Hosted> actors_ ABSL_GUARDED_BY(mu_);

  std::thread starter_;
  std::thread link_;
  std::thread lease_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerDaemon>> WorkerDaemon::Start(
    Options options) {
  MR_ASSIGN_OR_RETURN(const HostPort head, ParseHostPort(options.head_address));
  std::string node_ip = options.node_ip;
  if (node_ip.empty()) {
    MR_ASSIGN_OR_RETURN(node_ip, LocalAddressTowards(head));
  }
  auto daemon = std::make_unique<WorkerDaemonImpl>(std::move(options), node_ip);
  MR_RETURN_IF_ERROR(daemon->Begin());
  return daemon;
}

}  // namespace miniray
