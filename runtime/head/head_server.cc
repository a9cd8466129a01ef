#include "runtime/head/head_server.h"

#include <arpa/inet.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/actor_state_store.h"
#include "runtime/head/cluster_state.h"
#include "runtime/head/head_service.h"
#include "runtime/head/package_store.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace {

// What the largest message (an actor's state) has beside its payload.
constexpr int64_t kMessageOverheadBytes = 1 << 20;
// Of all messages that are on their way in, together; beyond it gRPC reads more
// slowly and ends calls.
constexpr size_t kReceiveMemoryBytes = size_t{512} << 20;

constexpr absl::Duration kTick = absl::Milliseconds(50);

class HeadServerImpl : public HeadServer {
 public:
  explicit HeadServerImpl(const Options& options)
      : state_(
            {.lease = options.lease,
             .driver_grace = options.driver_grace,
             .infeasible_timeout = options.infeasible_timeout,
             .actor_ended =
                 [this](const std::string& id) { actor_states_.Remove(id); }}),
        packages_(options.session_dir + "/packages"),
        actor_states_(options.session_dir + "/states", options.max_state_bytes,
                      [this](const std::string& id, int32_t incarnation) {
                        return state_.CheckPresent(id, incarnation);
                      }),
        service_(&state_, &packages_, &actor_states_, &logs_, &calls_,
                 options.token) {}

  ~HeadServerImpl() override { Shutdown(); }

  absl::Status Listen(const Options& options) {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    // gRPC reads a message before the token is looked at: what strangers send
    // must not fill the memory.
    builder.SetMaxReceiveMessageSize(static_cast<int>(std::min<int64_t>(
        options.max_state_bytes + kMessageOverheadBytes, kMaxMessageBytes)));
    grpc::ResourceQuota quota("head");
    quota.Resize(std::max(kReceiveMemoryBytes,
                          2 * static_cast<size_t>(options.max_state_bytes)));
    builder.SetResourceQuota(quota);
    builder.AddListeningPort(JoinHostPort(options.host, options.port),
                             ServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat(
          "cannot listen on ", JoinHostPort(options.host, options.port),
          ": the port is in use, or the address is not one of this machine"));
    }
    ticker_ = std::thread([this] {
      while (!stopping_.WaitForNotificationWithTimeout(kTick)) state_.Tick();
    });
    return absl::OkStatus();
  }

  int port() const override { return port_; }

  v1::GetClusterStateResponse GetState() const override {
    return state_.Snapshot();
  }

  void Shutdown() override {
    absl::MutexLock lock(&shutdown_mu_);
    if (stopping_.HasBeenNotified()) return;
    stopping_.Notify();
    state_.StopWaiting();
    if (server_ != nullptr) {
      // Streams have no end of their own: they are cancelled.
      server_->Shutdown(absl::ToChronoTime(absl::Now()));
    }
    if (ticker_.joinable()) ticker_.join();
  }

 private:
  ClusterState state_;
  PackageStore packages_;
  ActorStateStore actor_states_;
  LogRelay logs_;
  CallRecordRing calls_;
  HeadService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  absl::Mutex shutdown_mu_;
  absl::Notification stopping_;
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
  MR_RETURN_IF_ERROR(MakeDirectories(options.session_dir, 0700));
  auto server = std::make_unique<HeadServerImpl>(options);
  MR_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

}  // namespace miniray
