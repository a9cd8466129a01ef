// The supervisor with /bin/sh as the program.

#include "runtime/worker/process_supervisor.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/worker/guardian.h"
#include "runtime/worker/process_scan.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

class ProcessSupervisorTest : public testing::Test {
 protected:
  ProcessSupervisorTest() {
    const char* base = getenv("TEST_TMPDIR");
    folder_ =
        absl::StrCat(base == nullptr ? "/tmp" : base, "/supervisor.", getpid());
    std::filesystem::create_directories(folder_);
    auto capture = OutputCapture::Create({});
    EXPECT_TRUE(capture.ok()) << capture.status();
    capture_ = *std::move(capture);
    auto supervisor = ProcessSupervisor::Create({});
    EXPECT_TRUE(supervisor.ok()) << supervisor.status();
    supervisor_ = *std::move(supervisor);
  }

  ~ProcessSupervisorTest() override {
    supervisor_.reset();
    std::filesystem::remove_all(folder_);
  }

  // Runs a shell script, which finds its socket in $MINIRAY_ACTOR_FD.
  absl::Status StartShell(const std::string& key, const std::string& script) {
    ProcessSupervisor::Command command;
    command.key = key;
    command.executable = absl::StrCat(folder_, "/", key, ".sh");
    command.args = {key};
    auto output = capture_->Open(LogFile(key), {});
    if (!output.ok()) return output.status();
    command.output = *std::move(output);
    command.socket_variable = kActorFdVariable;
    command.first_message = "hello";
    command.on_message = [this, key](pid_t, const std::string& message) {
      absl::MutexLock lock(&mu_);
      messages_[key] += message;
    };
    command.on_exit = [this, key](int wait_status) {
      absl::MutexLock lock(&mu_);
      exits_[key] = DescribeExit(wait_status);
    };
    EXPECT_TRUE(WriteFileAtomically(command.executable,
                                    absl::StrCat("#!/bin/bash\n", script, "\n"),
                                    0700)
                    .ok());
    return supervisor_->Start(command);
  }

  std::string LogFile(const std::string& key) const {
    return absl::StrCat(folder_, "/", key, ".log");
  }

  // The cause of the end, once it has ended.
  std::string ExitOf(const std::string& key) {
    EXPECT_TRUE(Eventually([&] {
      absl::MutexLock lock(&mu_);
      return exits_.contains(key);
    })) << key
        << " has not ended";
    absl::MutexLock lock(&mu_);
    return exits_[key];
  }

  // What the process wrote to its log, once it holds a line.
  std::string FirstLine(const std::string& key) {
    std::string text;
    EXPECT_TRUE(Eventually([&] {
      text = ReadFile(LogFile(key)).value_or("");
      return text.find('\n') != std::string::npos;
    }));
    return text.substr(0, text.find('\n'));
  }

  std::string folder_;
  absl::Mutex mu_;
  std::map<std::string, std::string> messages_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> exits_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<OutputCapture> capture_;
  std::unique_ptr<ProcessSupervisor> supervisor_;
};

TEST_F(ProcessSupervisorTest, TellsHowAProcessEnded) {
  ASSERT_TRUE(StartShell("good", "exit 0").ok());
  ASSERT_TRUE(StartShell("bad", "exit 3").ok());
  ASSERT_TRUE(StartShell("killed", "kill -SEGV $$").ok());
  EXPECT_EQ(ExitOf("good"), "exited with code 0");
  EXPECT_EQ(ExitOf("bad"), "exited with code 3");
  EXPECT_EQ(ExitOf("killed"), "killed by signal 11 (SIGSEGV)");
}

TEST_F(ProcessSupervisorTest, OutputGoesToTheLogFile) {
  ASSERT_TRUE(StartShell("talker", "echo out; echo err >&2").ok());
  ExitOf("talker");
  EXPECT_EQ(*ReadFile(LogFile("talker")), "out\nerr\n");
}

TEST_F(ProcessSupervisorTest, MessagesArriveEvenJustBeforeTheEnd) {
  // A frame of two bytes: its length, then "ok".
  ASSERT_TRUE(StartShell("sender",
                         "printf '\\002\\000\\000\\000ok' >&$MINIRAY_ACTOR_FD")
                  .ok());
  EXPECT_EQ(ExitOf("sender"), "exited with code 0");
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(messages_["sender"], "ok");
}

TEST_F(ProcessSupervisorTest, AMalformedMessageDoesNoHarm) {
  ASSERT_TRUE(StartShell("liar",
                         "printf '\\377\\377\\377\\377' >&$MINIRAY_ACTOR_FD; "
                         "exit 4")
                  .ok());
  EXPECT_EQ(ExitOf("liar"), "exited with code 4");
}

TEST_F(ProcessSupervisorTest, AProgramThatCannotRunIsAnError) {
  ProcessSupervisor::Command command;
  command.key = "none";
  command.executable = folder_ + "/no-such-program";
  command.args = {"none"};
  EXPECT_THAT(supervisor_->Start(command).ToString(),
              HasSubstr("no-such-program: No such file"));
  ASSERT_TRUE(WriteFileAtomically(command.executable, "garbage", 0700).ok());
  EXPECT_THAT(supervisor_->Start(command).ToString(),
              HasSubstr("Exec format error"));
  command.executable = "/bin/sh";
  command.working_dir = folder_ + "/no/such/folder";
  EXPECT_THAT(supervisor_->Start(command).ToString(),
              HasSubstr("no/such/folder: No such file"));
}

TEST_F(ProcessSupervisorTest, AProgramThatIsBusyForAMomentIsWaitedFor) {
  ProcessSupervisor::Command command;
  command.key = "busy";
  command.executable = folder_ + "/program";
  command.args = {"program"};
  ASSERT_TRUE(
      WriteFileAtomically(command.executable, "#!/bin/bash\nexit 5\n", 0700)
          .ok());
  // As one that was forked while it was written, and is slow to its exec.
  ASSERT_TRUE(StartShell("holder", absl::StrCat("exec 3>>", command.executable,
                                                "; echo holds; sleep 0.3"))
                  .ok());
  EXPECT_EQ(FirstLine("holder"), "holds");
  auto output = capture_->Open(LogFile("busy"), {});
  ASSERT_TRUE(output.ok());
  command.output = *std::move(output);
  command.on_exit = [this](int wait_status) {
    absl::MutexLock lock(&mu_);
    exits_["busy"] = DescribeExit(wait_status);
  };
  const absl::Status started = supervisor_->Start(command);
  ASSERT_TRUE(started.ok()) << started;
  EXPECT_EQ(ExitOf("busy"), "exited with code 5");
}

TEST_F(ProcessSupervisorTest, WhatAProcessStartedEndsWithIt) {
  ASSERT_TRUE(StartShell("parent", "sleep 1000 & echo $!; wait").ok());
  const int64_t child = std::stoll(FirstLine("parent"));
  EXPECT_TRUE(ProcessLives(child));
  supervisor_->Stop("parent", absl::ZeroDuration());
  ExitOf("parent");
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(child); }));
}

TEST_F(ProcessSupervisorTest, WhatLeftTheGroupEndsToo) {
  ASSERT_TRUE(StartShell("parent", "setsid sleep 1000 & echo $!; wait").ok());
  ASSERT_TRUE(StartShell("other", "setsid sleep 1000 & echo $!; wait").ok());
  const pid_t child = std::stoi(FirstLine("parent"));
  const pid_t others = std::stoi(FirstLine("other"));
  // It has begun a session of its own.
  EXPECT_TRUE(Eventually([&] { return getsid(child) == child; }));
  supervisor_->Stop("parent", absl::ZeroDuration());
  ExitOf("parent");
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(child); }));
  EXPECT_TRUE(ProcessLives(others));
  supervisor_->StopAll(absl::ZeroDuration());
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(others); }));
}

TEST_F(ProcessSupervisorTest, OrphansLeaveNoZombies) {
  supervisor_ = *ProcessSupervisor::Create({.reap_orphans = true});
  ASSERT_TRUE(StartShell("parent", "(sleep 0.1 & echo $!); sleep 1000").ok());
  const pid_t orphan = std::stoi(FirstLine("parent"));
  // While its first parent's parent lives on. A zombie would still be there.
  EXPECT_TRUE(Eventually([&] { return kill(orphan, 0) != 0; }));
}

TEST_F(ProcessSupervisorTest, AKilledGuardianIsReplaced) {
  auto guardian = [] {
    for (const pid_t pid : OwnChildren()) {
      const std::string name =
          ReadFile(absl::StrCat("/proc/", pid, "/comm")).value_or("");
      if (name == absl::StrCat(kGuardianName, "\n") && ProcessLives(pid)) {
        return pid;
      }
    }
    return 0;
  };
  ASSERT_TRUE(StartShell("first", "echo up; sleep 1000").ok());
  pid_t before = 0;
  ASSERT_TRUE(Eventually([&] { return (before = guardian()) != 0; }));
  kill(before, SIGKILL);
  EXPECT_TRUE(Eventually([&] {
    const pid_t now = guardian();
    return now != 0 && now != before;
  }));
  ASSERT_TRUE(StartShell("second", "exit 7").ok());
  EXPECT_EQ(ExitOf("second"), "exited with code 7");
}

TEST_F(ProcessSupervisorTest, AProcessThatIgnoresSigtermIsKilledAfterGrace) {
  ASSERT_TRUE(
      StartShell("deaf", "trap '' TERM; echo up; while :; do sleep 0.1; done")
          .ok());
  FirstLine("deaf");
  const absl::Time start = absl::Now();
  supervisor_->Stop("deaf", absl::Milliseconds(200));
  EXPECT_EQ(ExitOf("deaf"), "killed by signal 9 (SIGKILL)");
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(200));
}

TEST_F(ProcessSupervisorTest, AStoppedProcessIsKilledToo) {
  ASSERT_TRUE(StartShell("frozen", "echo $$; kill -STOP $$").ok());
  const std::string stat = absl::StrCat("/proc/", FirstLine("frozen"), "/stat");
  // Until it stands still, SIGTERM would do.
  ASSERT_TRUE(Eventually([&] {
    const std::string text = ReadFile(stat).value_or("");
    return text.find(") T ") != std::string::npos;
  }));
  supervisor_->Stop("frozen", absl::Milliseconds(50));
  EXPECT_EQ(ExitOf("frozen"), "killed by signal 9 (SIGKILL)");
}

TEST_F(ProcessSupervisorTest, ManyProcessesAtOnce) {
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(
        StartShell(absl::StrCat("p", i), absl::StrCat("exit ", i)).ok());
  }
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(ExitOf(absl::StrCat("p", i)),
              absl::StrCat("exited with code ", i));
  }
}

TEST_F(ProcessSupervisorTest, StopAllLeavesNothingAndStartsNothing) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(StartShell(absl::StrCat("s", i), "sleep 1000").ok());
  }
  supervisor_->StopAll(absl::Milliseconds(200));
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(ExitOf(absl::StrCat("s", i)), HasSubstr("killed by signal"));
  }
  EXPECT_EQ(StartShell("late", "exit 0").code(),
            absl::StatusCode::kUnavailable);
}

// The one who dies here is a process that has a supervisor of its own.
TEST_F(ProcessSupervisorTest, EverythingDiesWithTheSupervisorsProcess) {
  const std::string pids = folder_ + "/pids";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    // A stopped process, and what it started.
    supervisor_.release();
    (void)capture_.release();
    capture_ = *OutputCapture::Create({});
    auto own = ProcessSupervisor::Create({});
    supervisor_ = *std::move(own);
    const bool ok =
        StartShell("orphan",
                   absl::StrCat("sleep 1000 & c=$!; setsid sleep 1000 & ",
                                "echo $$ $c $! > ", pids, ".tmp; mv ", pids,
                                ".tmp ", pids, "; kill -STOP $$"))
            .ok();
    if (write(ready[1], ok ? "y" : "n", 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ready[1]);  // So that the owner's death is an end of file, not a wait.
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  std::string text;
  ASSERT_TRUE(Eventually([&] {
    text = ReadFile(pids).value_or("");
    return !text.empty();
  }));
  std::istringstream numbers(text);
  int64_t leader = 0, child = 0, outside = 0;
  numbers >> leader >> child >> outside;
  EXPECT_TRUE(ProcessLives(leader));
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  EXPECT_TRUE(Eventually(
      [&] { return !ProcessLives(leader) && !ProcessLives(child); }));
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(outside); }));
  close(ready[0]);
}

}  // namespace
}  // namespace miniray
