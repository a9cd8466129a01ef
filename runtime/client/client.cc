#include "runtime/client/client.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "grpcpp/grpcpp.h"
#include "proto/head.grpc.pb.h"
#include "runtime/actor/plugins.h"
#include "runtime/base/background.h"
#include "runtime/base/backoff.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/malloc.h"
#include "runtime/base/net.h"
#include "runtime/base/silence.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/client/actor_connection.h"
#include "runtime/client/driver_session.h"
#include "runtime/client/object_client.h"
#include "runtime/link/transport.h"
#include "runtime/packages/upload.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/fault_injector.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/redialler.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace internal {
namespace {

// What a head that is there may take to answer, however short a time its asker
// has.
constexpr absl::Duration kLeastAnswer = absl::Seconds(2);
// Of one question that waits for a change; the head may be another one by the
// next.
constexpr absl::Duration kMaxWait = absl::Seconds(10);
constexpr absl::Duration kReconnectTimeout = absl::Seconds(60);
// Of the last try, which is for the reason: mostly it fails at once.
constexpr absl::Duration kLastTry = absl::Milliseconds(100);
// Without an answer for so long, stderr says so, not more often than this.
constexpr absl::Duration kSilenceTime = absl::Seconds(5);
constexpr absl::Duration kTellPeriod = absl::Seconds(10);
// Between two looks at whether to go on waiting for a connection.
constexpr absl::Duration kDialPeriod = absl::Milliseconds(500);
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kMaxBackoff = absl::Seconds(1);
// Whoever ends actors or groups is mostly about to end itself.
constexpr absl::Duration kKillTimeout = absl::Seconds(5);
constexpr absl::Duration kRemoveTimeout = absl::Seconds(20);
// For asking why a connection broke, beyond the time that the head itself may
// wait for the answer: calls wait to fail, and a dead head never answers.
constexpr absl::Duration kPostMortemTimeout = absl::Seconds(2);
// Connections beyond which those of dead actors are looked for.
constexpr size_t kManyConnections = 256;
// Constructor arguments pass through the head and the daemon.
constexpr size_t kMaxSpecBytes = 3 << 20;

class ClientImpl : public Client {
 public:
  ClientImpl(Options options, Transport transport)
      : options_(std::move(options)),
        transport_(transport),
        channel_(MakeDialledChannel(options_.head_address)),
        redialler_(channel_.get()),
        stub_(v1::Head::NewStub(channel_)) {
    if (options_.job_id.empty()) options_.job_id = NewId("job");
    KeepFreedMemory();
  }

  ~ClientImpl() override {
    Shutdown();
    // We may be inside a callback here: see ActorStream.
    RunInBackground([channel = channel_] {});
  }

  absl::Status Begin() {
    if (options_.is_driver) {
      MR_RETURN_IF_ERROR(BeginSession());
      options_.periods = session_->periods();
    }
    const v1::ClusterPeriods& periods = options_.periods;
    if (options_.reconnect_timeout == absl::ZeroDuration()) {
      options_.reconnect_timeout =
          periods.reconnect_timeout_ms() > 0
              ? absl::Milliseconds(periods.reconnect_timeout_ms())
              : kReconnectTimeout;
    }
    if (periods.max_reconnect_pause_ms() > 0) {
      redialler_.SetMaxPause(
          absl::Milliseconds(periods.max_reconnect_pause_ms()));
    }
    MakeObjectClient();
    return absl::OkStatus();
  }

  void MakeObjectClient() {
    ObjectClient::Options objects;
    objects.token = options_.token;
    objects.job_id = options_.job_id;
    objects.owner = options_.object_owner;
    objects.local_store = options_.object_address;
    objects.channels = channels_;
    objects.reconnect_timeout = options_.reconnect_timeout;
    objects.nodes = [this]() -> absl::StatusOr<std::vector<v1::NodeInfo>> {
      MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                          GetClusterState());
      return std::vector<v1::NodeInfo>(state.nodes().begin(),
                                       state.nodes().end());
    };
    objects.actor = [this](const std::string& id, int32_t incarnation,
                           absl::Duration timeout) {
      return LocateActor(id, incarnation, timeout);
    };
    objects_ = std::make_shared<ObjectClient>(std::move(objects));
  }

  absl::Status BeginSession() {
    MR_ASSIGN_OR_RETURN(executable_, ExecutablePath());
    v1::RegisterDriver registration;
    registration.set_job_id(options_.job_id);
    registration.set_session_id(NewId("session"));
    registration.set_program(Program());
    registration.set_hostname(Hostname());
    registration.set_pid(getpid());
    registration.set_wants_output(options_.log_to_driver);
    session_ = std::make_unique<DriverSession>(stub_.get(), options_.token,
                                               registration, &redialler_);
    absl::Status status = session_->Begin(options_.connect_timeout);
    if (status.ok() || IsRefusal(status) ||
        status.code() == absl::StatusCode::kAlreadyExists ||
        status.code() == absl::StatusCode::kFailedPrecondition) {
      return status;
    }
    return absl::UnavailableError(absl::StrCat(
        "no head answers at ", options_.head_address, " within ",
        absl::FormatDuration(options_.connect_timeout), " (", status.message(),
        "); check the address, or start one with 'miniray start --head'. Where "
        "a head was killed, 'miniray status --address ",
        options_.head_address, "' says how to go on with its cluster"));
  }

  absl::StatusOr<v1::ActorInfo> CreateActor(v1::ActorSpec spec) override {
    MR_ASSIGN_OR_RETURN(const std::string package_id, Package());
    spec.set_actor_id(NewId("actor"));
    spec.set_job_id(options_.job_id);
    spec.set_package_id(package_id);
    spec.set_package_name(Program());
    MR_RETURN_IF_ERROR(AddPlugins(&spec));
    if (spec.ByteSizeLong() > kMaxSpecBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the constructor's arguments have ", spec.ByteSizeLong(),
                       " bytes; at most ", kMaxSpecBytes,
                       " pass through the head: send large values by a call"));
    }
    v1::CreateActorRequest request;
    *request.mutable_spec() = std::move(spec);
    v1::CreateActorResponse response;
    absl::Status status =
        Unary(&v1::Head::Stub::CreateActor, request, &response);
    // The head may have removed the package since: to make room, or because it
    // was damaged on its disk. A second upload is cheap where it has not.
    if (absl::IsFailedPrecondition(status)) {
      MR_RETURN_IF_ERROR(Upload("/proc/self/exe", "this program", package_id));
      status = Unary(&v1::Head::Stub::CreateActor, request, &response);
    }
    MR_RETURN_IF_ERROR(status);
    return response.actor();
  }

  absl::StatusOr<v1::ActorInfo> FindActor(
      absl::string_view name, absl::string_view actor_namespace) override {
    v1::GetActorRequest request;
    request.set_name(std::string(name));
    request.set_actor_namespace(std::string(actor_namespace));
    v1::GetActorResponse response;
    MR_RETURN_IF_ERROR(Unary(&v1::Head::Stub::GetActor, request, &response));
    return response.actor();
  }

  absl::Status WaitUntilAlive(const ActorIdentity& actor,
                              absl::Duration timeout) override {
    const absl::Time deadline = absl::Now() + timeout;
    const auto not_up = [&](absl::string_view why) {
      return absl::DeadlineExceededError(
          absl::StrCat(actor.ToString(), " is not up after ",
                       absl::FormatDuration(timeout), ": ", why));
    };
    int64_t version = 0;
    while (true) {
      const absl::Duration left =
          std::max(deadline - absl::Now(), absl::ZeroDuration());
      v1::GetActorRequest request;
      request.set_actor_id(actor.actor_id);
      request.set_min_version(version);
      request.set_wait_ms(absl::ToInt64Milliseconds(std::min(left, kMaxWait)));
      v1::GetActorResponse response;
      // A head that is started again right now is no reason to give up.
      const absl::Status status =
          Unary(&v1::Head::Stub::GetActor, request, &response,
                Within(left, request.wait_ms()));
      if (IsTooLate(status, left)) return not_up(status.message());
      MR_RETURN_IF_ERROR(status);
      const v1::ActorInfo& info = response.actor();
      if (info.state() == v1::ACTOR_STATE_ALIVE) return absl::OkStatus();
      if (info.state() == v1::ACTOR_STATE_DEAD) {
        return absl::UnavailableError(absl::StrCat(
            actor.ToString(), ": the actor is dead: ", info.cause()));
      }
      if (absl::Now() >= deadline) {
        return not_up(info.cause().empty() ? "its process starts"
                                           : info.cause());
      }
      version = info.version() + 1;
    }
  }

  std::shared_ptr<CallState> Call(const ActorIdentity& actor,
                                  CallRequest request) override {
    std::shared_ptr<ActorConnection> connection;
    {
      absl::MutexLock lock(&mu_);
      if (closed_) {
        return CallState::Failed(
            absl::StrCat(actor.ToString(), ".", request.method),
            absl::CancelledError("the cluster connection was shut down"));
      }
      if (connections_.size() >= kManyConnections) {
        // A call to a dead actor asks the head anew, and hears the same.
        std::erase_if(connections_,
                      [](const auto& item) { return item.second->dead(); });
      }
      std::shared_ptr<ActorConnection>& entry = connections_[actor.actor_id];
      if (entry == nullptr) entry = MakeConnection(actor);
      connection = entry;
    }
    return connection->Call(std::move(request));
  }

  absl::StatusOr<absl::Cord> PutObject(const absl::Cord& value,
                                       std::shared_ptr<void>* hold) override {
    return objects_->Put(value, hold);
  }

  absl::StatusOr<FetchedValue> FetchObject(const absl::Cord& reference,
                                           absl::Duration timeout,
                                           bool alone) override {
    return objects_->Fetch(reference, timeout, alone);
  }

  absl::Status SaveActorState(const std::string& actor_id, int32_t incarnation,
                              const absl::Cord& state) override {
    v1::SaveActorStateRequest request;
    request.set_actor_id(actor_id);
    request.set_incarnation(incarnation);
    absl::CopyCordToString(state, request.mutable_state());
    v1::SaveActorStateResponse response;
    absl::Status status =
        Unary(&v1::Head::Stub::SaveActorState, request, &response);
    // gRPC refuses what is far beyond the head's limit, in its own words.
    if (absl::IsResourceExhausted(status) &&
        absl::StrContains(status.message(), "larger than max")) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          "the state has ", state.size(), " bytes, more than the head takes: ",
          "see miniray start --head --max_state_bytes"));
    }
    return status;
  }

  absl::StatusOr<absl::Cord> LoadActorState(const std::string& actor_id,
                                            int32_t incarnation) override {
    v1::LoadActorStateRequest request;
    request.set_actor_id(actor_id);
    request.set_incarnation(incarnation);
    v1::LoadActorStateResponse response;
    MR_RETURN_IF_ERROR(
        Unary(&v1::Head::Stub::LoadActorState, request, &response));
    return absl::Cord(std::move(*response.mutable_state()));
  }

  absl::Status KillActor(const ActorIdentity& actor, bool no_restart) override {
    const Patience patience = {.away = AtMost(kKillTimeout),
                               .answer = kKillTimeout};
    v1::KillActorRequest request;
    request.set_actor_id(actor.actor_id);
    request.set_no_restart(no_restart);
    if (!no_restart) {
      // Should the answer get lost, asking again must not end the next process.
      v1::GetActorRequest get;
      get.set_actor_id(actor.actor_id);
      v1::GetActorResponse got;
      MR_RETURN_IF_ERROR(Unary(&v1::Head::Stub::GetActor, get, &got, patience));
      request.set_incarnation(got.actor().restarts());
    }
    v1::KillActorResponse response;
    return Unary(&v1::Head::Stub::KillActor, request, &response, patience);
  }

  absl::StatusOr<v1::PlacementGroupInfo> CreatePlacementGroup(
      v1::PlacementGroupSpec spec) override {
    spec.set_placement_group_id(NewId("group"));
    spec.set_job_id(options_.job_id);
    v1::CreatePlacementGroupRequest request;
    *request.mutable_spec() = std::move(spec);
    v1::CreatePlacementGroupResponse response;
    MR_RETURN_IF_ERROR(
        Unary(&v1::Head::Stub::CreatePlacementGroup, request, &response));
    return std::move(*response.mutable_group());
  }

  // wait_ms, if there is one: all the time that the caller has.
  // DEADLINE_EXCEEDED: the head was silent for as long.
  absl::StatusOr<v1::PlacementGroupInfo> GetPlacementGroup(
      const v1::GetPlacementGroupRequest& request) override {
    const absl::Duration left = request.wait_ms() > 0
                                    ? absl::Milliseconds(request.wait_ms())
                                    : absl::InfiniteDuration();
    v1::GetPlacementGroupRequest once = request;
    once.set_wait_ms(
        std::min(request.wait_ms(), absl::ToInt64Milliseconds(kMaxWait)));
    v1::GetPlacementGroupResponse response;
    const absl::Status status = Unary(&v1::Head::Stub::GetPlacementGroup, once,
                                      &response, Within(left, once.wait_ms()));
    if (IsTooLate(status, left)) {
      return absl::DeadlineExceededError(status.message());
    }
    MR_RETURN_IF_ERROR(status);
    return std::move(*response.mutable_group());
  }

  absl::Status RemovePlacementGroup(const std::string& id) override {
    v1::RemovePlacementGroupRequest request;
    request.set_placement_group_id(id);
    v1::RemovePlacementGroupResponse response;
    return Unary(&v1::Head::Stub::RemovePlacementGroup, request, &response,
                 {.away = AtMost(kRemoveTimeout)});
  }

  absl::StatusOr<v1::GetClusterStateResponse> GetClusterState() override {
    v1::GetClusterStateResponse response;
    MR_RETURN_IF_ERROR(Unary(&v1::Head::Stub::GetClusterState,
                             v1::GetClusterStateRequest(), &response));
    return response;
  }

  void Shutdown() override {
    std::map<std::string, std::shared_ptr<ActorConnection>> connections;
    {
      absl::MutexLock lock(&mu_);
      if (closed_) return;
      closed_ = true;
      connections.swap(connections_);
      if (objects_ != nullptr) objects_->Close();
      for (grpc::ClientContext* context : lookups_) context->TryCancel();
    }
    for (auto& [id, connection] : connections) {
      connection->Close(
          absl::CancelledError("the cluster connection was shut down"));
    }
    if (session_ != nullptr) session_->End();
    absl::MutexLock lock(&mu_);
    auto quiet = [this] {
      mu_.AssertHeld();
      return lookups_.empty();
    };
    mu_.Await(absl::Condition(&quiet));
  }

  const std::string& job_id() const override { return options_.job_id; }
  const std::string& head_address() const override {
    return options_.head_address;
  }

 private:
  std::string Program() const {
    return std::filesystem::path(executable_).filename().string();
  }

  // Where a process of an actor is. The head need not be there if this process
  // is connected to it.
  absl::StatusOr<v1::ActorInfo> LocateActor(const std::string& id,
                                            int32_t incarnation,
                                            absl::Duration timeout) {
    std::shared_ptr<ActorConnection> connection;
    {
      absl::MutexLock lock(&mu_);
      const auto it = connections_.find(id);
      if (it != connections_.end()) connection = it->second;
    }
    if (connection != nullptr) {
      if (auto info = connection->ConnectedInfo(incarnation)) {
        return *std::move(info);
      }
    }
    v1::GetActorRequest request;
    request.set_actor_id(id);
    v1::GetActorResponse response;
    MR_RETURN_IF_ERROR(Unary(&v1::Head::Stub::GetActor, request, &response,
                             {.away = AtMost(timeout),
                              .answer = std::min(timeout, SilenceTimeout())}));
    return response.actor();
  }

  std::shared_ptr<ActorConnection> MakeConnection(const ActorIdentity& actor) {
    ActorConnection::Options options;
    options.token = options_.token;
    options.head_address = options_.head_address;
    options.reconnect_timeout = options_.reconnect_timeout;
    options.channels = channels_;
    options.transport = transport_;
    options.fetcher = weak_from_this();
    options.lookup =
        [this](v1::GetActorRequest request,
               std::function<void(absl::StatusOr<v1::ActorInfo>)> done) {
          LookUp(std::move(request), std::move(done));
        };
    return std::make_shared<ActorConnection>(actor, std::move(options));
  }

  // How long a request waits.
  struct Patience {
    absl::Duration away;                       // While nobody is there.
    absl::Duration answer = SilenceTimeout();  // For one who is, at least.
  };

  absl::Duration AtMost(absl::Duration limit) const {
    return std::min(limit, options_.reconnect_timeout);
  }

  // Of who has so much time, for a question that the head may keep for a part
  // of it before it answers.
  Patience Within(absl::Duration left, int64_t wait_ms) const {
    const absl::Duration wait = absl::Milliseconds(wait_ms);
    return {.away = AtMost(left),
            .answer = wait + std::min(std::max(left - wait, kLeastAnswer),
                                      SilenceTimeout())};
  }
  // Whether it was the time of the asker that ended, and not what a head may be
  // away.
  bool IsTooLate(const absl::Status& status, absl::Duration left) const {
    return absl::IsUnavailable(status) && left < options_.reconnect_timeout;
  }

  template <class Request, class Response>
  absl::Status Unary(grpc::Status (v1::Head::Stub::*method)(
                         grpc::ClientContext*, const Request&, Response*),
                     const Request& request, Response* response) {
    return Unary(method, request, response,
                 {.away = options_.reconnect_timeout});
  }

  // Asks the head, and again while it is away. All that it is asked may be sent
  // twice (proto/head.proto), so a head that is killed and started again in the
  // middle of a request is not noticed. UNAVAILABLE: it stayed away.
  template <class Request, class Response>
  absl::Status Unary(grpc::Status (v1::Head::Stub::*method)(
                         grpc::ClientContext*, const Request&, Response*),
                     const Request& request, Response* response,
                     const Patience& patience) {
    const absl::Time begin = absl::Now();
    const absl::Time deadline = begin + patience.away;
    Backoff backoff(kFirstBackoff, kMaxBackoff);
    while (true) {
      const bool connected = AwaitHead(begin, deadline);
      grpc::ClientContext context;
      PrepareContext(&context, options_.token,
                     connected
                         ? std::max(deadline - absl::Now(), patience.answer)
                         : kLastTry);
      const grpc::Status status =
          (stub_.get()->*method)(&context, request, response);
      bool again = false;
      if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
        MR_ASSIGN_OR_RETURN(again, Pause(&backoff, deadline));
      }
      if (!again) return HeadStatus(status, begin);
    }
  }

  // Before another try. False: there is none before `deadline`. Errors:
  // CANCELLED, this client was shut down.
  absl::StatusOr<bool> Pause(Backoff* backoff, absl::Time deadline) {
    const absl::Duration pause = backoff->Next();
    if (absl::Now() + pause > deadline) return false;
    absl::MutexLock lock(&mu_);
    if (mu_.AwaitWithTimeout(absl::Condition(&closed_), pause)) {
      return absl::CancelledError("the cluster connection was shut down");
    }
    return true;
  }

  // Whether there is a connection to the head; waits for one until `deadline`,
  // or until this client is shut down.
  bool AwaitHead(absl::Time begin, absl::Time deadline) {
    while (!redialler_.AwaitConnected(
        std::min(deadline, absl::Now() + kDialPeriod))) {
      if (absl::Now() >= deadline) return false;
      if (absl::Now() - begin >= kSilenceTime) TellSilence(deadline);
      absl::MutexLock lock(&mu_);
      if (closed_) return false;
    }
    return true;
  }

  // Nobody at a terminal should have to guess what a program waits for.
  void TellSilence(absl::Time deadline) {
    {
      absl::MutexLock lock(&mu_);
      if (absl::Now() < next_telling_) return;
      next_telling_ = absl::Now() + kTellPeriod;
    }
    fprintf(stderr,
            "miniray: the head at %s does not answer; waiting %s more\n",
            options_.head_address.c_str(),
            absl::FormatDuration(
                absl::Trunc(deadline - absl::Now(), absl::Seconds(1)))
                .c_str());
  }

  // What a request to the head came to; silence is told as such, with what to
  // do.
  absl::Status HeadStatus(const grpc::Status& status, absl::Time begin) const {
    const absl::Status result = HeadStatus(status);
    if (!absl::IsUnavailable(result)) return result;
    return absl::UnavailableError(absl::StrCat(
        result.message(), "; waited for ",
        absl::FormatDuration(
            absl::Trunc(absl::Now() - begin, absl::Milliseconds(100))),
        ". 'miniray status --address ", options_.head_address,
        "' says whether it lives, and how to go on with its cluster where it "
        "was killed"));
  }

  absl::Status HeadStatus(const grpc::Status& status) const {
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
        status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      return absl::UnavailableError(absl::StrCat(
          "the head at ", options_.head_address, " does not answer (",
          status.error_message(), TlsAdvice(status.error_message()), ")"));
    }
    return FromGrpcStatus(status);
  }

  void LookUp(v1::GetActorRequest request,
              std::function<void(absl::StatusOr<v1::ActorInfo>)> done) {
    struct Pending {
      grpc::ClientContext context;
      v1::GetActorRequest request;
      v1::GetActorResponse response;
    };
    auto pending = std::make_shared<Pending>();
    pending->request = std::move(request);
    PrepareContext(&pending->context, options_.token,
                   (pending->request.min_version() > 0
                        ? kPostMortemTimeout
                        : std::clamp(options_.reconnect_timeout,
                                     kPostMortemTimeout, SilenceTimeout())) +
                       absl::Milliseconds(pending->request.wait_ms()));
    pending->context.set_wait_for_ready(true);
    {
      // Lock order: a connection's, then ours. Nothing here calls a connection
      // with mu_ held.
      absl::MutexLock lock(&mu_);
      lookups_.push_back(&pending->context);
      if (closed_) pending->context.TryCancel();
    }
    stub_->async()->GetActor(
        &pending->context, &pending->request, &pending->response,
        [this, pending, done = std::move(done)](grpc::Status status) {
          // Nothing of ours may be touched after this but by `done`, and that
          // does so only while its connection is open: see Shutdown.
          absl::StatusOr<v1::ActorInfo> result;
          if (status.ok()) {
            result = std::move(*pending->response.mutable_actor());
          } else {
            result = HeadStatus(status);
          }
          {
            absl::MutexLock lock(&mu_);
            std::erase(lookups_, &pending->context);
          }
          done(std::move(result));
        });
  }

  // The id of this program as a package; uploads it the first time.
  absl::StatusOr<std::string> Package() {
    absl::MutexLock lock(&package_mu_);
    if (!package_id_.empty()) return package_id_;
    if (executable_.empty()) {
      MR_ASSIGN_OR_RETURN(executable_, ExecutablePath());
    }
    // Not by its path: the file may have been rebuilt since the program
    // started.
    MR_ASSIGN_OR_RETURN(const std::string id, Sha256OfFile("/proc/self/exe"));
    MR_RETURN_IF_ERROR(Upload("/proc/self/exe", "this program", id));
    package_id_ = id;
    return package_id_;
  }

  // The same for its plug-ins.
  absl::Status AddPlugins(v1::ActorSpec* spec) {
    absl::MutexLock lock(&package_mu_);
    for (PluginFile& plugin : ProgramPlugins()) {
      if (plugin.package_id.empty()) {
        MR_ASSIGN_OR_RETURN(const std::string id, Sha256OfFile(plugin.path));
        MR_RETURN_IF_ERROR(Upload(plugin.path, plugin.name, id));
        plugin.package_id = id;
      }
      v1::Plugin* const added = spec->add_plugins();
      added->set_package_id(plugin.package_id);
      added->set_name(ToUtf8(plugin.name));
    }
    return absl::OkStatus();
  }

  absl::Status Upload(const std::string& path, const std::string& what,
                      const std::string& id) {
    v1::HasPackageRequest request;
    request.set_package_id(id);
    v1::HasPackageResponse response;
    const absl::Time deadline = absl::Now() + options_.reconnect_timeout;
    Backoff backoff(kFirstBackoff, kMaxBackoff);
    absl::Status status;
    bool again = true;
    while (again) {
      MR_RETURN_IF_ERROR(
          Unary(&v1::Head::Stub::HasPackage, request, &response));
      if (response.present()) return absl::OkStatus();
      status = UploadPackage(stub_.get(), options_.token, path, id);
      again = false;
      // What a head had of it when it was killed counts for nothing.
      if (absl::IsUnavailable(status)) {
        MR_ASSIGN_OR_RETURN(again, Pause(&backoff, deadline));
      }
    }
    return Annotate(status, absl::StrCat("send ", what, " to the head at ",
                                         options_.head_address));
  }

  Options options_;
  const Transport transport_;
  std::string executable_;
  const std::shared_ptr<grpc::Channel> channel_;
  Redialler redialler_;
  const std::unique_ptr<v1::Head::Stub> stub_;
  std::unique_ptr<DriverSession> session_;
  // To actors and object stores.
  const std::shared_ptr<ChannelPool> channels_ =
      std::make_shared<ChannelPool>();
  std::shared_ptr<ObjectClient> objects_;

  absl::Mutex package_mu_;
  std::string package_id_ ABSL_GUARDED_BY(package_mu_);

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, std::shared_ptr<ActorConnection>> connections_
      ABSL_GUARDED_BY(mu_);
  absl::Time next_telling_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::vector<grpc::ClientContext*> lookups_ ABSL_GUARDED_BY(mu_);
};

// What Client::Current returns.
absl::Mutex current_mu(absl::kConstInit);
std::weak_ptr<Client>* current ABSL_GUARDED_BY(current_mu) = nullptr;

}  // namespace

std::string ActorIdentity::ToString() const {
  return absl::StrCat(ShortClassName(class_name), " ",
                      name.empty() ? absl::StrCat("(", actor_id, ")")
                                   : absl::StrCat("'", name, "'"));
}

absl::StatusOr<std::shared_ptr<Client>> Client::Connect(Options options) {
  MR_RETURN_IF_ERROR(ParseHostPort(options.head_address).status());
  MR_RETURN_IF_ERROR(UseFaultsFromEnvironment());
  MR_ASSIGN_OR_RETURN(Transport transport, TransportFromEnvironment());
  if (transport == Transport::kAuto && !options.local_transport) {
    transport = Transport::kTcp;
  }
  auto client = std::make_shared<ClientImpl>(std::move(options), transport);
  MR_RETURN_IF_ERROR(client->Begin());
  absl::MutexLock lock(&current_mu);
  if (current == nullptr) current = new std::weak_ptr<Client>;
  *current = client;
  return client;
}

std::shared_ptr<Client> Client::Current() {
  absl::MutexLock lock(&current_mu);
  return current == nullptr ? nullptr : current->lock();
}

}  // namespace internal
}  // namespace miniray
