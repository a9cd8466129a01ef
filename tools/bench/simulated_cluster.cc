#include "tools/bench/simulated_cluster.h"

#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/head_channel.h"
#include "runtime/worker/lease_keeper.h"

namespace miniray::bench {
namespace {

// The stream on which one renews its lease.
class LeaseStream : public grpc::ClientBidiReactor<v1::RenewLeaseRequest,
                                                   v1::RenewLeaseResponse> {
 public:
  LeaseStream(v1::Head::Stub* stub, const std::string& node_id,
              const std::string& token) {
    request_.set_node_id(node_id);
    AddToken(&context_, token);
    stub->async()->RenewLease(&context_, this);
    AddHold();
    StartRead(&response_);
    StartCall();
  }
  ~LeaseStream() override {
    context_.TryCancel();
    RemoveHold();
    done_.WaitForNotification();
  }

  // Does nothing while the last is not answered.
  void Renew() {
    int none = 0;
    if (under_way_.compare_exchange_strong(none, 2)) StartWrite(&request_);
  }

  void OnWriteDone(bool ok) override {
    if (ok) --under_way_;
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    StartRead(&response_);
    --under_way_;
  }
  void OnDone(const grpc::Status&) override { done_.Notify(); }

 private:
  grpc::ClientContext context_;
  v1::RenewLeaseRequest request_;
  v1::RenewLeaseResponse response_;
  // Of a renewal: the write, and the read of its answer.
  std::atomic<int> under_way_ = 0;
  absl::Notification done_;
};

absl::Status WaitUntil(const std::function<absl::StatusOr<bool>()>& reached) {
  const absl::Time deadline = absl::Now() + kSimulationPatience;
  while (absl::Now() < deadline) {
    MR_ASSIGN_OR_RETURN(const bool now, reached());
    if (now) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(5));
  }
  return absl::DeadlineExceededError("not all actors are up, or gone");
}

}  // namespace

void RaiseFileLimit() {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

// --- Daemons.

class SimulatedDaemons::Daemon
    : public grpc::ClientBidiReactor<v1::NodeMessage, v1::NodeCommand> {
 public:
  Daemon(const std::string& address, const std::string& token, int index,
         std::atomic<int64_t>* started)
      : node_id_(absl::StrCat("node-", index)),
        token_(token),
        stub_(v1::Head::NewStub(MakeHeadChannel(address))),
        started_(started) {}

  void Attach() {
    attached_ = true;
    AddToken(&context_, token_);
    stub_->async()->AttachNode(&context_, this);
    v1::NodeMessage message;
    v1::RegisterNode* node = message.mutable_register_node();
    node->set_node_id(node_id_);
    node->set_hostname("simulated");
    node->set_address("127.0.0.1");
    (*node->mutable_total()->mutable_quantity())["CPU"] = kCpusPerDaemon;
    Push(std::move(message));
    StartRead(&command_);
    AddHold();
    StartCall();
  }

  bool WaitUntilRegistered(absl::Time deadline) {
    return registered_.WaitForNotificationWithTimeout(deadline - absl::Now());
  }

  void RenewLease() {
    if (lease_ == nullptr) {
      lease_ = std::make_unique<LeaseStream>(stub_.get(), node_id_, token_);
    }
    lease_->Renew();
  }

  void End() {
    if (!attached_) return;
    lease_.reset();
    context_.TryCancel();
    RemoveHold();
    done_.WaitForNotification();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (command_.has_registered()) {
      registered_.Notify();
    } else if (command_.has_start_actor()) {
      v1::NodeMessage message;
      v1::ActorStarted* started = message.mutable_actor_started();
      started->set_actor_id(command_.start_actor().spec().actor_id());
      started->set_incarnation(command_.start_actor().incarnation());
      started->set_address("127.0.0.1:1");
      started->set_pid(1);
      Push(std::move(message));
      ++*started_;
    } else if (command_.has_stop_actor()) {
      v1::NodeMessage message;
      v1::ActorExited* exited = message.mutable_actor_exited();
      exited->set_actor_id(command_.stop_actor().actor_id());
      exited->set_incarnation(command_.stop_actor().incarnation());
      exited->set_cause(command_.stop_actor().reason());
      Push(std::move(message));
    }
    StartRead(&command_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    outbox_.pop_front();
    if (ok && !outbox_.empty()) StartWrite(&outbox_.front());
  }

  void OnDone(const grpc::Status&) override { done_.Notify(); }

 private:
  void Push(v1::NodeMessage message) {
    absl::MutexLock lock(&mu_);
    outbox_.push_back(std::move(message));
    if (outbox_.size() == 1) StartWrite(&outbox_.front());
  }

  const std::string node_id_;
  const std::string token_;
  const std::unique_ptr<v1::Head::Stub> stub_;
  std::unique_ptr<LeaseStream> lease_;  // From the first renewal on.
  std::atomic<int64_t>* const started_;
  bool attached_ = false;
  grpc::ClientContext context_;
  v1::NodeCommand command_;
  absl::Notification registered_;
  absl::Notification done_;
  absl::Mutex mu_;
  std::deque<v1::NodeMessage> outbox_ ABSL_GUARDED_BY(mu_);
};

// Renews all leases as often as the daemons' LeaseKeeper, evenly spread.
class SimulatedDaemons::LeaseThread {
 public:
  explicit LeaseThread(const std::vector<std::unique_ptr<Daemon>>& daemons)
      : thread_([this, &daemons] {
          const absl::Duration step = kSimulatedLease * LeaseKeeper::kPeriod /
                                      static_cast<double>(daemons.size());
          absl::Time next = absl::Now();
          for (size_t i = 0;; i = (i + 1) % daemons.size()) {
            next += step;
            if (stop_.WaitForNotificationWithTimeout(next - absl::Now())) {
              return;
            }
            daemons[i]->RenewLease();
          }
        }) {}
  ~LeaseThread() {
    stop_.Notify();
    thread_.join();
  }

 private:
  absl::Notification stop_;
  std::thread thread_;
};

SimulatedDaemons::SimulatedDaemons(const std::string& address,
                                   const std::string& token, int count) {
  for (int i = 0; i < count; ++i) {
    daemons_.push_back(std::make_unique<Daemon>(address, token, i, &started_));
  }
}

SimulatedDaemons::~SimulatedDaemons() {
  leases_.reset();
  for (const auto& daemon : daemons_) daemon->End();
}

absl::Status SimulatedDaemons::Attach() {
  for (const auto& daemon : daemons_) daemon->Attach();
  const absl::Time deadline = absl::Now() + kSimulationPatience;
  for (const auto& daemon : daemons_) {
    if (!daemon->WaitUntilRegistered(deadline)) {
      return absl::DeadlineExceededError("not all daemons are registered");
    }
  }
  leases_ = std::make_unique<LeaseThread>(daemons_);
  return absl::OkStatus();
}

// --- The driver.

SimulatedDriver::SimulatedDriver(const std::string& address, std::string token,
                                 int in_flight)
    : stub_(v1::Head::NewStub(MakeChannel(address))),
      token_(std::move(token)),
      max_in_flight_(in_flight) {}

absl::Status SimulatedDriver::Upload() {
  const std::string bytes = "a package that nobody runs";
  MR_ASSIGN_OR_RETURN(const std::string folder, RuntimeDirectory());
  const std::string file = absl::StrCat(folder, "/", NewId("bench"));
  MR_RETURN_IF_ERROR(WriteFileAtomically(file, bytes));
  MR_ASSIGN_OR_RETURN(package_id_, Sha256OfFile(file));
  unlink(file.c_str());
  grpc::ClientContext context;
  PrepareContext(&context, token_, kSimulationPatience);
  v1::PutPackageResponse response;
  const auto writer = stub_->PutPackage(&context, &response);
  v1::PackageChunk chunk;
  chunk.set_package_id(package_id_);
  chunk.set_total_bytes(static_cast<int64_t>(bytes.size()));
  chunk.set_data(bytes);
  writer->Write(chunk);
  writer->WritesDone();
  return FromGrpcStatus(writer->Finish());
}

absl::Status SimulatedDriver::Create(int count) {
  for (int i = 0; i < count; ++i) {
    struct Call {
      grpc::ClientContext context;
      v1::CreateActorRequest request;
      v1::CreateActorResponse response;
    };
    auto call = std::make_shared<Call>();
    v1::ActorSpec* spec = call->request.mutable_spec();
    spec->set_actor_id(absl::StrCat("actor-", next_++));
    spec->set_class_name("bench::Actor");
    spec->set_package_id(package_id_);
    spec->set_job_id("bench");
    (*spec->mutable_resources()->mutable_quantity())["CPU"] = 1;
    spec->add_constructor_args()->set_int_value(i);
    actors_.push_back(spec->actor_id());
    PrepareContext(&call->context, token_, kSimulationPatience);
    Enter();
    stub_->async()->CreateActor(
        &call->context, &call->request, &call->response,
        [this, call](const grpc::Status& status) { Leave(status); });
  }
  return Drain();
}

absl::Status SimulatedDriver::KillAll() {
  for (const std::string& id : std::exchange(actors_, {})) {
    struct Call {
      grpc::ClientContext context;
      v1::KillActorRequest request;
      v1::KillActorResponse response;
    };
    auto call = std::make_shared<Call>();
    call->request.set_actor_id(id);
    call->request.set_no_restart(true);
    PrepareContext(&call->context, token_, kSimulationPatience);
    Enter();
    stub_->async()->KillActor(
        &call->context, &call->request, &call->response,
        [this, call](const grpc::Status& status) { Leave(status); });
  }
  return Drain();
}

absl::StatusOr<v1::GetClusterStateResponse> SimulatedDriver::List(
    v1::Table table, const std::string& state) {
  grpc::ClientContext context;
  PrepareContext(&context, token_, kSimulationPatience);
  v1::GetClusterStateRequest request;
  request.add_tables(table);
  if (!state.empty()) {
    v1::Filter* filter = request.add_filters();
    filter->set_field("state");
    filter->set_value(state);
  }
  v1::GetClusterStateResponse response;
  const grpc::Status status =
      stub_->GetClusterState(&context, request, &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::Status SimulatedDriver::WaitUntilUp() {
  return WaitUntil([this]() -> absl::StatusOr<bool> {
    for (const char* state : {"pending", "starting"}) {
      MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse some,
                          List(v1::TABLE_ACTORS, state));
      if (some.actors_size() > 0) return false;
    }
    return true;
  });
}

absl::Status SimulatedDriver::WaitUntilIdle() {
  return WaitUntil([this]() -> absl::StatusOr<bool> {
    MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                        List(v1::TABLE_NODES));
    return std::all_of(
        state.nodes().begin(), state.nodes().end(), [](const auto& node) {
          return node.available().quantity().at("CPU") == kCpusPerDaemon;
        });
  });
}

absl::Status SimulatedDriver::ExpectAlive(int count) {
  MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                      List(v1::TABLE_ACTORS, "alive"));
  if (state.actors_size() == count) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(state.actors_size(), " actors are up instead of ", count));
}

void SimulatedDriver::Enter() {
  absl::MutexLock lock(&mu_);
  auto room = [this] {
    mu_.AssertHeld();
    return in_flight_ < max_in_flight_;
  };
  mu_.Await(absl::Condition(&room));
  ++in_flight_;
}

void SimulatedDriver::Leave(const grpc::Status& status) {
  absl::MutexLock lock(&mu_);
  --in_flight_;
  if (!status.ok()) error_ = FromGrpcStatus(status);
}

absl::Status SimulatedDriver::Drain() {
  absl::MutexLock lock(&mu_);
  auto none = [this] {
    mu_.AssertHeld();
    return in_flight_ == 0;
  };
  mu_.Await(absl::Condition(&none));
  return error_;
}

}  // namespace miniray::bench
