// What the tests of ActorConnection share: a real ActorServer in this process,
// over a link that breaks, with a head that the test plays.

#ifndef MINIRAY_TESTS_RUNTIME_CLIENT_ACTOR_CONNECTION_TESTUTIL_H_
#define MINIRAY_TESTS_RUNTIME_CLIENT_ACTOR_CONNECTION_TESTUTIL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/actor/actor_server.h"
#include "runtime/actor/current_call.h"
#include "runtime/api/miniray.h"
#include "runtime/client/actor_connection.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/client/fake_head.h"
#include "tests/runtime/tcp_proxy.h"

namespace miniray {
namespace internal {

inline constexpr absl::Duration kLong = absl::Seconds(40);

// What ran, for the test to see: the actors live in its process.
struct Log {
  absl::Mutex mu;
  std::map<int64_t, std::vector<int64_t>> runs;  // By caller.
  // Gate of Hold.
  bool open = true;
  int holding = 0;
};
inline Log& GetLog() {
  static Log* const log = new Log;
  return *log;
}

class Recorder {
 public:
  int64_t Record(int64_t caller, int64_t n) {
    absl::MutexLock lock(&GetLog().mu);
    GetLog().runs[caller].push_back(n);
    return n;
  }
  std::string Large(int64_t size) { return std::string(size, 'x'); }
  absl::Status Fail(int64_t size) {
    return absl::InternalError(std::string(size, 'e'));
  }
  // Runs until the gate opens; returns whether it was cancelled meanwhile.
  bool Hold() {
    absl::MutexLock lock(&GetLog().mu);
    ++GetLog().holding;
    while (!GetLog().open && !CurrentActor::Get()->CallCancelled()) {
      GetLog().mu.AwaitWithTimeout(absl::Condition(&GetLog().open),
                                   absl::Milliseconds(5));
    }
    --GetLog().holding;
    return CurrentActor::Get()->CallCancelled();
  }
  void Exit() { CurrentActor::Get()->Exit(); }
};
MINIRAY_ACTOR(Recorder, Constructor<>, &Recorder::Record, &Recorder::Large,
              &Recorder::Fail, &Recorder::Hold, &Recorder::Exit);

inline CallRequest Request(const std::string& method, int max_retries = 0) {
  CallRequest request;
  request.method = method;
  request.max_retries = max_retries;
  return request;
}

inline CallRequest Record(int64_t caller, int64_t n, int max_retries = 0) {
  CallRequest request = Request("Record", max_retries);
  request.args = {*EncodeValue(caller), *EncodeValue(n)};
  return request;
}

inline absl::StatusOr<int64_t> Number(const std::shared_ptr<CallState>& call) {
  absl::StatusOr<absl::Cord> result = call->Wait(kLong);
  if (!result.ok()) return result.status();
  int64_t value = 0;
  if (absl::Status status = DecodeValue(*result, &value); !status.ok()) {
    return status;
  }
  return value;
}

inline bool AwaitHolding(int count) {
  absl::MutexLock lock(&GetLog().mu);
  auto holds = [count] { return GetLog().holding == count; };
  return GetLog().mu.AwaitWithTimeout(absl::Condition(&holds), kLong);
}

inline void SetGate(bool open) {
  absl::MutexLock lock(&GetLog().mu);
  GetLog().open = open;
}

inline std::vector<int64_t> Runs(int64_t caller) {
  absl::MutexLock lock(&GetLog().mu);
  return GetLog().runs[caller];
}

// Waits until `condition` holds; returns whether it does in time.
inline bool Becomes(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + kLong;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

// Through both kinds of streams that pass the proxy.
class ActorConnectionTest : public testing::TestWithParam<Transport> {
 protected:
  // All bytes are to pass the link.
  static void SetUpTestSuite() {
    setenv("MINIRAY_SHARED_MEMORY_MB", "0", /*replace=*/1);
  }

  void SetUp() override {
    {
      absl::MutexLock lock(&GetLog().mu);
      GetLog().runs.clear();
      GetLog().open = true;
    }
    server_ = StartProcess(0);
    proxy_ = std::make_unique<TcpProxy>(server_->address());
    head_ = std::make_shared<FakeHead>(Info(v1::ACTOR_STATE_ALIVE, 0));
  }

  void TearDown() override {
    SetGate(true);
    // The next test counts its own.
    EXPECT_TRUE(AwaitHolding(0));
    for (const auto& connection : connections_) {
      connection->Close(absl::CancelledError("the test ends"));
    }
    proxy_.reset();
  }

  // A process of the actor, as a worker daemon would start it.
  std::unique_ptr<ActorServer> StartProcess(int incarnation) {
    auto server = ActorServer::Start({});
    EXPECT_THAT(server, IsOk());
    v1::HostActor host;
    host.mutable_spec()->set_actor_id("actor-1");
    host.mutable_spec()->set_class_name(DemangledName(typeid(Recorder)));
    host.mutable_spec()->set_max_concurrency(max_concurrency_);
    host.set_incarnation(incarnation);
    host.mutable_periods()->set_session_life_ms(session_life_ms_);
    // The last event may come after the test's end.
    (*server)->AddActor(host, {}, [log = log_](const v1::ActorEvent& event) {
      absl::MutexLock lock(&log->mu);
      log->events.push_back(event);
    });
    return *std::move(server);
  }

  v1::ActorInfo Info(v1::ActorState state, int restarts) {
    v1::ActorInfo info;
    info.set_actor_id("actor-1");
    info.set_state(state);
    info.set_restarts(restarts);
    info.set_max_restarts(-1);
    info.set_node_id("node-7");
    info.set_hostname("host-a");
    info.set_version(1);
    if (state == v1::ACTOR_STATE_ALIVE) info.set_address(proxy_->address());
    if (restarts > 0) info.set_cause("killed by signal 9 (SIGKILL)");
    return info;
  }

  std::shared_ptr<ActorConnection> Connect(
      absl::Duration reconnect_timeout = absl::Seconds(30),
      int max_pending_calls = 0) {
    ActorConnection::Options options;
    options.head_address = "head:1";
    options.reconnect_timeout = reconnect_timeout;
    options.channels = channels_;
    options.transport = GetParam();
    options.lookup = head_->lookup();
    options.hold = hold_;
    ActorIdentity actor;
    actor.actor_id = "actor-1";
    actor.class_name = "Recorder";
    actor.max_pending_calls = max_pending_calls;
    connections_.push_back(
        std::make_shared<ActorConnection>(actor, std::move(options)));
    return connections_.back();
  }

  // What the actor's process says of itself; absent: it does not answer.
  std::optional<v1::InspectResponse> Inspect() const {
    grpc::ClientContext context;
    PrepareContext(&context, /*token=*/"", kLong);
    v1::InspectRequest request;
    request.set_actor_id("actor-1");
    v1::InspectResponse response;
    const auto stub =
        v1::ActorService::NewStub(MakeChannel(server_->address()));
    const grpc::Status status = stub->Inspect(&context, request, &response);
    return status.ok() ? std::optional(response) : std::nullopt;
  }
  // How many results it keeps; -1: it does not answer.
  int64_t KeptResults() const {
    const auto response = Inspect();
    return response.has_value() ? response->kept_objects() : -1;
  }

  std::vector<v1::ActorEvent> Events() {
    absl::MutexLock lock(&log_->mu);
    return log_->events;
  }

  int max_concurrency_ = 1;
  int64_t session_life_ms_ = 0;  // 0: the default.
  // Of the connections made from now on.
  decltype(ActorConnection::Options::hold) hold_;
  const std::shared_ptr<std::atomic<int>> channels_made_ =
      std::make_shared<std::atomic<int>>(0);
  const std::shared_ptr<ChannelPool> channels_ = std::make_shared<ChannelPool>(
      [made = channels_made_](const std::string& address) {
        ++*made;
        return MakeChannel(address);
      });
  std::unique_ptr<ActorServer> server_;
  std::unique_ptr<TcpProxy> proxy_;
  std::shared_ptr<FakeHead> head_;
  std::vector<std::shared_ptr<ActorConnection>> connections_;
  struct EventLog {
    absl::Mutex mu;
    std::vector<v1::ActorEvent> events ABSL_GUARDED_BY(mu);
  };
  const std::shared_ptr<EventLog> log_ = std::make_shared<EventLog>();
};

inline std::string NameOfStream(const testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::kTcp ? "Link" : "Grpc";
}

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_CLIENT_ACTOR_CONNECTION_TESTUTIL_H_
