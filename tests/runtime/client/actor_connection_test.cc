// ActorConnection over links that break, to an actor whose process dies.

#include "runtime/client/actor_connection.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/client/actor_connection_testutil.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Streams, ActorConnectionTest,
                         testing::Values(Transport::kTcp, Transport::kGrpc),
                         &NameOfStream);

// --- Cut links.

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
  EXPECT_TRUE(Becomes([&] { return proxy_->connections() > before; }));
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
  CallRequest request = Record(1, 1);
  request.keep_result = true;
  const auto kept = connection->Call(std::move(request));
  ASSERT_THAT(kept->Wait(kLong).status(), IsOk());
  ASSERT_EQ(KeptResults(), 1);
  SetGate(false);
  auto sent = connection->Call(Request("Hold"));
  ASSERT_TRUE(AwaitHolding(1));
  proxy_->Refuse(true);
  proxy_->Cut();
  // What it keeps for a caller goes with the session.
  ASSERT_TRUE(Becomes([&] { return KeptResults() == 0; }));
  proxy_->Refuse(false);
  EXPECT_THAT(sent->Wait(kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("forgotten")));
  SetGate(true);
}

TEST_P(ActorConnectionTest, WhatEndsAfterItsSessionWasForgottenKeepsNothing) {
  session_life_ms_ = 50;
  server_ = StartProcess(0);
  proxy_->SetTarget(server_->address());
  auto connection = Connect();
  CallRequest request = Record(1, 1);
  request.keep_result = true;
  const auto kept = connection->Call(std::move(request));
  ASSERT_THAT(kept->Wait(kLong).status(), IsOk());
  ASSERT_EQ(KeptResults(), 1);
  SetGate(false);
  request = Request("Hold");
  request.keep_result = true;
  const auto running = connection->Call(std::move(request));
  request = Record(1, 2);
  request.keep_result = true;
  const auto waiting = connection->Call(std::move(request));
  const auto last = connection->Call(Record(1, 3));
  ASSERT_TRUE(AwaitHolding(1));
  ASSERT_TRUE(Becomes([&] {
    const auto response = Inspect();
    return response.has_value() && response->calls_waiting() == 2;
  }));
  proxy_->Refuse(true);
  proxy_->Cut();
  // The session is forgotten,
  ASSERT_TRUE(Becomes([&] { return KeptResults() == 0; }));
  SetGate(true);
  // and its calls run all the same.
  ASSERT_TRUE(Becomes([&] { return Runs(1).size() == 3; }));
  EXPECT_EQ(KeptResults(), 0);
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

}  // namespace
}  // namespace internal
}  // namespace miniray
