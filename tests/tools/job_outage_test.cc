// Jobs whose node, head or cluster is gone, for a while or for good.

#include <signal.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/tools/jobs_testutil.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class JobOutageTest : public JobsTest {
 protected:
  // Whether a process has a connection to the head.
  bool IsConnected(pid_t pid) const {
    std::set<std::string> sockets;
    std::error_code error;
    for (const auto& fd : std::filesystem::directory_iterator(
             absl::StrCat("/proc/", pid, "/fd"), error)) {
      const std::string target =
          std::filesystem::read_symlink(fd.path(), error).string();
      sockets.insert(target);
    }
    const std::string port = absl::StrFormat(
        ":%04X", std::stoi(address_.substr(address_.rfind(':') + 1)));
    for (const char* table : {"tcp", "tcp6"}) {
      const std::string text =
          ReadFile(absl::StrCat("/proc/", pid, "/net/", table)).value_or("");
      for (absl::string_view line : absl::StrSplit(text, '\n')) {
        // Number, own address, the other's, state (1: established), ...
        const std::vector<absl::string_view> fields =
            absl::StrSplit(line, ' ', absl::SkipEmpty());
        if (fields.size() > 9 && absl::EndsWith(fields[2], port) &&
            fields[3] == "01" &&
            sockets.contains(absl::StrCat("socket:[", fields[9], "]"))) {
          return true;
        }
      }
    }
    return false;
  }
  // Where it was, once the one that was killed is gone.
  void StartTheHeadAgain() const {
    const std::string port = address_.substr(address_.rfind(':') + 1);
    EXPECT_TRUE(Eventually([&] {
      return Run({"start", "--head", "--port", port, "--dashboard_port=-1"})
                 .exit_code == 0;
    }));
  }
};

TEST_F(JobOutageTest, ALostNodeFailsItsJob) {
  const auto waiting = Start(Shell({"--job_id=j"}, "echo started; sleep 100"));
  ASSERT_EQ(waiting->ReadLine(), "started");
  ASSERT_EQ(kill(daemon_, SIGKILL), 0);
  const CommandResult result = waiting->Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("was lost"));
  EXPECT_EQ(StateOf("j"), "JOB_STATE_FAILED");
  const CommandResult logs = Run({"job", "logs", "j"});
  EXPECT_EQ(logs.exit_code, 1);
  EXPECT_THAT(logs.err, AllOf(HasSubstr("the log of job j is on node"),
                              HasSubstr("/j.log")));
}

TEST_F(JobOutageTest, AHeadThatIsKilledAndStartedAgainLosesNoJob) {
  const std::string file = runtime_dir() + "/go";
  const auto waiting =
      Start(Shell({"--job_id=j", "--num_cpus=3"},
                  absl::StrCat("echo started; while [ ! -e ", file,
                               " ]; do sleep 0.05; done; echo ended; exit 5")));
  ASSERT_EQ(waiting->ReadLine(), "started");
  ASSERT_EQ(Submit("echo second", {"--no_wait", "--job_id=k", "--num_cpus=2"})
                .exit_code,
            0);
  ASSERT_EQ(kill(HeadPid(), SIGKILL), 0);
  StartTheHeadAgain();
  EXPECT_EQ(StateOf("j"), "JOB_STATE_RUNNING");
  EXPECT_EQ(StateOf("k"), "JOB_STATE_PENDING");
  ASSERT_TRUE(WriteFileAtomically(file, "").ok());
  const CommandResult result = waiting->Wait(absl::Seconds(60));
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_EQ(result.out, "ended\n") << result.err;
  EXPECT_TRUE(EventuallyIn("k", "SUCCEEDED"));
}

TEST_F(JobOutageTest, WhoFollowsALogGoesOnAfterARestartOfTheHead) {
  const std::string file = runtime_dir() + "/go";
  const auto script = [&](const std::string& before) {
    return absl::StrCat(before, "while [ ! -e ", file,
                        " ]; do sleep 0.05; done; echo four; echo five");
  };
  ASSERT_EQ(Submit(script(""), {"--no_wait", "--job_id=silent"}).exit_code, 0);
  ASSERT_EQ(Submit(script("echo one; echo two; echo three; "),
                   {"--no_wait", "--job_id=says"})
                .exit_code,
            0);
  ASSERT_TRUE(EventuallyIn("silent", "RUNNING"));
  ASSERT_TRUE(Eventually([] {
    return Run({"logs", "says"}).out == "one\ntwo\nthree\n";
  }));
  // One that has read nothing yet, one that is in the middle, and one that does
  // not know the beginning.
  const auto silent = Start({"job", "logs", "silent", "--follow"});
  const auto all = Start({"job", "logs", "says", "--follow"});
  const auto tail = Start({"job", "logs", "says", "--follow", "--tail=1"});
  for (const char* line : {"one", "two", "three"}) {
    ASSERT_EQ(all->ReadLine(), line);
  }
  ASSERT_EQ(tail->ReadLine(), "three");
  ASSERT_TRUE(Eventually([&] { return IsConnected(silent->pid()); }));
  // A question to the head takes longer than the rest of the way to its answer.
  EXPECT_EQ(StateOf("silent"), "JOB_STATE_RUNNING");
  ASSERT_EQ(kill(HeadPid(), SIGKILL), 0);
  StartTheHeadAgain();
  ASSERT_TRUE(WriteFileAtomically(file, "").ok());
  for (const auto& [program, what] : {std::pair(silent.get(), "silent"),
                                      {all.get(), "all"},
                                      {tail.get(), "tail"}}) {
    const CommandResult result = program->Wait(absl::Seconds(60));
    EXPECT_EQ(result.exit_code, 0) << what << ": " << result.err;
    EXPECT_EQ(result.out, "four\nfive\n") << what << ": " << result.err;
    EXPECT_THAT(result.err,
                HasSubstr(absl::StrCat("the head at ", address_,
                                       " does not answer; waiting for it up "
                                       "to 60 s")))
        << what;
  }
}

TEST_F(JobOutageTest, AHeadThatIsAwayIsWaitedForOnce) {
  const auto waiting = Start(
      Shell({"--job_id=j", "--head_patience=3"}, "echo started; sleep 100"));
  ASSERT_EQ(waiting->ReadLine(), "started");
  const absl::Time begin = absl::Now();
  ASSERT_EQ(kill(HeadPid(), SIGKILL), 0);
  const CommandResult result = waiting->Wait();
  const absl::Duration waited = absl::Now() - begin;
  EXPECT_GE(waited, absl::Seconds(3));
  EXPECT_LT(waited, absl::Seconds(6)) << result.err;
  EXPECT_EQ(result.exit_code, 1);
  const std::vector<std::string> parts =
      absl::StrSplit(result.err, "waiting for it up to 3 s\n");
  EXPECT_EQ(parts.size(), 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("job j: waited 3 s: no head answers at"));
}

TEST_F(JobOutageTest, AHeadThatIsStoppedIsNotWaitedFor) {
  const auto running = Start(Shell({"--job_id=j"}, "echo started; sleep 100"));
  ASSERT_EQ(running->ReadLine(), "started");
  const auto pending =
      Start(Shell({"--job_id=k", "--num_cpus=99", "--head_patience=1000"}, ""));
  ASSERT_TRUE(Eventually([] {
    return absl::StrContains(Run({"job", "list"}).out, "no node has that much");
  }));
  const auto follower = Start({"logs", "j", "--follow"});
  ASSERT_EQ(follower->ReadLine(), "started");
  ASSERT_EQ(kill(HeadPid(), SIGTERM), 0);
  for (const auto& [program, what] :
       {std::pair(running.get(), "job j ends with its cluster: "),
        {pending.get(), "job k ends with its cluster: "},
        {follower.get(), ""}}) {
    const CommandResult result = program->Wait();
    EXPECT_EQ(result.exit_code, 1) << what;
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat(
                                "miniray: ", what, "the head at ", address_,
                                " was stopped, and its cluster has ended")));
  }
}

TEST_F(JobOutageTest, WhoWaitsForAJobHearsThatTheClusterWasStopped) {
  const auto waiting = Start(Shell({"--job_id=j"}, "echo started; sleep 100"));
  ASSERT_EQ(waiting->ReadLine(), "started");
  ASSERT_EQ(Run({"stop"}).exit_code, 0);
  const CommandResult result = waiting->Wait();
  // Which of the two it hears of first.
  EXPECT_THAT(result.exit_code, AnyOf(1, 128 + SIGTERM)) << result.err;
  EXPECT_THAT(result.err, AnyOf(HasSubstr("job j ends with its cluster"),
                                HasSubstr("node was stopped")));
}

TEST_F(JobOutageTest, AStoppedNodeFailsItsJob) {
  const auto waiting = Start(Shell({"--job_id=j"}, "echo started; sleep 100"));
  ASSERT_EQ(waiting->ReadLine(), "started");
  ASSERT_EQ(kill(daemon_, SIGTERM), 0);
  EXPECT_TRUE(EventuallyIn("j", "FAILED"));
  EXPECT_THAT(waiting->Wait().err, HasSubstr("node was stopped"));
}

// What sends program and folder waits for it as what follows the job does.
TEST_F(JobOutageTest, AHeadThatIsAwayIsWaitedForBeforeTheProgramIsSent) {
  const std::string folder = runtime_dir() + "/folder";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/in", "content\n").ok());
  const auto submit = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> args = {"submit", "--working_dir", folder};
    args.insert(args.end(), flags.begin(), flags.end());
    args.insert(args.end(), {"--", "cat", "in"});
    return args;
  };
  ASSERT_EQ(kill(HeadPid(), SIGKILL), 0);
  CommandResult result = Run(submit({"--head_patience=1"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("waited 1 s: no head answers at"));
  // The time limit is one of the whole.
  const absl::Time begin = absl::Now();
  result = Run(submit({"--head_patience=1000", "--timeout=1"}));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(8));
  EXPECT_EQ(result.exit_code, 124) << result.err;

  const std::string said = runtime_dir() + "/stderr";
  std::vector<std::string> args = {"-c",
                                   absl::StrCat("exec \"$0\" \"$@\" 2> ", said),
                                   RunfilePath("tools/miniray")};
  for (std::string& arg : submit({})) args.push_back(std::move(arg));
  Program waits("/bin/sh", args);
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(ReadFile(said).value_or(""),
                             "waiting for it up to 60 s");
  }));
  StartTheHeadAgain();
  result = waits.Wait(absl::Seconds(60));
  EXPECT_EQ(result.exit_code, 0) << ReadFile(said).value_or("");
  EXPECT_EQ(result.out, "content\n");
}

}  // namespace
}  // namespace miniray
