// ActorServer: the gRPC side of an actor process.

#include <glog/logging.h>

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/actor/host.h"
#include "runtime/base/net.h"
#include "runtime/rpc/byte_buffer.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/tls.h"
#include "runtime/wire/call_messages.h"

namespace miniray {
namespace internal {
namespace {

// A stream is not read further while this many of its calls wait, or this many
// bytes of its calls and their replies: gRPC's flow control then holds the
// caller back, and memory stays bounded.
constexpr size_t kMaxQueuedCalls = 4096;
constexpr uint64_t kMaxQueuedBytes = uint64_t{256} << 20;

// Replies that are ready travel together up to this size.
constexpr uint64_t kFrameBytes = 1 << 20;

class CallStream;

struct QueuedCall {
  std::shared_ptr<CallStream> stream;
  CallMessage message;
  uint64_t bytes = 0;
};

// The mailbox: calls of all streams in the order of their arrival.
class Mailbox {
 public:
  void Push(std::vector<QueuedCall> calls) {
    absl::MutexLock lock(&mu_);
    for (QueuedCall& call : calls) queue_.push_back(std::move(call));
  }

  // Blocks; nothing once stopped.
  std::optional<QueuedCall> Pop() {
    absl::MutexLock lock(&mu_);
    auto ready = [this] {
      mu_.AssertHeld();
      return stopped_ || !queue_.empty();
    };
    mu_.Await(absl::Condition(&ready));
    if (stopped_) return std::nullopt;
    QueuedCall call = std::move(queue_.front());
    queue_.pop_front();
    return call;
  }

  // The calls that wait are dropped, outside the lock.
  void Stop() {
    std::deque<QueuedCall> dropped;
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    dropped.swap(queue_);
  }

 private:
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<QueuedCall> queue_ ABSL_GUARDED_BY(mu_);
};

using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// One caller's stream. gRPC holds it until OnDone; queued calls hold it beyond.
class CallStream : public Reactor {
 public:
  static Reactor* Start(Mailbox* mailbox) {
    auto stream = std::make_shared<CallStream>(mailbox);
    stream->self_ = stream;
    stream->StartRead(&incoming(stream.get()));
    return stream.get();
  }

  explicit CallStream(Mailbox* mailbox) : mailbox_(mailbox) {}

  void OnReadDone(bool ok) override {
    if (!ok) return End(grpc::Status::OK);
    absl::StatusOr<absl::Cord> frame = ToCord(incoming_);
    incoming_.Clear();
    if (!frame.ok()) return End(ToGrpcStatus(frame.status()));
    absl::StatusOr<std::vector<CallMessage>> calls = DecodeCallFrame(*frame);
    if (!calls.ok()) return End(ToGrpcStatus(calls.status()));
    std::vector<QueuedCall> queued;
    const uint64_t each = frame->size() / std::max<size_t>(calls->size(), 1);
    for (CallMessage& message : *calls) {
      queued.push_back({self_, std::move(message), each});
    }
    {
      absl::MutexLock lock(&mu_);
      waiting_calls_ += queued.size();
      waiting_bytes_ += each * queued.size();
    }
    mailbox_->Push(std::move(queued));
    // Only now: a read may end, and its calls be queued, at once.
    absl::MutexLock lock(&mu_);
    reading_paused_ = Full();
    if (!reading_paused_) StartRead(&incoming_);
  }

  // A call of this stream has left the mailbox.
  void Dequeued(uint64_t bytes) {
    absl::MutexLock lock(&mu_);
    --waiting_calls_;
    waiting_bytes_ -= bytes;
    ReadOn();
  }

  void Reply(const ReplyMessage& reply) {
    absl::Cord bytes = EncodeReply(reply);
    absl::MutexLock lock(&mu_);
    if (ended_) return;  // Nobody waits for it any more.
    reply_bytes_ += bytes.size();
    replies_.push_back(std::move(bytes));
    if (!writing_) Write();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (ok && !ended_ && !replies_.empty()) Write();
    ReadOn();
  }

  // The caller is gone, even where reading is paused.
  void OnCancel() override {
    absl::MutexLock lock(&mu_);
    if (!reading_paused_ || ended_) return;
    ended_ = true;
    Finish(grpc::Status::CANCELLED);
  }

  void OnDone() override { self_.reset(); }

 private:
  static grpc::ByteBuffer& incoming(CallStream* stream) {
    return stream->incoming_;
  }

  bool Full() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return waiting_calls_ >= kMaxQueuedCalls ||
           waiting_bytes_ + reply_bytes_ >= kMaxQueuedBytes;
  }

  void ReadOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!reading_paused_ || ended_ || Full()) return;
    reading_paused_ = false;
    StartRead(&incoming_);
  }

  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    absl::Cord frame;
    do {
      reply_bytes_ -= replies_.front().size();
      frame.Append(std::move(replies_.front()));
      replies_.pop_front();
    } while (!replies_.empty() &&
             frame.size() + replies_.front().size() <= kFrameBytes);
    outgoing_ = ToByteBuffer(frame);
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void End(const grpc::Status& status) {
    absl::MutexLock lock(&mu_);
    if (ended_) return;
    ended_ = true;
    Finish(status);
  }

  Mailbox* const mailbox_;
  std::shared_ptr<CallStream> self_;
  grpc::ByteBuffer incoming_;

  absl::Mutex mu_;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::Cord> replies_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool reading_paused_ ABSL_GUARDED_BY(mu_) = false;
  size_t waiting_calls_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t waiting_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t reply_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

class RefusedStream : public Reactor {
 public:
  explicit RefusedStream(const absl::Status& status) {
    Finish(ToGrpcStatus(status));
  }
  void OnDone() override { delete this; }
};

class Service : public v1::ActorService::WithRawCallbackMethod_Channel<
                    v1::ActorService::Service> {
 public:
  Service(std::string token, std::string actor_id, Mailbox* mailbox)
      : token_(std::move(token)),
        actor_id_(std::move(actor_id)),
        mailbox_(mailbox) {}

  Reactor* Channel(grpc::CallbackServerContext* context) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return new RefusedStream(status);
    }
    const auto& metadata = context->client_metadata();
    const auto actor = metadata.find(kActorKey);
    if (actor == metadata.end() || actor->second != actor_id_) {
      return new RefusedStream(
          absl::NotFoundError("another actor lives at this address"));
    }
    return CallStream::Start(mailbox_);
  }

 private:
  const std::string token_;
  const std::string actor_id_;
  Mailbox* const mailbox_;
};

class ActorServerImpl : public ActorServer {
 public:
  ActorServerImpl(Options options, const ActorClass* actor_class,
                  std::shared_ptr<void> object)
      : options_(std::move(options)),
        class_(actor_class),
        object_(std::move(object)),
        service_(options_.token, options_.actor_id, &mailbox_) {}

  ~ActorServerImpl() override {
    Stop();
    if (server_ != nullptr) {
      server_->Shutdown(absl::ToChronoTime(absl::Now()));
    }
  }

  absl::Status Listen() {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    int port = 0;
    builder.AddListeningPort(JoinHostPort(options_.host, 0),
                             ServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", options_.host,
                       ": is it an address of this machine?"));
    }
    address_ = JoinHostPort(options_.host, port);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void Run() override {
    while (std::optional<QueuedCall> call = mailbox_.Pop()) {
      call->stream->Dequeued(call->bytes);
      ReplyMessage reply;
      reply.call_id = call->message.call_id;
      absl::StatusOr<absl::Cord> result = Invoke(call->message);
      call->message.args.clear();  // Received tensors may be large.
      if (result.ok() && result->size() > kMaxMessageBytes - (1 << 20)) {
        result = absl::InvalidArgumentError(absl::StrCat(
            "the result has ", result->size(),
            " bytes, and a message can hold 2 GiB; return it in pieces"));
      }
      reply.status = result.status();
      if (result.ok()) reply.result = *std::move(result);
      call->stream->Reply(reply);
    }
  }

  void Stop() override { mailbox_.Stop(); }

 private:
  // The boundary where exceptions of user code become a status.
  absl::StatusOr<absl::Cord> Invoke(const CallMessage& call) {
    const auto method = class_->methods.find(call.method);
    if (method == class_->methods.end()) {
      return absl::UnimplementedError(
          absl::StrCat(class_->name, " has no method '", call.method,
                       "' in its MINIRAY_ACTOR"));
    }
    try {
      return method->second(object_.get(), call.args);
    } catch (const std::exception& error) {
      return FromException(error);
    } catch (...) {
      return absl::UnknownError("threw something that is no std::exception");
    }
  }

  const Options options_;
  const ActorClass* const class_;
  const std::shared_ptr<void> object_;
  Mailbox mailbox_;
  Service service_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ActorServer>> ActorServer::Start(
    Options options, const ActorClass* actor_class,
    std::shared_ptr<void> object) {
  auto server = std::make_unique<ActorServerImpl>(
      std::move(options), actor_class, std::move(object));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace internal
}  // namespace miniray
