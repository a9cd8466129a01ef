// Command lines of `miniray` that are wrong, and help.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/process_records.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct Mistake {
  std::vector<std::string> args;
  std::string message;
  int exit_code = 2;
};

class MistakeTest : public CommandTest,
                    public ::testing::WithParamInterface<Mistake> {};

TEST_P(MistakeTest, IsOneClearLineAndLeavesNothing) {
  const Mistake& mistake = GetParam();
  const CommandResult result = Run(mistake.args);
  EXPECT_EQ(result.exit_code, mistake.exit_code);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, StartsWith("miniray: "));
  EXPECT_THAT(result.err, HasSubstr(mistake.message));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
      << result.err;
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
  EXPECT_THAT(ListProcessRecords().value(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Usage, MistakeTest,
    ::testing::ValuesIn(std::vector<Mistake>{
        {{},
         "start, status, submit, job, list, logs, run, top, timeline, stop"},
        {{"begin"}, "unknown command 'begin'"},
        {{"--head"}, "unknown command '--head'"},
        {{"start"}, "--head"},
        {{"start", "head"}, "unexpected argument 'head'"},
        {{"start", "--head", "--", "x"}, "unexpected argument '--'"},
        {{"start", "--head", "--hosts=1"}, "unknown flag '--hosts'"},
        {{"start", "--head", "--force"}, "unknown flag '--force'"},
        {{"start", "--head", "--flagfile=/dev/null"}, "'--flagfile'"},
        {{"start", "--head", "--nohost"}, "unknown flag '--nohost'"},
        {{"start", "--head", "--port"}, "--port needs a value"},
        {{"start", "--port", "--head"}, "--port needs a value"},
        {{"start", "--head", "--lease=10"}, "a time, e.g. 10s"},
        {{"start", "--head", "--state_dir="}, "--state_dir"},
        {{"start", "--head", "--port=x"}, "--port=x: expected a whole number"},
        {{"start", "--head", "--port=-1"}, "[0, 65535]"},
        {{"start", "--head", "--port=65536"}, "[0, 65535]"},
        {{"start", "--head", "--dashboard-port=-2"}, "[-1, 65535]"},
        {{"start", "--head=maybe"}, "--head=maybe: expected true or false"},
        {{"start", "--head", "--num_cpus", "-1"}, "--num_cpus=-1"},
        {{"start", "--head", "--num_cpus=many"}, "expected a number"},
        {{"start", "--head", "--num_cpus=nan"}, "--num_cpus=nan"},
        {{"start", "--head", "--host=somewhere"}, "is not an IP address"},
        {{"start", "--head", "--address=1.2.3.4:5"}, "not both"},
        {{"start", "--head", "--num_gpus=1"}, "add --num_cpus"},
        {{"start", "--head", "--inject_faults=Head/*:reset=0.2"},
         "add --num_cpus"},
        {{"start", "--head", "--ready_fd=3"}, "goes with --block"},
        {{"start", "--head", "--block", "--ready_fd=77"}, "--ready_fd=77"},
        {{"start", "--head", "--num_cpus=1", "--inject_faults=Head/*:reset=2"},
         "--inject_faults: at character 14 of"},
        {{"start", "--address=here"}, "HOST:PORT"},
        {{"start", "--address="}, "HOST:PORT"},
        {{"start", "--address=1.2.3.4:5", "--port=6"}, "goes with --head"},
        {{"start", "--address=1.2.3.4:5", "--num_gpus=-1"}, "--num_gpus=-1"},
        {{"start", "--address=1.2.3.4:5", "--resources=a"}, "'a'"},
        {{"start", "--address=1.2.3.4:5", "--node_ip=me"}, "--node_ip=me"},
        {{"start", "--address=1.2.3.4:5", "--node_ip=198.51.100.1"},
         "--node_ip=198.51.100.1 is not an IP address of this machine"},
        {{"start", "--address=1.2.3.4:5", "--node_ip=0.0.0.0"},
         "--node_ip=0.0.0.0 is not an IP address of this machine"},
        {{"start", "--head", "--lease=50ms"}, "between 100ms and a year"},
        {{"start", "--head", "--lease=-1s"}, "--lease=-1s"},
        {{"start", "--head", "--driver_grace=-1s"}, "--driver_grace=-1s"},
        {{"start", "--head", "--infeasible_timeout=9000h"},
         "--infeasible_timeout=9000h"},
        {{"start", "--head", "--group_patience=-1s"}, "--group_patience=-1s"},
        {{"start", "--head", "--group_hold=0"},
         "--group_hold=0: must be between 100ms and a year"},
        {{"start", "--head", "--silence_timeout=1s"},
         "--silence_timeout=1s: must be between 2s and 24h"},
        {{"start", "--address=1.2.3.4:5", "--silence_timeout=25h"},
         "--silence_timeout=25h: must be between 2s and 24h"},
        {{"start", "--address=1.2.3.4:5", "--group_patience=1s"},
         "goes with --head"},
        {{"start", "--head", "--max_restart_delay=soon"}, "a time, e.g. 10s"},
        {{"start", "--head", "--long_life=-1m"}, "--long_life=-1m"},
        {{"start", "--head", "--max_waiting=0"},
         "--max_waiting must be 1 or more"},
        {{"start", "--head", "--reconnect_timeout=0"},
         "--reconnect_timeout=0: must be between 100ms and a year"},
        {{"start", "--head", "--session_life=1ms"}, "--session_life=1ms"},
        {{"start", "--head", "--session_life=30s"},
         "must not be less than --reconnect_timeout (1m)"},
        {{"start", "--head", "--reconnect_timeout=10m"},
         "--session_life=5m: must not be less"},
        {{"start", "--head", "--max_reconnect_pause=2s"},
         "--max_reconnect_pause=2s: must be between 10ms and 1s"},
        {{"start", "--head", "--max_reconnect_pause=1ms"}, "10ms and 1s"},
        {{"start", "--head", "--stop_grace=1s"}, "add --num_cpus"},
        {{"start", "--head", "--timeout=0"}, "--timeout=0: expected seconds"},
        {{"start", "--head", "--block", "--timeout=5"}, "without --block"},
        {{"start", "--address=1.2.3.4:5", "--session_life=10m"},
         "goes with --head"},
        {{"start", "--address=1.2.3.4:5", "--fence_after=0"},
         "--fence_after=0"},
        {{"start", "--address=1.2.3.4:5", "--headless_timeout=-1s"},
         "--headless_timeout=-1s"},
        {{"start", "--address=1.2.3.4:5", "--connect_timeout=0"},
         "--connect_timeout=0"},
        {{"start", "--address=1.2.3.4:5", "--answer_timeout=1ms"},
         "--answer_timeout=1ms"},
        {{"start", "--address=1.2.3.4:5", "--fetch_timeout=10ms"},
         "--fetch_timeout=10ms"},
        {{"start", "--address=1.2.3.4:5", "--stop_grace=-1s"},
         "--stop_grace=-1s"},
        {{"start", "--address=1.2.3.4:5", "--stop_grace=1"},
         "a time, e.g. 10s"},
        {{"start", "--address=1.2.3.4:5", "--job_stop_grace=inf"},
         "--job_stop_grace=inf"},
        {{"start", "--address=1.2.3.4:5", "--drain_timeout=-1s"},
         "--drain_timeout=-1s"},
        {{"start", "--address=1.2.3.4:5", "--memory_period=1ms"},
         "--memory_period=1ms"},
        {{"start", "--address=1.2.3.4:5", "--memory_limit=1.5"},
         "--memory_limit=1.5"},
        {{"stop", "--grace=-1s"}, "--grace=-1s: must not be negative"},
        {{"stop", "--grace=1s", "--force"}, "it leaves no --grace"},
        {{"stop", "--timeout=-1"}, "--timeout=-1: expected seconds"},
        {{"make-certs", "--timeout=1"}, "unknown flag '--timeout'"},
        {{"status", "--address=here"}, "HOST:PORT"},
        {{"status", "--format=xml"}, "table or json"},
        {{"status", "--days=1"}, "unknown flag '--days'"},
        {{"make-certs"}, "--tls_dir DIR"},
        {{"make-certs", "--tls_dir=/dev/null", "--days=0"}, "[1, 36500]"},
        {{"stop", "--all"}, "unknown flag '--all'"},
        {{"stop", "--address=here"}, "HOST:PORT"},
        {{"status", "--timeout=0"}, "--timeout=0: expected seconds"},
        {{"status", "--timeout=soon"}, "expected a number"},
        {{"submit"}, "say what to run, behind --"},
        {{"submit", "--"}, "say what to run, behind --"},
        {{"submit", "./x"}, "unexpected argument './x'"},
        {{"submit", "--env=A", "--", "x"}, "--env=A: expected NAME=VALUE"},
        {{"submit", "--env", "--", "x"}, "--env needs a value"},
        {{"submit", "--job_id=a/b", "--", "x"}, "cannot name a job"},
        {{"submit", "--num_cpus=-1", "--", "x"}, "--num_cpus=-1"},
        {{"submit", "--no_wait", "--timeout=5", "--", "x"}, "goes with --wait"},
        {{"submit", "--max_folder_bytes=5", "--", "x"}, "--working_dir"},
        {{"submit", "--address=here", "--", "x"}, "HOST:PORT"},
        {{"job"}, "job list, job status, job logs or job stop"},
        {{"job", "begin"}, "unknown command 'job begin'"},
        {{"job", "status"}, "say which job: miniray job status JOB"},
        {{"job", "list", "x"}, "unexpected argument 'x'"},
        {{"job", "stop", "x", "y"}, "unexpected argument 'y'"},
        {{"job", "stop", "x", "--follow"},
         "--follow does not go with job stop"},
        {{"job", "logs", "x", "--tail=-1"}, "--tail=-1"},
        {{"job", "logs", "x", "--head_patience=-1"}, "--head_patience=-1"},
        {{"job", "stop", "x", "--head_patience=1"},
         "does not go with job stop"},
        {{"submit", "--head_patience=nan", "--", "x"}, "--head_patience=nan"},
        {{"job", "list", "--filter=x"}, "FIELD=VALUE"},
        {{"list"}, "say what to list"},
        {{"list", "things"}, "unknown list 'things'"},
        {{"list", "nodes", "--format=xml"}, "table or json"},
        {{"list", "nodes", "--filter", "=x"}, "FIELD=VALUE"},
        {{"logs"}, "say whose"},
        {{"logs", "x", "--tail=many"}, "expected a whole number"},
        {{"list", "runs", "--filter=state=asleep"}, "one of running, finished"},
        {{"list", "runs", "--filter=colour=red"}, "cannot name 'colour'"},
        {{"run"}, "run list, run status or run stop"},
        {{"run", "begin"}, "unknown command 'run begin'"},
        {{"run", "status"}, "say which run: miniray run status RUN"},
        {{"run", "list", "x"}, "unexpected argument 'x'"},
        {{"run", "list", "--wait"}, "--wait does not go with run list"},
        {{"run", "stop", "x", "--format=json"},
         "--format does not go with run stop"},
        {{"run", "stop", "x", "--filter=state=lost"},
         "--filter does not go with run stop"},
        {{"run", "status", "x", "--format=xml"}, "table or json"},
        {{"status", "--interval=2"}, "--interval goes with --watch"},
        {{"status", "--watch", "--interval=0"}, "--interval=0: expected"},
        {{"status", "--watch", "--interval=nan"}, "--interval=nan: expected"},
        {{"top", "x"}, "unexpected argument 'x'"},
        {{"top", "--interval=1e9"}, "from 0.1 to 3600"},
        {{"top", "--sort=age"}, "--sort=age: expected cpu, memory or name"},
        {{"timeline", "x"}, "unexpected argument 'x'"},
        {{"timeline", "--format=xml"}, "table or json"},
        {{"help", "begin"}, "unknown command 'begin'"},
    }));

INSTANTIATE_TEST_SUITE_P(
    Failure, MistakeTest,
    ::testing::ValuesIn(std::vector<Mistake>{
        {{"status"}, "miniray start --head", 1},
        {{"status", "--address=127.0.0.1:1"},
         "no head answers at 127.0.0.1:1 (Connection refused)",
         1},
        {{"start", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"submit", "--address=127.0.0.1:1", "--", "/no/such"},
         "'/no/such' is not a program",
         1},
        {{"submit", "--address=127.0.0.1:1", "--", "no-such-program"},
         "one in this folder is ./no-such-program",
         1},
        {{"submit", "--address=127.0.0.1:1", "--head_patience=0", "--", "true"},
         "no head answers at 127.0.0.1:1",
         1},
        {{"job", "list", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"job", "status", "x", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"job", "stop", "x", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"list", "nodes", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"logs", "x", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"timeline", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"timeline", "--run=r", "--address=127.0.0.1:1"},
         "no head answers",
         1},
        {{"run", "list", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"run", "status", "x", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"run", "stop", "x", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"list", "runs", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"status", "--watch", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"top", "--address=127.0.0.1:1"}, "no head answers", 1},
        {{"start", "--head", "--host=198.51.100.1", "--port=0",
          "--dashboard_port=-1"},
         "cannot listen on 198.51.100.1",
         1},
        {{"start", "--head", "--host=198.51.100.1", "--port=6380",
          "--dashboard_port=-1"},
         "198.51.100.1 is not an IP address of this machine; give one that is "
         "with --host",
         1},
        {{"stop", "--address=127.0.0.1:1"},
         "no worker daemon of it is known on this machine; nor is any other",
         1},
        {{"start", "--head", "--port=0", "--token_file=/no/such"},
         "/no/such: No such file",
         1},
        {{"start", "--head", "--port=0", "--token_file=/dev/null"},
         "--token_file=/dev/null is empty",
         1},
        {{"make-certs", "--tls_dir=/dev/null/x"}, "/dev/null", 1},
        {{"start", "--head", "--port=0", "--tls_dir=/no/such"},
         "/no/such/ca.crt: No such file",
         1},
        {{"status", "--address=127.0.0.1:1", "--tls_dir=/no/such"},
         "miniray make-certs",
         1},
    }));

class HelpTest : public CommandTest {};

TEST_F(HelpTest, EveryVerbHasHelpWithExamples) {
  for (const std::string verb :
       {"start", "status", "submit", "job", "list", "logs", "run", "top",
        "timeline", "stop", "make-certs"}) {
    const CommandResult help = Run({verb, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr("Examples:\n  miniray " + verb));
    EXPECT_THAT(help.err, IsEmpty());
    EXPECT_EQ(Run({"help", verb}).out, help.out);
    EXPECT_EQ(Run({verb, "--no-such-flag", "-h"}).out, help.out);
  }
}

TEST_F(HelpTest, EachPartOfJobHasItsOwnWithExamples) {
  for (const std::string part : {"list", "status", "logs", "stop"}) {
    const CommandResult help = Run({"job", part, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr("\n  miniray job " + part));
    EXPECT_THAT(help.out, HasSubstr("Examples:\n  miniray job " + part));
    EXPECT_THAT(help.out, HasSubstr("--timeout SECONDS"));
    EXPECT_THAT(help.out, HasSubstr("Exit codes: 0 done"));
    EXPECT_THAT(help.err, IsEmpty());
    EXPECT_EQ(Run({"help", "job", part}).out, help.out);
    EXPECT_EQ(Run({"job", part, "j", "--no-such-flag", "-h"}).out, help.out);
  }
  const std::string all = Run({"job", "--help"}).out;
  EXPECT_THAT(all, HasSubstr("miniray job list [--filter"));
  EXPECT_EQ(Run({"job", "begin", "--help"}).out, all);
}

TEST_F(HelpTest, EachPartOfRunHasItsOwnWithExamples) {
  for (const std::string part : {"list", "status", "stop"}) {
    const CommandResult help = Run({"run", part, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr("\n  miniray run " + part));
    EXPECT_THAT(help.out, HasSubstr("Examples:\n  miniray run " + part));
    EXPECT_THAT(help.out, HasSubstr("--timeout SECONDS"));
    EXPECT_THAT(help.out, HasSubstr("Exit codes: 0 done"));
    EXPECT_THAT(help.err, IsEmpty());
    EXPECT_EQ(Run({"help", "run", part}).out, help.out);
  }
}

TEST_F(HelpTest, GeneralHelpAndVersion) {
  const CommandResult help = Run({"help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("miniray start --head"));
  EXPECT_EQ(Run({"--help"}).out, help.out);
  const CommandResult version = Run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("miniray 0."));
}

TEST_F(HelpTest, UnusableRuntimeFolderIsNamed) {
  setenv("MINIRAY_RUNTIME_DIR", "/dev/null/x", 1);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"stop"},
        {"start", "--head", "--port=0", "--dashboard_port=-1"}}) {
    const CommandResult result = Run(args);
    EXPECT_EQ(result.exit_code, 1) << absl::StrJoin(args, " ");
    EXPECT_THAT(result.err, HasSubstr("/dev/null"));
  }
}

// With the program's path as $0.
CommandResult InShell(const std::string& script,
                      const std::vector<std::string>& args = {}) {
  std::vector<std::string> all = {"-c", script, RunfilePath("tools/miniray")};
  all.insert(all.end(), args.begin(), args.end());
  return Program("/bin/sh", all).Wait();
}

using OutputTest = CommandTest;

TEST_F(OutputTest, WhatCannotBeWrittenIsAFailure) {
  const std::string address = StartHead();
  for (const std::string& command :
       {std::string("--version"), std::string("--help"),
        std::string("help start"), "status --address " + address,
        "list nodes --address " + address, "job list --address " + address,
        "timeline --address " + address}) {
    const CommandResult full = InShell("\"$0\" " + command + " > /dev/full");
    EXPECT_EQ(full.exit_code, 1) << command;
    EXPECT_THAT(full.err, HasSubstr("cannot write the output")) << command;
    const CommandResult closed = InShell("\"$0\" " + command + " >&-");
    EXPECT_EQ(closed.exit_code, 1) << command;
    EXPECT_THAT(closed.err, HasSubstr("cannot write the output")) << command;
    EXPECT_EQ(InShell("\"$0\" " + command + " > /dev/null").exit_code, 0)
        << command;
  }
}

TEST_F(OutputTest, ATimelineIsWrittenIntoAPipe) {
  const std::string address = StartHead();
  const std::string pipe = runtime_dir() + "/pipe";
  const CommandResult result =
      InShell("mkfifo " + pipe + " && { cat " + pipe +
              " & } && \"$0\" timeline --address " + address + " --output " +
              pipe + " && wait && test -p " + pipe);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("traceEvents"));
}

TEST_F(OutputTest, AFileThatMayNotGrowIsAnErrorOfTheHead) {
  const CommandResult result = InShell(
      "ulimit -f 1; exec \"$0\" start --head --block --port 0 "
      "--dashboard_port -1");
  EXPECT_EQ(result.exit_code, 1) << result.err;  // No signal.
  EXPECT_THAT(result.err, HasSubstr("head.db"));
}

}  // namespace
}  // namespace miniray
