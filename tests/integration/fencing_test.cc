// A daemon that was silent for longer than its lease and comes back: its actors
// were given up, so it must end them, and it joins as a new node.

#include <signal.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/head/head_server.h"
#include "tests/integration/process_tools.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(FencingTest, AGivenUpNodeEndsItsActorsAndJoinsAnew) {
  ProcessTree tree;
  auto head = HeadServer::Start(
      {.state_dir = tree.folder() + "/head", .lease = absl::Milliseconds(600)});
  ASSERT_TRUE(head.ok()) << head.status();
  const std::string address = "127.0.0.1:" + std::to_string((*head)->port());
  auto daemon = tree.Start({BuiltProgram("tools/miniray"), "start", "--block",
                            "--address", address, "--num_cpus", "2"});
  ASSERT_TRUE(
      Eventually([&] { return (*head)->GetState().nodes_size() == 1; }));
  auto driver = tree.Start({BuiltProgram("tests/integration/sleeper_program"),
                            "--address", address, "--actors=1"});
  const std::string ready = driver->ReadLine();
  ASSERT_THAT(ready, StartsWith("ready "));
  const int64_t actor = std::stoll(ready.substr(strlen("ready ")));
  ASSERT_TRUE(ProcessLives(actor));

  daemon->Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&] {
    return (*head)->GetState().nodes(0).state() == v1::NODE_STATE_DEAD;
  }));
  EXPECT_TRUE(ProcessLives(actor));  // Nobody could end it.
  daemon->Signal(SIGCONT);

  EXPECT_TRUE(Eventually([&] { return !ProcessLives(actor); }));
  const std::string ended = driver->ReadLine();
  EXPECT_THAT(ended, HasSubstr("no sign of life for 600ms"));
  EXPECT_TRUE(Eventually([&] {
    const v1::GetClusterStateResponse state = (*head)->GetState();
    return state.nodes_size() == 2 &&
           (state.nodes(0).state() == v1::NODE_STATE_ALIVE ||
            state.nodes(1).state() == v1::NODE_STATE_ALIVE);
  }));
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
}

// Starts head and node, and an actor whose pid is returned; kills the driver.
struct Orphan {
  std::unique_ptr<ProcessTree::Child> head, daemon;
  int64_t actor = 0;
};

Orphan StartOrphan(ProcessTree* tree,
                   const std::vector<std::string>& node_flags) {
  Orphan orphan;
  orphan.head = tree->Start({BuiltProgram("tools/miniray"), "start", "--head",
                             "--block", "--port=0", "--dashboard_port=-1",
                             "--lease=600ms", "--driver_grace=1h"});
  std::string line;
  do {
    line = orphan.head->ReadLine();
    if (line.empty()) return orphan;
  } while (line.find("listens at ") == std::string::npos);
  line = line.substr(line.find("listens at ") + strlen("listens at "));
  const std::string address = line.substr(0, line.find(' '));
  std::vector<std::string> argv = {BuiltProgram("tools/miniray"),
                                   "start",
                                   "--block",
                                   "--address",
                                   address,
                                   "--num_cpus=2"};
  argv.insert(argv.end(), node_flags.begin(), node_flags.end());
  orphan.daemon = tree->Start(argv);
  auto driver = tree->Start({BuiltProgram("tests/integration/sleeper_program"),
                             "--address", address, "--actors=1"});
  const std::string ready = driver->ReadLine();
  EXPECT_THAT(ready, StartsWith("ready "));
  orphan.actor = std::stoll(ready.substr(strlen("ready ")));
  driver->Signal(SIGKILL);
  driver->Wait();
  return orphan;
}

TEST(FencingTest, ANodeThatHearsNothingEndsItsActorsAfterThreeLeases) {
  ProcessTree tree;
  // A head that was told nothing of a break looks like one behind a cut link.
  const Orphan orphan = StartOrphan(&tree, {});
  ASSERT_TRUE(ProcessLives(orphan.actor));
  orphan.head->Signal(SIGSTOP);
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(orphan.actor); }));
  orphan.head->Signal(SIGCONT);
  orphan.daemon->Signal(SIGTERM);
  EXPECT_EQ(orphan.daemon->Wait(), 0);
}

TEST(FencingTest, TheSilenceIsAFlag) {
  ProcessTree tree;
  const Orphan orphan = StartOrphan(&tree, {"--fence_after=1h"});
  ASSERT_TRUE(ProcessLives(orphan.actor));
  orphan.head->Signal(SIGSTOP);
  const absl::Time end = absl::Now() + absl::Seconds(3);
  while (absl::Now() < end && ProcessLives(orphan.actor)) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(ProcessLives(orphan.actor));
  orphan.head->Signal(SIGCONT);
}

TEST(FencingTest, ADeadHeadIsWaitedForAsLongAsTheFlagSays) {
  ProcessTree tree;
  const Orphan orphan = StartOrphan(&tree, {"--headless_timeout=1s"});
  ASSERT_TRUE(ProcessLives(orphan.actor));
  orphan.head->Signal(SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(orphan.actor); }));
  orphan.daemon->Signal(SIGTERM);
  EXPECT_EQ(orphan.daemon->Wait(), 0);
}

TEST(FencingTest, ADaemonJoinsAHeadThatStartsAnew) {
  ProcessTree tree;
  auto head = HeadServer::Start({.state_dir = tree.folder() + "/head"});
  ASSERT_TRUE(head.ok()) << head.status();
  const int port = (*head)->port();
  auto daemon = tree.Start({BuiltProgram("tools/miniray"), "start", "--block",
                            "--address", "127.0.0.1:" + std::to_string(port),
                            "--num_cpus", "2"});
  ASSERT_TRUE(
      Eventually([&] { return (*head)->GetState().nodes_size() == 1; }));
  (*head)->Shutdown();
  auto second =
      HeadServer::Start({.port = port, .state_dir = tree.folder() + "/second"});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(
      Eventually([&] { return (*second)->GetState().nodes_size() == 1; }));
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
}

}  // namespace
}  // namespace miniray
