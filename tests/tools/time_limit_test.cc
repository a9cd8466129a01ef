// Every command has a time limit: a head that stands still, or a port where
// nobody speaks, holds nobody up for longer, and the error says what to do.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/process_records.h"
#include "tests/runtime/base/loopback_port.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kTimeLimit = 124;
constexpr absl::Duration kLimit = absl::Seconds(1);
// Beyond the limit: to start the command, to end what it started in vain.
constexpr absl::Duration kSlack = absl::Seconds(4);

// All that asks a head.
const std::vector<std::vector<std::string>>& Questions() {
  static const auto* const questions =
      new std::vector<std::vector<std::string>>{
          {"status"},
          {"list", "nodes"},
          {"list", "actors"},
          {"list", "jobs"},
          {"list", "placement-groups"},
          {"list", "packages"},
          {"job", "list"},
          {"job", "status", "j"},
          {"job", "logs", "j"},
          {"job", "logs", "j", "--follow"},
          {"job", "stop", "j"},
          {"logs", "x"},
          {"logs", "x", "--follow"},
          {"timeline"},
          {"timeline", "--run", "r"},
          {"status", "--watch"},
          {"list", "runs"},
          {"run", "list"},
          {"run", "status", "r"},
          {"run", "stop", "r"},
          {"run", "stop", "r", "--wait"},
          {"top"},
          {"submit"},
      };
  return *questions;
}

class TimeLimitTest : public CommandTest {
 protected:
  static void EveryQuestionEndsInTime(const std::string& address) {
    for (std::vector<std::string> args : Questions()) {
      const std::string what = absl::StrJoin(args, " ");
      args.push_back("--address=" + address);
      args.push_back("--timeout=1");
      if (what == "submit") args.insert(args.end(), {"--", "true"});
      const absl::Time begin = absl::Now();
      const CommandResult result = Run(args);
      EXPECT_LT(absl::Now() - begin, kLimit + kSlack) << what;
      EXPECT_EQ(result.exit_code, kTimeLimit) << what << ": " << result.err;
      EXPECT_THAT(result.out, IsEmpty()) << what;
      EXPECT_THAT(result.err,
                  AllOf(HasSubstr(absl::StrCat("the head at ", address,
                                               " does not answer")),
                        HasSubstr("check the address")))
          << what;
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
          << what << ": " << result.err;
    }
  }
};

TEST_F(TimeLimitTest, QuestionsToAHeadThatStandsStill) {
  const std::string address = StartHead();
  const pid_t head = HeadPid();
  ASSERT_TRUE(StopProcess(head));
  EveryQuestionEndsInTime(address);
  // It was asked nothing that it does once it goes on.
  ASSERT_EQ(kill(head, SIGCONT), 0);
  EXPECT_EQ(Run({"status"}).exit_code, 0);
}

TEST_F(TimeLimitTest, QuestionsToAPortWhereNobodySpeaks) {
  const LoopbackPort port;  // Takes connections, and says nothing.
  EveryQuestionEndsInTime(port.address());
}

TEST_F(TimeLimitTest, AStartThatFindsNoHeadLeavesNothing) {
  const LoopbackPort port;  // Takes connections, and says nothing.
  const std::string address = StartHead();
  const pid_t head = HeadPid();
  ASSERT_TRUE(StopProcess(head));
  for (const std::string& where : {port.address(), address}) {
    const absl::Time begin = absl::Now();
    const CommandResult result =
        Run({"start", "--address", where, "--timeout=1"});
    EXPECT_LT(absl::Now() - begin, kLimit + kSlack);
    EXPECT_EQ(result.exit_code, kTimeLimit) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("the worker daemon was not ready within 1s"),
                      HasSubstr("miniray status --address " + where)));
    EXPECT_EQ(ProcessesOf(runtime_dir()), std::vector<pid_t>{head});
  }
  // Without a limit of the whole, dialling has its own.
  const CommandResult dialled =
      Run({"start", "--address", address, "--connect_timeout=500ms"});
  EXPECT_EQ(dialled.exit_code, 1);
  EXPECT_THAT(dialled.err, HasSubstr("within 500ms"));
  ASSERT_EQ(kill(head, SIGCONT), 0);
}

TEST_F(TimeLimitTest, AStopThatIsNotHeardIsToldAndThenForced) {
  const std::string address = StartHead();
  const pid_t daemon = StartDaemon(address, {"--num_cpus=1"});
  const pid_t head = HeadPid();
  ASSERT_TRUE(StopProcess(daemon));
  const absl::Time begin = absl::Now();
  const CommandResult result = Run({"stop", "--timeout=1"});
  EXPECT_LT(absl::Now() - begin, kLimit + kSlack);
  EXPECT_EQ(result.exit_code, kTimeLimit) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("not all has stopped within 1s"),
                                HasSubstr(absl::StrCat("(pid ", daemon, ")")),
                                HasSubstr(absl::StrCat("(pid ", head, ")")),
                                HasSubstr("miniray stop --force")));
  // Nothing was killed.
  EXPECT_TRUE(ProcessStartTicks(daemon).ok());
  EXPECT_TRUE(ProcessStartTicks(head).ok());
  EXPECT_EQ(Run({"stop", "--force"}).exit_code, 0);
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
}

TEST_F(TimeLimitTest, TheGraceOfAStopIsAFlag) {
  StartHead();
  ASSERT_TRUE(StopProcess(HeadPid()));
  const absl::Time begin = absl::Now();
  const CommandResult result = Run({"stop", "--grace=300ms"});
  EXPECT_LT(absl::Now() - begin, absl::Milliseconds(300) + kSlack);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("which did not stop"));
}

// A program and its children that ignore SIGTERM.
class StubbornTest : public TimeLimitTest {
 protected:
  // A submitted one, on a daemon with this grace.
  static void StartStubborn(const std::string& grace) {
    const std::string address = StartHead();
    StartDaemon(address, {"--num_cpus=1", "--stop_grace=" + grace,
                          "--job_stop_grace=" + grace});
    ASSERT_EQ(Run({"submit", "--no_wait", "--job_id=j", "--", "sh", "-c",
                   "trap '' TERM; echo ready; while true; do sleep 0.1; done"})
                  .exit_code,
              0);
    ASSERT_TRUE(Eventually([] {
      return Run({"job", "logs", "j"}).out == "ready\n";
    }));
  }
};

TEST_F(StubbornTest, IsKilledAfterTheGraceOfItsNode) {
  ASSERT_NO_FATAL_FAILURE(StartStubborn("300ms"));
  const CommandResult result = Run({"stop"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Stopped the worker daemon"));
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
}

TEST_F(StubbornTest, HoldsAStopUpUntilItIsForced) {
  ASSERT_NO_FATAL_FAILURE(StartStubborn("1h"));
  // The job's own stop first: its grace is the node's too.
  const CommandResult job = Run({"job", "stop", "j", "--timeout=1"});
  EXPECT_EQ(job.exit_code, kTimeLimit) << job.err;
  EXPECT_THAT(job.err, HasSubstr("job j is told to stop, but has not ended"));
  EXPECT_EQ(Run({"stop", "--timeout=1"}).exit_code, kTimeLimit);
  EXPECT_EQ(Run({"stop", "--force"}).exit_code, 0);
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
}

TEST_F(StubbornTest, IsKilledWithItsDaemonAfterTheGraceOfTheStop) {
  ASSERT_NO_FATAL_FAILURE(StartStubborn("1h"));
  const CommandResult result = Run({"stop", "--grace=500ms"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Killed the worker daemon"));
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
}

}  // namespace
}  // namespace miniray
