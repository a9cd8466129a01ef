// How much one head bears: simulated worker daemons and actors against a real
// head in a process of its own, over gRPC on loopback, with everything written
// to disk as usual. The daemons answer an order to start an actor at once.
//
//   bazel-bin/tools/bench/head                    1,000 daemons, 10,000 actors
//   bazel-bin/tools/bench/head --json --check     exits 1 if a target is missed

#include <fcntl.h>
#include <glog/logging.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/head_server.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/head_channel.h"
#include "runtime/worker/lease_keeper.h"

ABSL_FLAG(int, daemons, 1000, "Simulated worker daemons, a connection each.");
ABSL_FLAG(int, actors, 10000, "Actors that live at once.");
ABSL_FLAG(double, seconds, 10, "How long actors are placed.");
ABSL_FLAG(int, in_flight, 256, "Creations without an answer.");
ABSL_FLAG(int, lists, 200, "How often the actors are listed.");
ABSL_FLAG(bool, json, false, "Print JSON.");
ABSL_FLAG(bool, check, false, "Exit 1 if a target is missed.");
ABSL_FLAG(double, slack, 1,
          "What --check allows a machine that does other work too: targets are "
          "missed by more than this factor.");

namespace miniray {
namespace {

constexpr char kHelp[] =
    R"(Measures one head with simulated worker daemons and actors.

  head [FLAGS]

The head is real, in a process of its own, and writes to disk as usual; the
daemons, all in this process, are connections that answer an order to start an
actor at once. Placements per second, the head's CPU for each, and for the
leases of the nodes; the time of a list of all actors; the head's memory.

  --daemons=N    simulated daemons (default 1000)
  --actors=N     actors that live at once (default 10000)
  --seconds=S    how long actors are placed (default 10)
  --in_flight=N  creations without an answer (default 256)
  --lists=N      how often the actors are listed (default 200)
  --json         print JSON instead of a table
  --check        exit 1 if a target is missed
  --slack=F      ... by more than this factor (default 1), on a machine that does
                 other work too
  --help         this text
)";

constexpr double kMinPlacementsPerSecond = 5000;
constexpr double kMaxListSeconds = 0.2;
constexpr double kMaxLeaseShare = 0.1;
constexpr absl::Duration kLease = absl::Seconds(10);  // The default.
constexpr absl::Duration kPatience = absl::Minutes(2);
constexpr int kCpusPerDaemon = 64;

// --- The head, in a process of its own.

class HeadProcess {
 public:
  // Call it before the process uses gRPC or has threads.
  static absl::StatusOr<HeadProcess> Start(const std::string& folder) {
    int ready[2], stop[2];
    if (pipe2(ready, O_CLOEXEC) != 0 || pipe2(stop, O_CLOEXEC) != 0) {
      return ErrnoStatus(errno, "pipe");
    }
    HeadProcess process;
    process.pid_ = fork();
    if (process.pid_ < 0) return ErrnoStatus(errno, "fork");
    if (process.pid_ == 0) {
      close(ready[0]);
      close(stop[1]);
      _exit(Run(folder, ready[1], stop[0]));
    }
    close(ready[1]);
    close(stop[0]);
    process.stop_ = ScopedFd(stop[1]);
    const ScopedFd from(ready[0]);
    if (read(from.get(), &process.port_, sizeof(process.port_)) !=
        sizeof(process.port_)) {
      return absl::InternalError("the head did not start");
    }
    return process;
  }

  HeadProcess(HeadProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)),
        port_(other.port_),
        stop_(std::move(other.stop_)) {}
  ~HeadProcess() {
    if (pid_ <= 0) return;
    stop_.reset();
    waitpid(pid_, nullptr, 0);
  }

  int port() const { return port_; }

  absl::Duration CpuTime() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
    std::string text((std::istreambuf_iterator<char>(file)), {});
    // After the name, which may contain anything.
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    int64_t user = 0, system = 0;
    fields >> user >> system;
    return absl::Seconds(static_cast<double>(user + system) /
                         static_cast<double>(sysconf(_SC_CLK_TCK)));
  }

  // Bytes; `key` as in /proc/<pid>/status.
  int64_t Memory(const std::string& key) const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/status"));
    std::string line;
    while (std::getline(file, line)) {
      if (line.rfind(key + ":", 0) == 0) {
        return std::stoll(line.substr(key.size() + 1)) * 1024;
      }
    }
    return 0;
  }

 private:
  HeadProcess() = default;

  static int Run(const std::string& folder, int ready, int stop) {
    signal(SIGINT, SIG_IGN);  // Ends with the other process.
    // Not a line for each daemon that goes at the end.
    FLAGS_minloglevel = google::GLOG_ERROR;
    auto head = HeadServer::Start({.state_dir = folder + "/state"});
    if (!head.ok()) {
      std::cerr << head.status() << "\n";
      return 1;
    }
    const int port = (*head)->port();
    if (write(ready, &port, sizeof(port)) != sizeof(port)) return 1;
    char unused;
    while (read(stop, &unused, 1) < 0 && errno == EINTR) {
    }
    (*head)->Shutdown(HeadServer::End::kFinal);
    return 0;
  }

  pid_t pid_ = 0;
  int port_ = 0;
  ScopedFd stop_;
};

// --- Daemons.

// The stream on which one renews its lease.
class LeaseStream : public grpc::ClientBidiReactor<v1::RenewLeaseRequest,
                                                   v1::RenewLeaseResponse> {
 public:
  LeaseStream(v1::Head::Stub* stub, const std::string& node_id) {
    request_.set_node_id(node_id);
    AddToken(&context_, "");
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

class Daemon
    : public grpc::ClientBidiReactor<v1::NodeMessage, v1::NodeCommand> {
 public:
  Daemon(const std::string& address, int index, std::atomic<int64_t>* started)
      : node_id_(absl::StrCat("node-", index)),
        stub_(v1::Head::NewStub(MakeHeadChannel(address))),
        started_(started) {}

  void Attach() {
    attached_ = true;
    AddToken(&context_, "");
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
      lease_ = std::make_unique<LeaseStream>(stub_.get(), node_id_);
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
class LeaseThread {
 public:
  explicit LeaseThread(const std::vector<std::unique_ptr<Daemon>>& daemons)
      : thread_([this, &daemons] {
          const absl::Duration step = kLease * LeaseKeeper::kPeriod /
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

// --- The driver.

class Driver {
 public:
  explicit Driver(const std::string& address)
      : stub_(v1::Head::NewStub(MakeChannel(address))) {}

  absl::Status Upload() {
    const std::string bytes = "a package that nobody runs";
    MR_ASSIGN_OR_RETURN(const std::string folder, RuntimeDirectory());
    const std::string file = absl::StrCat(folder, "/", NewId("bench"));
    MR_RETURN_IF_ERROR(WriteFileAtomically(file, bytes));
    MR_ASSIGN_OR_RETURN(package_id_, Sha256OfFile(file));
    unlink(file.c_str());
    grpc::ClientContext context;
    PrepareContext(&context, "", kPatience);
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

  // Creates `count` actors, many at once; returns once all are acknowledged.
  absl::Status Create(int count) {
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
      PrepareContext(&call->context, "", kPatience);
      Enter();
      stub_->async()->CreateActor(
          &call->context, &call->request, &call->response,
          [this, call](const grpc::Status& status) { Leave(status); });
    }
    return Drain();
  }

  absl::Status KillAll() {
    for (const std::string& id : std::exchange(actors_, {})) {
      struct Call {
        grpc::ClientContext context;
        v1::KillActorRequest request;
        v1::KillActorResponse response;
      };
      auto call = std::make_shared<Call>();
      call->request.set_actor_id(id);
      call->request.set_no_restart(true);
      PrepareContext(&call->context, "", kPatience);
      Enter();
      stub_->async()->KillActor(
          &call->context, &call->request, &call->response,
          [this, call](const grpc::Status& status) { Leave(status); });
    }
    return Drain();
  }

  // state: only actors in it.
  absl::StatusOr<v1::GetClusterStateResponse> List(
      v1::Table table, const std::string& state = "") {
    grpc::ClientContext context;
    PrepareContext(&context, "", kPatience);
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

  // Until no actor waits or starts. Asks for those alone: a list of all of them
  // would be a part of what is measured.
  absl::Status WaitUntilUp() {
    return WaitUntil([this]() -> absl::StatusOr<bool> {
      for (const char* state : {"pending", "starting"}) {
        MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse some,
                            List(v1::TABLE_ACTORS, state));
        if (some.actors_size() > 0) return false;
      }
      return true;
    });
  }

  // Until all resources are free.
  absl::Status WaitUntilIdle() {
    return WaitUntil([this]() -> absl::StatusOr<bool> {
      MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                          List(v1::TABLE_NODES));
      return std::all_of(
          state.nodes().begin(), state.nodes().end(), [](const auto& node) {
            return node.available().quantity().at("CPU") == kCpusPerDaemon;
          });
    });
  }

  // Errors: INTERNAL, another number of actors is ALIVE.
  absl::Status ExpectAlive(int count) {
    MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                        List(v1::TABLE_ACTORS, "alive"));
    if (state.actors_size() == count) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(state.actors_size(), " actors are up instead of ", count));
  }

 private:
  static absl::Status WaitUntil(
      const std::function<absl::StatusOr<bool>()>& reached) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      MR_ASSIGN_OR_RETURN(const bool now, reached());
      if (now) return absl::OkStatus();
      absl::SleepFor(absl::Milliseconds(5));
    }
    return absl::DeadlineExceededError("not all actors are up, or gone");
  }

  void Enter() {
    absl::MutexLock lock(&mu_);
    auto room = [this] {
      mu_.AssertHeld();
      return in_flight_ < absl::GetFlag(FLAGS_in_flight);
    };
    mu_.Await(absl::Condition(&room));
    ++in_flight_;
  }
  void Leave(const grpc::Status& status) {
    absl::MutexLock lock(&mu_);
    --in_flight_;
    if (!status.ok()) error_ = FromGrpcStatus(status);
  }
  absl::Status Drain() {
    absl::MutexLock lock(&mu_);
    auto none = [this] {
      mu_.AssertHeld();
      return in_flight_ == 0;
    };
    mu_.Await(absl::Condition(&none));
    return error_;
  }

  const std::unique_ptr<v1::Head::Stub> stub_;
  std::string package_id_;
  std::vector<std::string> actors_;
  int64_t next_ = 0;
  absl::Mutex mu_;
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

struct Results {
  double placements_per_second = 0;
  double placement_cpu_us = 0;  // Of the head, each.
  double lease_share = 0;       // Of a core.
  double list_p50_ms = 0;
  double list_p99_ms = 0;
  double memory_mb = 0;
};

absl::Status Measure(HeadProcess* head,
                     const std::vector<std::unique_ptr<Daemon>>& daemons,
                     Driver* driver, std::atomic<int64_t>* started,
                     Results* results) {
  for (const auto& daemon : daemons) daemon->Attach();
  const absl::Time deadline = absl::Now() + kPatience;
  for (const auto& daemon : daemons) {
    if (!daemon->WaitUntilRegistered(deadline)) {
      return absl::DeadlineExceededError("not all daemons are registered");
    }
  }
  const LeaseThread leases(daemons);
  MR_RETURN_IF_ERROR(driver->Upload());

  // What the leases alone cost, once each daemon has renewed its own: the first
  // time opens a stream.
  absl::SleepFor(kLease * LeaseKeeper::kPeriod);
  const double quiet = std::min(6.0, absl::GetFlag(FLAGS_seconds));
  absl::Duration cpu = head->CpuTime();
  absl::SleepFor(absl::Seconds(quiet));
  results->lease_share = absl::ToDoubleSeconds(head->CpuTime() - cpu) / quiet;

  const int count = absl::GetFlag(FLAGS_actors);
  absl::Duration placing, placing_cpu;
  int64_t placed = 0;
  while (true) {
    const absl::Time start = absl::Now();
    cpu = head->CpuTime();
    MR_RETURN_IF_ERROR(driver->Create(count));
    placed += count;
    while (*started < placed && absl::Now() - start < kPatience) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    MR_RETURN_IF_ERROR(driver->WaitUntilUp());
    placing += absl::Now() - start;
    placing_cpu += head->CpuTime() - cpu;
    MR_RETURN_IF_ERROR(driver->ExpectAlive(count));
    if (placing >= absl::Seconds(absl::GetFlag(FLAGS_seconds))) break;
    MR_RETURN_IF_ERROR(driver->KillAll());
    MR_RETURN_IF_ERROR(driver->WaitUntilIdle());
  }
  results->placements_per_second =
      static_cast<double>(placed) / absl::ToDoubleSeconds(placing);
  results->placement_cpu_us =
      absl::ToDoubleMicroseconds(placing_cpu) / static_cast<double>(placed);
  results->memory_mb = static_cast<double>(head->Memory("VmRSS")) / 1e6;

  std::vector<double> times;
  for (int i = 0; i < absl::GetFlag(FLAGS_lists); ++i) {
    const absl::Time start = absl::Now();
    MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                        driver->List(v1::TABLE_ACTORS));
    times.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
    if (state.actors_size() < count) {
      return absl::InternalError("actors are missing in the list");
    }
  }
  std::sort(times.begin(), times.end());
  if (times.empty()) return absl::OkStatus();
  results->list_p50_ms = times[times.size() / 2];
  results->list_p99_ms =
      times[std::min(times.size() - 1, times.size() * 99 / 100)];
  return absl::OkStatus();
}

void Print(const Results& results) {
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << nlohmann::json{{"daemons", absl::GetFlag(FLAGS_daemons)},
                                {"actors", absl::GetFlag(FLAGS_actors)},
                                {"placements_per_second",
                                 results.placements_per_second},
                                {"head_cpu_us_per_placement",
                                 results.placement_cpu_us},
                                {"lease_share_of_a_core", results.lease_share},
                                {"list_actors_p50_ms", results.list_p50_ms},
                                {"list_actors_p99_ms", results.list_p99_ms},
                                {"head_memory_mb", results.memory_mb}}
                     .dump(2)
              << "\n";
    return;
  }
  std::cout << absl::StreamFormat(
      "%d daemons, %d actors on one head\n"
      "  placements            %8.0f /s   (target: at least %.0f)\n"
      "  head CPU, each        %8.1f us\n"
      "  upkeep of the leases  %8.1f %%    of a core (target: at most %.0f)\n"
      "  list of all actors    %8.1f ms   p50, %.1f ms p99 (target: at most "
      "%.0f)\n"
      "  memory of the head    %8.0f MB\n",
      absl::GetFlag(FLAGS_daemons), absl::GetFlag(FLAGS_actors),
      results.placements_per_second, kMinPlacementsPerSecond,
      results.placement_cpu_us, results.lease_share * 100, kMaxLeaseShare * 100,
      results.list_p50_ms, results.list_p99_ms, kMaxListSeconds * 1000,
      results.memory_mb);
}

// One that leaves nothing to measure; null: none.
const char* WrongFlag() {
  if (absl::GetFlag(FLAGS_daemons) < 1) return "daemons";
  if (absl::GetFlag(FLAGS_actors) < 1) return "actors";
  if (!(absl::GetFlag(FLAGS_seconds) > 0)) return "seconds";
  if (absl::GetFlag(FLAGS_in_flight) < 1) return "in_flight";
  if (absl::GetFlag(FLAGS_lists) < 1) return "lists";
  if (!(absl::GetFlag(FLAGS_slack) > 0)) return "slack";
  return nullptr;
}

// A line for each target that was missed; empty: none was.
std::string Missed(const Results& results) {
  const double slack = absl::GetFlag(FLAGS_slack);
  const double slowest = kMinPlacementsPerSecond / slack;
  const double longest_ms = kMaxListSeconds * 1000 * slack;
  const double most = kMaxLeaseShare * slack;
  std::string missed;
  if (results.placements_per_second < slowest) {
    absl::StrAppendFormat(&missed,
                          "head: missed: %.0f placements/s, at least %.0f\n",
                          results.placements_per_second, slowest);
  }
  if (results.list_p99_ms > longest_ms) {
    absl::StrAppendFormat(&missed,
                          "head: missed: list of all actors in %.1f ms (p99), "
                          "at most %.1f\n",
                          results.list_p99_ms, longest_ms);
  }
  if (results.lease_share > most) {
    absl::StrAppendFormat(&missed,
                          "head: missed: leases take %.1f %% of a core, at "
                          "most %.1f\n",
                          results.lease_share * 100, most * 100);
  }
  return missed;
}

int Main() {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  const absl::StatusOr<std::string> runtime = RuntimeDirectory();
  if (!runtime.ok()) {
    std::cerr << runtime.status() << "\n";
    return 2;
  }
  const std::string folder = absl::StrCat(*runtime, "/", NewId("bench-head"));
  Results results;
  absl::Status status = MakeDirectories(folder, 0700);
  if (status.ok()) {
    absl::StatusOr<HeadProcess> head = HeadProcess::Start(folder);
    status = head.status();
    if (head.ok()) {
      const std::string address = absl::StrCat("127.0.0.1:", head->port());
      std::atomic<int64_t> started = 0;
      std::vector<std::unique_ptr<Daemon>> daemons;
      for (int i = 0; i < absl::GetFlag(FLAGS_daemons); ++i) {
        daemons.push_back(std::make_unique<Daemon>(address, i, &started));
      }
      Driver driver(address);
      status = Measure(&*head, daemons, &driver, &started, &results);
      for (const auto& daemon : daemons) daemon->End();
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (!status.ok()) {
    std::cerr << "head: " << status << "\n";
    return 2;
  }
  Print(results);
  if (!absl::GetFlag(FLAGS_check)) return 0;
  const std::string missed = Missed(results);
  std::cerr << missed;
  return missed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace miniray

int main(int argc, char** argv) {
  // As every program of the runtime does; see miniray::Init.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--help" || word == "-h" || word == "-help") {
      std::cout << miniray::kHelp;
      return 0;
    }
  }
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    std::cerr << "head: there are only flags; see --help\n";
    return 2;
  }
  if (const char* wrong = miniray::WrongFlag(); wrong != nullptr) {
    std::cerr << "head: --" << wrong << " must be more than 0; see --help\n";
    return 2;
  }
  return miniray::Main();
}
