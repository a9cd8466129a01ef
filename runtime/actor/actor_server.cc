#include "runtime/actor/actor_server.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/actor/call_meter.h"
#include "runtime/actor/call_stream.h"
#include "runtime/actor/hosted_actor.h"
#include "runtime/actor/link_call_server.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/link/tcp_socket.h"
#include "runtime/link/transport.h"
#include "runtime/objects/chunk_stream.h"
#include "runtime/rpc/byte_buffer.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_listener.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/tls.h"
#include "runtime/shm/borrowed_memory.h"
#include "runtime/shm/segment.h"

namespace miniray {
namespace internal {
namespace {

// The actors that live here. Outlives the server where threads of theirs do.
class ActorTable {
 public:
  void Add(const std::string& id, std::shared_ptr<HostedActor> actor) {
    std::shared_ptr<HostedActor> replaced;  // Dies unlocked.
    absl::MutexLock lock(&mu_);
    replaced = std::exchange(actors_[id], std::move(actor));
  }
  std::shared_ptr<HostedActor> Find(absl::string_view id) {
    absl::MutexLock lock(&mu_);
    auto it = actors_.find(id);
    return it == actors_.end() ? nullptr : it->second;
  }
  void Remove(const std::string& id, int32_t incarnation) {
    std::shared_ptr<HostedActor> removed;
    absl::MutexLock lock(&mu_);
    auto it = actors_.find(id);
    if (it == actors_.end() || it->second->incarnation() != incarnation) return;
    removed = std::move(it->second);
    actors_.erase(it);
  }
  std::map<std::string, std::shared_ptr<HostedActor>, std::less<>> TakeAll() {
    absl::MutexLock lock(&mu_);
    return std::exchange(actors_, {});
  }
  std::vector<std::shared_ptr<HostedActor>> All() const {
    absl::MutexLock lock(&mu_);
    std::vector<std::shared_ptr<HostedActor>> all;
    for (const auto& [id, actor] : actors_) all.push_back(actor);
    return all;
  }

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, std::shared_ptr<HostedActor>, std::less<>> actors_
      ABSL_GUARDED_BY(mu_);
};

std::string Metadata(grpc::CallbackServerContext* context, const char* key) {
  const auto it = context->client_metadata().find(key);
  if (it == context->client_metadata().end()) return "";
  return std::string(it->second.data(), it->second.size());
}

// Data of one chunk of a kept result: few, since each costs turns of threads.
constexpr size_t kResultChunkBytes = size_t{4} << 20;

// Sends a kept result, or a range of it, in chunks from its own memory.
class ResultWriter : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // actor: counts what is sent; may be null.
  explicit ResultWriter(absl::StatusOr<absl::Cord> result, int64_t offset = 0,
                        int64_t length = 0, HostedActor* actor = nullptr) {
    if (result.ok() &&
        (offset < 0 || offset > static_cast<int64_t>(result->size()) ||
         length < 0)) {
      result = absl::InvalidArgumentError("a range outside of the result");
    }
    if (!result.ok()) {
      Finish(ToGrpcStatus(result.status()));
      return;
    }
    result_ = *std::move(result);
    const auto size = static_cast<int64_t>(result_.size());
    result_.RemovePrefix(static_cast<size_t>(offset));
    if (length > 0 && length < size - offset) {
      result_.RemoveSuffix(static_cast<size_t>(size - offset - length));
    }
    if (actor != nullptr) {
      actor->CountBytes(CallPath::kTcp, /*sent=*/true, result_.size());
    }
    Write({.total_bytes = size});
  }
  void OnWriteDone(bool ok) override {
    if (!ok || result_.empty()) {
      Finish(grpc::Status::OK);
      return;
    }
    Write({});
  }
  void OnDone() override { delete this; }

 private:
  void Write(Chunk chunk) {
    const size_t size = std::min(kResultChunkBytes, result_.size());
    chunk.data = result_.Subcord(0, size);
    result_.RemovePrefix(size);
    message_ = EncodeChunk(chunk);
    StartWrite(&message_);
  }

  absl::Cord result_;  // What is left.
  grpc::ByteBuffer message_;
};

absl::StatusOr<v1::FetchObjectRequest> ParseFetch(
    const grpc::ByteBuffer& message) {
  MR_ASSIGN_OR_RETURN(const absl::Cord bytes, ToCord(message));
  v1::FetchObjectRequest request;
  if (!request.ParseFromString(std::string(bytes))) {
    return absl::InvalidArgumentError("a malformed request");
  }
  return request;
}

constexpr size_t kMaxCallerIdBytes = 128;

constexpr char kNotHere[] = "this process of the actor does not live here";

// See AttachStream.
absl::Status Attach(ActorTable* table, const StreamMetadata& metadata,
                    const MakeSessionStream& make) {
  const std::shared_ptr<HostedActor> actor = table->Find(metadata(kActorKey));
  int32_t incarnation = -1;
  if (actor == nullptr ||
      !absl::SimpleAtoi(metadata(kIncarnationKey), &incarnation) ||
      incarnation != actor->incarnation()) {
    return absl::NotFoundError(kNotHere);
  }
  const std::string caller = metadata(kCallerKey);
  if (caller.empty() || caller.size() > kMaxCallerIdBytes) {
    return absl::InvalidArgumentError("the stream names no session");
  }
  const absl::StatusOr<SegmentName> probe =
      SegmentName::Parse(metadata(kSharedMemoryKey));
  const bool reads_memory = probe.ok() && BorrowedMemory::CanRead(*probe);
  if (!actor->Attach(caller, reads_memory,
                     [&](std::shared_ptr<CallSession> session) {
                       return make(actor, std::move(session));
                     })) {
    return absl::ResourceExhaustedError(
        "too many processes hold sessions with this actor");
  }
  return absl::OkStatus();
}

class Service : public v1::ActorService::WithRawCallbackMethod_FetchObject<
                    v1::ActorService::WithCallbackMethod_Inspect<
                        v1::ActorService::WithRawCallbackMethod_Channel<
                            v1::ActorService::Service>>> {
 public:
  Service(std::string token, ActorTable* table)
      : token_(std::move(token)), table_(table) {}

  ChannelReactor* Channel(grpc::CallbackServerContext* context) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return new RefusedStream(status);
    }
    std::shared_ptr<CallStream> stream;
    const absl::Status status = Attach(
        table_, [&](const char* key) { return Metadata(context, key); },
        [&](std::shared_ptr<HostedActor> actor,
            std::shared_ptr<CallSession> session) {
          stream = CallStream::Make(
              context, std::move(session), [actor](CallStream* ended) {
                actor->OnStreamEnded(ended->session(), ended);
              });
          return stream;
        });
    if (!status.ok()) return new RefusedStream(status);
    return stream.get();
  }

  grpc::ServerUnaryReactor* Inspect(grpc::CallbackServerContext* context,
                                    const v1::InspectRequest* request,
                                    v1::InspectResponse* response) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    absl::Status status = CheckToken(*context, token_);
    if (status.ok()) {
      const std::shared_ptr<HostedActor> actor =
          table_->Find(request->actor_id());
      if (actor == nullptr) {
        status = absl::NotFoundError(kNotHere);
      } else {
        *response = actor->Inspect();
      }
    }
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchObject(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* message) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return new ResultWriter(status);
    }
    const absl::StatusOr<v1::FetchObjectRequest> request = ParseFetch(*message);
    if (!request.ok()) return new ResultWriter(request.status());
    const std::shared_ptr<HostedActor> actor =
        table_->Find(request->actor_id());
    if (actor == nullptr) {
      return new ResultWriter(absl::NotFoundError(kNotHere));
    }
    return new ResultWriter(actor->FindResult(request->object_id()),
                            request->offset(), request->length(), actor.get());
  }

 private:
  const std::string token_;
  ActorTable* const table_;
};

class ActorServerImpl : public ActorServer {
 public:
  explicit ActorServerImpl(Options options)
      : options_(std::move(options)),
        table_(std::make_shared<ActorTable>()),
        service_(options_.token, table_.get()) {}

  ~ActorServerImpl() override {
    for (auto& [id, actor] : table_->TakeAll()) {
      actor->End(absl::CancelledError("the process ends"));
    }
    unix_.reset();
    tcp_.reset();
    listener_.reset();
    if (server_ != nullptr) {
      server_->Shutdown(absl::ToChronoTime(absl::Now()));
    }
  }

  absl::Status Listen() {
    MR_ASSIGN_OR_RETURN(Transport transport, TransportFromEnvironment());
    // Certificates prove who calls, and nothing else would here.
    if (!TlsDir().empty()) transport = Transport::kGrpc;
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    int port = 0;
    ScopedFd listener;
    std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
    if (transport != Transport::kGrpc) {
      // Where that cannot be, GrpcListener finds out why, or can.
      if (auto listening = ListenTcp(options_.host); listening.ok()) {
        listener = std::move(listening->fd);
        port = listening->port;
        using Builder = grpc::ServerBuilder::experimental_type;
        acceptor = builder.experimental().AddExternalConnectionAcceptor(
            Builder::ExternalConnectionType::FROM_FD, ServerCredentials());
      }
    }
    if (acceptor == nullptr) {
      MR_ASSIGN_OR_RETURN(listener_, GrpcListener::Start(options_.host, 0));
      listener_->AddTo(&builder);
      port = listener_->port();
    }
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::InternalError("an actor's gRPC server does not start");
    }
    address_ = JoinHostPort(options_.host, port);
    if (listener_ != nullptr) {
      listener_->Accept();
    } else {
      MR_RETURN_IF_ERROR(ServeTcp(std::move(listener), std::move(acceptor)));
    }
    if (transport == Transport::kAuto) ServeUnix();
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void AddActor(const v1::HostActor& host, ActorHooks hooks,
                std::function<void(v1::ActorEvent)> on_event) override {
    const std::string& id = host.spec().actor_id();
    auto actor = std::make_shared<HostedActor>(
        host, std::move(hooks),
        [on_event = std::move(on_event),
         address = address_](v1::ActorEvent event) {
          if (event.has_ready()) event.mutable_ready()->set_address(address);
          on_event(std::move(event));
        },
        [table = table_, id, incarnation = host.incarnation()] {
          table->Remove(id, incarnation);
        });
    table_->Add(id, actor);
    actor->Start();
  }

  void RemoveActor(absl::string_view actor_id, int32_t incarnation,
                   absl::string_view reason) override {
    const std::shared_ptr<HostedActor> actor = table_->Find(actor_id);
    if (actor == nullptr || actor->incarnation() != incarnation) return;
    actor->End(absl::UnavailableError(reason));
  }

  std::map<std::string, CallLoad> Load() const override {
    std::map<std::string, CallLoad> load;
    for (const std::shared_ptr<HostedActor>& actor : table_->All()) {
      const CallLoad of_actor = actor->Load();
      CallLoad& of_class = load[actor->class_name()];
      of_class.waiting += of_actor.waiting;
      of_class.running += of_actor.running;
    }
    return load;
  }

 private:
  LinkCallServer::Options LinkOptions() const {
    return {address_, options_.token,
            [table = table_](const StreamMetadata& metadata,
                             const MakeSessionStream& make) {
              return Attach(table.get(), metadata, make);
            }};
  }

  // gRPC gets its connections through `acceptor`.
  absl::Status ServeTcp(
      ScopedFd listener,
      std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor>
          acceptor) {
    const int listening = listener.get();
    MR_ASSIGN_OR_RETURN(
        tcp_, LinkCallServer::StartTcp(
                  LinkOptions(), std::move(listener),
                  [acceptor = std::move(acceptor), listening](ScopedFd fd) {
                    grpc::experimental::ExternalConnectionAcceptor::
                        NewConnectionParameters connection;
                    connection.listener_fd = listening;
                    connection.fd = fd.release();
                    acceptor->HandleNewConnection(&connection);
                  }));
    return absl::OkStatus();
  }

  void ServeUnix() {
    auto server = LinkCallServer::StartUnix(LinkOptions());
    if (server.ok()) {
      unix_ = *std::move(server);
    } else {
      LOG(WARNING) << "calls inside this machine go through TCP: "
                   << server.status().message();
    }
  }

  const Options options_;
  const std::shared_ptr<ActorTable> table_;
  Service service_;
  std::string address_;
  std::unique_ptr<LinkCallServer> unix_;  // Null: there is none.
  std::unique_ptr<LinkCallServer> tcp_;   // Null: listener_ accepts.
  std::unique_ptr<GrpcListener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ActorServer>> ActorServer::Start(
    Options options) {
  auto server = std::make_unique<ActorServerImpl>(std::move(options));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace internal
}  // namespace miniray
