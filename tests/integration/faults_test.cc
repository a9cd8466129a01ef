// Calls that fail on purpose (runtime/rpc/fault_injector.h): requests to the
// head are tried again without doing anything twice, and calls of actors
// survive broken connections.

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/rpc/fault_injector.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

class Counter {
 public:
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<>, &Counter::Add);

// How many of the first `calls` of a method of the head lose their reply.
int LostReplies(const std::string& spec, const std::string& method, int calls) {
  FaultInjector injector(ParseFaultSpec(spec).value());
  int lost = 0;
  for (int i = 0; i < calls; ++i) {
    lost += injector.Decide("/miniray.v1.Head/" + method,
                            FaultInjector::Kind::kDropReply);
  }
  return lost;
}

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

TEST_F(FaultsTest, AGroupWhoseAcknowledgementWasLostIsMadeOnce) {
  RealCluster real;
  const std::string faults = "Head/CreatePlacementGroup:drop_reply=0.5;seed=3";
  constexpr int kGroups = 16;
  ASSERT_GT(LostReplies(faults, "CreatePlacementGroup", kGroups), 1);
  ASSERT_THAT(UseFaults(faults), IsOk());
  const Cluster cluster = real.Connect();
  std::map<std::string, std::string> ids;  // By name.
  for (int i = 0; i < kGroups; ++i) {
    const std::string name = absl::StrCat("group-", i);
    const auto group = cluster.CreatePlacementGroup(
        {.bundles = {{.cpu = 0.1}, {.cpu = 0.1}}, .name = name});
    ASSERT_THAT(group, IsOk()) << i;
    ids[name] = group->id();
  }
  ASSERT_THAT(UseFaults(""), IsOk());
  const auto state = cluster.GetState();
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->placement_groups_size(), kGroups);
  for (const v1::PlacementGroupInfo& group : state->placement_groups()) {
    EXPECT_EQ(ids[group.name()], group.placement_group_id());
    EXPECT_EQ(group.state(), v1::PLACEMENT_GROUP_STATE_CREATED)
        << group.cause();
  }
  // Nothing more is reserved than what they are.
  EXPECT_NEAR(state->nodes(0).available().quantity().at("CPU"),
              4 - kGroups * 0.2, 1e-6);
}

TEST_F(FaultsTest, AJobWhoseAcknowledgementWasLostIsMadeOnce) {
  RealCluster real;
  const std::string runs = real.tree().folder() + "/runs";
  constexpr int kJobs = 8;
  int lost = 0;
  for (int i = 0; i < kJobs; ++i) {
    // Each command begins anew.
    const std::string faults =
        absl::StrCat("Head/SubmitJob:drop_reply=0.5;seed=", i + 1);
    lost += LostReplies(faults, "SubmitJob", 1);
    real.tree().env()[kFaultsVariable] = faults;
    const std::string id = absl::StrCat("job-", i);
    const RunResult submitted = real.tree().Run(
        {BuiltProgram("tools/miniray"), "submit", "--no_wait", "--address",
         real.address(), "--job_id", id, "--num_cpus=0", "--", "sh", "-c",
         absl::StrCat("echo ", id, " >> ", runs)});
    EXPECT_EQ(submitted.exit_code, 0) << submitted.err;
    EXPECT_EQ(submitted.out, id + "\n");
  }
  EXPECT_GT(lost, 1);
  const Cluster cluster = real.Connect();
  v1::GetClusterStateResponse state;
  EXPECT_TRUE(Eventually([&] {
    state = cluster.GetState().value();
    int succeeded = 0;
    for (const v1::JobInfo& job : state.jobs()) {
      succeeded += job.submitted() && job.state() == v1::JOB_STATE_SUCCEEDED;
    }
    return succeeded == kJobs;
  }));
  int submitted = 0;
  for (const v1::JobInfo& job : state.jobs()) submitted += job.submitted();
  EXPECT_EQ(submitted, kJobs);
  const auto lines = ReadFile(runs);
  ASSERT_THAT(lines, IsOk());
  std::vector<std::string> expected;
  for (int i = 0; i < kJobs; ++i) expected.push_back(absl::StrCat("job-", i));
  EXPECT_THAT(
      std::vector<std::string>(absl::StrSplit(*lines, '\n', absl::SkipEmpty())),
      UnorderedElementsAreArray(expected));
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
