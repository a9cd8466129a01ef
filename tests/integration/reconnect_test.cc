// Worker daemons and drivers whose head is away dial it again and again, ever
// more seldom, and are back soon after it is.

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/tcp_proxy.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kAway = absl::Seconds(5);

// Hangs up on whoever comes through `link`, for so long; returns how many came.
int CountAttempts(TcpProxy* link) {
  const int before = link->refused();
  link->Refuse(true);
  link->Cut();
  absl::SleepFor(
      kAway);  // Not a condition: the time in which they are counted.
  link->Refuse(false);
  return link->refused() - before;
}

// At 0, 0.1, 0.15, 0.25, 0.45, 0.85, 1.65, 2.65, 3.65, 4.65 s or somewhat
// earlier; always after the first pause it would be 50.
constexpr int kLeast = 4, kMost = 16;
// With pauses of 0.1 s at most, of a busy machine; with those above, never.
constexpr int kLeastQuickly = 30;

TEST(ReconnectTest, ADaemon) {
  RealCluster real({.num_nodes = 0, .head_flags = {"--lease=20s"}});
  TcpProxy link(real.address());
  auto node =
      real.tree().Start({BuiltProgram("tools/miniray"), "start", "--block",
                         "--address", link.address(), "--num_cpus=1"});
  ASSERT_THAT(node->ReadLine(), HasSubstr("joined"));
  Cluster driver = real.Connect();
  const int attempts = CountAttempts(&link);
  EXPECT_GE(attempts, kLeast);
  EXPECT_LE(attempts, kMost);
  EXPECT_TRUE(Eventually(
      [&] {
        const auto state = driver.GetState();
        return state.ok() && state->nodes_size() == 1 &&
               state->nodes(0).state() == v1::NODE_STATE_ALIVE;
      },
      absl::Seconds(5)));
}

TEST(ReconnectTest, TheLongestPauseIsAFlagOfTheHead) {
  RealCluster real(
      {.num_nodes = 0,
       .head_flags = {"--max_reconnect_pause=100ms", "--lease=20s"}});
  TcpProxy link(real.address());
  auto node =
      real.tree().Start({BuiltProgram("tools/miniray"), "start", "--block",
                         "--address", link.address(), "--num_cpus=1"});
  ASSERT_THAT(node->ReadLine(), HasSubstr("joined"));
  EXPECT_GE(CountAttempts(&link), kLeastQuickly);
}

TEST(ReconnectTest, ADriver) {
  RealCluster real({.num_nodes = 0, .head_flags = {"--driver_grace=20s"}});
  TcpProxy link(real.address());
  auto driver = Cluster::Connect({.address = link.address()});
  ASSERT_THAT(driver, IsOk());
  const int attempts = CountAttempts(&link);
  EXPECT_GE(attempts, kLeast);
  EXPECT_LE(attempts, kMost);
  const absl::Time begin = absl::Now();
  EXPECT_THAT(driver->GetState(), IsOk());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
