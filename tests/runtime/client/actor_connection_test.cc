// ActorConnection against a real ActorServer in this process, over a link that
// breaks, with a head that the test plays.

#include "runtime/client/actor_connection.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/actor/actor_server.h"
#include "runtime/actor/current_call.h"
#include "runtime/api/miniray.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/client/fake_head.h"
#include "tests/runtime/tcp_proxy.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(40);

// What ran, for the test to see: the actors live in its process.
struct Log {
  absl::Mutex mu;
  std::map<int64_t, std::vector<int64_t>> runs;  // By caller.
  // Gate of Hold.
  bool open = true;
  int holding = 0;
};
Log& GetLog() {
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
              &Recorder::Hold, &Recorder::Exit);

CallRequest Request(const std::string& method, int max_retries = 0) {
  CallRequest request;
  request.method = method;
  request.max_retries = max_retries;
  return request;
}

CallRequest Record(int64_t caller, int64_t n, int max_retries = 0) {
  CallRequest request = Request("Record", max_retries);
  request.args = {*EncodeValue(caller), *EncodeValue(n)};
  return request;
}

absl::StatusOr<int64_t> Number(const std::shared_ptr<CallState>& call) {
  absl::StatusOr<absl::Cord> result = call->Wait(kLong);
  if (!result.ok()) return result.status();
  int64_t value = 0;
  if (absl::Status status = DecodeValue(*result, &value); !status.ok()) {
    return status;
  }
  return value;
}

bool AwaitHolding(int count) {
  absl::MutexLock lock(&GetLog().mu);
  auto holds = [count] { return GetLog().holding == count; };
  return GetLog().mu.AwaitWithTimeout(absl::Condition(&holds), kLong);
}

void SetGate(bool open) {
  absl::MutexLock lock(&GetLog().mu);
  GetLog().open = open;
}

std::vector<int64_t> Runs(int64_t caller) {
  absl::MutexLock lock(&GetLog().mu);
  return GetLog().runs[caller];
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

// --- Cut links.

INSTANTIATE_TEST_SUITE_P(Streams, ActorConnectionTest,
                         testing::Values(Transport::kTcp, Transport::kGrpc),
                         [](const testing::TestParamInfo<Transport>& info) {
                           return info.param == Transport::kTcp ? "Link"
                                                                : "Grpc";
                         });

TEST_P(ActorConnectionTest, ALinkNeedsNoChannel) {
  EXPECT_THAT(Number(Connect()->Call(Record(1, 1))), IsOkAndHolds(1));
  EXPECT_EQ(*channels_made_, GetParam() == Transport::kGrpc ? 1 : 0);
}

TEST_P(ActorConnectionTest, ASessionIsResumedForResultsThatStayed) {
  auto connection = Connect();
  CallRequest request = Record(1, 5);
  request.keep_result = true;
  auto call = connection->Call(std::move(request));
  ASSERT_THAT(call->Wait(kLong).status(), IsOk());
  const int before = proxy_->connections();
  proxy_->Cut();
  // No call waits; but the actor would forget the result with the session.
  const absl::Time deadline = absl::Now() + kLong;
  while (proxy_->connections() == before && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_GT(proxy_->connections(), before);
}

TEST_P(ActorConnectionTest, NoCallIsLostOrRunsTwiceOverALinkThatBreaksOften) {
  constexpr int kCallers = 4, kCalls = 3000, kAtOnce = 300;
  proxy_->CutAfter(2000, 60000);
  std::vector<std::shared_ptr<ActorConnection>> connections;
  for (int i = 0; i < kCallers; ++i) connections.push_back(Connect());
  std::atomic<bool> done = false;
  std::atomic<int64_t> answered = 0;
  std::thread cutter([&] {
    int64_t last = 0;
    while (!done) {
      absl::SleepFor(absl::Milliseconds(11));
      // On a slow machine a new connection takes longer than that.
      if (answered == last) continue;
      last = answered;
      proxy_->Cut();
    }
  });
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int64_t n = 0; n < kCalls;) {
        std::vector<std::shared_ptr<CallState>> calls;
        for (int i = 0; i < kAtOnce; ++i) {
          calls.push_back(connections[caller]->Call(Record(caller, n + i)));
        }
        for (const auto& call : calls) {
          const absl::StatusOr<int64_t> result = Number(call);
          ASSERT_THAT(result, IsOk());
          ASSERT_EQ(*result, n);
          ++n;
          ++answered;
        }
      }
    });
  }
  for (std::thread& thread : callers) thread.join();
  done = true;
  cutter.join();
  std::vector<int64_t> expected;
  for (int64_t n = 0; n < kCalls; ++n) expected.push_back(n);
  for (int caller = 0; caller < kCallers; ++caller) {
    EXPECT_EQ(Runs(caller), expected) << "caller " << caller;
  }
  EXPECT_GT(proxy_->connections(), 20);
}

TEST_P(ActorConnectionTest, LargeRepliesComeThroughALinkThatBreaks) {
  auto connection = Connect();
  ASSERT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
  proxy_->CutAfter(1'000'000, 6'000'000);
  proxy_->Cut();
  std::vector<std::shared_ptr<CallState>> calls;
  for (int i = 0; i < 30; ++i) {
    CallRequest request = Request("Large");
    request.args = {*EncodeValue(int64_t{300'000} + i)};
    calls.push_back(connection->Call(std::move(request)));
  }
  for (int i = 0; i < 30; ++i) {
    absl::StatusOr<absl::Cord> result = calls[i]->Wait(kLong);
    ASSERT_THAT(result, IsOk());
    std::string text;
    ASSERT_THAT(DecodeValue(*result, &text), IsOk());
    EXPECT_EQ(text.size(), 300'000u + i);
  }
  EXPECT_GT(proxy_->connections(), 2);
}

TEST_P(ActorConnectionTest, ACallThatRunsWhenTheLinkBreaksIsAnsweredLater) {
  auto connection = Connect();
  SetGate(false);
  auto call = connection->Call(Request("Hold"));
  ASSERT_TRUE(AwaitHolding(1));
  proxy_->Cut();
  SetGate(true);
  EXPECT_THAT(call->Wait(kLong), IsOk());
  EXPECT_GT(proxy_->connections(), 1);
}

TEST_P(ActorConnectionTest, AnActorOutOfReachFailsCallsAfterATime) {
  auto connection = Connect(absl::Milliseconds(600));
  ASSERT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
  proxy_->Refuse(true);
  proxy_->Cut();
  const absl::Time start = absl::Now();
  auto call = connection->Call(Record(1, 2));
  const absl::Status early = call->Wait(absl::Milliseconds(200)).status();
  EXPECT_THAT(early, StatusIs(absl::StatusCode::kDeadlineExceeded,
                              AllOf(HasSubstr("has not been reachable for"),
                                    HasSubstr("the call goes on"))));
  const absl::Status status = call->Wait(kLong).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(HasSubstr(proxy_->address()),
                                     HasSubstr("node-7 on host-a"),
                                     HasSubstr("600ms"))));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  // And it is found again.
  proxy_->Refuse(false);
  EXPECT_THAT(Number(connection->Call(Record(1, 3))), IsOk());
}

TEST_P(ActorConnectionTest, CallsWaitForAHeadThatDoesNotAnswer) {
  head_->SetDown(true);
  auto connection = Connect(absl::Seconds(30));
  auto call = connection->Call(Record(1, 1));
  EXPECT_THAT(call->Wait(absl::Milliseconds(300)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("the head at head:1")));
  head_->SetDown(false);
  EXPECT_THAT(Number(call), IsOk());
  EXPECT_GT(head_->lookups(), 1);

  head_->SetDown(true);
  auto other = Connect(absl::Milliseconds(300));
  EXPECT_THAT(other->Call(Record(1, 1))->Wait(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("head:1"), HasSubstr("300ms"))));
}

TEST_P(ActorConnectionTest, ALinkThatBreaksWhileTheHeadIsDownIsMadeAgain) {
  auto connection = Connect();
  ASSERT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
  head_->SetDown(true);
  proxy_->Cut();
  EXPECT_THAT(Number(connection->Call(Record(1, 2))), IsOk());
}

// --- The actor's process dies.

TEST_P(ActorConnectionTest, CallsThatWereSentFailOrAreSentAgain) {
  auto connection = Connect();
  SetGate(false);
  auto running = connection->Call(Request("Hold"));
  auto patient_running = connection->Call(Request("Hold", 1));
  auto first = connection->Call(Record(1, 1, 2));
  auto lost = connection->Call(Record(1, 2));
  ASSERT_TRUE(AwaitHolding(1));
  head_->Set(Info(v1::ACTOR_STATE_RESTARTING, 1));
  // The old one lives on behind the cut, as one that was given up may.
  std::unique_ptr<ActorServer> next = StartProcess(1);
  proxy_->SetTarget(next->address());
  proxy_->Refuse(true);
  proxy_->Cut();
  const absl::Status status = running->Wait(kLong).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("SIGKILL")));
  EXPECT_THAT(lost->Wait(kLong), StatusIs(absl::StatusCode::kUnavailable));
  // Made while it restarts: waits only where the caller said so.
  auto patient = connection->Call(Record(1, 3, -1));
  EXPECT_THAT(connection->Call(Record(1, 4))->Wait(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("being restarted (restart 1)")));
  EXPECT_FALSE(first->done());
  proxy_->Refuse(false);
  SetGate(true);
  head_->Set(Info(v1::ACTOR_STATE_ALIVE, 1));
  EXPECT_THAT(patient_running->Wait(kLong), IsOk());
  EXPECT_THAT(Number(first), IsOk());
  EXPECT_THAT(Number(patient), IsOk());
  // In their order; those of the old process that ran after the gate opened
  // are there as well.
  std::vector<int64_t> runs = Runs(1);
  auto one = std::find(runs.begin(), runs.end(), 1);
  auto three = std::find(runs.begin(), runs.end(), 3);
  EXPECT_LT(one - runs.begin(), three - runs.begin());
  EXPECT_EQ(std::count(runs.begin(), runs.end(), 4), 0);
}

TEST_P(ActorConnectionTest, RetriesEnd) {
  auto connection = Connect();
  SetGate(false);
  auto call = connection->Call(Request("Hold", 1));
  std::vector<std::unique_ptr<ActorServer>> servers;
  for (int restart = 1; restart <= 2; ++restart) {
    ASSERT_TRUE(AwaitHolding(restart));
    EXPECT_FALSE(call->done());
    servers.push_back(StartProcess(restart));
    proxy_->SetTarget(servers.back()->address());
    head_->Set(Info(v1::ACTOR_STATE_ALIVE, restart));
    proxy_->Cut();
  }
  EXPECT_THAT(call->Wait(kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("SIGKILL")));
}

TEST_P(ActorConnectionTest, AnActorThatForgotTheSessionFailsOnlyWhatWasSent) {
  auto connection = Connect();
  SetGate(false);
  auto sent = connection->Call(Request("Hold"));
  auto again = connection->Call(Request("Hold", 1));
  ASSERT_TRUE(AwaitHolding(1));
  // The same process by name, with nothing of the session.
  std::unique_ptr<ActorServer> other = StartProcess(0);
  proxy_->SetTarget(other->address());
  proxy_->Cut();
  EXPECT_THAT(sent->Wait(kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("forgotten")));
  EXPECT_FALSE(again->done());
  SetGate(true);
  EXPECT_THAT(again->Wait(kLong), IsOk());
  EXPECT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
}

TEST_P(ActorConnectionTest, ASessionIsForgottenAfterTheTimeThatTheHeadSays) {
  session_life_ms_ = 50;
  server_ = StartProcess(0);
  proxy_->SetTarget(server_->address());
  auto connection = Connect();
  SetGate(false);
  auto sent = connection->Call(Request("Hold"));
  ASSERT_TRUE(AwaitHolding(1));
  proxy_->Refuse(true);
  proxy_->Cut();
  // Not a condition: so long nobody has the session.
  absl::SleepFor(absl::Milliseconds(1500));
  proxy_->Refuse(false);
  EXPECT_THAT(sent->Wait(kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("forgotten")));
  SetGate(true);
}

TEST_P(ActorConnectionTest, ADeadActorsCallsFailWithTheCause) {
  auto connection = Connect();
  SetGate(false);
  auto sent = connection->Call(Request("Hold", -1));
  ASSERT_TRUE(AwaitHolding(1));
  v1::ActorInfo dead = Info(v1::ACTOR_STATE_DEAD, 0);
  dead.set_cause("its node was lost");
  head_->Set(dead);
  proxy_->Refuse(true);
  proxy_->Cut();
  EXPECT_THAT(sent->Wait(kLong), StatusIs(absl::StatusCode::kUnavailable,
                                          HasSubstr("its node was lost")));
  EXPECT_TRUE(connection->dead());
  EXPECT_THAT(connection->Call(Record(1, 1))->Wait(kLong),
              StatusIs(absl::StatusCode::kUnavailable));
}

// --- Cancelling.

TEST_P(ActorConnectionTest, CancelledCallsDoNotRunOrSeeIt) {
  auto connection = Connect();
  SetGate(false);
  auto running = connection->Call(Request("Hold"));
  auto queued = connection->Call(Record(1, 1));
  auto behind = connection->Call(Record(1, 2));
  ASSERT_TRUE(AwaitHolding(1));
  queued->Cancel();
  EXPECT_THAT(queued->Wait(kLong), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_FALSE(running->done());
  running->Cancel();
  absl::StatusOr<absl::Cord> result = running->Wait(kLong);
  ASSERT_THAT(result, IsOk());
  bool saw_it = false;
  ASSERT_THAT(DecodeValue(*result, &saw_it), IsOk());
  EXPECT_TRUE(saw_it);
  EXPECT_THAT(Number(behind), IsOk());
  behind->Cancel();  // It is done: nothing happens.
  EXPECT_THAT(Runs(1), testing::ElementsAre(2));
}

TEST_P(ActorConnectionTest, WhatIsCancelledWhileTheLinkIsAwayCancelsNoOther) {
  auto connection = Connect();
  ASSERT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
  // Both are sent and do not arrive, so the second gets the first one's number.
  proxy_->Hold(true);
  auto cancelled = connection->Call(Record(1, 10));
  auto other = connection->Call(Record(1, 2));
  proxy_->Refuse(true);
  proxy_->Cut();
  proxy_->Hold(false);
  const absl::Time deadline = absl::Now() + kLong;
  while (proxy_->refused() == 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  ASSERT_GT(proxy_->refused(), 0);
  cancelled->Cancel();
  proxy_->Refuse(false);
  EXPECT_THAT(cancelled->Wait(kLong), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(Number(other), IsOkAndHolds(2));
  EXPECT_THAT(Runs(1), testing::ElementsAre(1, 2));
}

TEST_P(ActorConnectionTest, ACallIsCancelledBeforeItIsSentAndOverABrokenLink) {
  head_->SetDown(true);
  auto connection = Connect();
  auto unsent = connection->Call(Record(1, 1));
  unsent->Cancel();
  EXPECT_THAT(unsent->Wait(kLong), StatusIs(absl::StatusCode::kCancelled));
  head_->SetDown(false);
  SetGate(false);
  auto running = connection->Call(Request("Hold"));
  ASSERT_TRUE(AwaitHolding(1));
  proxy_->Refuse(true);
  proxy_->Cut();
  running->Cancel();
  proxy_->Refuse(false);
  EXPECT_THAT(running->Wait(kLong), IsOk());
  EXPECT_THAT(Runs(1), testing::IsEmpty());
}

// --- Timeouts.

TEST_P(ActorConnectionTest, WithTheCallerCutOffTheActorKnowsWhatIsTooLate) {
  auto connection = Connect();
  SetGate(false);
  // Together they leave, and so the second's time is over first.
  CallRequest request = Request("Hold", -1);
  request.timeout = absl::Seconds(3);
  auto running = connection->Call(std::move(request));
  request = Record(1, 1, -1);
  request.timeout = absl::Seconds(2);
  auto queued = connection->Call(std::move(request));
  auto behind = connection->Call(Record(1, 2));
  ASSERT_TRUE(AwaitHolding(1));
  proxy_->Refuse(true);
  proxy_->Cut();
  EXPECT_THAT(queued->Wait(kLong),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("Recorder.Record on actor-1"),
                             HasSubstr("timeout of 2s"),
                             HasSubstr(proxy_->address()))));
  EXPECT_THAT(running->Wait(kLong),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("timeout of 3s")));
  // Nobody tells the actor, and the gate is closed.
  ASSERT_TRUE(AwaitHolding(0));
  {
    Log& log = GetLog();
    absl::MutexLock lock(&log.mu);
    auto ran = [&] { return !log.runs[1].empty(); };
    ASSERT_TRUE(log.mu.AwaitWithTimeout(absl::Condition(&ran), kLong));
  }
  EXPECT_FALSE(behind->done());
  proxy_->Refuse(false);
  EXPECT_THAT(Number(behind), IsOkAndHolds(2));
  EXPECT_THAT(Number(connection->Call(Record(1, 3))), IsOkAndHolds(3));
  EXPECT_THAT(Runs(1), testing::ElementsAre(2, 3));
}

TEST_P(ActorConnectionTest, WhatIsTooLateToBeSentLeavesNoGap) {
  auto connection = Connect();
  ASSERT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
  proxy_->Refuse(true);
  proxy_->Cut();
  std::vector<std::shared_ptr<CallState>> late, others;
  for (int i = 0; i < 10; ++i) {
    CallRequest request = Record(1, 10 + i, -1);
    // The first is not the first to end.
    request.timeout = absl::Milliseconds(500 - 20 * i);
    late.push_back(connection->Call(std::move(request)));
    others.push_back(connection->Call(Record(1, 30 + i)));
  }
  for (const auto& call : late) {
    EXPECT_THAT(call->Wait(kLong),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
  }
  proxy_->Refuse(false);
  EXPECT_THAT(Number(connection->Call(Record(1, 2))), IsOk());
  for (const auto& call : others) EXPECT_THAT(Number(call), IsOk());
  EXPECT_THAT(Runs(1), testing::ElementsAre(1, 30, 31, 32, 33, 34, 35, 36, 37,
                                            38, 39, 2));
}

TEST_P(ActorConnectionTest, RetriesDoNotExtendATimeout) {
  auto connection = Connect();
  SetGate(false);
  CallRequest request = Request("Hold", -1);
  request.timeout = absl::Seconds(5);
  auto call = connection->Call(std::move(request));
  ASSERT_TRUE(AwaitHolding(1));
  std::unique_ptr<ActorServer> next = StartProcess(1);
  proxy_->SetTarget(next->address());
  head_->Set(Info(v1::ACTOR_STATE_ALIVE, 1));
  proxy_->Cut();
  ASSERT_TRUE(AwaitHolding(2));
  EXPECT_THAT(call->Wait(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded));
  // In both processes it ran, and saw it.
  EXPECT_TRUE(AwaitHolding(0));
  EXPECT_THAT(Number(connection->Call(Record(1, 1))), IsOk());
}

TEST_P(ActorConnectionTest, ATimeoutThatIsNotReachedChangesNothing) {
  auto connection = Connect();
  std::vector<std::shared_ptr<CallState>> calls;
  for (int i = 0; i < 2000; ++i) {
    CallRequest request = Record(1, i);
    // Every kind of order.
    if (i % 3 != 0) request.timeout = absl::Hours(1 + i * 7 % 11);
    calls.push_back(connection->Call(std::move(request)));
  }
  for (int i = 0; i < 2000; ++i) {
    EXPECT_THAT(Number(calls[i]), IsOkAndHolds(i));
  }
  EXPECT_THAT(Runs(1), testing::SizeIs(2000));
}

TEST_P(ActorConnectionTest, NoTimeAtAllIsOverAtOnce) {
  auto connection = Connect();
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), -absl::Seconds(1), -absl::InfiniteDuration()}) {
    CallRequest request = Record(1, 1);
    request.timeout = timeout;
    auto call = connection->Call(std::move(request));
    EXPECT_TRUE(call->done());
    EXPECT_THAT(call->Wait(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                            HasSubstr("never runs")));
  }
  EXPECT_THAT(Number(connection->Call(Record(1, 2))), IsOk());
  EXPECT_THAT(Runs(1), testing::ElementsAre(2));
}

TEST_P(ActorConnectionTest, AStoreThatDoesNotAnswerDoesNotOutlastTheTimeout) {
  absl::Mutex mu;
  std::vector<std::function<void(std::shared_ptr<void>)>> unanswered;
  hold_ = [&](const absl::Cord&,
              std::function<void(std::shared_ptr<void>)> done) {
    absl::MutexLock lock(&mu);
    unanswered.push_back(std::move(done));
  };
  auto connection = Connect();
  CallRequest request = Record(1, 1);
  request.keep_result = true;
  request.timeout = absl::Seconds(2);
  auto call = connection->Call(std::move(request));
  EXPECT_THAT(call->Wait(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                          HasSubstr("object store")));
  EXPECT_THAT(Runs(1), testing::ElementsAre(1));
  absl::MutexLock lock(&mu);
  // An answer that comes yet changes nothing.
  ASSERT_EQ(unanswered.size(), 1);
  unanswered[0](nullptr);
  EXPECT_THAT(call->Wait(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

// --- Limits, the end.

TEST_P(ActorConnectionTest, PendingCallsAreLimited) {
  auto connection = Connect(absl::Seconds(30), 3);
  SetGate(false);
  auto first = connection->Call(Request("Hold"));
  auto second = connection->Call(Record(1, 1));
  auto third = connection->Call(Record(1, 2));
  EXPECT_THAT(
      connection->Call(Record(1, 3))->Wait(kLong),
      StatusIs(
          absl::StatusCode::kResourceExhausted,
          HasSubstr("3 calls of this process to the actor have no reply yet")));
  SetGate(true);
  EXPECT_THAT(Number(third), IsOk());
  EXPECT_THAT(Number(connection->Call(Record(1, 4))), IsOk());
}

TEST_P(ActorConnectionTest, ADefaultLimitsTheBytesOfPendingCalls) {
  // It is still to start: all calls wait here.
  head_ = std::make_shared<FakeHead>(Info(v1::ACTOR_STATE_PENDING, 0));
  auto connection = Connect();
  // Of any size, and in memory once.
  const absl::Cord block(std::string(size_t{4} << 20, 'b'));
  auto call = [&](int blocks) {
    CallRequest request = Request("Record");
    request.args = {absl::Cord()};
    for (int i = 0; i < blocks; ++i) request.args[0].Append(block);
    return connection->Call(std::move(request));
  };
  std::vector<std::shared_ptr<CallState>> waiting;
  // 3 GiB and 900 MiB, of 4 GiB.
  for (const int blocks : {256, 256, 256, 225}) {
    waiting.push_back(call(blocks));
  }
  EXPECT_THAT(call(32)->Wait(kLong),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("limit of 4294967296 bytes"),
                             HasSubstr("max_pending_bytes"))));
  waiting.push_back(call(30));
  for (const auto& call : waiting) EXPECT_FALSE(call->done());
  // What is wanted no more makes room.
  waiting.front()->Cancel();
  EXPECT_THAT(waiting.front()->Wait(kLong),
              StatusIs(absl::StatusCode::kCancelled));
  waiting.push_back(call(250));
  EXPECT_FALSE(waiting.back()->done());
  connection->Close(absl::CancelledError("the test ends"));
}

TEST_P(ActorConnectionTest, ExitAnswersItsCallAndFailsTheOthers) {
  auto connection = Connect();
  SetGate(false);
  auto hold = connection->Call(Request("Hold"));
  auto exit = connection->Call(Request("Exit"));
  auto queued = connection->Call(Record(1, 1));
  ASSERT_TRUE(AwaitHolding(1));
  SetGate(true);
  EXPECT_THAT(hold->Wait(kLong), IsOk());
  EXPECT_THAT(exit->Wait(kLong), IsOk());
  EXPECT_THAT(queued->Wait(kLong), StatusIs(absl::StatusCode::kUnavailable,
                                            HasSubstr("ended itself")));
  const absl::Time deadline = absl::Now() + kLong;
  while (Events().size() < 2 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(2));
  }
  ASSERT_THAT(Events(), testing::SizeIs(2));
  EXPECT_TRUE(Events()[0].has_ready());
  EXPECT_EQ(Events()[0].ready().address(), server_->address());
  EXPECT_TRUE(Events()[1].has_ending());
  EXPECT_FALSE(Events()[1].ending().has_status());
  EXPECT_EQ(Events()[1].actor_id(), "actor-1");
}

TEST_P(ActorConnectionTest, ARemovedActorFailsWhatWaitsAndEndsWhenItIsQuiet) {
  auto connection = Connect();
  SetGate(false);
  auto hold = connection->Call(Request("Hold"));
  auto queued = connection->Call(Record(1, 1));
  ASSERT_TRUE(AwaitHolding(1));
  server_->RemoveActor("actor-1", 5, "not this one");
  server_->RemoveActor("actor-1", 0, "killed by request");
  EXPECT_THAT(queued->Wait(kLong), StatusIs(absl::StatusCode::kUnavailable,
                                            HasSubstr("killed by request")));
  SetGate(true);
  EXPECT_THAT(hold->Wait(kLong), IsOk());
}

}  // namespace
}  // namespace internal
}  // namespace miniray
