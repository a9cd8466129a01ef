#include "runtime/objects/object_store.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/object.grpc.pb.h"
#include "runtime/base/background.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/objects/object_table.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
// Of one message: a chunk, with something to spare.
constexpr int kMaxMessage = 4 << 20;
constexpr int kMaxIdsPerMessage = 65536;
constexpr absl::Duration kFreeTimeout = absl::Seconds(10);

int64_t DefaultMaxBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  return std::max<int64_t>(pages, 0) * sysconf(_SC_PAGESIZE) / 10 * 3;
}

// Each object is an open file; the rest of the process needs some as well.
size_t MaxObjects() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  return std::clamp<size_t>(limit.rlim_cur / 2, 64, 1 << 20);
}

class Service : public v1::ObjectStore::Service {
 public:
  Service(std::string token, int64_t max_bytes)
      : token_(std::move(token)), table_(max_bytes, MaxObjects()) {}

  void set_address(std::string address) { address_ = std::move(address); }
  ObjectTable& table() { return table_; }
  int64_t fetched() const { return fetched_; }
  int64_t served() const { return served_; }

  grpc::Status PutObject(grpc::ServerContext* context,
                         grpc::ServerReader<v1::ObjectChunk>* reader,
                         v1::PutObjectResponse*) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    absl::Status status = Receive(
        [reader](v1::ObjectChunk* chunk) { return reader->Read(chunk); },
        /*id=*/"", /*job_id=*/"", /*is_copy=*/false);
    // An earlier try got through.
    if (absl::IsAlreadyExists(status)) status = absl::OkStatus();
    return ToGrpcStatus(status);
  }

  grpc::Status FetchObject(
      grpc::ServerContext* context, const v1::FetchObjectRequest* request,
      grpc::ServerWriter<v1::ObjectChunk>* writer) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    return ToGrpcStatus(Send(*request, writer));
  }

  grpc::Status LocateObject(grpc::ServerContext* context,
                            const v1::LocateObjectRequest* request,
                            v1::LocateObjectResponse* response) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    const std::string& id = request->object_id();
    if (!table_.Await(id, [context] { return context->IsCancelled(); })) {
      const absl::Status status = Bring(*request);
      table_.Settle(id);
      if (!status.ok()) return ToGrpcStatus(status);
    }
    auto file = table_.Find(id);
    if (!file.ok()) return ToGrpcStatus(file.status());
    response->set_path((*file)->path());
    response->set_size((*file)->size());
    return grpc::Status::OK;
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
    const std::map<std::string, std::vector<std::string>> copies = table_.Free(
        {request->object_ids().begin(), request->object_ids().end()});
    for (const auto& [address, ids] : copies) FreeAt(address, ids);
    return grpc::Status::OK;
  }

 private:
  // Takes an object from a stream. `id` and `job_id`, where known, are not
  // taken from the peer.
  absl::Status Receive(const std::function<bool(v1::ObjectChunk*)>& read,
                       std::string id, std::string job_id, bool is_copy) {
    v1::ObjectChunk chunk;
    if (!read(&chunk)) {
      return absl::InvalidArgumentError("an object without a first chunk");
    }
    if (id.empty()) {
      id = chunk.object_id();
      job_id = chunk.job_id();
    }
    MR_ASSIGN_OR_RETURN(std::unique_ptr<ObjectTable::Incoming> incoming,
                        table_.Begin(std::move(id), std::move(job_id),
                                     chunk.total_bytes(), is_copy));
    do {
      const absl::Status status =
          ObjectTable::Append(incoming.get(), chunk.data());
      if (!status.ok()) {
        table_.Abandon(std::move(incoming));
        return status;
      }
    } while (read(&chunk));
    return table_.Finish(std::move(incoming));
  }

  absl::Status Send(const v1::FetchObjectRequest& request,
                    grpc::ServerWriter<v1::ObjectChunk>* writer) {
    MR_ASSIGN_OR_RETURN(
        const std::shared_ptr<const MemoryFile> file,
        table_.Find(request.object_id(), request.store_address()));
    v1::ObjectChunk chunk;
    chunk.set_object_id(request.object_id());
    chunk.set_total_bytes(file->size());
    int64_t offset = 0;
    do {
      const int64_t size = std::min(kChunkBytes, file->size() - offset);
      MR_RETURN_IF_ERROR(file->Read(offset, size, chunk.mutable_data()));
      if (!writer->Write(chunk)) {
        return absl::CancelledError("the reader is gone");
      }
      offset += size;
      chunk.clear_object_id();
      chunk.clear_total_bytes();
    } while (offset < file->size());
    ++served_;
    return absl::OkStatus();
  }

  // Copies an object from the store that has it.
  absl::Status Bring(const v1::LocateObjectRequest& request) {
    const std::string& source = request.source_address();
    MR_RETURN_IF_ERROR(ParseHostPort(source).status());
    if (source == address_) {
      return table_.Find(request.object_id()).status();
    }
    grpc::ClientContext context;
    AddToken(&context, token_);
    v1::FetchObjectRequest fetch;
    fetch.set_object_id(request.object_id());
    fetch.set_store_address(address_);
    auto stub = v1::ObjectStore::NewStub(MakeChannel(source));
    auto reader = stub->FetchObject(&context, fetch);
    bool ended_itself = false;
    const absl::Status received = Receive(
        [&](v1::ObjectChunk* chunk) {
          ended_itself = !reader->Read(chunk);
          return !ended_itself;
        },
        request.object_id(), request.job_id(), /*is_copy=*/true);
    if (!ended_itself) {  // It is refused here.
      context.TryCancel();
      v1::ObjectChunk rest;
      while (reader->Read(&rest)) {
      }
    }
    const absl::Status ended = FromGrpcStatus(reader->Finish());
    // What the source says explains why too little came.
    if (received.ok()) {
      ++fetched_;
      return absl::OkStatus();
    }
    if (absl::IsUnavailable(ended)) {
      return absl::UnavailableError(
          absl::StrCat("the node whose store at ", source,
                       " holds the object does not answer: ", ended.message()));
    }
    if (!ended.ok() && !absl::IsCancelled(ended)) return ended;
    return received;
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
    // One that does not answer frees them when the job ends. Not inside the
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
  std::atomic<int64_t> fetched_ = 0;
  std::atomic<int64_t> served_ = 0;
};

class ObjectStoreImpl : public ObjectStore {
 public:
  explicit ObjectStoreImpl(const Options& options)
      : service_(options.token, options.max_bytes > 0 ? options.max_bytes
                                                      : DefaultMaxBytes()) {}

  ~ObjectStoreImpl() override {
    if (server_ == nullptr) return;
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
    server_->Wait();
  }

  absl::Status Listen(const std::string& host) {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    // gRPC reads a message before anybody asks for the token.
    builder.SetMaxReceiveMessageSize(kMaxMessage);
    int port = 0;
    builder.AddListeningPort(JoinHostPort(host, 0), ServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(
          absl::StrCat("the object store cannot listen on ", host,
                       ": is it an address of this machine?"));
    }
    address_ = JoinHostPort(host, port);
    service_.set_address(address_);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void EndJob(absl::string_view job_id) override {
    service_.table().EndJob(job_id);
  }

  Stats stats() const override {
    auto& service = const_cast<Service&>(service_);
    return {service.table().objects(), service.table().bytes(),
            service.fetched(), service.served()};
  }

 private:
  Service service_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectStore>> ObjectStore::Start(
    Options options) {
  auto store = std::make_unique<ObjectStoreImpl>(options);
  MR_RETURN_IF_ERROR(store->Listen(options.host));
  return store;
}

}  // namespace miniray
