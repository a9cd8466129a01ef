// However a cluster's processes end, nothing of them is left after 10 s.

#include <signal.h>

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"
#include "tests/runtime/base/stop_process.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A worker daemon has a guardian process beside it.
constexpr size_t kHead = 1, kDaemon = 2, kDriver = 1;
// Every actor of the sleeper program has a child.
constexpr size_t kActor = 2;
constexpr size_t kEmbeddedProcesses = kDriver + kHead + kDaemon + 2 * kActor;

class LeftoversTest : public testing::Test {
 protected:
  const std::string miniray_ = BuiltProgram("tools/miniray");
  const std::string sleeper_ =
      BuiltProgram("tests/integration/sleeper_program");
  ProcessTree tree_;

  // Starts a head and two daemons; returns the head's address.
  std::string StartCluster() {
    RunResult head = tree_.Run(
        {miniray_, "start", "--head", "--port=0", "--dashboard_port=-1"});
    EXPECT_EQ(head.exit_code, 0) << head.err;
    const size_t at = head.out.find("--address ");
    EXPECT_NE(at, std::string::npos) << head.out;
    std::string address = head.out.substr(at + strlen("--address "));
    address = address.substr(0, address.find('\n'));
    for (int i = 0; i < 2; ++i) {
      RunResult node = tree_.Run(
          {miniray_, "start", "--address", address, "--num_cpus", "2"});
      EXPECT_EQ(node.exit_code, 0) << node.err;
    }
    EXPECT_TRUE(tree_.WaitForCount(kHead + 2 * kDaemon));
    return address;
  }

  // Actors carry the driver's name, without its arguments.
  static bool IsActor(pid_t pid) {
    return CommandLine(pid) == "sleeper_program ";
  }

  static bool HasName(pid_t pid, const std::string& wanted) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/comm"));
    std::string name;
    return std::getline(file, name) && name == wanted;
  }
  static bool IsGuardian(pid_t pid) { return HasName(pid, "miniray-guard"); }

  // Living processes but for the templates that actors were forked from, which
  // stay with the daemon.
  size_t Count() {
    size_t count = 0;
    for (pid_t pid : tree_.Living()) count += !HasName(pid, "miniray-tmpl");
    return count;
  }
  bool WaitForCount(size_t count) {
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (Count() != count) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return true;
  }

  static std::string CommandLine(pid_t pid) {
    std::string line;
    FILE* file = fopen(absl::StrCat("/proc/", pid, "/cmdline").c_str(), "r");
    if (file == nullptr) return line;
    int c;
    while ((c = fgetc(file)) != EOF) {
      line.push_back(c == 0 ? ' ' : static_cast<char>(c));
    }
    fclose(file);
    return line;
  }

  // The pid of a process whose command line has `text`.
  pid_t FindByCommandLine(const std::string& text) {
    for (pid_t pid : tree_.Living()) {
      if (IsGuardian(pid)) continue;  // It has its daemon's command line.
      if (absl::StrContains(CommandLine(pid), text)) return pid;
    }
    return 0;
  }
};

TEST_F(LeftoversTest, EmbeddedClusterGoesWithAKilledDriver) {
  auto driver = tree_.Start({sleeper_});
  ASSERT_THAT(driver->ReadLine(), StartsWith("ready"));
  EXPECT_EQ(Count(), kEmbeddedProcesses);
  driver->Signal(SIGKILL);
  EXPECT_EQ(driver->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
}

TEST_F(LeftoversTest, EmbeddedClusterGoesWithCtrlC) {
  auto driver = tree_.Start({sleeper_});
  ASSERT_THAT(driver->ReadLine(), StartsWith("ready"));
  driver->SignalGroup(SIGINT);
  EXPECT_EQ(driver->Wait(), 128 + SIGINT);
  EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
}

TEST_F(LeftoversTest, EmbeddedClusterGoesWithAnAbortAndWithAPlainExit) {
  auto driver = tree_.Start({sleeper_, "--then=abort"});
  ASSERT_THAT(driver->ReadLine(), StartsWith("ready"));
  EXPECT_EQ(driver->Wait(), 128 + SIGABRT);
  EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
  auto second = tree_.Start({sleeper_, "--then=exit"});
  ASSERT_THAT(second->ReadLine(), StartsWith("ready"));
  EXPECT_EQ(second->Wait(), 0);
  EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
}

TEST_F(LeftoversTest, AStoppedEmbeddedDaemonDoesNotKeepItsDriver) {
  auto driver = tree_.Start({sleeper_});
  ASSERT_THAT(driver->ReadLine(), StartsWith("ready"));
  const pid_t daemon = FindByCommandLine("--address=");
  ASSERT_NE(daemon, 0);
  ASSERT_TRUE(StopProcess(daemon));
  for (pid_t pid : tree_.Living()) {
    if (pid != driver->pid() && IsActor(pid)) kill(pid, SIGKILL);
  }
  // Its calls fail, and it ends though the daemon cannot.
  EXPECT_THAT(driver->ReadLine(absl::Seconds(60)), StartsWith("ended: "));
  EXPECT_EQ(driver->Wait(), 1);
  EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
}

TEST_F(LeftoversTest, EmbeddedDaemonAndHeadMayBeKilledToo) {
  auto driver = tree_.Start({sleeper_});
  ASSERT_THAT(driver->ReadLine(), StartsWith("ready"));
  const pid_t daemon = FindByCommandLine("--address=");
  const pid_t head = FindByCommandLine("--head");
  ASSERT_NE(daemon, 0);
  ASSERT_NE(head, 0);
  kill(daemon, SIGKILL);
  kill(head, SIGKILL);
  // Its actors are gone, so the driver's calls fail and it ends.
  EXPECT_THAT(driver->ReadLine(absl::Seconds(60)), StartsWith("ended: "));
  EXPECT_EQ(driver->Wait(), 1);
  EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
}

TEST_F(LeftoversTest, AKilledDriversActorsGoAndTheClusterStays) {
  const std::string address = StartCluster();
  auto driver = tree_.Start({sleeper_, "--address", address});
  ASSERT_THAT(driver->ReadLine(), StartsWith("ready"));
  EXPECT_EQ(Count(), kHead + 2 * kDaemon + kDriver + 2 * kActor);
  driver->Signal(SIGKILL);
  driver->Wait();
  EXPECT_TRUE(WaitForCount(kHead + 2 * kDaemon)) << Count() << " are left";
  RunResult stop = tree_.Run({miniray_, "stop"});
  EXPECT_EQ(stop.exit_code, 0) << stop.err;
  EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
}

TEST_F(LeftoversTest, AKilledDaemonTakesItsActorsAndFailsTheirCalls) {
  const std::string address = StartCluster();
  auto driver = tree_.Start({sleeper_, "--address", address, "--actors=1"});
  const std::string ready = driver->ReadLine();
  ASSERT_THAT(ready, StartsWith("ready"));
  // Both daemons: one of them has the actor.
  for (int i = 0; i < 2; ++i) {
    const pid_t daemon = FindByCommandLine("--address=");
    ASSERT_NE(daemon, 0);
    kill(daemon, SIGKILL);
    ASSERT_TRUE(tree_.WaitForEnd(daemon));
  }
  EXPECT_TRUE(tree_.WaitForCount(kHead + kDriver));
  const std::string ended = driver->ReadLine(absl::Seconds(30));
  EXPECT_THAT(ended, StartsWith("ended: UNAVAILABLE"));
  EXPECT_THAT(ended, HasSubstr("node"));
  driver->Wait();
  EXPECT_EQ(tree_.Run({miniray_, "stop"}).exit_code, 0);
  EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
}

TEST_F(LeftoversTest, AStoppedActorGoesWithItsKilledDaemon) {
  const std::string address = StartCluster();
  auto driver = tree_.Start({sleeper_, "--address", address, "--actors=2"});
  ASSERT_THAT(driver->ReadLine(), StartsWith("ready"));
  // An actor that is stopped cannot end itself.
  for (pid_t pid : tree_.Living()) {
    if (pid == driver->pid() || !IsActor(pid)) continue;
    ASSERT_TRUE(StopProcess(pid));
  }
  for (int i = 0; i < 2; ++i) {
    const pid_t daemon = FindByCommandLine("--address=");
    ASSERT_NE(daemon, 0);
    kill(daemon, SIGKILL);
    ASSERT_TRUE(tree_.WaitForEnd(daemon));
  }
  EXPECT_TRUE(tree_.WaitForCount(kHead + kDriver))
      << tree_.Living().size() << " are left";
}

TEST_F(LeftoversTest, StopEndsARunningJob) {
  const std::string address = StartCluster();
  auto driver = tree_.Start({sleeper_, "--address", address});
  ASSERT_THAT(driver->ReadLine(), StartsWith("ready"));
  EXPECT_EQ(tree_.Run({miniray_, "stop"}).exit_code, 0);
  EXPECT_THAT(driver->ReadLine(absl::Seconds(60)), StartsWith("ended: "));
  driver->Wait();
  EXPECT_TRUE(tree_.WaitForCount(0)) << tree_.Living().size() << " are left";
}

}  // namespace
}  // namespace miniray
