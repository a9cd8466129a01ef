#include "runtime/objects/object_store.h"

#include <glog/logging.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "proto/object.grpc.pb.h"
#include "runtime/base/background.h"
#include "runtime/base/ids.h"
#include "runtime/base/memory_limit.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/steady_time.h"
#include "runtime/objects/chunk_stream.h"
#include "runtime/objects/object_copier.h"
#include "runtime/objects/object_holds.h"
#include "runtime/objects/object_table.h"
#include "runtime/objects/source_check.h"
#include "runtime/rpc/byte_buffer.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_listener.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace {

// Of one message: a chunk, with something to spare.
constexpr int kMaxMessage = 4 << 20;
constexpr int kMaxIdsPerMessage = 65536;
// Of one message to a peer, which is sent again; internal.
constexpr absl::Duration kFreeTimeout = absl::Seconds(10);
constexpr absl::Duration kLook = absl::Milliseconds(500);

int64_t DefaultMaxBytes() { return UsableMemoryBytes() / 10 * 3; }

// Each object is an open file; the rest of the process needs some as well.
size_t MaxObjects() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  return std::clamp<size_t>(limit.rlim_cur / 2, 64, 1 << 20);
}

class Service : public v1::ObjectStore::Service {
 public:
  Service(std::string token, ObjectTable::Options table)
      : token_(std::move(token)), table_(std::move(table)) {
    enum { kPutObject = 0, kFetchObject = 2 };  // As in object.proto.
    MarkMethodStreamed(kPutObject,
                       NewChunkHandler([this](auto* context, auto* stream) {
                         return Put(context, stream);
                       }));
    MarkMethodStreamed(kFetchObject,
                       NewChunkHandler([this](auto* context, auto* stream) {
                         return Fetch(context, stream);
                       }));
  }

  // Before the first call.
  void Open(const std::string& address, absl::Duration peer_patience) {
    address_ = address;
    copier_ = std::make_unique<ObjectCopier>(
        ObjectCopier::Options{.token = token_,
                              .address = address,
                              .store_id = NewId("store"),
                              .peer_patience = peer_patience},
        &table_);
    check_ = std::make_unique<SourceCheck>(copier_.get(), &table_, &holds_);
  }

  ObjectTable& table() { return table_; }
  ObjectHolds& holds() { return holds_; }

  ObjectStore::Stats stats() const {
    const ObjectTable::Stats table = table_.stats();
    return {.objects = table.objects,
            .bytes = table.bytes,
            .spilled_objects = table.spilled_objects,
            .spilled_bytes = table.spilled_bytes,
            .fetched = fetched_,
            .served = served_,
            .adopted_bytes = adopted_bytes_,
            .put_bytes = put_bytes_,
            .fetched_bytes = copier_->bytes_received(),
            .mapped_bytes = mapped_bytes_,
            .sent_bytes = sent_bytes_};
  }

  grpc::Status AdoptObject(grpc::ServerContext* context,
                           const v1::AdoptObjectRequest* request,
                           v1::PutObjectResponse*) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    auto file = MemoryFile::Adopt(request->file());
    if (!file.ok()) return ToGrpcStatus(file.status());
    const ObjectHolder holder = {.owner = request->owner(),
                                 .job_id = request->job_id()};
    return ToGrpcStatus(TakeIn(request->object_id(), holder, [&] {
      ObjectTable::Arrival arrival;
      arrival.id = request->object_id();
      const int64_t bytes = (*file)->size();
      arrival.total_bytes = bytes;
      const absl::Status status = table_.Adopt(
          std::move(arrival), *std::move(file), UnlessCancelled(context));
      if (status.ok()) adopted_bytes_ += bytes;
      return status;
    }));
  }

  grpc::Status LocateObject(grpc::ServerContext* context,
                            const v1::LocateObjectRequest* request,
                            v1::LocateObjectResponse* response) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    return ToGrpcStatus(Locate(context, *request, response));
  }

  grpc::Status FreeObjects(grpc::ServerContext* context,
                           const v1::FreeObjectsRequest* request,
                           v1::FreeObjectsResponse*) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    if (request->object_ids_size() > kMaxIdsPerMessage) {
      return ToGrpcStatus(absl::InvalidArgumentError("too many objects"));
    }
    const std::vector<std::string> ids(request->object_ids().begin(),
                                       request->object_ids().end());
    holds_.Drop(ids);
    FreeCopies(table_.Free(ids));
    return grpc::Status::OK;
  }

  grpc::Status HoldObjects(grpc::ServerContext* context,
                           const v1::HoldObjectsRequest* request,
                           v1::HoldObjectsResponse* response) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    return ToGrpcStatus(Hold(*request, response));
  }

  grpc::Status ReleaseObjects(grpc::ServerContext* context,
                              const v1::ReleaseObjectsRequest* request,
                              v1::ReleaseObjectsResponse*) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    if (request->claims_size() > kMaxIdsPerMessage) {
      return ToGrpcStatus(absl::InvalidArgumentError("too many objects"));
    }
    LetGo(holds_.Release(HolderOf(request->holder()),
                         ClaimsOf(request->claims())));
    return grpc::Status::OK;
  }

  grpc::Status CheckObjects(grpc::ServerContext* context,
                            const v1::CheckObjectsRequest* request,
                            v1::CheckObjectsResponse* response) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    if (request->object_ids_size() > kMaxIdsPerMessage ||
        request->held_size() > kMaxIdsPerMessage ||
        (request->held_size() > 0 && request->store_id().empty()) ||
        !ParseHostPort(request->store_address()).ok()) {
      return ToGrpcStatus(absl::InvalidArgumentError("a malformed request"));
    }
    for (std::string& id : table_.Missing(
             {request->object_ids().begin(), request->object_ids().end()},
             request->store_address())) {
      response->add_missing_ids(std::move(id));
    }
    for (std::string& id :
         holds_.Renew(request->store_id(), ClaimsOf(request->held()))) {
      response->add_missing_ids(std::move(id));
    }
    return grpc::Status::OK;
  }

  // Frees what nobody holds any more.
  void LetGo(const ObjectHolds::LetGo& let_go) {
    FreeCopies(table_.Free(let_go.here));
    for (const auto& [source, claims] : let_go.elsewhere) {
      copier_->Release(source, claims);
    }
  }

  // Tells the stores that have copies of what was freed.
  void FreeCopies(const ObjectTable::Copies& copies) {
    for (const auto& [address, ids] : copies) FreeAt(address, ids);
  }

  // Of the checking thread alone.
  void Check() {
    LetGo(holds_.AgeStores());
    check_->Run();
  }

 private:
  // A second try of what got through.
  static absl::Status Once(const absl::Status& status) {
    return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
  }

  static ObjectHolder HolderOf(const v1::ObjectHolder& holder) {
    return {.owner = holder.owner(),
            .job_id = holder.job_id(),
            .store_id = holder.store_id()};
  }

  template <class Claims>
  static std::vector<ObjectClaim> ClaimsOf(const Claims& claims) {
    std::vector<ObjectClaim> result;
    result.reserve(claims.size());
    for (const v1::ObjectClaim& claim : claims) {
      result.push_back({claim.object_id(), claim.turn()});
    }
    return result;
  }

  static ObjectTable::GiveUp UnlessCancelled(grpc::ServerContext* context) {
    return [context] { return context->IsCancelled(); };
  }

  // An object that is put: `take` brings it into the table.
  template <class Take>
  absl::Status TakeIn(const std::string& id, const ObjectHolder& holder,
                      const Take& take) {
    MR_RETURN_IF_ERROR(holds_.Put(id, holder));
    const absl::Status status = Once(take());
    if (!status.ok()) {
      LetGo(holds_.Release(holder, {{.object_id = id}}));
    } else if (!holds_.IsHeld(id)) {
      // Its process, or job, ended just before it was here.
      FreeCopies(table_.Free({id}));
      return absl::CancelledError("the object was freed while it came");
    }
    return status;
  }

  absl::Status Hold(const v1::HoldObjectsRequest& request,
                    v1::HoldObjectsResponse* response) {
    const ObjectHolder holder = HolderOf(request.holder());
    if (request.claims_size() > kMaxIdsPerMessage ||
        (holder.owner.empty() && holder.job_id.empty() &&
         holder.store_id.empty())) {
      return absl::InvalidArgumentError("a malformed request");
    }
    std::vector<ObjectHolds::Wanted> wanted;
    for (const v1::ObjectClaim& claim : request.claims()) {
      std::string source = claim.source_address();
      if (source == address_ || !holder.store_id.empty()) source.clear();
      if (!source.empty() && !ParseHostPort(source).ok()) {
        response->add_missing_ids(claim.object_id());
        continue;
      }
      wanted.push_back({.claim = {claim.object_id(), claim.turn()},
                        .source = std::move(source)});
    }
    MR_ASSIGN_OR_RETURN(ObjectHolds::Answer answer,
                        holds_.Hold(holder, wanted));
    for (const auto& [source, claims] : answer.to_claim) {
      std::vector<std::string> missing;
      const absl::Status status = copier_->Hold(source, claims, &missing);
      if (!status.ok()) {
        // The next check asks for them again, if it is not too late then.
        LOG_EVERY_N(WARNING, 100)
            << "the object store at " << source
            << " could not be asked to keep an object that a process of this "
               "node refers to: "
            << status.message();
        continue;
      }
      copier_->Release(source, holds_.Settle(source, claims, missing));
      answer.missing.insert(answer.missing.end(), missing.begin(),
                            missing.end());
    }
    for (std::string& id : answer.missing) {
      response->add_missing_ids(std::move(id));
    }
    return absl::OkStatus();
  }

  absl::Status Put(grpc::ServerContext* context, ChunkServerStream* stream) {
    MR_RETURN_IF_ERROR(CheckToken(*context, token_, "PutObject"));
    MR_RETURN_IF_ERROR(Receive(context, stream));
    stream->Write(ToByteBuffer(absl::Cord()));  // A PutObjectResponse.
    return absl::OkStatus();
  }

  absl::Status Receive(grpc::ServerContext* context,
                       ChunkServerStream* stream) {
    grpc::ByteBuffer message;
    if (!stream->Read(&message)) {
      return absl::InvalidArgumentError("an object without a first chunk");
    }
    MR_ASSIGN_OR_RETURN(Chunk chunk, DecodeChunk(message));
    const std::string id = chunk.object_id;
    const ObjectHolder holder = {.owner = std::move(chunk.owner),
                                 .job_id = std::move(chunk.job_id)};
    return TakeIn(id, holder, [&] {
      return ReceiveRest(context, std::move(chunk), stream);
    });
  }

  absl::Status ReceiveRest(grpc::ServerContext* context, Chunk chunk,
                           ChunkServerStream* stream) {
    ObjectTable::Arrival arrival;
    arrival.id = std::move(chunk.object_id);
    arrival.total_bytes = chunk.total_bytes;
    grpc::ByteBuffer message;
    MR_ASSIGN_OR_RETURN(
        std::unique_ptr<ObjectTable::Incoming> incoming,
        table_.Begin(std::move(arrival), UnlessCancelled(context)));
    put_bytes_ += static_cast<int64_t>(chunk.data.size());
    absl::Status status = incoming->file->Append(chunk.data);
    while (status.ok() && stream->Read(&message)) {
      absl::StatusOr<Chunk> next = DecodeChunk(message);
      if (next.ok()) put_bytes_ += static_cast<int64_t>(next->data.size());
      status = next.ok() ? incoming->file->Append(next->data) : next.status();
    }
    if (status.ok()) return table_.Finish(std::move(incoming));
    table_.Abandon(std::move(incoming));
    return status;
  }

  absl::Status Fetch(grpc::ServerContext* context, ChunkServerStream* stream) {
    MR_RETURN_IF_ERROR(CheckToken(*context, token_, "FetchObject"));
    grpc::ByteBuffer message;
    v1::FetchObjectRequest request;
    if (!stream->Read(&message)) {
      return absl::InvalidArgumentError("a call without a request");
    }
    MR_ASSIGN_OR_RETURN(const absl::Cord bytes, ToCord(message));
    if (!request.ParseFromString(std::string(bytes)) ||
        request.failed_peers_size() > kMaxIdsPerMessage) {
      return absl::InvalidArgumentError("a malformed request");
    }
    ObjectTable::Reader reader;
    reader.store_address = request.store_address();
    reader.from_copy = request.from_copy();
    reader.failed_peers = {request.failed_peers().begin(),
                           request.failed_peers().end()};
    MR_ASSIGN_OR_RETURN(const ObjectTable::Source source,
                        table_.FindSource(request.object_id(), reader));
    if (request.offset() < 0 || request.offset() > source.size ||
        request.length() < 0) {
      return absl::InvalidArgumentError("a range outside of the object");
    }
    int64_t end = source.size;
    if (request.length() > 0 && request.length() < end - request.offset()) {
      end = request.offset() + request.length();
    }
    Chunk first;
    first.object_id = request.object_id();
    first.total_bytes = source.size;
    if (!source.peer_address.empty()) {
      first.peer_address = source.peer_address;
      stream->Write(EncodeChunk(first));
      return absl::OkStatus();
    }
    MR_RETURN_IF_ERROR(
        Send(context, source, std::move(first), request.offset(), end, stream));
    if (end == source.size) ++served_;  // Not each of its ranges.
    return absl::OkStatus();
  }

  absl::Status Send(grpc::ServerContext* context,
                    const ObjectTable::Source& source, Chunk chunk,
                    int64_t offset, int64_t end, ChunkServerStream* stream) {
    std::shared_ptr<const char> memory;
    if (source.memory != nullptr) {
      MR_ASSIGN_OR_RETURN(memory, source.memory->Map());
    }
    do {
      int64_t size = std::min(kChunkBytes, end - offset);
      if (source.disk != nullptr) {
        std::string bytes;
        MR_RETURN_IF_ERROR(source.disk->Read(offset, size, &bytes));
        chunk.data = absl::Cord(std::move(bytes));
      } else if (size > 0) {
        MR_ASSIGN_OR_RETURN(const int64_t filled,
                            source.memory->AwaitMore(offset, kLook));
        if (filled == offset) {
          if (context->IsCancelled()) {
            return absl::CancelledError("the reader is gone");
          }
          continue;
        }
        size = std::min(size, filled - offset);
        chunk.data = absl::MakeCordFromExternal(
            absl::string_view(memory.get() + offset, static_cast<size_t>(size)),
            [memory] {});
      }
      if (!stream->Write(EncodeChunk(chunk))) {
        return absl::CancelledError("the reader is gone");
      }
      sent_bytes_ += size;
      offset += size;
      chunk = Chunk();
    } while (offset < end);
    return absl::OkStatus();
  }

  absl::Status Locate(grpc::ServerContext* context,
                      const v1::LocateObjectRequest& request,
                      v1::LocateObjectResponse* response) {
    if (request.machine() != MachineId()) {
      return absl::FailedPreconditionError(
          "the object store is on another machine");
    }
    const std::string& id = request.object_id();
    const ObjectTable::GiveUp give_up = UnlessCancelled(context);
    if (!table_.Await(id, give_up)) {
      const absl::Status status = Bring(request, give_up);
      table_.Settle(id);
      MR_RETURN_IF_ERROR(status);
    }
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<const MemoryFile> file,
                        table_.FindInMemory(id, give_up));
    *response->mutable_file() = file->shared();
    mapped_bytes_ += file->size();
    return absl::OkStatus();
  }

  absl::Status Bring(const v1::LocateObjectRequest& request,
                     const ObjectTable::GiveUp& give_up) {
    if (request.source_address() == address_ && request.actor_id().empty()) {
      return table_.FindSource(request.object_id(), {}).status();
    }
    MR_RETURN_IF_ERROR(copier_->Bring(request.object_id(), request.job_id(),
                                      request.source_address(),
                                      request.actor_id(), give_up));
    ++fetched_;
    return absl::OkStatus();
  }

  void FreeAt(const std::string& address, const std::vector<std::string>& ids) {
    struct Pending {
      std::shared_ptr<grpc::Channel> channel;
      std::unique_ptr<v1::ObjectStore::Stub> stub;
      grpc::ClientContext context;
      v1::FreeObjectsRequest request;
      v1::FreeObjectsResponse response;
    };
    if (!ParseHostPort(address).ok()) return;
    auto pending = std::make_shared<Pending>();
    pending->channel = MakeChannel(address);
    pending->stub = v1::ObjectStore::NewStub(pending->channel);
    PrepareContext(&pending->context, token_, kFreeTimeout);
    for (const std::string& id : ids) pending->request.add_object_ids(id);
    // One that does not hear it finds out: see CheckCopies. Not inside the
    // callback: the channel may be the last one of the process.
    pending->stub->async()->FreeObjects(
        &pending->context, &pending->request, &pending->response,
        [pending](const grpc::Status&) mutable {
          RunInBackground([last = std::move(pending)] {});
        });
  }

  const std::string token_;
  std::string address_;
  ObjectTable table_;
  ObjectHolds holds_;
  std::unique_ptr<ObjectCopier> copier_;
  std::unique_ptr<SourceCheck> check_;
  std::atomic<int64_t> fetched_ = 0;
  std::atomic<int64_t> served_ = 0;
  std::atomic<int64_t> adopted_bytes_ = 0;
  std::atomic<int64_t> put_bytes_ = 0;
  std::atomic<int64_t> mapped_bytes_ = 0;
  std::atomic<int64_t> sent_bytes_ = 0;
};

class ObjectStoreImpl : public ObjectStore {
 public:
  ObjectStoreImpl(const Options& options, std::unique_ptr<SpillFolder> spill)
      : options_(options),
        service_(options.token,
                 ObjectTable::Options{.max_bytes = options.max_bytes > 0
                                                       ? options.max_bytes
                                                       : DefaultMaxBytes(),
                                      .max_objects = MaxObjects(),
                                      .spill = std::move(spill),
                                      .max_children = options.max_children}) {}

  ~ObjectStoreImpl() override {
    ending_.Notify();
    if (checker_.joinable()) checker_.join();
    if (server_ == nullptr) return;
    listener_.reset();
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
    server_->Wait();
  }

  absl::Status Listen() {
    constexpr char kWho[] = "the object store";
    auto listener = GrpcListener::Start(options_.host, 0);
    if (!listener.ok()) return Annotate(listener.status(), kWho);
    listener_ = *std::move(listener);
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    // gRPC reads a message before anybody asks for the token.
    builder.SetMaxReceiveMessageSize(kMaxMessage);
    listener_->AddTo(&builder);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::InternalError(
          absl::StrCat(kWho, "'s gRPC server does not start"));
    }
    address_ = JoinHostPort(options_.host, listener_->port());
    service_.Open(address_, options_.peer_patience);
    listener_->Accept();
    checker_ = std::thread([this] {
      while (!ending_.WaitForNotificationWithTimeout(options_.check_period)) {
        service_.Check();
      }
    });
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void EndJob(absl::string_view job_id) override {
    service_.LetGo(service_.holds().EndJob(job_id));
    service_.FreeCopies(service_.table().EndJob(job_id));
  }

  void BeginJob(absl::string_view job_id) override {
    service_.holds().BeginJob(job_id);
  }

  std::set<std::string> Jobs() const override {
    auto& service = const_cast<Service&>(service_);
    std::set<std::string> jobs = service.holds().Jobs();
    jobs.merge(service.table().Jobs());
    return jobs;
  }

  void EndOwner(absl::string_view owner) override {
    service_.LetGo(service_.holds().EndOwner(owner));
  }

  Stats stats() const override { return service_.stats(); }

 private:
  const Options options_;
  Service service_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<GrpcListener> listener_;
  SteadyNotification ending_;
  std::thread checker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectStore>> ObjectStore::Start(
    Options options) {
  std::unique_ptr<SpillFolder> spill;
  if (!options.spill_folder.empty()) {
    MR_ASSIGN_OR_RETURN(spill, SpillFolder::Open(options.spill_folder));
  }
  auto store = std::make_unique<ObjectStoreImpl>(options, std::move(spill));
  MR_RETURN_IF_ERROR(store->Listen());
  return store;
}

}  // namespace miniray
