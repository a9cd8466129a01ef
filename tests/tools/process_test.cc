// Sessions, ready lines and process trees of the command line.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/base/process_records.h"
#include "tests/runtime/base/temp_folder.h"
#include "tools/cli/process_tree.h"
#include "tools/cli/ready.h"
#include "tools/cli/session.h"

namespace miniray::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// A child that waits for its end.
pid_t ForkSleeper() {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  return pid;
}

void EndAndReap(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

pid_t PidOfADeadProcess() {
  const pid_t pid = ForkSleeper();
  EndAndReap(pid);
  return pid;
}

TEST(SessionTest, LogsOfEmbeddedClustersOfDeadProgramsAreRemoved) {
  const std::string folder =
      absl::StrCat(std::getenv("TEST_TMPDIR"), "/embedded-logs-", getpid());
  setenv("MINIRAY_RUNTIME_DIR", folder.c_str(), 1);
  ASSERT_TRUE(MakeDirectories(folder, 0700).ok());
  const pid_t dead = PidOfADeadProcess();
  const auto put = [&](const std::string& name) {
    const std::string path = absl::StrCat(folder, "/", name);
    EXPECT_TRUE(WriteFileAtomically(path, "x").ok());
    return path;
  };
  for (int i = 0; i < 30; ++i) {
    put(absl::StrCat("embedded-", dead, "-log-", i, "-head.log"));
  }
  const std::string living =
      put(absl::StrCat("embedded-", getpid(), "-log-1-head.log"));
  const std::string other = put("embedded-notes.log");
  ASSERT_TRUE(CreateSession().ok());
  int left = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    left += file.path().filename().string().rfind("embedded-", 0) == 0 ? 1 : 0;
  }
  EXPECT_EQ(left, 10 + 2);
  EXPECT_TRUE(std::filesystem::exists(living));
  EXPECT_TRUE(std::filesystem::exists(other));
  std::filesystem::remove_all(folder);
  unsetenv("MINIRAY_RUNTIME_DIR");
}

TEST(SessionTest, OldOnesOfDeadProcessesAreRemoved) {
  std::string folder = absl::StrCat(::testing::TempDir(), "/session-XXXXXX");
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(setenv("MINIRAY_RUNTIME_DIR", folder.c_str(), 1), 0);
  const pid_t dead = PidOfADeadProcess();
  const pid_t living = ForkSleeper();
  auto make = [&](int day, pid_t pid) {
    const std::string name =
        absl::StrCat("session-20200101-0000", day, "-", pid);
    EXPECT_TRUE(MakeDirectories(absl::StrCat(folder, "/", name, "/logs")).ok());
    return name;
  };
  std::vector<std::string> of_dead;
  for (int i = 0; i < kKeptSessions + 3; ++i) {
    of_dead.push_back(make(10 + i, dead));
  }
  const std::string of_living = make(10, living);
  EXPECT_TRUE(MakeDirectories(absl::StrCat(folder, "/session-mine")).ok());

  const auto session = CreateSession();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE(std::filesystem::is_directory(*session));
  EXPECT_EQ(std::filesystem::status(*session).permissions(),
            std::filesystem::perms::owner_all);

  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    left.push_back(entry.path().filename().string());
  }
  for (int i = 0; i < 3; ++i) EXPECT_THAT(left, Not(Contains(of_dead[i])));
  for (int i = 3; i < kKeptSessions + 3; ++i) {
    EXPECT_THAT(left, Contains(of_dead[i]));
  }
  EXPECT_THAT(left, Contains(of_living));
  EXPECT_THAT(left, Contains("session-mine"));
  EndAndReap(living);
}

TEST(ReadyTest, LineComesBack) {
  const auto message = FromLine(ToLine({.address = "a:1",
                                        .pid = 12,
                                        .node_id = "node-1",
                                        .join = "MINIRAY_TOKEN=\"x\" join",
                                        .dashboard = "http://d",
                                        .warning = "mind",
                                        .session_dir = "/s",
                                        .log = "/s/log"}));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->error, "");
  EXPECT_EQ(message->address, "a:1");
  EXPECT_EQ(message->pid, 12);
  EXPECT_EQ(message->node_id, "node-1");
  EXPECT_EQ(message->join, "MINIRAY_TOKEN=\"x\" join");
  EXPECT_EQ(message->dashboard, "http://d");
  EXPECT_EQ(message->warning, "mind");
  EXPECT_EQ(message->session_dir, "/s");
  EXPECT_EQ(message->log, "/s/log");
}

TEST(ReadyTest, ErrorComesBackInOneLine) {
  const std::string line = ToLine({.error = "first\nsecond"});
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(FromLine(line)->error, "first\nsecond");
}

TEST(ReadyTest, OtherTextIsAnError) {
  for (const char* text : {"", "hello", "[]", "3", "{\"pid\": \"x\"}"}) {
    EXPECT_FALSE(FromLine(text).ok()) << text;
  }
}

TEST(ReadyTest, SendsOnceAndCloses) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const ScopedFd read_end(fds[0]);
  ReadyPipe pipe(fds[1]);
  EXPECT_TRUE(pipe.has_reader());
  EXPECT_TRUE(pipe.Send({.address = "a:1"}).ok());
  EXPECT_FALSE(pipe.has_reader());
  EXPECT_TRUE(pipe.Send({.error = "too late"}).ok());
  char buffer[1000];
  const ssize_t n = read(read_end.get(), buffer, sizeof(buffer));
  ASSERT_GT(n, 0);
  EXPECT_EQ(FromLine(std::string(buffer, n))->address, "a:1");
  EXPECT_EQ(read(read_end.get(), buffer, sizeof(buffer)), 0);
}

TEST(ProcessTreeTest, FindsAndEndsDescendants) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = ForkSleeper();
    if (write(fds[1], &grandchild, sizeof(grandchild)) < 0) _exit(1);
    while (true) pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(fds[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
  close(fds[0]);
  close(fds[1]);

  const std::vector<ProcessId> found = Descendants(child);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].pid, grandchild);
  EXPECT_TRUE(IsAlive(found[0]));
  EXPECT_FALSE(WaitUntilGone(found, absl::Milliseconds(20)));

  // Not the process that is meant: it must not be hit.
  SendSignal({grandchild, found[0].start_ticks + 1}, SIGKILL);
  EXPECT_FALSE(WaitUntilGone(found, absl::Milliseconds(20)));

  SendSignal(found[0], SIGKILL);
  EXPECT_TRUE(WaitUntilGone(found, absl::Seconds(10)));
  EXPECT_THAT(Descendants(child), IsEmpty());
  EndAndReap(child);
}

TEST(LimitLogTest, ALongLogIsKeptBesideAndBeginsAnew) {
  const TempFolder folder;
  const std::string log = folder / "head.log";
  const ScopedFd writer(
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const auto append = [&writer](const std::string& text) {
    EXPECT_EQ(write(writer.get(), text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
  };
  append("first\n");
  LimitLog(log, 6);
  EXPECT_THAT(folder.List(), ElementsAre("head.log"));
  append("second\n");
  LimitLog(log, 6);
  EXPECT_EQ(ReadFile(log).value(), "");
  EXPECT_EQ(ReadFile(log + ".1").value(), "first\nsecond\n");
  // Whoever has it open writes on, at its beginning.
  append("the third\n");
  EXPECT_EQ(ReadFile(log).value(), "the third\n");
  LimitLog(log, 6);
  EXPECT_EQ(ReadFile(log + ".1").value(), "the third\n");
  LimitLog(folder / "none", 0);
  EXPECT_THAT(folder.List(), ElementsAre("head.log", "head.log.1"));
}

TEST(ProcessTreeTest, KillTreeEndsAllOfIt) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t pids[] = {ForkSleeper(), ForkSleeper()};
    if (write(fds[1], pids, sizeof(pids)) < 0) _exit(1);
    while (true) pause();
  }
  pid_t grandchildren[2];
  ASSERT_EQ(read(fds[0], grandchildren, sizeof(grandchildren)),
            sizeof(grandchildren));
  close(fds[0]);
  close(fds[1]);
  const ProcessId root = {child, ProcessStartTicks(child).value()};
  KillTree(root, absl::Seconds(10));
  EXPECT_FALSE(IsAlive(root));
  for (const pid_t pid : grandchildren) {
    EXPECT_FALSE(ProcessStartTicks(pid).ok());
  }
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace miniray::cli
