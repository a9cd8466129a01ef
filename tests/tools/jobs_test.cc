// `miniray submit` and `miniray job`, with real processes: states, output, and
// what people read.

#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "tests/tools/jobs_testutil.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// Where this process has a shared library from; empty: it has none of that
// name.
std::string PathOfLibrary(const std::string& name) {
  const std::string maps = ReadFile("/proc/self/maps").value_or("");
  const size_t at = maps.find("/" + name);
  if (at == std::string::npos) return "";
  const size_t begin = maps.rfind(' ', at) + 1;
  return maps.substr(begin, maps.find('\n', at) - begin);
}

// It needs a library by a name that is found here, and not on the node.
TEST_F(JobsTest, ALibraryThatTheNodeLacksIsNamed) {
  const std::string library = PathOfLibrary("libstdc++.so.6");
  ASSERT_NE(library, "");
  const auto built = ReadFile(RunfilePath("tests/tools/job_program"));
  ASSERT_TRUE(built.ok()) << built.status();
  const std::string renamed =
      absl::StrReplaceAll(*built, {{"libstdc++.so.6", "libstdc--.so.6"}});
  ASSERT_NE(renamed, *built);
  const std::string program = runtime_dir() + "/program";
  ASSERT_TRUE(WriteFileAtomically(program, renamed, 0755).ok());
  const std::string folder = runtime_dir() + "/libraries";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  std::filesystem::create_symlink(library, folder + "/libstdc--.so.6");

  CommandResult result =
      Run({"submit", "--job_id=j", "--", program, "nothing"});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("job j failed"),
            HasSubstr("libstdc--.so.6: cannot open shared object file")));

  // The actor of a driver that has it.
  setenv("LD_LIBRARY_PATH", folder.c_str(), 1);
  Program driver(program, {"say", "hello"});
  unsetenv("LD_LIBRARY_PATH");
  result = driver.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("UNAVAILABLE: "), HasSubstr("Talker"),
            HasSubstr("exited with code 127"),
            HasSubstr("libstdc--.so.6: cannot open shared object file")));
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
