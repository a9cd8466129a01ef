#include "runtime/client/object_client.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "proto/actor.grpc.pb.h"
#include "proto/object.grpc.pb.h"
#include "runtime/base/background.h"
#include "runtime/base/ids.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/client/range_fetch.h"
#include "runtime/objects/chunk_stream.h"
#include "runtime/objects/memory_file.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/wire/value.h"

namespace miniray {
namespace internal {
namespace {

// A smaller value is sent: that takes no longer.
constexpr size_t kMinHandedOver = 64 << 10;
// How often a store is asked for the place of an object that leaves its memory
// again before it is mapped.
constexpr int kMapTries = 20;
// Of one message to a store, which is tried again; internal.
constexpr absl::Duration kReleaseTimeout = absl::Seconds(10);
constexpr absl::Duration kReleasePause = absl::Seconds(2);
constexpr int kReleaseTries = 3;
// The same of what a method, or a Get, waits for. The node's store may have to
// ask another one, for 10 s at most.
constexpr absl::Duration kHoldTimeout = absl::Seconds(20);
// Stores take 4 MiB.
constexpr size_t kMaxClaimsPerMessage = 16384;
// Between the attempts to reach an actor.
constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kMaxPause = absl::Seconds(1);

constexpr char kFetchFromStore[] = "/miniray.v1.ObjectStore/FetchObject";
constexpr char kFetchFromActor[] = "/miniray.v1.ActorService/FetchObject";

absl::Status ClosedError() {
  return absl::CancelledError("the cluster connection was shut down");
}

void SetDeadline(grpc::ClientContext* context, absl::Time deadline) {
  if (deadline != absl::InfiniteFuture()) {
    context->set_deadline(absl::ToChronoTime(deadline));
  }
}

// True if the store cannot hand the object over here, but may send it.
bool MustBeSent(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) ||
         absl::IsResourceExhausted(status);
}

// True for the address of a store on this machine, as it seems.
bool IsHere(const std::string& address) {
  const absl::StatusOr<HostPort> store = ParseHostPort(address);
  if (!store.ok()) return false;
  const absl::StatusOr<std::string> local = LocalAddressTowards(*store);
  return local.ok() && *local == store->host;
}

void WarnNotHeld(const std::string& store, size_t count,
                 const absl::Status& status) {
  LOG_EVERY_N(WARNING, 100)
      << "the object store at " << store
      << " could not be told that this process holds " << count
      << " objects, which may be freed before their ObjectRefs are gone: "
      << status.message();
}

absl::StatusOr<v1::ObjectRefValue> DecodeReference(const absl::Cord& value) {
  v1::Value parsed;
  if (!parsed.ParseFromString(std::string(value)) || !parsed.has_object()) {
    return absl::InvalidArgumentError("malformed reference to an object");
  }
  return std::move(*parsed.mutable_object());
}

}  // namespace

class ObjectClient::Held {
 public:
  Held(std::weak_ptr<ObjectClient> client, std::string store, std::string id,
       int64_t turn)
      : client_(std::move(client)), store_(std::move(store)) {
    claim.set_object_id(std::move(id));
    claim.set_turn(turn);
  }
  ~Held() {
    // Wherever the last reference dies: perhaps under somebody's lock.
    RunInBackground([client = std::move(client_), store = std::move(store_),
                     claim = std::move(claim)] {
      if (auto self = client.lock()) self->LetGo(store, claim);
    });
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  v1::ObjectClaim claim;  // Without its source.
  std::string source;
  absl::Notification registered;  // Or it failed.

 private:
  std::weak_ptr<ObjectClient> client_;
  std::string store_;
};

bool IsReference(const absl::Cord& value) {
  // Its field's tag: the kind is known without parsing a large value.
  constexpr char kTag = static_cast<int>(ValueKind::kObject) << 3 | 2;
  return !value.empty() && *value.char_begin() == kTag;
}

absl::Cord EncodeReference(const v1::ObjectRefValue& object) {
  v1::Value value;
  *value.mutable_object() = object;
  return absl::Cord(value.SerializeAsString());
}

absl::StatusOr<absl::Cord> ObjectClient::Put(const absl::Cord& value,
                                             std::shared_ptr<void>* hold) {
  MR_ASSIGN_OR_RETURN(std::string store, FindStore());
  const std::string id = NewId("object");
  absl::Status status = Upload(store, id, value);
  if (absl::IsUnavailable(status) && options_.local_store.empty()) {
    // That node may be gone; another one will do.
    {
      absl::MutexLock lock(&mu_);
      store_.clear();
    }
    MR_ASSIGN_OR_RETURN(store, FindStore());
    status = Upload(store, id, value);
  }
  MR_RETURN_IF_ERROR(Annotate(status, "put a value"));
  v1::ObjectRefValue object;
  object.set_object_id(id);
  object.set_size(static_cast<int64_t>(value.size()));
  object.set_store_address(store);
  auto held = std::make_shared<Held>(weak_from_this(), store, id, /*turn=*/0);
  held->registered.Notify();
  {
    absl::MutexLock lock(&mu_);
    held_[id] = held;
  }
  *hold = std::move(held);
  return EncodeReference(object);
}

absl::StatusOr<std::string> ObjectClient::FindStore() {
  if (!options_.local_store.empty()) return options_.local_store;
  {
    absl::MutexLock lock(&mu_);
    if (!store_.empty()) return store_;
  }
  MR_ASSIGN_OR_RETURN(const std::vector<v1::NodeInfo> nodes, options_.nodes());
  std::string found;
  for (const v1::NodeInfo& node : nodes) {
    if (node.state() != v1::NODE_STATE_ALIVE || node.object_address().empty()) {
      continue;
    }
    if (node.hostname() == Hostname()) {
      found = node.object_address();
      break;
    }
    if (found.empty()) found = node.object_address();
  }
  if (found.empty()) {
    return absl::UnavailableError(
        "no node of the cluster is up, so there is no place to put a value");
  }
  absl::MutexLock lock(&mu_);
  store_ = found;
  return found;
}

absl::Status ObjectClient::Upload(const std::string& store,
                                  const std::string& id,
                                  const absl::Cord& value) {
  if (value.size() >= kMinHandedOver && IsHere(store)) {
    const absl::Status status = HandOver(store, id, value);
    if (!absl::IsFailedPrecondition(status)) return status;
  }
  const std::shared_ptr<grpc::Channel> channel = options_.channels->Get(store);
  grpc::ClientContext context;
  AddToken(&context, options_.token);
  Chunk first;
  first.object_id = id;
  first.job_id = options_.job_id;
  first.owner = options_.owner;
  return PutChunks(channel.get(), &context, std::move(first), value);
}

absl::Status ObjectClient::HandOver(const std::string& store,
                                    const std::string& id,
                                    const absl::Cord& value) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<MemoryFile> file,
                      MemoryFile::Create(static_cast<int64_t>(value.size())));
  MR_RETURN_IF_ERROR(file->Append(value));
  MR_RETURN_IF_ERROR(file->Seal());
  auto stub = v1::ObjectStore::NewStub(options_.channels->Get(store));
  grpc::ClientContext context;
  AddToken(&context, options_.token);
  v1::AdoptObjectRequest request;
  request.set_object_id(id);
  request.set_job_id(options_.job_id);
  request.set_owner(options_.owner);
  *request.mutable_file() = file->shared();
  v1::PutObjectResponse response;
  return FromGrpcStatus(stub->AdoptObject(&context, request, &response));
}

absl::StatusOr<FetchedValue> ObjectClient::Fetch(const absl::Cord& reference,
                                                 absl::Duration timeout,
                                                 bool alone) {
  if (closed()) return ClosedError();
  MR_ASSIGN_OR_RETURN(const v1::ObjectRefValue object,
                      DecodeReference(reference));
  if (object.size() < 0) {
    return absl::InvalidArgumentError("an object of negative size");
  }
  const absl::Time deadline = absl::Now() + timeout;
  if (object.store_address().empty()) {
    return FetchFromActor(object, deadline, alone);
  }
  std::string store = options_.local_store;
  if (store.empty() && IsHere(object.store_address())) {
    store = object.store_address();
  }
  if (!store.empty()) {
    v1::LocateObjectRequest request;
    request.set_object_id(object.object_id());
    request.set_source_address(object.store_address());
    absl::StatusOr<absl::Cord> value =
        MapFromStore(store, std::move(request), object.size(), deadline);
    if (value.ok()) return FetchedValue{*std::move(value)};
    if (!MustBeSent(value.status())) {
      return Annotate(value.status(),
                      absl::StrCat(store == object.store_address()
                                       ? "fetch an object from the node's "
                                         "store at "
                                       : "fetch an object to this node from ",
                                   object.store_address()));
    }
  }
  return FetchFromStore(object, deadline);
}

absl::StatusOr<FetchedValue> ObjectClient::FetchFromActor(
    const v1::ObjectRefValue& object, absl::Time deadline, bool alone) {
  const std::string& id = object.actor().actor_id();
  const std::string producer =
      object.actor().name().empty()
          ? id
          : absl::StrCat("'", object.actor().name(), "'");
  v1::FetchObjectRequest request;
  request.set_object_id(object.object_id());
  request.set_actor_id(id);
  std::unique_ptr<RangeFetch> fetch;
  absl::Duration pause = kFirstPause;
  absl::Time trouble_since = absl::InfiniteFuture();
  int64_t filled = 0;
  bool was_missing = false;
  while (true) {
    if (closed()) return ClosedError();
    absl::StatusOr<v1::ActorInfo> info =
        options_.actor(id, object.incarnation(), deadline - absl::Now());
    if (absl::IsNotFound(info.status()) ||
        (info.ok() && (info->state() != v1::ACTOR_STATE_ALIVE ||
                       info->restarts() != object.incarnation()))) {
      return absl::UnavailableError(
          absl::StrCat("the result stayed with the actor ", producer,
                       ", whose process is gone", info.ok() ? ": " : "",
                       info.ok() ? info->cause() : ""));
    }
    if (absl::IsUnavailable(info.status()) && absl::Now() >= deadline) {
      return absl::DeadlineExceededError(info.status().message());
    }
    MR_RETURN_IF_ERROR(info.status());
    const std::string what = absl::StrCat("fetch a result from the actor ",
                                          producer, " at ", info->address());
    absl::Status status;
    // By the node's store: once for all of its processes.
    if (!alone && fetch == nullptr && !options_.local_store.empty() &&
        object.size() >= static_cast<int64_t>(kMinHandedOver)) {
      v1::LocateObjectRequest locate;
      locate.set_object_id(object.object_id());
      locate.set_source_address(info->address());
      locate.set_actor_id(id);
      absl::StatusOr<absl::Cord> value = MapFromStore(
          options_.local_store, std::move(locate), object.size(), deadline);
      if (value.ok()) return FetchedValue{*std::move(value)};
      status = value.status();
    }
    if (status.ok() || MustBeSent(status)) {
      if (fetch == nullptr) {
        MR_ASSIGN_OR_RETURN(fetch, RangeFetch::Begin(request, object.size()));
      }
      status = fetch->Run({.address = info->address(),
                           .method = kFetchFromActor,
                           .token = options_.token,
                           .channels = options_.channels.get()},
                          deadline);
      if (status.ok()) return FetchedValue{std::move(*fetch).Take(), true};
    }
    // The link broke, or the process is gone: the head hears of that soon.
    const absl::Time now = absl::Now();
    const int64_t now_filled = fetch == nullptr ? 0 : fetch->filled();
    if (std::exchange(filled, now_filled) < now_filled ||
        trouble_since == absl::InfiniteFuture()) {
      trouble_since = now;
      pause = kFirstPause;
    }
    const bool may_pass =
        absl::IsUnavailable(status) ||
        (absl::IsNotFound(status) && !std::exchange(was_missing, true));
    if (!may_pass || now - trouble_since >= options_.reconnect_timeout) {
      return Annotate(status, what);
    }
    // Nothing says that the value is lost.
    if (now + pause >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, ": it did not come in time: ", status.message()));
    }
    absl::SleepFor(pause);
    pause = std::min(2 * pause, kMaxPause);
  }
}

absl::StatusOr<FetchedValue> ObjectClient::FetchFromStore(
    const v1::ObjectRefValue& object, absl::Time deadline) {
  MR_RETURN_IF_ERROR(ParseHostPort(object.store_address()).status());
  v1::FetchObjectRequest request;
  request.set_object_id(object.object_id());
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<RangeFetch> fetch,
                      RangeFetch::Begin(request, object.size()));
  MR_RETURN_IF_ERROR(
      Annotate(fetch->Run({.address = object.store_address(),
                           .method = kFetchFromStore,
                           .token = options_.token,
                           .channels = options_.channels.get()},
                          deadline),
               absl::StrCat("fetch an object from the node's store at ",
                            object.store_address())));
  return FetchedValue{std::move(*fetch).Take(), true};
}

absl::StatusOr<absl::Cord> ObjectClient::MapFromStore(
    const std::string& store, v1::LocateObjectRequest request, int64_t size,
    absl::Time deadline) {
  auto stub = v1::ObjectStore::NewStub(options_.channels->Get(store));
  request.set_job_id(options_.job_id);
  request.set_machine(MachineId());
  for (int tries = 1;; ++tries) {
    grpc::ClientContext context;
    AddToken(&context, options_.token);
    SetDeadline(&context, deadline);
    v1::LocateObjectResponse response;
    MR_RETURN_IF_ERROR(
        FromGrpcStatus(stub->LocateObject(&context, request, &response)));
    if (response.file().size() != size) {
      return absl::DataLossError(absl::StrCat(
          "the object ", request.object_id(), " has ", size,
          " bytes, but the node's store has ", response.file().size()));
    }
    absl::StatusOr<absl::Cord> value = MapFile(response.file());
    if (!absl::IsNotFound(value.status())) return value;
    // It made way for others at this moment.
    if (tries >= kMapTries) {
      return absl::ResourceExhaustedError(value.status().message());
    }
  }
}

std::vector<std::shared_ptr<void>> ObjectClient::Hold(
    const std::vector<absl::Cord>& references) {
  std::map<std::string, Holds> to_register;
  std::vector<std::shared_ptr<Held>> holds(references.size());
  {
    absl::MutexLock lock(&mu_);
    for (size_t i = 0; i < references.size(); ++i) {
      const absl::StatusOr<v1::ObjectRefValue> object =
          DecodeReference(references[i]);
      if (closed_ || !object.ok() || object->store_address().empty()) continue;
      std::weak_ptr<Held>& known = held_[object->object_id()];
      holds[i] = known.lock();
      if (holds[i] != nullptr) continue;
      holds[i] = NewHeld(*object);
      known = holds[i];
      to_register[StoreFor(*object)].push_back(holds[i]);
    }
  }
  for (const auto& [store, items] : to_register) {
    Register(store, items);
    for (const auto& held : items) held->registered.Notify();
  }
  // Some may be another thread's.
  for (const auto& held : holds) {
    if (held != nullptr) held->registered.WaitForNotification();
  }
  return {holds.begin(), holds.end()};
}

const std::string& ObjectClient::StoreFor(
    const v1::ObjectRefValue& object) const {
  return options_.local_store.empty() ? object.store_address()
                                      : options_.local_store;
}

std::shared_ptr<ObjectClient::Held> ObjectClient::NewHeld(
    const v1::ObjectRefValue& object) {
  auto held = std::make_shared<Held>(weak_from_this(), StoreFor(object),
                                     object.object_id(), ++turns_);
  held->source = object.store_address();
  return held;
}

void ObjectClient::HoldSoon(const absl::Cord& reference,
                            std::function<void(std::shared_ptr<void>)> done) {
  const absl::StatusOr<v1::ObjectRefValue> object = DecodeReference(reference);
  std::shared_ptr<Held> held;
  bool is_known = false;
  if (object.ok() && ParseHostPort(object->store_address()).ok()) {
    absl::MutexLock lock(&mu_);
    if (!closed_) {
      std::weak_ptr<Held>& known = held_[object->object_id()];
      held = known.lock();
      is_known = held != nullptr;
      if (!is_known) known = held = NewHeld(*object);
    }
  }
  if (held == nullptr || is_known) return done(std::move(held));
  struct Pending {
    std::unique_ptr<v1::ObjectStore::Stub> stub;
    grpc::ClientContext context;
    v1::HoldObjectsRequest request;
    v1::HoldObjectsResponse response;
  };
  auto pending = std::make_shared<Pending>();
  const std::string& store = StoreFor(*object);
  pending->stub = v1::ObjectStore::NewStub(options_.channels->Get(store));
  SetHolder(pending->request.mutable_holder());
  v1::ObjectClaim* const claim = pending->request.add_claims();
  *claim = held->claim;
  claim->set_source_address(held->source);
  PrepareContext(&pending->context, options_.token, kHoldTimeout);
  pending->stub->async()->HoldObjects(
      &pending->context, &pending->request, &pending->response,
      [pending, held = std::move(held), store,
       done = std::move(done)](const grpc::Status& status) mutable {
        if (!status.ok()) WarnNotHeld(store, 1, FromGrpcStatus(status));
        held->registered.Notify();
        // Not inside the callback: see ActorStream.
        RunInBackground(
            [last = std::move(pending), held = std::move(held),
             done = std::move(done)]() mutable { done(std::move(held)); });
      });
}

void ObjectClient::Register(const std::string& store, const Holds& holds) {
  absl::Status status = ParseHostPort(store).status();
  std::unique_ptr<v1::ObjectStore::Stub> stub;
  if (status.ok()) {
    stub = v1::ObjectStore::NewStub(options_.channels->Get(store));
  }
  for (size_t i = 0; status.ok() && i < holds.size();) {
    v1::HoldObjectsRequest request;
    SetHolder(request.mutable_holder());
    const size_t end = std::min(holds.size(), i + kMaxClaimsPerMessage);
    for (; i < end; ++i) {
      v1::ObjectClaim* const claim = request.add_claims();
      *claim = holds[i]->claim;
      claim->set_source_address(holds[i]->source);
    }
    grpc::ClientContext context;
    PrepareContext(&context, options_.token, kHoldTimeout);
    v1::HoldObjectsResponse response;
    status = FromGrpcStatus(stub->HoldObjects(&context, request, &response));
  }
  if (!status.ok()) WarnNotHeld(store, holds.size(), status);
}

void ObjectClient::LetGo(const std::string& store, v1::ObjectClaim claim) {
  absl::MutexLock lock(&mu_);
  const auto it = held_.find(claim.object_id());
  // It may be held anew.
  if (it != held_.end() && it->second.expired()) held_.erase(it);
  if (closed_) return;  // It goes with its job.
  // Behind what else is about to go.
  if (releases_.empty()) {
    RunInBackground([weak = weak_from_this()] {
      if (auto self = weak.lock()) self->SendReleases();
    });
  }
  releases_[store].push_back(std::move(claim));
}

void ObjectClient::SendReleases() {
  std::map<std::string, std::vector<v1::ObjectClaim>> releases;
  {
    absl::MutexLock lock(&mu_);
    releases.swap(releases_);
  }
  for (auto& [store, claims] : releases) {
    for (size_t i = 0; i < claims.size();) {
      auto request = std::make_shared<v1::ReleaseObjectsRequest>();
      SetHolder(request->mutable_holder());
      const size_t end = std::min(claims.size(), i + kMaxClaimsPerMessage);
      for (; i < end; ++i) *request->add_claims() = std::move(claims[i]);
      Release(store, std::move(request), kReleaseTries);
    }
  }
}

void ObjectClient::Release(const std::string& store,
                           std::shared_ptr<v1::ReleaseObjectsRequest> request,
                           int tries) {
  if (closed()) return;
  struct Pending {
    std::unique_ptr<v1::ObjectStore::Stub> stub;
    grpc::ClientContext context;
    std::shared_ptr<v1::ReleaseObjectsRequest> request;
    v1::ReleaseObjectsResponse response;
  };
  auto pending = std::make_shared<Pending>();
  pending->stub = v1::ObjectStore::NewStub(options_.channels->Get(store));
  pending->request = request;
  PrepareContext(&pending->context, options_.token, kReleaseTimeout);
  pending->stub->async()->ReleaseObjects(
      &pending->context, pending->request.get(), &pending->response,
      [pending, weak = weak_from_this(), store, request,
       tries](const grpc::Status& status) mutable {
        // Not inside the callback: see ActorStream.
        RunInBackground([last = std::move(pending)] {});
        if (status.ok() || tries <= 1) return;
        RunInBackground(
            [weak, store, request, tries] {
              if (auto self = weak.lock()) {
                self->Release(store, request, tries - 1);
              }
            },
            kReleasePause);
      });
}

void ObjectClient::SetHolder(v1::ObjectHolder* holder) const {
  holder->set_owner(options_.owner);
  holder->set_job_id(options_.job_id);
}

void ObjectClient::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

bool ObjectClient::closed() const {
  absl::MutexLock lock(&mu_);
  return closed_;
}

}  // namespace internal
}  // namespace miniray
