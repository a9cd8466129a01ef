#include "runtime/head/head_server.h"

#include <arpa/inet.h>
#include <glog/logging.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/steady_time.h"
#include "runtime/base/token.h"
#include "runtime/head/actor_state_store.h"
#include "runtime/head/ask_actor.h"
#include "runtime/head/cluster_state.h"
#include "runtime/head/head_service.h"
#include "runtime/head/log_chunk_queue.h"
#include "runtime/head/state_folder.h"
#include "runtime/head/state_store.h"
#include "runtime/packages/package_store.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_listener.h"
#include "runtime/rpc/tls.h"
#include "runtime/runs/run_checks.h"
#include "runtime/runs/run_collector_service.h"
#include "runtime/runs/run_store.h"
#include "runtime/runs/run_table.h"

namespace miniray {
namespace {

// What the largest message (an actor's state, or a picture of a run) has beside
// its payload.
constexpr int64_t kMessageOverheadBytes = 1 << 20;
// Of all messages that are on their way in, together; beyond it gRPC reads more
// slowly and ends calls.
constexpr size_t kReceiveMemoryBytes = size_t{512} << 20;

// Internal: how often leases and queues are looked at, and the packages.
constexpr absl::Duration kTick = absl::Milliseconds(50);
// Ticks that are so far apart mean that this process did not run.
constexpr absl::Duration kStandstill = absl::Milliseconds(500);
constexpr absl::Duration kCleaningPeriod = absl::Seconds(10);
// What a reader of the dashboard waits for the disk, where a job is to stop.
constexpr absl::Duration kStopPatience = absl::Seconds(10);
// A package that was just uploaded is about to be used.
constexpr absl::Duration kRecentPackage = absl::Minutes(1);

class HeadServerImpl : public HeadServer {
 public:
  HeadServerImpl(const Options& options, std::unique_ptr<StateFolder> folder,
                 std::unique_ptr<StateStore> store)
      : token_(options.token),
        folder_(std::move(folder)),
        store_(std::move(store)),
        state_(
            {.lease = options.lease,
             .driver_grace = options.driver_grace,
             .infeasible_timeout = options.infeasible_timeout,
             .group_patience = options.group_patience,
             .group_hold = options.group_hold,
             .max_restart_delay = options.max_restart_delay,
             .long_life = options.long_life,
             .reconnect_timeout = options.reconnect_timeout,
             .session_life = options.session_life,
             .max_reconnect_pause = options.max_reconnect_pause,
             .max_waiting = options.max_waiting,
             .clock = &SteadyNow,
             .wall_clock = &absl::Now,
             .actor_ended =
                 [this](const std::string& id) { actor_states_.Remove(id); },
             .job_ended = [this](const std::string& id) { runs_.MarkLost(id); },
             .store = store_.get()}),
        packages_(folder_->packages()),
        actor_states_(folder_->states(), options.max_state_bytes,
                      [this](const std::string& id, int32_t incarnation) {
                        return state_.CheckPresent(id, incarnation);
                      }),
        service_(&state_, &packages_, &actor_states_, &logs_, &calls_,
                 options.token),
        collector_(&runs_, options.token) {}

  ~HeadServerImpl() override { Shutdown(End::kRestart); }

  absl::Status Resume() {
    MR_RETURN_IF_ERROR(state_.Restore());
    const v1::GetClusterStateResponse tables = state_.Snapshot();
    std::set<std::string> live;
    for (const v1::ActorInfo& actor : tables.actors()) {
      if (actor.state() != v1::ACTOR_STATE_DEAD) live.insert(actor.actor_id());
    }
    actor_states_.KeepOnly(live);
    packages_.RemoveUnfinished();
    OpenRunStore();
    const auto nodes = std::count_if(
        tables.nodes().begin(), tables.nodes().end(),
        [](const auto& n) { return n.state() != v1::NODE_STATE_DEAD; });
    const auto jobs = std::count_if(
        tables.jobs().begin(), tables.jobs().end(),
        [](const auto& j) { return j.state() == v1::JOB_STATE_RUNNING; });
    if (!live.empty() || tables.nodes_size() > 0 || tables.jobs_size() > 0) {
      resumed_ = absl::StrCat(nodes, " nodes, ", live.size(), " actors, ", jobs,
                              " running jobs");
      LOG(INFO) << "goes on with the cluster in " << folder_->path() << ": "
                << resumed_;
    }
    return absl::OkStatus();
  }

  absl::Status Listen(const Options& options) {
    MR_ASSIGN_OR_RETURN(listener_,
                        GrpcListener::Start(options.host, options.port));
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    // gRPC reads a message before the token is looked at: what strangers send
    // must not fill the memory.
    const int64_t payload =
        std::max(options.max_state_bytes, int64_t{kMaxReportBytes});
    builder.SetMaxReceiveMessageSize(static_cast<int>(
        std::min<int64_t>(payload + kMessageOverheadBytes, kMaxMessageBytes)));
    grpc::ResourceQuota quota("head");
    quota.Resize(std::max(kReceiveMemoryBytes,
                          2 * static_cast<size_t>(options.max_state_bytes)));
    builder.SetResourceQuota(quota);
    // Probes of the bandwidth would be most of what a lease costs: each renewal
    // would bring one about. A message's own size makes room for it.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    port_ = listener_->port();
    listener_->AddTo(&builder);
    builder.RegisterService(&service_);
    builder.RegisterService(&collector_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::InternalError("the head's gRPC server does not start");
    }
    // Before the first caller may rely on it.
    MR_RETURN_IF_ERROR(folder_->Remember({.token = options.token,
                                          .port = port_,
                                          .host = options.host,
                                          .tls_dir = TlsDir()}));
    service_.Open();
    collector_.Open();
    listener_->Accept();
    ticker_ = std::thread([this, limit = options.package_limit] {
      absl::Time last = SteadyNow();
      absl::Time next_cleaning = last;
      while (!stopping_.WaitForNotificationWithTimeout(kTick)) {
        const absl::Duration passed = SteadyNow() - last;
        if (passed > kStandstill) state_.AfterStandstill(passed);
        last = SteadyNow();
        state_.Tick();
        if (last < next_cleaning) continue;
        next_cleaning = last + kCleaningPeriod;
        runs_.Tick();
        packages_.MakeRoom(limit, state_.PackagesInUse(),
                           absl::Now() - kRecentPackage);
      }
    });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  const std::string& resumed() const override { return resumed_; }

  v1::GetClusterStateResponse GetState() const override {
    return state_.Snapshot();
  }

  v1::GetClusterStateResponse SelectState(
      const std::set<v1::Table>& tables,
      const std::function<bool(const v1::ActorInfo&)>& keep_actor)
      const override {
    return state_.Snapshot(tables, keep_actor);
  }

  uint64_t StateFingerprint() const override { return state_.Fingerprint(); }

  v1::GetUsageResponse GetUsage(
      const std::vector<std::string>& actor_ids) const override {
    return state_.Usage(actor_ids);
  }

  v1::GetCallRecordsResponse GetCallRecords(
      const v1::GetCallRecordsRequest& request) const override {
    return service_.CallRecords(request);
  }

  absl::StatusOr<std::unique_ptr<LogChunkReader>> ReadLog(
      const v1::ReadLogRequest& request) override {
    MR_ASSIGN_OR_RETURN(ClusterState::LogPlace place, state_.FindLog(request));
    return std::make_unique<LogChunkQueue>(&logs_, &state_, std::move(place));
  }

  absl::Status StopJob(const std::string& job_id) override {
    struct Answer {
      absl::Status status;
      absl::Notification came;
    };
    const auto answer = std::make_shared<Answer>();
    state_.StopJob(job_id, [answer](absl::Status status) {
      answer->status = std::move(status);
      answer->came.Notify();
    });
    if (!answer->came.WaitForNotificationWithTimeout(kStopPatience)) {
      return absl::UnavailableError(absl::StrCat(
          "the head has not written down yet that job ", job_id,
          " is to stop (is its disk slow, or does it end?); ask again"));
    }
    return answer->status;
  }

  absl::StatusOr<v1::InspectResponse> InspectActor(
      const std::string& actor_id, absl::Duration timeout) const override {
    const v1::GetClusterStateResponse found = state_.Snapshot(
        {v1::TABLE_ACTORS}, [&actor_id](const v1::ActorInfo& actor) {
          return actor.actor_id() == actor_id;
        });
    if (found.actors().empty()) {
      return absl::NotFoundError(
          absl::StrCat("the head knows no actor ", actor_id));
    }
    return AskActor(found.actors(0), token_, timeout);
  }

  ClusterCounts GetCounts() const override { return state_.Counts(); }

  RunTable& runs() override { return runs_; }

  void Shutdown(End end) override {
    absl::MutexLock lock(&shutdown_mu_);
    if (stopping_.HasBeenNotified()) return;
    stopping_.Notify();
    state_.StopWaiting();
    runs_.StopWaiting();
    listener_.reset();
    if (server_ != nullptr) {
      // Streams have no end of their own: they are cancelled.
      server_->Shutdown(absl::ToChronoTime(absl::Now()));
    }
    if (ticker_.joinable()) ticker_.join();
    run_store_.reset();  // Before its file may go.
    if (end == End::kFinal) {
      const absl::Status status = folder_->Finish();
      if (!status.ok()) LOG(ERROR) << status;
    }
    if (end == End::kFailedStart) folder_->Forget();
  }

 private:
  // Runs are nothing that the cluster needs: without a file they are kept in
  // memory.
  void OpenRunStore() {
    auto store = RunStore::Open(folder_->runs(), &runs_);
    if (store.ok()) {
      run_store_ = *std::move(store);
    } else {
      LOG(WARNING) << "what trainers report is shown, but not kept for a head "
                      "that is started again: "
                   << store.status().message();
    }
  }

  const std::string token_;
  const std::unique_ptr<StateFolder> folder_;
  const std::unique_ptr<StateStore> store_;
  RunTable runs_;  // Jobs that end are told to it.
  ClusterState state_;
  PackageStore packages_;
  ActorStateStore actor_states_;
  LogRelay logs_;
  CallRecordRing calls_;
  HeadService service_;
  RunCollectorService collector_;
  std::unique_ptr<RunStore> run_store_;  // Null if there cannot be one.
  int port_ = 0;
  std::string resumed_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<GrpcListener> listener_;
  absl::Mutex shutdown_mu_;
  SteadyNotification stopping_;
  std::thread ticker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HeadServer>> HeadServer::Start(Options options) {
  in6_addr address;
  if (inet_pton(AF_INET, options.host.c_str(), &address) != 1 &&
      inet_pton(AF_INET6, options.host.c_str(), &address) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", options.host, "' is not an IP address to listen on"));
  }
  if (options.token.empty() && !IsLoopback(options.host)) {
    return absl::FailedPreconditionError(
        absl::StrCat("a head that listens on ", options.host,
                     ", which other machines may reach, needs a token"));
  }
  MR_RETURN_IF_ERROR(CheckTokenText(options.token, "the head's token"));
  MR_ASSIGN_OR_RETURN(auto folder, StateFolder::Open(options.state_dir));
  MR_ASSIGN_OR_RETURN(
      auto store, StateStore::Open(options.state_dir, folder->has_cluster()));
  auto server = std::make_unique<HeadServerImpl>(options, std::move(folder),
                                                 std::move(store));
  MR_RETURN_IF_ERROR(server->Resume());
  MR_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

}  // namespace miniray
