#include "runtime/objects/object_copier.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "proto/object.grpc.pb.h"
#include "runtime/base/background.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/objects/chunk_stream.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

// A source that has more advice than that is not one.
constexpr int kMaxPeers = 3;
constexpr absl::Duration kLook = absl::Milliseconds(200);
// Messages of 4 MiB are taken.
constexpr size_t kMaxIdsPerMessage = 16384;
// Of one question to a peer, which is asked again; internal.
constexpr absl::Duration kCheckTimeout = absl::Seconds(10);
constexpr char kFromStore[] = "/miniray.v1.ObjectStore/FetchObject";
constexpr char kFromActor[] = "/miniray.v1.ActorService/FetchObject";

void AddClaim(const ObjectClaim& claim, v1::ObjectClaim* out) {
  out->set_object_id(claim.object_id);
  out->set_turn(claim.turn);
}

// Cancels a call that nobody wants any more, or that has stood still for
// `patience`.
class Guard {
 public:
  Guard(grpc::ClientContext* context, const ObjectTable::GiveUp& give_up,
        absl::Duration patience)
      : state_(std::make_shared<State>()) {
    state_->context = context;
    state_->give_up = &give_up;
    state_->patience = patience;
    Progress();
    RunInBackground([state = state_] { Look(state); }, kLook);
  }
  ~Guard() {
    absl::MutexLock lock(&state_->mu);
    state_->context = nullptr;
  }

  void Progress() {
    absl::MutexLock lock(&state_->mu);
    state_->deadline = absl::Now() + state_->patience;
  }

 private:
  struct State {
    absl::Mutex mu;
    grpc::ClientContext* context ABSL_GUARDED_BY(mu) = nullptr;  // Null: over.
    const ObjectTable::GiveUp* give_up;
    absl::Duration patience;
    absl::Time deadline ABSL_GUARDED_BY(mu);
  };

  static void Look(const std::shared_ptr<State>& state) {
    absl::MutexLock lock(&state->mu);
    if (state->context == nullptr) return;
    if (absl::Now() >= state->deadline || (*state->give_up)()) {
      return state->context->TryCancel();
    }
    RunInBackground([state] { Look(state); }, kLook);
  }

  const std::shared_ptr<State> state_;
};

}  // namespace

struct ObjectCopier::Copy {
  ObjectTable::Arrival arrival;
  std::string actor_id;
  const ObjectTable::GiveUp* give_up;
  std::vector<std::string> failed_peers;
  std::unique_ptr<ObjectTable::Incoming> incoming;  // From the first chunk on.
};

struct ObjectCopier::Outcome {
  absl::Status here;   // What this store has against it.
  absl::Status there;  // What became of the call.
  std::string peer_address;
};

absl::Status ObjectCopier::Bring(const std::string& id,
                                 const std::string& job_id,
                                 const std::string& source,
                                 const std::string& actor_id,
                                 const ObjectTable::GiveUp& give_up) {
  MR_RETURN_IF_ERROR(ParseHostPort(source).status());
  Copy copy;
  copy.arrival.id = id;
  copy.arrival.source = source;
  if (!actor_id.empty()) {
    copy.arrival.source = absl::StrCat(source, "/", actor_id);
    copy.arrival.job_id = job_id;
  }
  copy.actor_id = actor_id;
  copy.give_up = &give_up;
  Outcome outcome = FetchFrom(source, /*is_peer=*/false, &copy);
  for (int peers = 0; outcome.here.ok() && outcome.there.ok() &&
                      !outcome.peer_address.empty() && peers < kMaxPeers;
       ++peers) {
    const std::string peer = outcome.peer_address;
    outcome = FetchFrom(peer, /*is_peer=*/true, &copy);
    if (!outcome.here.ok()) break;
    if (outcome.there.ok() &&
        copy.incoming->file->filled() == copy.incoming->file->size()) {
      break;
    }
    copy.failed_peers.push_back(peer);
    outcome = FetchFrom(source, /*is_peer=*/false, &copy);
  }
  if (outcome.here.ok() && outcome.there.ok() && copy.incoming != nullptr) {
    return table_->Finish(std::move(copy.incoming));
  }
  if (copy.incoming != nullptr) table_->Abandon(std::move(copy.incoming));
  if (!outcome.here.ok()) return outcome.here;
  if (outcome.there.ok()) {
    return absl::InternalError(
        absl::StrCat("the source at ", source, " sent nothing"));
  }
  if (absl::IsUnavailable(outcome.there)) {
    return absl::UnavailableError(absl::StrCat(
        actor_id.empty() ? "the node whose store at "
                         : "the actor whose process at ",
        source,
        " holds the object does not answer: ", outcome.there.message()));
  }
  return outcome.there;
}

ObjectCopier::Outcome ObjectCopier::FetchFrom(const std::string& address,
                                              bool is_peer, Copy* copy) {
  Outcome outcome;
  if (outcome.there = ParseHostPort(address).status(); !outcome.there.ok()) {
    return outcome;
  }
  v1::FetchObjectRequest request;
  request.set_object_id(copy->arrival.id);
  if (is_peer) {
    request.set_from_copy(true);
  } else if (!copy->actor_id.empty()) {
    request.set_actor_id(copy->actor_id);
  } else {
    request.set_store_address(options_.address);
    for (const std::string& peer : copy->failed_peers) {
      request.add_failed_peers(peer);
    }
  }
  if (copy->incoming != nullptr) {
    request.set_offset(copy->incoming->file->filled());
  }
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(address);
  grpc::ClientContext context;
  AddToken(&context, options_.token);
  // The source is watched by its channel; a peer may wait for others.
  Guard guard(&context, *copy->give_up,
              is_peer ? options_.peer_patience : absl::InfiniteDuration());
  ChunkReader reader(channel.get(),
                     copy->actor_id.empty() ? kFromStore : kFromActor, &context,
                     request);
  Chunk chunk;
  while (outcome.here.ok() && reader.Read(&chunk)) {
    if (copy->incoming == nullptr) {
      copy->arrival.total_bytes = chunk.total_bytes;
      absl::StatusOr<std::unique_ptr<ObjectTable::Incoming>> incoming =
          table_->Begin(copy->arrival, *copy->give_up);
      outcome.here = incoming.status();
      if (!incoming.ok()) break;
      copy->incoming = *std::move(incoming);
    }
    if (!is_peer && copy->actor_id.empty() && !chunk.peer_address.empty()) {
      outcome.peer_address = chunk.peer_address;
      continue;
    }
    bytes_received_ += static_cast<int64_t>(chunk.data.size());
    outcome.here = copy->incoming->file->Append(chunk.data);
    guard.Progress();
  }
  if (!outcome.here.ok()) context.TryCancel();
  outcome.there = reader.Finish();
  return outcome;
}

absl::Status ObjectCopier::FindMissing(
    const std::string& source, const std::vector<std::string>& ids,
    const std::vector<ObjectClaim>& held,
    std::vector<std::string>* missing) const {
  if (const size_t slash = source.find('/'); slash != std::string::npos) {
    return AskActor(source.substr(0, slash), source.substr(slash + 1), ids,
                    missing);
  }
  const auto stub = v1::ObjectStore::NewStub(ChannelTo(source));
  for (size_t done = 0; done < std::max(ids.size(), held.size());
       done += kMaxIdsPerMessage) {
    grpc::ClientContext context;
    PrepareContext(&context, options_.token, kCheckTimeout);
    v1::CheckObjectsRequest request;
    v1::CheckObjectsResponse response;
    request.set_store_address(options_.address);
    request.set_store_id(options_.store_id);
    const size_t end = done + kMaxIdsPerMessage;
    for (size_t i = done; i < std::min(ids.size(), end); ++i) {
      request.add_object_ids(ids[i]);
    }
    for (size_t i = done; i < std::min(held.size(), end); ++i) {
      AddClaim(held[i], request.add_held());
    }
    MR_RETURN_IF_ERROR(
        FromGrpcStatus(stub->CheckObjects(&context, request, &response)));
    missing->insert(missing->end(), response.missing_ids().begin(),
                    response.missing_ids().end());
  }
  return absl::OkStatus();
}

absl::Status ObjectCopier::Hold(const std::string& source,
                                const std::vector<ObjectClaim>& claims,
                                std::vector<std::string>* missing) const {
  MR_RETURN_IF_ERROR(ParseHostPort(source).status());
  const auto stub = v1::ObjectStore::NewStub(ChannelTo(source));
  for (size_t done = 0; done < claims.size(); done += kMaxIdsPerMessage) {
    grpc::ClientContext context;
    PrepareContext(&context, options_.token, kCheckTimeout);
    v1::HoldObjectsRequest request;
    v1::HoldObjectsResponse response;
    request.mutable_holder()->set_store_id(options_.store_id);
    const size_t end = std::min(claims.size(), done + kMaxIdsPerMessage);
    for (size_t i = done; i < end; ++i) {
      AddClaim(claims[i], request.add_claims());
    }
    MR_RETURN_IF_ERROR(
        FromGrpcStatus(stub->HoldObjects(&context, request, &response)));
    missing->insert(missing->end(), response.missing_ids().begin(),
                    response.missing_ids().end());
  }
  return absl::OkStatus();
}

void ObjectCopier::Release(const std::string& source,
                           const std::vector<ObjectClaim>& claims) const {
  struct Pending {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::ObjectStore::Stub> stub;
    grpc::ClientContext context;
    v1::ReleaseObjectsRequest request;
    v1::ReleaseObjectsResponse response;
  };
  if (claims.empty() || !ParseHostPort(source).ok()) return;
  const std::shared_ptr<grpc::Channel> channel = ChannelTo(source);
  for (size_t done = 0; done < claims.size(); done += kMaxIdsPerMessage) {
    auto pending = std::make_shared<Pending>();
    pending->channel = channel;
    pending->stub = v1::ObjectStore::NewStub(channel);
    PrepareContext(&pending->context, options_.token, kCheckTimeout);
    pending->request.mutable_holder()->set_store_id(options_.store_id);
    const size_t end = std::min(claims.size(), done + kMaxIdsPerMessage);
    for (size_t i = done; i < end; ++i) {
      AddClaim(claims[i], pending->request.add_claims());
    }
    // Not inside the callback: the channel may be the last one of the process.
    pending->stub->async()->ReleaseObjects(
        &pending->context, &pending->request, &pending->response,
        [pending](const grpc::Status&) mutable {
          RunInBackground([last = std::move(pending)] {});
        });
  }
}

std::shared_ptr<grpc::Channel> ObjectCopier::ChannelTo(
    const std::string& source) const {
  absl::MutexLock lock(&mu_);
  std::shared_ptr<grpc::Channel>& channel = channels_[source];
  if (channel == nullptr) channel = MakeChannel(source);
  return channel;
}

void ObjectCopier::Disconnect(const std::set<std::string>& sources) {
  std::vector<std::shared_ptr<grpc::Channel>> dropped;  // Die unlocked.
  absl::MutexLock lock(&mu_);
  for (auto it = channels_.begin(); it != channels_.end();) {
    if (sources.contains(it->first)) {
      ++it;
    } else {
      dropped.push_back(std::move(it->second));
      it = channels_.erase(it);
    }
  }
}

absl::Status ObjectCopier::AskActor(const std::string& address,
                                    const std::string& actor_id,
                                    const std::vector<std::string>& ids,
                                    std::vector<std::string>* missing) const {
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(address);
  for (const std::string& id : ids) {
    grpc::ClientContext context;
    PrepareContext(&context, options_.token, kCheckTimeout);
    v1::FetchObjectRequest request;
    request.set_object_id(id);
    request.set_actor_id(actor_id);
    // Never wanted: what is there is refused, what is not is not found.
    request.set_offset(-1);
    ChunkReader reader(channel.get(), kFromActor, &context, request);
    const absl::Status status = reader.Finish();
    if (absl::IsNotFound(status)) missing->push_back(id);
    if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace miniray
