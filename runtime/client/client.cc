#include "runtime/client/client.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/ids.h"
#include "runtime/base/malloc.h"
#include "runtime/base/net.h"
#include "runtime/base/silence.h"
#include "runtime/base/status_macros.h"
#include "runtime/client/actor_connection.h"
#include "runtime/client/driver_session.h"
#include "runtime/client/head_requests.h"
#include "runtime/client/inspect_actor.h"
#include "runtime/client/object_client.h"
#include "runtime/client/program_packages.h"
#include "runtime/link/transport.h"
#include "runtime/rpc/fault_injector.h"

namespace miniray {
namespace internal {
namespace {

// Of one question that waits for a change; the head may be another one by the
// next.
constexpr absl::Duration kMaxWait = absl::Seconds(10);
constexpr absl::Duration kReconnectTimeout = absl::Seconds(60);
// Whoever ends actors or groups is mostly about to end itself.
constexpr absl::Duration kKillTimeout = absl::Seconds(5);
constexpr absl::Duration kRemoveTimeout = absl::Seconds(20);
// Connections beyond which those of dead actors are looked for.
constexpr size_t kManyConnections = 256;
// Constructor arguments pass through the head and the daemon.
constexpr size_t kMaxSpecBytes = 3 << 20;

class ClientImpl : public Client {
 public:
  ClientImpl(Options options, Transport transport)
      : options_(std::move(options)),
        transport_(transport),
        head_(options_.head_address, options_.token) {
    if (options_.job_id.empty()) options_.job_id = NewId("job");
    // Actors' malloc is set when they start.
    if (options_.is_driver) KeepFreedMemory();
  }

  ~ClientImpl() override { Shutdown(); }

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
    head_.SetPeriods(options_.reconnect_timeout,
                     absl::Milliseconds(periods.max_reconnect_pause_ms()));
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
    MR_ASSIGN_OR_RETURN(const std::string program, packages_.ProgramName());
    v1::RegisterDriver registration;
    registration.set_job_id(options_.job_id);
    registration.set_session_id(NewId("session"));
    registration.set_program(program);
    registration.set_hostname(Hostname());
    registration.set_pid(getpid());
    registration.set_wants_output(options_.log_to_driver);
    session_ = std::make_unique<DriverSession>(head_.stub(), options_.token,
                                               registration, head_.redialler());
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
    spec.set_actor_id(NewId("actor"));
    spec.set_job_id(options_.job_id);
    MR_RETURN_IF_ERROR(packages_.AddTo(&spec));
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
        head_.Ask(&v1::Head::Stub::CreateActor, request, &response);
    // The head may have removed the package since: to make room, or because it
    // was damaged on its disk. A second upload is cheap where it has not.
    if (absl::IsFailedPrecondition(status)) {
      MR_RETURN_IF_ERROR(packages_.SendAgain(request.spec()));
      status = head_.Ask(&v1::Head::Stub::CreateActor, request, &response);
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
    MR_RETURN_IF_ERROR(
        head_.Ask(&v1::Head::Stub::GetActor, request, &response));
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
          head_.Ask(&v1::Head::Stub::GetActor, request, &response,
                    head_.Within(left, request.wait_ms()));
      if (head_.IsTooLate(status, left)) return not_up(status.message());
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

  absl::StatusOr<v1::InspectResponse> Inspect(const ActorIdentity& actor,
                                              absl::Duration timeout) override {
    const absl::Time deadline = absl::Now() + timeout;
    const absl::StatusOr<v1::ActorInfo> info =
        LocateActor(actor.actor_id, std::nullopt, timeout);
    if (head_.IsTooLate(info.status(), timeout)) {
      return absl::DeadlineExceededError(info.status().message());
    }
    MR_RETURN_IF_ERROR(Annotate(info.status(), actor.ToString()));
    absl::StatusOr<v1::InspectResponse> response =
        InspectActor(*info, options_.token, channels_.get(), deadline);
    MR_RETURN_IF_ERROR(Annotate(response.status(), actor.ToString()));
    return response;
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

  std::vector<std::shared_ptr<void>> HoldObjects(
      const std::vector<absl::Cord>& references) override {
    return objects_->Hold(references);
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
        head_.Ask(&v1::Head::Stub::SaveActorState, request, &response);
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
        head_.Ask(&v1::Head::Stub::LoadActorState, request, &response));
    return absl::Cord(std::move(*response.mutable_state()));
  }

  absl::Status KillActor(const ActorIdentity& actor, bool no_restart) override {
    const HeadRequests::Patience patience = {.away = head_.AtMost(kKillTimeout),
                                             .answer = kKillTimeout};
    v1::KillActorRequest request;
    request.set_actor_id(actor.actor_id);
    request.set_no_restart(no_restart);
    if (!no_restart) {
      // Should the answer get lost, asking again must not end the next process.
      v1::GetActorRequest get;
      get.set_actor_id(actor.actor_id);
      v1::GetActorResponse got;
      MR_RETURN_IF_ERROR(
          head_.Ask(&v1::Head::Stub::GetActor, get, &got, patience));
      request.set_incarnation(got.actor().restarts());
    }
    v1::KillActorResponse response;
    return head_.Ask(&v1::Head::Stub::KillActor, request, &response, patience);
  }

  absl::StatusOr<v1::PlacementGroupInfo> CreatePlacementGroup(
      v1::PlacementGroupSpec spec) override {
    spec.set_placement_group_id(NewId("group"));
    spec.set_job_id(options_.job_id);
    v1::CreatePlacementGroupRequest request;
    *request.mutable_spec() = std::move(spec);
    v1::CreatePlacementGroupResponse response;
    MR_RETURN_IF_ERROR(
        head_.Ask(&v1::Head::Stub::CreatePlacementGroup, request, &response));
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
    const absl::Status status =
        head_.Ask(&v1::Head::Stub::GetPlacementGroup, once, &response,
                  head_.Within(left, once.wait_ms()));
    if (head_.IsTooLate(status, left)) {
      return absl::DeadlineExceededError(status.message());
    }
    MR_RETURN_IF_ERROR(status);
    return std::move(*response.mutable_group());
  }

  absl::Status RemovePlacementGroup(const std::string& id) override {
    v1::RemovePlacementGroupRequest request;
    request.set_placement_group_id(id);
    v1::RemovePlacementGroupResponse response;
    return head_.Ask(&v1::Head::Stub::RemovePlacementGroup, request, &response,
                     {.away = head_.AtMost(kRemoveTimeout)});
  }

  absl::StatusOr<v1::GetClusterStateResponse> GetClusterState() override {
    v1::GetClusterStateResponse response;
    MR_RETURN_IF_ERROR(head_.Ask(&v1::Head::Stub::GetClusterState,
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
    }
    head_.Close();
    for (auto& [id, connection] : connections) {
      connection->Close(
          absl::CancelledError("the cluster connection was shut down"));
    }
    if (session_ != nullptr) session_->End();
    head_.AwaitLookUps();
  }

  const std::string& job_id() const override { return options_.job_id; }
  const std::string& head_address() const override {
    return options_.head_address;
  }
  const std::string& token() const { return options_.token; }

 private:
  // Where a process of an actor is: that one, or whichever. The head need not
  // be there if this process is connected to it.
  absl::StatusOr<v1::ActorInfo> LocateActor(const std::string& id,
                                            std::optional<int32_t> incarnation,
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
    MR_RETURN_IF_ERROR(
        head_.Ask(&v1::Head::Stub::GetActor, request, &response,
                  {.away = head_.AtMost(timeout),
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
    options.hold = [objects = std::weak_ptr<ObjectClient>(objects_)](
                       const absl::Cord& reference,
                       std::function<void(std::shared_ptr<void>)> done) {
      if (const auto alive = objects.lock()) {
        alive->HoldSoon(reference, std::move(done));
      } else {
        done(nullptr);
      }
    };
    options.lookup =
        [this](v1::GetActorRequest request,
               std::function<void(absl::StatusOr<v1::ActorInfo>)> done) {
          head_.LookUp(std::move(request), std::move(done));
        };
    return std::make_shared<ActorConnection>(actor, std::move(options));
  }

  Options options_;
  const Transport transport_;
  HeadRequests head_;
  ProgramPackages packages_{&head_};
  std::unique_ptr<DriverSession> session_;
  // To actors and object stores.
  const std::shared_ptr<ChannelPool> channels_ =
      std::make_shared<ChannelPool>();
  std::shared_ptr<ObjectClient> objects_;

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, std::shared_ptr<ActorConnection>> connections_
      ABSL_GUARDED_BY(mu_);
};

// What Client::Current returns.
absl::Mutex current_mu(absl::kConstInit);
std::weak_ptr<Client>* current ABSL_GUARDED_BY(current_mu) = nullptr;
thread_local std::weak_ptr<Client> client_of_thread;

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

HeadAccess HeadAccessOf(const Client& client) {
  const auto* const real = dynamic_cast<const ClientImpl*>(&client);
  return {client.head_address(), real == nullptr ? "" : real->token()};
}

void Client::SetOfThread(std::weak_ptr<Client> client) {
  client_of_thread = std::move(client);
}

std::shared_ptr<Client> Client::Current() {
  if (auto client = client_of_thread.lock()) return client;
  absl::MutexLock lock(&current_mu);
  return current == nullptr ? nullptr : current->lock();
}

}  // namespace internal
}  // namespace miniray
