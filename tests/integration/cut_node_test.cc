// A node that is cut from the head, but not from those who call its actors, or
// that stands still: the head starts its actors elsewhere, and for a while
// there may be two processes of one actor. Every call has exactly one outcome,
// and nothing that was acknowledged is lost.

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/tcp_proxy.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLease = absl::Seconds(2);
constexpr absl::Duration kPatience = absl::Seconds(60);

// Counts, and says which process did.
using Count = std::pair<int64_t, int64_t>;

class KeptCounter {
 public:
  Count Add(int64_t n) { return {value_ += n, getpid()}; }
  int64_t SaveState() const { return value_; }
  void RestoreState(int64_t value) { value_ = value; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(KeptCounter, Constructor<>, &KeptCounter::Add);

class PlainCounter {
 public:
  Count Add(int64_t n) { return {value_ += n, getpid()}; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(PlainCounter, Constructor<>, &PlainCounter::Add);

// A head, a node that reaches it through a link which can be cut, and one that
// is beside it. This process, the driver, reaches all of them.
class CutNodeTest : public testing::Test {
 protected:
  CutNodeTest()
      : real_({.num_nodes = 0,
               .cpus = 2,
               .head_flags = {absl::StrCat("--lease=",
                                           absl::FormatDuration(kLease))}}),
        link_(real_.address()),
        driver_(real_.Connect()) {}

  void StartCutNode(const std::vector<std::string>& flags = {}) {
    std::vector<std::string> argv = {BuiltProgram("tools/miniray"),
                                     "start",
                                     "--block",
                                     "--address",
                                     link_.address(),
                                     "--num_cpus=2"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    node_ = real_.tree().Start(argv);
    ASSERT_THAT(node_->ReadLine(), HasSubstr("joined"));
  }

  // An actor on that node, which then gets company.
  template <class T>
  ActorHandle<T> StartActor() {
    auto actor = driver_.CreateActor<T>(
        {.name = "counter", .resources = {.cpu = 1}, .max_restarts = -1});
    EXPECT_THAT(actor, IsOk());
    EXPECT_THAT(actor->WaitReady(kPatience), IsOk());
    first_ = RealCluster::Info(driver_, *actor);
    real_.AddNode();
    return *actor;
  }

  v1::NodeState StateOf(const std::string& node_id) {
    const auto state = driver_.GetState();
    if (!state.ok()) return v1::NODE_STATE_UNSPECIFIED;
    for (const v1::NodeInfo& node : state->nodes()) {
      if (node.node_id() == node_id) return node.state();
    }
    return v1::NODE_STATE_UNSPECIFIED;
  }
  bool GivenUp() { return StateOf(first_.node_id()) == v1::NODE_STATE_DEAD; }
  bool FirstProcessLives() { return ProcessLives(first_.pid()); }
  // The cut node is back, as a new one.
  bool Returned() {
    const auto state = driver_.GetState();
    if (!state.ok()) return false;
    int alive = 0;
    for (const v1::NodeInfo& node : state->nodes()) {
      alive += node.state() == v1::NODE_STATE_ALIVE;
    }
    return alive == 2;
  }

  // Calls until another process than the first answers; returns what it says.
  // *acknowledged: what has been added so far, as the replies say, and is then
  // added to. Every call in between was answered by the first, or failed
  // because its process was given up.
  template <class T>
  std::optional<Count> AwaitSuccessor(ActorHandle<T>* actor,
                                      int64_t* acknowledged) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      const absl::StatusOr<Count> reply =
          actor->template Call<&T::Add>(1).Get(kPatience);
      if (reply.ok() && reply->second != first_.pid()) return *reply;
      if (reply.ok()) {
        EXPECT_EQ(reply->first, ++*acknowledged);
      } else {
        EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable)
            << reply.status();
      }
    }
    return std::nullopt;
  }

  // What the head keeps is what the actor's second process, `pid`, has saved:
  // its next process begins with it.
  void ExpectHeadHas(ActorHandle<KeptCounter>* actor, int64_t value,
                     int64_t pid) {
    ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] {
      const v1::ActorInfo info = RealCluster::Info(driver_, *actor);
      return info.restarts() == 2 && info.state() == v1::ACTOR_STATE_ALIVE;
    }));
    const auto after = actor->With({.max_retries = 5})
                           .Call<&KeptCounter::Add>(1)
                           .Get(kPatience);
    ASSERT_THAT(after, IsOk());
    EXPECT_EQ(after->first, value + 1);
    EXPECT_NE(after->second, pid);
  }

  RealCluster real_;
  TcpProxy link_;
  Cluster driver_;
  std::unique_ptr<ProcessTree::Child> node_;
  v1::ActorInfo first_;  // The actor when it was on the cut node.
};

TEST_F(CutNodeTest, ItsActorGoesOnElsewhereAndItsOwnProcessEndsByItself) {
  ASSERT_NO_FATAL_FAILURE(StartCutNode());
  ActorHandle<KeptCounter> actor = StartActor<KeptCounter>();
  int64_t acknowledged = 0;
  for (int i = 0; i < 5; ++i) {
    const auto reply = actor.Call<&KeptCounter::Add>(1).Get(kPatience);
    ASSERT_THAT(reply, IsOk());
    ASSERT_EQ(*reply, Count(++acknowledged, first_.pid()));
  }
  const absl::Time cut = absl::Now();
  link_.Hold(true);
  const auto successor = AwaitSuccessor(&actor, &acknowledged);
  ASSERT_TRUE(successor.has_value());
  // Not a word less, not one that nobody was told of.
  EXPECT_EQ(successor->first, acknowledged + 1);
  EXPECT_GE(absl::Now() - cut, 0.7 * kLease);  // It was renewed just before.
  EXPECT_TRUE(GivenUp());
  EXPECT_THAT(RealCluster::Info(driver_, actor).cause(),
              HasSubstr("no sign of life for 2s"));

  // It has heard nothing, and ends what it runs after three leases.
  ASSERT_TRUE(Eventually([&] { return !FirstProcessLives(); }));
  EXPECT_GE(absl::Now() - cut, 2.5 * kLease);
  EXPECT_TRUE(ProcessLives(node_->pid()));
  link_.Hold(false);
  EXPECT_TRUE(Eventually([&] { return Returned(); }));
  const auto after = actor.Call<&KeptCounter::Add>(1).Get(kPatience);
  ASSERT_THAT(after, IsOk());
  EXPECT_EQ(*after, Count(successor->first + 1, successor->second));
}

TEST_F(CutNodeTest, ContactThatComesBackEndsTheSupersededProcess) {
  // By itself it would not end.
  ASSERT_NO_FATAL_FAILURE(StartCutNode({"--fence_after=1h"}));
  ActorHandle<KeptCounter> actor = StartActor<KeptCounter>();
  int64_t acknowledged = 0;
  link_.Hold(true);
  const auto successor = AwaitSuccessor(&actor, &acknowledged);
  ASSERT_TRUE(successor.has_value());
  EXPECT_EQ(successor->first, acknowledged + 1);
  const auto later = actor.Call<&KeptCounter::Add>(10).Get(kPatience);
  ASSERT_THAT(later, IsOk());
  EXPECT_EQ(*later, Count(successor->first + 10, successor->second));
  // Both live, and the first has a call whose state it could not save yet.
  ASSERT_TRUE(FirstProcessLives());

  link_.Hold(false);
  EXPECT_TRUE(Eventually([&] { return !FirstProcessLives(); }));
  EXPECT_TRUE(Eventually([&] { return Returned(); }));
  ExpectHeadHas(&actor, later->first, successor->second);
}

// Who is connected to the first process goes on with it until it ends: without
// SaveState nothing tells the two apart. Who asks the head gets the second.
TEST_F(CutNodeTest, ACallerOfAnActorWithoutStateHasOneOutcomeEach) {
  ASSERT_NO_FATAL_FAILURE(StartCutNode());
  ActorHandle<PlainCounter> actor = StartActor<PlainCounter>();
  int64_t acknowledged = 0;
  const auto first = actor.Call<&PlainCounter::Add>(1).Get(kPatience);
  ASSERT_THAT(first, IsOk());
  ASSERT_EQ(*first, Count(++acknowledged, first_.pid()));
  link_.Hold(true);
  ASSERT_TRUE(Eventually([&] { return GivenUp(); }));
  const auto between = actor.Call<&PlainCounter::Add>(1).Get(kPatience);
  ASSERT_THAT(between, IsOk());
  EXPECT_EQ(*between, Count(++acknowledged, first_.pid()));
  Cluster other = real_.Connect();
  const auto found = other.GetActor<PlainCounter>("counter");
  ASSERT_THAT(found, IsOk());
  const auto second = found->With({.max_retries = 5})
                          .Call<&PlainCounter::Add>(0)
                          .Get(kPatience);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->first, 0);
  EXPECT_NE(second->second, first_.pid());

  const auto successor = AwaitSuccessor(&actor, &acknowledged);
  ASSERT_TRUE(successor.has_value());
  EXPECT_GE(acknowledged, 2);
  EXPECT_EQ(successor->first, 1);  // A new process begins anew.
  EXPECT_FALSE(FirstProcessLives());
}

// The whole machine stands still: its daemon, and its actors in the middle of
// calls.
TEST_F(CutNodeTest, ANodeThatStoodStillEndsItsOwnProcess) {
  ASSERT_NO_FATAL_FAILURE(StartCutNode());
  ActorHandle<KeptCounter> actor = StartActor<KeptCounter>();
  int64_t acknowledged = 0;
  const auto first = actor.Call<&KeptCounter::Add>(1).Get(kPatience);
  ASSERT_THAT(first, IsOk());
  ASSERT_EQ(*first, Count(++acknowledged, first_.pid()));
  node_->Signal(SIGSTOP);
  // At once, or it might save a call that it does not come to answer.
  ASSERT_TRUE(StopProcess(first_.pid()));
  const auto successor = AwaitSuccessor(&actor, &acknowledged);
  ASSERT_TRUE(successor.has_value());
  EXPECT_EQ(successor->first, acknowledged + 1);
  EXPECT_TRUE(FirstProcessLives());  // Nobody could end it.

  const auto later = actor.Call<&KeptCounter::Add>(10).Get(kPatience);
  ASSERT_THAT(later, IsOk());
  EXPECT_EQ(*later, Count(successor->first + 10, successor->second));
  // The actor wakes first, and takes the call that it had been sent.
  ASSERT_EQ(kill(static_cast<pid_t>(first_.pid()), SIGCONT), 0);
  node_->Signal(SIGCONT);
  EXPECT_TRUE(Eventually([&] { return !FirstProcessLives(); }));
  EXPECT_TRUE(Eventually([&] { return Returned(); }));
  ExpectHeadHas(&actor, later->first, successor->second);
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
