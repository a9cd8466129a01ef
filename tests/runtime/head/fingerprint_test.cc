// ClusterState::Fingerprint: by it others see that there is news.

#include <memory>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using FingerprintTest = ClusterStateTest;

TEST_F(FingerprintTest, IsTheSameWhileNothingChanges) {
  v1::RegisterNode node = Registration("n", 4);
  // Enough for the order of a map to differ from one copy to the next.
  for (int i = 0; i < 50; ++i) {
    (*node.mutable_total()->mutable_quantity())["thing" + std::to_string(i)] =
        i + 1;
  }
  ASSERT_THAT(state_.RegisterNode(node, std::make_shared<FakeLink>()), IsOk());
  Attach("job");
  Create("a");
  Create("waits", 100);
  const uint64_t print = state_.Fingerprint();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(state_.Fingerprint(), print);
    Advance(absl::Milliseconds(50));
  }
}

TEST_F(FingerprintTest, ChangesWithEachChange) {
  std::set<uint64_t> seen = {state_.Fingerprint()};
  const auto expect_news = [&](const char* what) {
    EXPECT_TRUE(seen.insert(state_.Fingerprint()).second) << what;
  };
  AddNode("n", 4);
  expect_news("a node");
  const ClusterState::Session session = Attach("job");
  expect_news("a job");
  Create("a");
  expect_news("an actor that starts, and takes of its node");
  Started("n", "a");
  expect_news("it is up");
  v1::NodeStats stats;
  stats.set_memory_used_bytes(1 << 20);
  stats.set_memory_total_bytes(1 << 30);
  state_.NodeStats("n", stats);
  expect_news("the node's memory");
  stats.set_cpus_busy(1.5);
  stats.set_cpus(4);
  state_.NodeStats("n", stats);
  expect_news("its CPUs");
  Exited("n", "a", 0, /*may_restart=*/false);
  expect_news("it died");
  state_.DriverLeft("job", session);
  expect_news("the job ended");
}

}  // namespace
}  // namespace miniray
