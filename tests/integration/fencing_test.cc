// A daemon that was silent for longer than its lease and comes back: its actors
// were given up, so it must end them, and it joins as a new node.

#include <signal.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

TEST(FencingTest, ANodeWithoutAHeadEndsItsActorsAfterThreeLeases) {
  ProcessTree tree;
  auto head = HeadServer::Start(
      {.state_dir = tree.folder() + "/head", .lease = absl::Milliseconds(600)});
  ASSERT_TRUE(head.ok()) << head.status();
  const std::string address = "127.0.0.1:" + std::to_string((*head)->port());
  auto daemon = tree.Start({BuiltProgram("tools/miniray"), "start", "--block",
                            "--address", address, "--num_cpus", "2"});
  auto driver = tree.Start({BuiltProgram("tests/integration/sleeper_program"),
                            "--address", address, "--actors=1"});
  const std::string ready = driver->ReadLine();
  ASSERT_THAT(ready, StartsWith("ready "));
  const int64_t actor = std::stoll(ready.substr(strlen("ready ")));
  driver->Signal(SIGKILL);  // With the head gone as well, nobody stops it.
  (*head)->Shutdown();
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(actor); }));
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
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
