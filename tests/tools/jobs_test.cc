// `miniray submit` and `miniray job`, with real processes.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
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
#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "runtime/base/process_records.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class JobsTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    address_ = StartHead();
    setenv("MINIRAY_ADDRESS", address_.c_str(), 1);
    daemon_ = StartDaemon(address_, {"--num_cpus=4"});
  }
  void TearDown() override {
    unsetenv("MINIRAY_ADDRESS");
    CommandTest::TearDown();
  }

  static std::vector<std::string> Shell(std::vector<std::string> flags,
                                        const std::string& script) {
    flags.insert(flags.begin(), "submit");
    flags.insert(flags.end(), {"--", "sh", "-c", script});
    return flags;
  }
  // Runs a script as a job.
  static CommandResult Submit(const std::string& script,
                              std::vector<std::string> flags = {}) {
    return Run(Shell(std::move(flags), script));
  }
  static nlohmann::json Job(const std::string& id) {
    const CommandResult result = Run({"job", "status", id, "--format", "json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }
  static std::string StateOf(const std::string& id) {
    return Job(id).value("state", "");
  }
  static bool EventuallyIn(const std::string& id, const std::string& state) {
    return Eventually([&] { return StateOf(id) == "JOB_STATE_" + state; });
  }
  static pid_t HeadPid() {
    const auto records = ListProcessRecords();
    for (const ProcessRecord& record : records.value()) {
      if (record.role == ProcessRole::kHead) return record.pid;
    }
    ADD_FAILURE() << "there is no head";
    return 0;
  }
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
  // Folders of jobs on the node.
  std::vector<std::string> JobFolders() const {
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& session :
         std::filesystem::directory_iterator(runtime_dir(), error)) {
      for (const auto& job : std::filesystem::directory_iterator(
               session.path() / "jobs", error)) {
        found.push_back(job.path().string());
      }
    }
    return found;
  }

  // Files of packages on the node, each with its inode and time of birth, which
  // another one with the same name has not.
  std::set<std::string> FetchedPackages() const {
    std::set<std::string> found;
    std::error_code error;
    for (const auto& session :
         std::filesystem::directory_iterator(runtime_dir(), error)) {
      // The head's own are what it was sent.
      if (absl::StartsWith(session.path().filename().string(), "head-")) {
        continue;
      }
      for (const auto& file : std::filesystem::directory_iterator(
               session.path() / "packages", error)) {
        struct statx info;
        if (file.is_regular_file() &&
            statx(AT_FDCWD, file.path().c_str(), 0, STATX_INO | STATX_BTIME,
                  &info) == 0) {
          found.insert(absl::StrCat(file.path().filename().string(), " ",
                                    info.stx_ino, " ", info.stx_btime.tv_sec,
                                    ".", info.stx_btime.tv_nsec));
        }
      }
    }
    return found;
  }

  std::string address_;
  pid_t daemon_ = 0;
};

TEST_F(JobsTest, TheCommandShowsTheOutputAndExitsWithTheJobsCode) {
  CommandResult result = Submit("echo out; echo err >&2", {"--job_id=good"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "out\nerr\n");
  EXPECT_THAT(result.err, HasSubstr("job good is submitted"));
  EXPECT_EQ(StateOf("good"), "JOB_STATE_SUCCEEDED");

  result = Submit("echo last words; exit 7", {"--job_id=bad"});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "last words\n");
  EXPECT_THAT(result.err, HasSubstr("job bad failed: exited with code 7"));
  const nlohmann::json job = Job("bad");
  EXPECT_EQ(job["state"], "JOB_STATE_FAILED");
  EXPECT_EQ(job["exit_code"], 7);
  EXPECT_THAT(std::string(job["cause"]), HasSubstr("last words"));

  result = Submit("kill -SEGV $$");
  EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
  EXPECT_THAT(result.err, HasSubstr("killed by signal 11 (SIGSEGV)"));

  // Each has its own folder, and none is left.
  EXPECT_TRUE(Eventually([this] { return JobFolders().empty(); }));
}

TEST_F(JobsTest, WhatCannotRunSaysWhy) {
  const std::string program = runtime_dir() + "/program";
  ASSERT_TRUE(WriteFileAtomically(program,
                                  "\x7f"
                                  "ELF nonsense",
                                  0755)
                  .ok());
  const CommandResult result = Run({"submit", "--", program});
  EXPECT_EQ(result.exit_code, 126);
  EXPECT_THAT(result.err, AllOf(HasSubstr("could not be started"),
                                HasSubstr("Exec format error")));
}

TEST_F(JobsTest, TheWorkingFolderTravels) {
  const std::string folder = runtime_dir() + "/folder";
  ASSERT_TRUE(MakeDirectories(folder + "/data").ok());
  ASSERT_TRUE(MakeDirectories(folder + "/.git").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/data/in", "content\n").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/.git/secret", "x").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/run.sh",
                                  "#!/bin/sh\npwd\ncat data/in\nls -A\n"
                                  "echo \"$0 $1\"\necho mark > data/in\n",
                                  0755)
                  .ok());
  // Found in the folder, where it is not in this one.
  for (int i = 0; i < 2; ++i) {
    const CommandResult result =
        Run({"submit", "--working_dir", folder, "--", "./run.sh", "--flag"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    // The same again: no job sees what another one left.
    EXPECT_THAT(result.out, HasSubstr("\ncontent\ndata\nrun.sh\n"));
    EXPECT_THAT(result.out, HasSubstr("--flag\n"));
    EXPECT_THAT(result.out, Not(HasSubstr(folder)));
  }
  EXPECT_EQ(ReadFile(folder + "/data/in").value(), "content\n");
  EXPECT_TRUE(Eventually([this] { return JobFolders().empty(); }));
}

// An unchanged folder is sent to the head once, and fetched by the node once.
TEST_F(JobsTest, TheWorkingFolderIsCached) {
  const std::string folder = runtime_dir() + "/folder";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/in", "first\n").ok());
  const std::vector<std::string> command = {
      "submit", "--working_dir", folder, "--timeout=20", "--", "cat", "in"};
  CommandResult result = Run(command);
  EXPECT_EQ(result.out, "first\n") << result.err;
  const std::set<std::string> fetched = FetchedPackages();
  // The folder, and the program.
  EXPECT_EQ(fetched.size(), 2);

  // Now nothing can be sent.
  setenv("MINIRAY_FAULTS", "Head/PutPackage:drop_request=1", 1);
  result = Run(command);
  EXPECT_EQ(result.out, "first\n") << result.err;
  ASSERT_TRUE(WriteFileAtomically(folder + "/in", "second\n").ok());
  result = Run(command);
  unsetenv("MINIRAY_FAULTS");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(FetchedPackages(), fetched);

  result = Run(command);
  EXPECT_EQ(result.out, "second\n") << result.err;
  EXPECT_EQ(FetchedPackages().size(), fetched.size() + 1);
}

// Plug-ins in the folder, named on the program's own command line.
TEST_F(JobsTest, PluginsTravelWithTheWorkingFolder) {
  const std::string folder = runtime_dir() + "/folder";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  for (const std::string name :
       {"libguest_plugin.so", "libbroken_plugin.so", "libold_abi_plugin.so"}) {
    std::filesystem::copy_file(RunfilePath("tests/runtime/worker/" + name),
                               folder + "/" + name);
  }
  auto submit = [&](const std::string& job_id,
                    const std::vector<std::string>& plugin) {
    std::vector<std::string> command = {"submit",
                                        "--working_dir",
                                        folder,
                                        "--job_id",
                                        job_id,
                                        "--",
                                        RunfilePath("tests/tools/job_program")};
    command.insert(command.end(), plugin.begin(), plugin.end());
    command.insert(command.end(), {"knows", "miniray::Guest"});
    return Run(command);
  };
  CommandResult result = submit("without", {});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the actor does not know it"));
  result = submit("with", {"--plugin", "libguest_plugin.so"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the actor knows it"));
  result = submit("broken", {"--plugin", "libbroken_plugin.so"});
  EXPECT_EQ(result.exit_code, 2);
  nlohmann::json job = Job("broken");
  EXPECT_EQ(job["state"], "JOB_STATE_FAILED");
  EXPECT_THAT(std::string(job["cause"]),
              AllOf(HasSubstr("plug-in libbroken_plugin.so"),
                    HasSubstr("elsewhere::NobodyHasThis(int)")));
  result = submit("old", {"--plugin", "libold_abi_plugin.so"});
  EXPECT_EQ(result.exit_code, 2);
  job = Job("old");
  EXPECT_EQ(job["state"], "JOB_STATE_FAILED");
  EXPECT_THAT(std::string(job["cause"]),
              AllOf(HasSubstr("plug-in libold_abi_plugin.so"),
                    ContainsRegex("built for .*C\\+\\+ ABI [0-9]+/0"),
                    ContainsRegex("this program is .*/1,")));
  // The node bears all of it.
  EXPECT_EQ(kill(daemon_, 0), 0);
  result = submit("again", {"--plugin", "libguest_plugin.so"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the actor knows it"));
}

TEST_F(JobsTest, ATooLargeFolderIsRefusedBeforeItIsSent) {
  const std::string folder = runtime_dir() + "/folder";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(
      WriteFileAtomically(folder + "/big", std::string(3 << 20, 'x')).ok());
  const CommandResult result =
      Run({"submit", "--working_dir", folder, "--max_folder_bytes=1000000",
           "--", "true"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("big (3.0 MiB)"),
                                HasSubstr("--max_folder_bytes")));
  EXPECT_EQ(Run({"job", "list", "--format=json"}).out, "[]\n");
  EXPECT_EQ(
      Run({"submit", "--working_dir", folder + "/no", "--", "true"}).exit_code,
      1);
}

TEST_F(JobsTest, Environment) {
  const CommandResult result =
      Submit("echo \"$A|$B|$MINIRAY_JOB_ID|$MINIRAY_ADDRESS\"",
             {"--env", "A=1 2", "--env", "B=x=y", "--job_id", "j.1"});
  EXPECT_EQ(result.out, absl::StrCat("1 2|x=y|j.1|", address_, "\n"));
}

TEST_F(JobsTest, IdsAreUnique) {
  EXPECT_EQ(Submit("true", {"--job_id=once"}).exit_code, 0);
  const CommandResult again = Submit("true", {"--job_id=once"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("choose another job id"));
}

TEST_F(JobsTest, WithoutWaitingOnlyTheIdIsPrinted) {
  const CommandResult result =
      Submit("exit 4", {"--no_wait", "--job_id=night"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "night\n");
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_TRUE(EventuallyIn("night", "FAILED"));
  EXPECT_EQ(Job("night")["exit_code"], 4);
}

TEST_F(JobsTest, APendingJobSaysWhyAndCanBeStopped) {
  ASSERT_EQ(Submit("sleep 100", {"--no_wait", "--job_id=a", "--num_cpus=4"})
                .exit_code,
            0);
  ASSERT_TRUE(EventuallyIn("a", "RUNNING"));
  const auto waiting = Start(Shell({"--job_id=b", "--num_cpus=1"}, "echo b"));
  ASSERT_TRUE(Eventually([] {
    return absl::StrContains(Run({"job", "list"}).out, "all of it is in use");
  }));
  EXPECT_EQ(StateOf("b"), "JOB_STATE_PENDING");
  const CommandResult logs = Run({"job", "logs", "b"});
  EXPECT_EQ(logs.exit_code, 1);
  EXPECT_THAT(logs.err, HasSubstr("has not run yet: waits for CPU 1"));
  const CommandResult stopped = Run({"job", "stop", "b"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.out, "Job b stopped.\n");
  EXPECT_THAT(Run({"job", "status", "b"}).out, HasSubstr("Exit code:  -\n"));
  const CommandResult result = waiting->Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("waits for CPU 1"),
                    HasSubstr("job b stopped: stopped by request")));
  EXPECT_THAT(result.out, IsEmpty());
  // Room for the next one once it is free.
  ASSERT_EQ(Run({"job", "stop", "a"}).exit_code, 0);
  EXPECT_EQ(Submit("true", {"--num_cpus=4"}).exit_code, 0);
}

TEST_F(JobsTest, StoppingARunningJob) {
  // A descendant that ignores the signal ends too.
  const auto waiting =
      Start(Shell({"--job_id=j"},
                  "trap 'echo saves; exit 0' TERM; (trap '' TERM; sleep 100) & "
                  "echo started; wait"));
  ASSERT_EQ(waiting->ReadLine(), "started");
  const CommandResult stopped = Run({"job", "stop", "j"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  const CommandResult result = waiting->Wait();
  EXPECT_EQ(result.out, "saves\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("job j stopped"));
  EXPECT_EQ(StateOf("j"), "JOB_STATE_STOPPED");
  EXPECT_EQ(Run({"job", "stop", "j"}).exit_code, 0);  // Again.
  // One that had ended by itself was not stopped.
  EXPECT_EQ(Submit("exit 3", {"--job_id=failed"}).exit_code, 3);
  const CommandResult late = Run({"job", "stop", "failed"});
  EXPECT_EQ(late.exit_code, 0);
  EXPECT_EQ(late.out, "Job failed had already ended: failed.\n");
  const CommandResult unknown = Run({"job", "stop", "k"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("knows no job k"));
}

TEST_F(JobsTest, AJobThatIgnoresTheSignalIsKilled) {
  const auto waiting = Start(
      Shell({"--job_id=j"}, "trap '' TERM; echo started; while :; do :; done"));
  ASSERT_EQ(waiting->ReadLine(), "started");
  EXPECT_EQ(Run({"job", "stop", "j"}).exit_code, 0);
  EXPECT_EQ(waiting->Wait().exit_code, 128 + SIGKILL);
}

TEST_F(JobsTest, CtrlCEndsTheWaitingAlone) {
  const std::string file = runtime_dir() + "/go";
  const auto waiting = Start(
      Shell({"--job_id=j"}, absl::StrCat("echo started; while [ ! -e ", file,
                                         " ]; do sleep 0.05; done")));
  ASSERT_EQ(waiting->ReadLine(), "started");
  waiting->Signal(SIGINT);
  const CommandResult result = waiting->Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat(
                              "miniray job stop j --address ", address_)));
  EXPECT_EQ(StateOf("j"), "JOB_STATE_RUNNING");
  ASSERT_TRUE(WriteFileAtomically(file, "").ok());
  EXPECT_TRUE(EventuallyIn("j", "SUCCEEDED"));
}

TEST_F(JobsTest, TheTimeLimitEndsTheWaitingAlone) {
  const CommandResult result =
      Submit("sleep 100", {"--job_id=j", "--timeout=0.5"});
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(result.err, HasSubstr("job j goes on"));
  EXPECT_EQ(Run({"job", "stop", "j"}).exit_code, 0);
}

TEST_F(JobsTest, AJobWhoseSubmitterVanishedEndsAllTheSame) {
  const std::string file = runtime_dir() + "/go";
  auto waiting = Start(
      Shell({"--job_id=j"}, absl::StrCat("echo started; while [ ! -e ", file,
                                         " ]; do sleep 0.05; done; exit 5")));
  ASSERT_EQ(waiting->ReadLine(), "started");
  waiting->Signal(SIGKILL);
  waiting.reset();
  ASSERT_TRUE(WriteFileAtomically(file, "").ok());
  EXPECT_TRUE(EventuallyIn("j", "FAILED"));
  EXPECT_EQ(Job("j")["exit_code"], 5);
  EXPECT_EQ(Run({"job", "logs", "j"}).out, "started\n");
}

TEST_F(JobsTest, APendingJobWhoseSubmitterVanishedEndsAllTheSame) {
  const std::string file = runtime_dir() + "/go";
  ASSERT_EQ(
      Submit(absl::StrCat("while [ ! -e ", file, " ]; do sleep 0.05; done"),
             {"--no_wait", "--job_id=first", "--num_cpus=4"})
          .exit_code,
      0);
  ASSERT_TRUE(EventuallyIn("first", "RUNNING"));
  for (const char* job : {"runs", "stopped"}) {
    auto waiting = Start(Shell({absl::StrCat("--job_id=", job), "--num_cpus=1"},
                               "echo \"$MINIRAY_JOB_ID\"; exit 5"));
    ASSERT_TRUE(Eventually([job] {
      return absl::StrContains(Run({"job", "list"}).out, job);
    }));
    waiting->Signal(SIGKILL);
    waiting.reset();
    EXPECT_EQ(StateOf(job), "JOB_STATE_PENDING");
  }
  ASSERT_EQ(Run({"job", "stop", "stopped"}).exit_code, 0);
  EXPECT_EQ(StateOf("stopped"), "JOB_STATE_STOPPED");
  ASSERT_TRUE(WriteFileAtomically(file, "").ok());
  EXPECT_TRUE(EventuallyIn("runs", "FAILED"));
  EXPECT_EQ(Job("runs")["exit_code"], 5);
  EXPECT_EQ(Run({"job", "logs", "runs"}).out, "runs\n");
  EXPECT_EQ(StateOf("stopped"), "JOB_STATE_STOPPED");
}

TEST_F(JobsTest, ALostNodeFailsItsJob) {
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

TEST_F(JobsTest, AHeadThatIsKilledAndStartedAgainLosesNoJob) {
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

TEST_F(JobsTest, WhoFollowsALogGoesOnAfterARestartOfTheHead) {
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

TEST_F(JobsTest, AHeadThatIsAwayIsWaitedForOnce) {
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

TEST_F(JobsTest, AHeadThatIsStoppedIsNotWaitedFor) {
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

TEST_F(JobsTest, WhoWaitsForAJobHearsThatTheClusterWasStopped) {
  const auto waiting = Start(Shell({"--job_id=j"}, "echo started; sleep 100"));
  ASSERT_EQ(waiting->ReadLine(), "started");
  ASSERT_EQ(Run({"stop"}).exit_code, 0);
  const CommandResult result = waiting->Wait();
  // Which of the two it hears of first.
  EXPECT_THAT(result.exit_code, AnyOf(1, 128 + SIGTERM)) << result.err;
  EXPECT_THAT(result.err, AnyOf(HasSubstr("job j ends with its cluster"),
                                HasSubstr("node was stopped")));
}

TEST_F(JobsTest, OutputThatTheDiskDoesNotTakeIsMissed) {
  // What the node needs for it is there.
  ASSERT_EQ(Submit("true").exit_code, 0);
  rlimit before = {};
  ASSERT_EQ(prlimit(daemon_, RLIMIT_FSIZE, nullptr, &before), 0);
  const rlimit small = {20000, before.rlim_max};
  ASSERT_EQ(prlimit(daemon_, RLIMIT_FSIZE, &small, nullptr), 0);
  const std::string much =
      "i=0; while [ $i -lt 3000 ]; do echo 0123456789; i=$((i+1)); done";
  const CommandResult result = Submit(much, {"--job_id=j"});
  ASSERT_EQ(prlimit(daemon_, RLIMIT_FSIZE, &before, nullptr), 0);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.size(), 20000);
  // Of 3,000 lines of 11 bytes.
  const auto lost = AllOf(HasSubstr("output lost: File too large in "),
                          HasSubstr("/logs/jobs, 13000 bytes"));
  EXPECT_THAT(result.err, lost);
  EXPECT_THAT(result.err, HasSubstr("job j succeeded, but output lost: "));
  EXPECT_THAT(Run({"job", "status", "j"}).out, lost);
  const CommandResult logs = Run({"job", "logs", "j"});
  EXPECT_EQ(logs.exit_code, 0) << logs.err;
  EXPECT_EQ(logs.out, result.out);
  EXPECT_THAT(logs.err, AllOf(HasSubstr("[miniray: "), lost));
  EXPECT_THAT(Run({"logs", "j", "--tail=1"}).err, lost);
}

TEST_F(JobsTest, StatusOfARunningJobTellsWhatOfItsOutputIsLost) {
  ASSERT_EQ(Submit("true").exit_code, 0);
  rlimit before = {};
  ASSERT_EQ(prlimit(daemon_, RLIMIT_FSIZE, nullptr, &before), 0);
  const rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(prlimit(daemon_, RLIMIT_FSIZE, &small, nullptr), 0);
  ASSERT_EQ(Submit("i=0; while [ $i -lt 300 ]; do echo 0123456789; i=$((i+1)); "
                   "done; sleep 1000",
                   {"--no_wait", "--job_id=j"})
                .exit_code,
            0);
  // Of 300 lines of 11 bytes.
  const auto lost = AllOf(HasSubstr("output lost: File too large in "),
                          HasSubstr("2300 bytes"));
  EXPECT_TRUE(Eventually([&] {
    return testing::Matches(lost)(Run({"job", "status", "j"}).out);
  }));
  ASSERT_EQ(prlimit(daemon_, RLIMIT_FSIZE, &before, nullptr), 0);
  EXPECT_EQ(StateOf("j"), "JOB_STATE_RUNNING");
  EXPECT_THAT(Job("j").value("cause", ""), lost);
  EXPECT_EQ(Run({"job", "stop", "j"}).exit_code, 0);
}

TEST_F(JobsTest, AStoppedNodeFailsItsJob) {
  const auto waiting = Start(Shell({"--job_id=j"}, "echo started; sleep 100"));
  ASSERT_EQ(waiting->ReadLine(), "started");
  ASSERT_EQ(kill(daemon_, SIGTERM), 0);
  EXPECT_TRUE(EventuallyIn("j", "FAILED"));
  EXPECT_THAT(waiting->Wait().err, HasSubstr("node was stopped"));
}

TEST_F(JobsTest, LogsFollowUntilTheEnd) {
  const std::string file = runtime_dir() + "/go";
  ASSERT_EQ(
      Submit(absl::StrCat("for i in 1 2 3; do echo $i; done; while [ ! -e ",
                          file, " ]; do sleep 0.05; done; printf end"),
             {"--no_wait", "--job_id=j"})
          .exit_code,
      0);
  ASSERT_TRUE(EventuallyIn("j", "RUNNING"));
  const auto follower = Start({"job", "logs", "j", "--follow"});
  EXPECT_EQ(follower->ReadLine(), "1");
  EXPECT_EQ(follower->ReadLine(), "2");
  EXPECT_EQ(follower->ReadLine(), "3");
  EXPECT_EQ(Run({"logs", "j", "--tail=2"}).out, "2\n3\n");
  EXPECT_EQ(Run({"logs", "j", "--follow", "--timeout=0.3"}).exit_code, 124);
  ASSERT_TRUE(WriteFileAtomically(file, "").ok());
  const CommandResult rest = follower->Wait();
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(rest.out, "end");
  EXPECT_EQ(Run({"job", "logs", "j"}).out, "1\n2\n3\nend");
}

TEST_F(JobsTest, LogsOfAPendingJobAreWaitedFor) {
  const std::string file = runtime_dir() + "/go";
  ASSERT_EQ(
      Submit(absl::StrCat("while [ ! -e ", file, " ]; do sleep 0.05; done"),
             {"--no_wait", "--job_id=a", "--num_cpus=4"})
          .exit_code,
      0);
  ASSERT_TRUE(EventuallyIn("a", "RUNNING"));
  for (const char* job : {"b", "c"}) {
    ASSERT_EQ(Submit("echo here", {"--no_wait", absl::StrCat("--job_id=", job),
                                   "--num_cpus=4"})
                  .exit_code,
              0);
  }
  EXPECT_EQ(Run({"job", "logs", "b", "--follow", "--timeout=0.5"}).exit_code,
            124);
  const auto follower = Start({"job", "logs", "b", "--follow"});
  const auto disappointed = Start({"job", "logs", "c", "--follow"});
  ASSERT_EQ(Run({"job", "stop", "c"}).exit_code, 0);
  const CommandResult stopped = disappointed->Wait();
  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_THAT(stopped.err, HasSubstr("has never run: stopped by request"));
  ASSERT_TRUE(WriteFileAtomically(file, "").ok());
  const CommandResult followed = follower->Wait();
  EXPECT_EQ(followed.exit_code, 0) << followed.err;
  EXPECT_EQ(followed.out, "here\n");
}

TEST_F(JobsTest, MuchOutputArrivesWhole) {
  const CommandResult result = Submit(
      "i=0; while [ $i -lt 60000 ]; do echo "
      "\"$i 0123456789012345678901234567890123456789\"; "
      "i=$((i+1)); done",
      {"--job_id=j"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> lines = absl::StrSplit(result.out, '\n');
  ASSERT_EQ(lines.size(), 60001);
  for (size_t i = 0; i < 60000; ++i) {
    ASSERT_TRUE(absl::StartsWith(lines[i], absl::StrCat(i, " 0"))) << lines[i];
  }
}

TEST_F(JobsTest, TheOldestComesFirst) {
  for (const char* job : {"z", "m", "a"}) {
    ASSERT_EQ(Submit("true", {absl::StrCat("--job_id=", job)}).exit_code, 0);
  }
  const nlohmann::json jobs = nlohmann::json::parse(
      Run({"job", "list", "--format=json"}).out, nullptr, false);
  ASSERT_EQ(jobs.size(), 3);
  EXPECT_EQ(jobs[0]["job_id"], "z");
  EXPECT_EQ(jobs[1]["job_id"], "m");
  EXPECT_EQ(jobs[2]["job_id"], "a");
  const std::string status = Run({"status"}).out;
  EXPECT_LT(status.find("\n  z "), status.find("\n  m "));
  EXPECT_LT(status.find("\n  m "), status.find("\n  a "));
  EXPECT_NE(status.find("\n  a "), std::string::npos);
}

TEST_F(JobsTest, StatusForPeople) {
  ASSERT_EQ(Submit("exit 3", {"--job_id=j", "--num_cpus=0.5"}).exit_code, 3);
  const CommandResult status = Run({"job", "status", "j"});
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_THAT(
      status.out,
      AllOf(HasSubstr("Job:        j\n"), HasSubstr("State:      failed"),
            HasSubstr("Exit code:  3\n"),
            HasSubstr("Command:    sh -c exit 3\n"),
            HasSubstr("Resources:  CPU 0.5\n"), HasSubstr("Submitter:  ")));
  EXPECT_EQ(Run({"job", "status", "k"}).exit_code, 1);
  EXPECT_THAT(Run({"job", "list", "--filter", "state=failed"}).out,
              HasSubstr("j "));
}

class TokenTest : public CommandTest {};

TEST_F(TokenTest, NeverOnACommandLine) {
  const std::string token = "secret-of-this-test";
  setenv("MINIRAY_TOKEN", token.c_str(), 1);
  const std::string address = StartHead();
  StartDaemon(address, {"--num_cpus=1"});
  const CommandResult result =
      Run({"submit", "--address", address, "--", "sh", "-c",
           "echo \"$MINIRAY_TOKEN\"; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // Once: from the environment.
  EXPECT_EQ(result.out.find(token), 0);
  EXPECT_EQ(result.out.find(token, 1), std::string::npos);
}

}  // namespace
}  // namespace miniray
