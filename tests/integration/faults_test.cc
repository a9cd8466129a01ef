// Calls that fail on purpose (runtime/rpc/fault_injector.h): requests to the
// head are tried again without doing anything twice, and calls of actors
// survive broken connections.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"
#include "runtime/rpc/fault_injector.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

class Counter {
 public:
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<>, &Counter::Add);

class FaultsTest : public ::testing::Test {
 protected:
  ~FaultsTest() override { EXPECT_THAT(UseFaults(""), IsOk()); }
};

TEST_F(FaultsTest, RequestsToTheHeadAreTriedAgainAndDoNothingTwice) {
  RealCluster real;
  ASSERT_THAT(
      UseFaults("Head/CreateActor:drop_request=0.3,drop_reply=0.4;"
                "Head/GetActor:drop_request=0.2,drop_reply=0.2;"
                "Head/KillActor:drop_reply=0.5;Head/*:delay=0.2@20ms;seed=11"),
      IsOk());
  const Cluster cluster = real.Connect();
  constexpr int kActors = 8;
  std::vector<ActorHandle<Counter>> actors;
  for (int i = 0; i < kActors; ++i) {
    const auto actor = cluster.CreateActor<Counter>(
        {.name = "counter-" + std::to_string(i), .resources = {.cpu = 0.1}});
    ASSERT_THAT(actor, IsOk()) << i;
    actors.push_back(*actor);
  }
  for (const auto& actor : actors) {
    EXPECT_THAT(actor.Call<&Counter::Add>(3).Get(absl::Seconds(30)),
                IsOkAndHolds(3));
    EXPECT_THAT(actor.Kill(), IsOk());
  }
  ASSERT_THAT(UseFaults(""), IsOk());
  const Cluster undisturbed = real.Connect();
  EXPECT_EQ(undisturbed.GetState()->actors_size(), kActors);
}

TEST_F(FaultsTest, CallsSurviveBrokenStreams) {
  RealCluster real;
  ASSERT_THAT(
      UseFaults("ActorService/Channel:reset=0.02,delay=0.05@5ms;seed=4"),
      IsOk());
  const Cluster cluster = real.Connect();
  const auto counter = cluster.CreateActor<Counter>({});
  ASSERT_THAT(counter, IsOk());
  // Each runs once, in order, whatever becomes of the streams.
  for (int64_t i = 1; i <= 300; ++i) {
    ASSERT_THAT(counter->Call<&Counter::Add>(1).Get(absl::Seconds(30)),
                IsOkAndHolds(i));
  }
}

TEST_F(FaultsTest, ADaemonBearsThemToo) {
  RealCluster::Options options;
  options.node_flags = {
      "--inject_faults=Head/AttachNode:reset=0.2;"
      "Head/RenewLease:drop_request=0.3,reset=0.3;"
      "Head/GetPackage:drop_request=1,limit=1;seed=9"};
  RealCluster real(options);
  const Cluster cluster = real.Connect();
  for (int i = 0; i < 10; ++i) {
    const auto counter =
        cluster.CreateActor<Counter>({.resources = {.cpu = 0.1}});
    ASSERT_THAT(counter, IsOk()) << i;
    EXPECT_THAT(counter->Call<&Counter::Add>(i).Get(absl::Seconds(30)),
                IsOkAndHolds(i));
  }
}

TEST_F(FaultsTest, AMistakeInTheVariableIsToldAtTheStart) {
  ProcessTree tree;
  tree.env()["MINIRAY_FAULTS"] = "Head/*:reset=7";
  const RunResult result = tree.Run(
      {BuiltProgram("tools/miniray"), "status", "--address", "127.0.0.1:1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("$MINIRAY_FAULTS: at character 14 of"));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
