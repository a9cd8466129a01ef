// What actors ask for of their nodes (CPUs, GPUs, memory, resources of the
// user's own, fractions): where they are placed, who waits for what, and which
// GPUs a process sees. Real daemons, which need no GPU to offer some.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "tests/integration/process_tools.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(100);
constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";
constexpr char kUnset[] = "unset";

// Before main, when libraries that read it then would do so.
const char* const visible_at_load = std::getenv(kVisible);

class Probe {
 public:
  int64_t Pid() { return getpid(); }
  std::string Node() { return ActorContext::Current()->node_id(); }
  int64_t Restarts() { return ActorContext::Current()->num_restarts(); }
  std::string Visible() {
    const char* const value = std::getenv(kVisible);
    return value == nullptr ? kUnset : value;
  }
  std::string VisibleAtLoad() {
    return visible_at_load == nullptr ? kUnset : visible_at_load;
  }
  std::vector<std::string> GpuIds() {
    return ActorContext::Current()->gpu_ids();
  }
};
MINIRAY_ACTOR(Probe, Constructor<>, &Probe::Pid, &Probe::Node, &Probe::Restarts,
              &Probe::Visible, &Probe::VisibleAtLoad, &Probe::GpuIds);

ActorHandle<Probe> Create(const Cluster& driver, const ActorOptions& options) {
  auto probe = driver.CreateActor<Probe>(options);
  EXPECT_THAT(probe, IsOk());
  return probe.ok() ? *probe : ActorHandle<Probe>();
}

ActorHandle<Probe> WithGpus(const Cluster& driver, double gpus) {
  return Create(driver, {.resources = {.cpu = 0, .gpu = gpus}});
}

std::string NodeOf(const ActorHandle<Probe>& probe) {
  const auto node = probe.Call<&Probe::Node>().Get(kLong);
  EXPECT_THAT(node, IsOk());
  return node.value_or("");
}

// The GPUs of an actor, about which its context and its environment agree.
std::vector<std::string> GpusOf(const ActorHandle<Probe>& probe) {
  const auto ids = probe.Call<&Probe::GpuIds>().Get(kLong);
  EXPECT_THAT(ids, IsOk());
  if (!ids.ok()) return {};
  EXPECT_THAT(probe.Call<&Probe::Visible>().Get(kLong),
              IsOkAndHolds(absl::StrJoin(*ids, ",")));
  return *ids;
}

// Waits, and says so with all of `reasons`.
template <class Matcher>
void ExpectWaits(const ActorHandle<Probe>& probe, const Matcher& reason) {
  EXPECT_THAT(probe.WaitReady(kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded, reason));
}

// What the living nodes have left.
std::map<std::string, double> Free(const Cluster& driver) {
  std::map<std::string, double> sum;
  const auto state = driver.GetState();
  EXPECT_THAT(state, IsOk());
  if (!state.ok()) return sum;
  for (const v1::NodeInfo& node : state->nodes()) {
    if (node.state() != v1::NODE_STATE_ALIVE) continue;
    for (const auto& [name, quantity] : node.available().quantity()) {
      sum[name] += quantity;
    }
  }
  return sum;
}

// A head and no node.
RealCluster::Options NoNodes() {
  return {.num_nodes = 0,
          .head_flags = {"--lease=3s", "--infeasible_timeout=1s"}};
}

// Two GPUs on one node.
class GpuTest : public ::testing::Test {
 protected:
  GpuTest() { real_.AddNode({"--num_gpus=2"}); }

  RealCluster real_{NoNodes()};
  Cluster driver_ = real_.Connect();
};

// --- Where they are placed.

TEST(ResourcesTest, ActorsRunWhereTheirResourcesAre) {
  RealCluster real(NoNodes());
  real.AddNode({"--resources=memory=4e9"});
  real.AddNode({"--num_gpus=2", "--resources=memory=1e9,slot=2"});
  Cluster driver = real.Connect();
  const auto state = driver.GetState();
  ASSERT_THAT(state, IsOk());
  std::string plain, rich;
  for (const v1::NodeInfo& node : state->nodes()) {
    (node.total().quantity().contains("slot") ? rich : plain) = node.node_id();
  }
  const auto all = Free(driver);
  std::vector<ActorHandle<Probe>> actors;
  auto create = [&](const ResourceOptions& resources) {
    actors.push_back(Create(driver, {.resources = resources}));
    return actors.back();
  };
  EXPECT_EQ(NodeOf(create({.gpu = 1})), rich);
  EXPECT_EQ(NodeOf(create({.cpu = 0.5, .memory_bytes = 2e9})), plain);
  const auto slot = create({.cpu = 0, .custom = {{"slot", 1}}});
  EXPECT_EQ(NodeOf(slot), rich);
  EXPECT_EQ(NodeOf(create({.cpu = 0.25, .custom = {{"slot", 0.5}}})), rich);
  EXPECT_EQ(NodeOf(create({.cpu = 0, .custom = {{"slot", 0.5}}})), rich);
  auto now = Free(driver);
  EXPECT_EQ(now["slot"], 0);
  EXPECT_EQ(now["GPU"], 1);
  EXPECT_EQ(now["CPU"], 8 - 1.75);
  EXPECT_EQ(now["memory"], 3e9);

  // Who finds no room waits, and says for what; status does too.
  const auto memory = create({.cpu = 0, .memory_bytes = 2.5e9});
  ExpectWaits(memory, HasSubstr("memory 2500000000: all of it is in use"));
  const auto later = create({.cpu = 0, .custom = {{"slot", 0.0001}}});
  ExpectWaits(later, HasSubstr("slot 0.0001: all of it is in use"));
  const RunResult status = real.tree().Run(
      {BuiltProgram("tools/miniray"), "status", "--address", real.address()});
  EXPECT_THAT(status.out,
              AllOf(HasSubstr("memory 2500000000"), HasSubstr("slot 0.0001"),
                    HasSubstr("all of it is in use")));
  ASSERT_THAT(slot.Kill(), IsOk());
  EXPECT_EQ(NodeOf(later), rich);
  ASSERT_THAT(actors[1].Kill(), IsOk());
  EXPECT_EQ(NodeOf(memory), plain);

  // What no node has, though two together would.
  for (const ResourceOptions& absurd : std::vector<ResourceOptions>{
           {.gpu = 3}, {.memory_bytes = 4.5e9}, {.custom = {{"slot", 2.5}}}}) {
    EXPECT_THAT(create(absurd).Call<&Probe::Pid>().Get(kLong),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("cannot be placed"),
                               HasSubstr("GPU 2, memory 1000000000, slot 2"))));
  }
  for (const auto& actor : actors) EXPECT_THAT(actor.Kill(), IsOk());
  EXPECT_TRUE(Eventually([&] { return Free(driver) == all; }));
}

TEST(ResourcesTest, ANodeIsFilledUntilHalfThenLoadIsSpread) {
  RealCluster real({.num_nodes = 2, .cpus = 4});
  Cluster driver = real.Connect();
  std::vector<ActorHandle<Probe>> actors;
  std::vector<std::string> nodes;
  for (int i = 0; i < 8; ++i) {
    actors.push_back(Create(driver, {.resources = {.cpu = 1}}));
    nodes.push_back(NodeOf(actors.back()));
  }
  // Half of one node, half of the other.
  EXPECT_EQ(nodes[1], nodes[0]);
  EXPECT_NE(nodes[2], nodes[0]);
  EXPECT_EQ(nodes[3], nodes[2]);
  // Then the emptier one, until both are full.
  EXPECT_NE(nodes[5], nodes[4]);
  EXPECT_NE(nodes[7], nodes[6]);
  EXPECT_EQ(Free(driver)["CPU"], 0);
}

TEST(ResourcesTest, ActorsRunWhereTheLabelsAre) {
  RealCluster real(NoNodes());
  real.AddNode({"--labels=zone=a,disk=ssd"});
  real.AddNode({"--labels=zone=b,disk=ssd"});
  real.AddNode({"--labels=zone=b"});
  Cluster driver = real.Connect();
  const auto state = driver.GetState();
  ASSERT_THAT(state, IsOk());
  std::map<std::string, std::string> node_ids;  // By zone and disk.
  for (const v1::NodeInfo& node : state->nodes()) {
    const auto disk = node.labels().find("disk");
    node_ids[node.labels().at("zone") +
             (disk == node.labels().end() ? "" : "/" + disk->second)] =
        node.node_id();
  }
  ASSERT_THAT(node_ids, SizeIs(3));
  auto create = [&](const std::map<std::string, std::string>& labels) {
    return Create(driver, {.resources = {.cpu = 0.1}, .node_labels = labels});
  };
  // Twice: where one lands without labels is no chance.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(NodeOf(create({{"zone", "a"}})), node_ids["a/ssd"]);
    EXPECT_EQ(NodeOf(create({{"zone", "b"}, {"disk", "ssd"}})),
              node_ids["b/ssd"]);
  }
  EXPECT_THAT((std::set<std::string>{node_ids["b"], node_ids["b/ssd"]}),
              testing::Contains(NodeOf(create({{"zone", "b"}}))));
  EXPECT_THAT(create({{"zone", "c"}}).Call<&Probe::Pid>().Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("cannot be placed"), HasSubstr("zone=c"),
                             HasSubstr("zone=b"))));
}

// Memory decides where an actor is placed, not how much it may take.
TEST(ResourcesTest, MemoryIsNoLimit) {
  RealCluster real(NoNodes());
  real.AddNode();
  Cluster driver = real.Connect();
  const auto probe =
      Create(driver, {.resources = {.cpu = 0, .memory_bytes = 1}});
  EXPECT_THAT(probe.Call<&Probe::Pid>().Get(kLong), IsOk());
}

// --- Which GPUs they see.

TEST_F(GpuTest, WholeGpusAreDevicesOfTheirOwn) {
  const auto first = WithGpus(driver_, 1);
  const auto second = WithGpus(driver_, 1);
  const auto of_first = GpusOf(first);
  EXPECT_THAT(of_first, SizeIs(1));
  std::vector<std::string> all = GpusOf(second);
  all.insert(all.end(), of_first.begin(), of_first.end());
  EXPECT_THAT(all, UnorderedElementsAre("0", "1"));
  const auto third = WithGpus(driver_, 1);
  ExpectWaits(third, HasSubstr("GPU 1: all of it is in use"));
  ASSERT_THAT(first.Kill(), IsOk());
  EXPECT_EQ(GpusOf(third), of_first);
  const auto both = WithGpus(driver_, 2);
  ExpectWaits(both, HasSubstr("GPU 2"));
  ASSERT_THAT(second.Kill(), IsOk());
  ASSERT_THAT(third.Kill(), IsOk());
  EXPECT_THAT(GpusOf(both), ElementsAre("0", "1"));
  EXPECT_THAT(driver_.CreateActor<Probe>({.resources = {.gpu = 1.5}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("GPU = 1.5"), HasSubstr("whole"))));
}

TEST_F(GpuTest, AProcessThatIsForkedAndOneThatIsNotSeeTheSame) {
  // The template has no GPU; it is the same for all.
  const auto forked = WithGpus(driver_, 1);
  const auto started =
      Create(driver_, {.resources = {.cpu = 0, .gpu = 1}, .env = {{"A", "b"}}});
  EXPECT_THAT(GpusOf(forked), SizeIs(1));
  EXPECT_THAT(GpusOf(started), SizeIs(1));
  EXPECT_NE(GpusOf(forked), GpusOf(started));
  EXPECT_THAT(forked.Call<&Probe::VisibleAtLoad>().Get(kLong),
              IsOkAndHolds(kUnset));
  EXPECT_THAT(started.Call<&Probe::VisibleAtLoad>().Get(kLong),
              IsOkAndHolds(GpusOf(started)[0]));
  // Who knows better may say so.
  const auto own = Create(
      driver_, {.resources = {.cpu = 0}, .env = {{kVisible, "GPU-mine"}}});
  EXPECT_THAT(own.Call<&Probe::Visible>().Get(kLong), IsOkAndHolds("GPU-mine"));
  EXPECT_THAT(own.Call<&Probe::GpuIds>().Get(kLong),
              IsOkAndHolds(std::vector<std::string>()));
}

TEST_F(GpuTest, FractionsShareADeviceAndDoNotOverfillIt) {
  // 0.6 and 0.4 fill one device, 0.6 and 0.3 most of the other.
  const auto a = WithGpus(driver_, 0.6);
  const auto b = WithGpus(driver_, 0.6);
  EXPECT_THAT(GpusOf(a), SizeIs(1));
  EXPECT_THAT(GpusOf(b), SizeIs(1));
  EXPECT_NE(GpusOf(a), GpusOf(b));
  const auto c = WithGpus(driver_, 0.4);
  const auto d = WithGpus(driver_, 0.3);
  EXPECT_NE(GpusOf(c), GpusOf(d));
  EXPECT_NEAR(Free(driver_)["GPU"], 0.1, 1e-9);
  // Where one leaves, a whole device is still not free.
  ASSERT_THAT(c.Kill(), IsOk());
  ASSERT_TRUE(Eventually([&] { return Free(driver_)["GPU"] > 0.45; }));
  const auto large = WithGpus(driver_, 0.45);
  ExpectWaits(large, HasSubstr("is spread over several"));
  const auto small = WithGpus(driver_, 0.35);
  EXPECT_EQ(GpusOf(small), GpusOf(GpusOf(d) == GpusOf(a) ? b : a));
  ASSERT_THAT((GpusOf(d) == GpusOf(a) ? a : b).Kill(), IsOk());
  EXPECT_EQ(GpusOf(large), GpusOf(d));
}

TEST_F(GpuTest, FractionsFillADeviceBeforeTheNext) {
  std::map<std::string, int> actors_on;
  std::vector<ActorHandle<Probe>> halves;
  for (int i = 0; i < 3; ++i) halves.push_back(WithGpus(driver_, 0.5));
  for (const auto& half : halves) ++actors_on[GpusOf(half).at(0)];
  EXPECT_THAT(actors_on, UnorderedElementsAre(testing::Pair("0", 2),
                                              testing::Pair("1", 1)));
}

TEST_F(GpuTest, WhoAskedForNoneSeesNone) {
  const auto probe = WithGpus(driver_, 0);
  EXPECT_THAT(probe.Call<&Probe::Visible>().Get(kLong), IsOkAndHolds(""));
  EXPECT_THAT(GpusOf(probe), IsEmpty());
}

// Nobody counts there.
TEST(ResourcesTest, WhereNoGpusAreOfferedTheDaemonsVariableStays) {
  RealCluster real(NoNodes());
  real.AddNode();
  real.tree().env()[kVisible] = "3";
  real.AddNode();
  Cluster driver = real.Connect();
  std::set<std::string> seen;
  const auto state = driver.GetState();
  ASSERT_THAT(state, IsOk());
  for (const v1::NodeInfo& node : state->nodes()) {
    const auto probe = Create(driver, {.node_id = node.node_id()});
    seen.insert(probe.Call<&Probe::Visible>().Get(kLong).value());
    EXPECT_THAT(probe.Call<&Probe::GpuIds>().Get(kLong),
                IsOkAndHolds(std::vector<std::string>()));
  }
  EXPECT_THAT(seen, UnorderedElementsAre(kUnset, "3"));
}

TEST(ResourcesTest, TheDaemonsVariableNamesTheDevices) {
  RealCluster real(NoNodes());
  real.tree().env()[kVisible] = "5, GPU-abc,7";
  real.AddNode({"--num_gpus=2"});
  Cluster driver = real.Connect();
  EXPECT_THAT(GpusOf(WithGpus(driver, 2)), ElementsAre("5", "GPU-abc"));
  // It must name as many as are offered.
  const RunResult refused =
      real.tree().Run({BuiltProgram("tools/miniray"), "start", "--block",
                       "--address", real.address(), "--num_gpus=4"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("offer 4 GPUs"), HasSubstr("5, GPU-abc,7"),
                    HasSubstr("--num_gpus")));
}

TEST_F(GpuTest, AKilledHeadStillKnowsWhoHasWhich) {
  const auto first = WithGpus(driver_, 1);
  const auto half = WithGpus(driver_, 0.5);
  const auto of_first = GpusOf(first);
  const auto of_half = GpusOf(half);
  real_.KillHead();
  real_.StartHead();
  ASSERT_TRUE(Eventually([&] {
    const auto state = driver_.GetState();
    return state.ok() && state->nodes_size() == 1 &&
           state->nodes(0).state() == v1::NODE_STATE_ALIVE;
  }));
  const auto second = WithGpus(driver_, 1);
  ExpectWaits(second, HasSubstr("GPU 1"));
  const auto other_half = WithGpus(driver_, 0.5);
  EXPECT_EQ(GpusOf(other_half), of_half);
  EXPECT_EQ(GpusOf(first), of_first);
  ASSERT_THAT(first.Kill(), IsOk());
  EXPECT_EQ(GpusOf(second), of_first);
}

TEST_F(GpuTest, ADeviceIsFreeOnceItsProcessHasEnded) {
  const auto stays = WithGpus(driver_, 1);
  EXPECT_THAT(GpusOf(stays), SizeIs(1));
  const auto dies = Create(driver_, {.resources = {.cpu = 0, .gpu = 1},
                                     .max_restarts = 1,
                                     .max_retries = -1});
  const auto before = GpusOf(dies);
  EXPECT_NE(before, GpusOf(stays));
  kill(static_cast<pid_t>(dies.Call<&Probe::Pid>().Get(kLong).value()),
       SIGKILL);
  EXPECT_THAT(dies.Call<&Probe::Restarts>().Get(kLong), IsOkAndHolds(1));
  EXPECT_EQ(GpusOf(dies), before);
  // What a driver held is free when it leaves.
  {
    Cluster other = real_.Connect();
    const auto waits = WithGpus(other, 1);
    ExpectWaits(waits, HasSubstr("GPU 1"));
    ASSERT_THAT(dies.Kill(), IsOk());
    EXPECT_EQ(GpusOf(waits), before);
  }
  EXPECT_EQ(GpusOf(WithGpus(driver_, 1)), before);
}

TEST_F(GpuTest, ASharedProcessHasActorsOfTheSameDevicesAlone) {
  auto light = [&](double gpus) {
    return Create(driver_, {.resources = {.cpu = 0, .gpu = gpus},
                            .shared_process = "light"});
  };
  const auto a = light(0.5);
  const auto b = light(0.5);
  const auto whole = light(1);
  const auto none = light(0);
  auto pid = [](const ActorHandle<Probe>& probe) {
    return probe.Call<&Probe::Pid>().Get(kLong).value();
  };
  EXPECT_EQ(pid(a), pid(b));
  EXPECT_EQ(GpusOf(a), GpusOf(b));
  EXPECT_NE(GpusOf(whole), GpusOf(a));
  EXPECT_THAT(GpusOf(none), IsEmpty());
  EXPECT_THAT((std::set<int64_t>{pid(a), pid(whole), pid(none)}), SizeIs(3));
}

TEST_F(GpuTest, ActorsInAPlacementGroupUseTheDevicesOfTheirBundle) {
  const auto group = driver_.CreatePlacementGroup(
      {.strategy = PlacementStrategy::kStrictPack,
       .bundles = {{.cpu = 1, .gpu = 1}, {.cpu = 1, .gpu = 1}}});
  ASSERT_THAT(group, IsOk());
  ASSERT_THAT(group->WaitReady(kLong), IsOk());
  const auto outside = WithGpus(driver_, 0.1);
  ExpectWaits(outside, HasSubstr("GPU 0.1"));
  ASSERT_THAT(outside.Kill(), IsOk());
  const v1::PlacementGroupInfo info = group->GetInfo().value();
  auto in_bundle = [&](int index, double gpus) {
    return Create(driver_, {.resources = {.cpu = 0, .gpu = gpus},
                            .placement_group = *group,
                            .bundle_index = index});
  };
  const auto one = in_bundle(1, 1);
  EXPECT_THAT(GpusOf(one), ElementsAre(absl::StrCat(info.bundles(1).gpus(0))));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(GpusOf(in_bundle(0, 0.5)),
                ElementsAre(absl::StrCat(info.bundles(0).gpus(0))));
  }
  EXPECT_NE(info.bundles(0).gpus(0), info.bundles(1).gpus(0));
  ASSERT_THAT(group->Remove(), IsOk());
  EXPECT_THAT(GpusOf(WithGpus(driver_, 2)), ElementsAre("0", "1"));
}

// A submitted driver is told of its GPUs as well.
TEST_F(GpuTest, ASubmittedDriverSeesItsDevices) {
  const auto first = WithGpus(driver_, 1);
  const auto taken = GpusOf(first);
  const RunResult job =
      real_.tree().Run({BuiltProgram("tools/miniray"), "submit", "--address",
                        real_.address(), "--wait", "--num_cpus=0",
                        "--num_gpus=1", "--", "/usr/bin/printenv", kVisible});
  EXPECT_EQ(job.exit_code, 0) << job.err;
  EXPECT_EQ(job.out, taken == std::vector<std::string>{"0"} ? "1\n" : "0\n");
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
