#include "tools/bench/peers/grpc_echo.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/grpc_status.h"
#include "tools/bench/peers/grpc_server.h"
#include "tools/bench/peers/peer.grpc.pb.h"
#include "tools/bench/table.h"

namespace miniray::bench {
namespace {

// Echoes one message after the other.
class EchoStream
    : public grpc::ServerBidiReactor<peer::EchoMessage, peer::EchoMessage> {
 public:
  EchoStream() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartWrite(&message_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  peer::EchoMessage message_;
};

class EchoService : public peer::Echo::CallbackService {
 public:
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context,
                                 const peer::EchoMessage* request,
                                 peer::EchoMessage* response) override {
    response->set_number(request->number());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  EchoStream* Stream(grpc::CallbackServerContext*) override {
    return new EchoStream;
  }
};

// The caller's end of a stream. For one thread; REQUIRES: Wait at the end.
class PingStream
    : public grpc::ClientBidiReactor<peer::EchoMessage, peer::EchoMessage> {
 public:
  explicit PingStream(peer::Echo::Stub* stub) {
    stub->async()->Stream(&context_, this);
    AddHold();  // Writes come from the caller's thread.
    StartRead(&in_);
    StartCall();
  }

  // False: the stream has ended.
  bool Ping(int64_t number) {
    if (!AwaitWritten()) return false;
    absl::MutexLock lock(&mu_);
    out_.set_number(number);
    written_ = false;
    echoed_ = false;
    StartWrite(&out_);
    auto echoed = [this] {
      mu_.AssertHeld();
      return echoed_ || ended_;
    };
    mu_.Await(absl::Condition(&echoed));
    return echoed_ && echo_ == number;
  }

  // Ends the stream.
  absl::Status Wait() {
    AwaitWritten();
    StartWritesDone();
    RemoveHold();
    absl::MutexLock lock(&mu_);
    auto done = [this] {
      mu_.AssertHeld();
      return status_.has_value();
    };
    mu_.Await(absl::Condition(&done));
    return *status_;
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    written_ = ok;
  }
  void OnReadDone(bool ok) override {
    if (!ok) {
      absl::MutexLock lock(&mu_);
      ended_ = true;
      return;
    }
    const int64_t number = in_.number();
    StartRead(&in_);
    absl::MutexLock lock(&mu_);
    echo_ = number;
    echoed_ = true;
  }
  void OnDone(const grpc::Status& status) override {
    absl::MutexLock lock(&mu_);
    status_ = FromGrpcStatus(status);
  }

 private:
  // False: the stream has ended.
  bool AwaitWritten() {
    absl::MutexLock lock(&mu_);
    auto written = [this] {
      mu_.AssertHeld();
      return written_ || ended_;
    };
    mu_.Await(absl::Condition(&written));
    return !ended_;
  }

  grpc::ClientContext context_;
  peer::EchoMessage in_, out_;
  absl::Mutex mu_;
  bool written_ ABSL_GUARDED_BY(mu_) = true;
  bool echoed_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  int64_t echo_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
};

// Calls of one flood: each that ends starts the next.
class FloodRun {
 public:
  FloodRun(peer::Echo::Stub* stub, int calls) : stub_(stub), left_(calls) {}

  void StartOne() {
    {
      absl::MutexLock lock(&mu_);
      if (left_ == 0) return;
      --left_;
      ++in_flight_;
    }
    struct Call {
      grpc::ClientContext context;
      peer::EchoMessage request;
      peer::EchoMessage response;
    };
    auto* const call = new Call;
    call->request.set_number(1);
    stub_->async()->Call(&call->context, &call->request, &call->response,
                         [this, call](const grpc::Status& status) {
                           delete call;
                           StartOne();
                           absl::MutexLock lock(&mu_);
                           --in_flight_;
                           if (!status.ok()) error_ = FromGrpcStatus(status);
                         });
  }

  absl::Status Wait() {
    absl::MutexLock lock(&mu_);
    auto done = [this] {
      mu_.AssertHeld();
      return left_ == 0 && in_flight_ == 0;
    };
    mu_.Await(absl::Condition(&done));
    return error_;
  }

 private:
  peer::Echo::Stub* const stub_;
  absl::Mutex mu_;
  int left_ ABSL_GUARDED_BY(mu_);
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

class Client : public GrpcEcho {
 public:
  explicit Client(GrpcPeer peer)
      : peer_(std::move(peer)), stub_(peer::Echo::NewStub(peer_.channel())) {}

  absl::StatusOr<double> RoundTrip(int calls) override {
    std::vector<double> micros;
    for (int i = 0; i < calls; ++i) {
      const absl::Time start = absl::Now();
      grpc::ClientContext context;
      peer::EchoMessage request, response;
      request.set_number(i);
      const grpc::Status status = stub_->Call(&context, request, &response);
      if (!status.ok()) return FromGrpcStatus(status);
      micros.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
    }
    return Median(std::move(micros));
  }

  absl::StatusOr<double> StreamRoundTrip(int messages) override {
    PingStream stream(stub_.get());
    std::vector<double> micros;
    bool ok = true;
    for (int i = 0; ok && i < messages; ++i) {
      const absl::Time start = absl::Now();
      ok = stream.Ping(i);
      micros.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
    }
    MR_RETURN_IF_ERROR(stream.Wait());
    if (!ok) return absl::UnavailableError("the raw gRPC stream ended");
    return Median(std::move(micros));
  }

  absl::StatusOr<double> Flood(int calls, int in_flight) override {
    FloodRun run(stub_.get(), calls);
    const absl::Time start = absl::Now();
    for (int i = 0; i < std::min(calls, in_flight); ++i) run.StartOne();
    MR_RETURN_IF_ERROR(run.Wait());
    return calls / absl::ToDoubleSeconds(absl::Now() - start);
  }

 private:
  const GrpcPeer peer_;
  const std::unique_ptr<peer::Echo::Stub> stub_;
};

}  // namespace

int ServeGrpcEcho() {
  EchoService service;
  return ServeGrpc({&service});
}

absl::StatusOr<std::unique_ptr<GrpcEcho>> GrpcEcho::Start() {
  MR_ASSIGN_OR_RETURN(GrpcPeer peer, StartGrpcPeer(kGrpcEchoRole));
  return std::make_unique<Client>(std::move(peer));
}

}  // namespace miniray::bench
