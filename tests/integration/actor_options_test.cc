// Where an actor is to run and what it is called: affinity, labels, names and
// namespaces, with real processes and two drivers.

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(200);

class Probe {
 public:
  std::string Node() { return ActorContext::Current()->node_id(); }
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Probe, Constructor<>, &Probe::Node, &Probe::Add);

class Other {
 public:
  int64_t Pid() { return getpid(); }
};
MINIRAY_ACTOR(Other, Constructor<>, &Other::Pid);

absl::StatusOr<std::string> NodeOf(
    const absl::StatusOr<ActorHandle<Probe>>& probe) {
  if (!probe.ok()) return probe.status();
  return probe->Call<&Probe::Node>().Get(kLong);
}

TEST(ActorOptionsTest, NodesAndLabelsSayWhereAnActorRuns) {
  RealCluster real({.num_nodes = 0,
                    .cpus = 2,
                    .head_flags = {"--infeasible_timeout=500ms"}});
  real.AddNode({"--labels=zone=a,disk=ssd"});
  real.AddNode({"--labels=zone=b,disk=ssd"});
  Cluster driver = real.Connect();
  const auto state = driver.GetState();
  ASSERT_THAT(state, IsOk());
  std::string a, b;
  for (const v1::NodeInfo& node : state->nodes()) {
    (node.labels().at("zone") == "a" ? a : b) = node.node_id();
  }
  // Without them both would be on one node, as it is less than half full.
  const ResourceOptions small = {.cpu = 0.1};
  for (const std::string& node : {a, b, a}) {
    EXPECT_THAT(NodeOf(driver.CreateActor<Probe>(
                    {.resources = small, .node_id = node})),
                IsOkAndHolds(node));
  }
  for (const auto& [zone, node] : {std::pair("a", a), {"b", b}, {"a", a}}) {
    EXPECT_THAT(NodeOf(driver.CreateActor<Probe>(
                    {.resources = small,
                     .node_labels = {{"zone", zone}, {"disk", "ssd"}}})),
                IsOkAndHolds(node));
  }
  // A condition is waited for, though the other node has room; a wish is not.
  const ResourceOptions most = {.cpu = 1.5};
  const auto first =
      driver.CreateActor<Probe>({.resources = most, .node_id = b});
  EXPECT_THAT(NodeOf(first), IsOkAndHolds(b));
  for (const ActorOptions& options : std::vector<ActorOptions>{
           {.resources = most, .node_id = b},
           {.resources = most, .node_labels = {{"zone", "b"}}}}) {
    const auto waits = driver.CreateActor<Probe>(options);
    ASSERT_THAT(waits, IsOk());
    EXPECT_THAT(waits->WaitReady(kShort),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         HasSubstr("all of it is in use")));
    EXPECT_THAT(waits->Kill(), IsOk());
  }
  EXPECT_THAT(NodeOf(driver.CreateActor<Probe>({.resources = most,
                                                .node_id = "node-that-is-gone",
                                                .soft_affinity = true})),
              IsOkAndHolds(a));
  // All labels, or none.
  const auto nowhere = driver.CreateActor<Probe>(
      {.resources = small, .node_labels = {{"zone", "a"}, {"disk", "none"}}});
  EXPECT_THAT(NodeOf(nowhere), StatusIs(absl::StatusCode::kUnavailable,
                                        AllOf(HasSubstr("cannot be placed"),
                                              HasSubstr("disk=none"),
                                              HasSubstr("disk=ssd zone=b"))));
}

TEST(ActorOptionsTest, WithGetIfExistsSeveralDriversHaveOneActor) {
  RealCluster real;
  Cluster driver = real.Connect(), other = real.Connect();
  ActorOptions options = {.name = "shared", .get_if_exists = true};
  int64_t calls = 0;
  for (const Cluster& from : {driver, other, driver}) {
    const auto probe = from.CreateActor<Probe>(options);
    ASSERT_THAT(probe, IsOk());
    EXPECT_THAT(probe->Call<&Probe::Add>(1).Get(kLong), IsOkAndHolds(++calls));
  }
  EXPECT_EQ(driver.GetState()->actors_size(), 1);
  // Not of another class, and not without having asked for it.
  EXPECT_THAT(other.CreateActor<Other>(options),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("shared")));
  options.get_if_exists = false;
  EXPECT_THAT(other.CreateActor<Probe>(options),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("shared")));
}

TEST(ActorOptionsTest, ANameIsFoundInItsNamespaceAlone) {
  RealCluster real;
  Cluster driver = real.Connect(), other = real.Connect();
  auto in = [](const std::string& space) {
    return ActorOptions{
        .name = "n", .actor_namespace = space, .resources = {.cpu = 0.1}};
  };
  const auto a = driver.CreateActor<Probe>(in("a"));
  ASSERT_THAT(a, IsOk());
  EXPECT_THAT(a->Call<&Probe::Add>(1).Get(kLong), IsOkAndHolds(1));
  const auto found = other.GetActor<Probe>("n", "a");
  ASSERT_THAT(found, IsOk());
  EXPECT_THAT(found->Call<&Probe::Add>(1).Get(kLong), IsOkAndHolds(2));
  for (const std::string elsewhere : {"", "b", "A"}) {
    EXPECT_THAT(other.GetActor<Probe>("n", elsewhere),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("'n'")));
  }
  // There it is another actor's.
  const auto b = other.CreateActor<Probe>(in("b"));
  const auto none = other.CreateActor<Probe>(in(""));
  ASSERT_THAT(b, IsOk());
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(driver.GetActor<Probe>("n", "b")->actor_id(), b->actor_id());
  EXPECT_EQ(driver.GetActor<Probe>("n")->actor_id(), none->actor_id());
  EXPECT_EQ(driver.GetActor<Probe>("n", "a")->actor_id(), a->actor_id());
  EXPECT_THAT(b->Call<&Probe::Add>(5).Get(kLong), IsOkAndHolds(5));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
