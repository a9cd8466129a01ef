// `miniray start`, `status` and `stop` with real processes.

#include <fcntl.h>
#include <httplib.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/base/process_records.h"
#include "tests/runtime/base/loopback_port.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::json;

std::vector<ProcessRecord> Records() {
  const auto records = ListProcessRecords();
  EXPECT_TRUE(records.ok()) << records.status();
  return records.ok() ? *records : std::vector<ProcessRecord>();
}

class StartStopTest : public CommandTest {
 protected:
  static Json Status(const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"status", "--format", "json"};
    args.insert(args.end(), more.begin(), more.end());
    const CommandResult result = Run(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }

  static std::string StateOfNode(pid_t daemon) {
    const Json state = Status();
    for (const Json& node : state.value("nodes", Json::array())) {
      if (node["pid"] == absl::StrCat(daemon)) return node["state"];
    }
    return "";
  }
};

TEST_F(StartStopTest, HeadAndTwoDaemons) {
  const std::string address = StartHead();
  EXPECT_THAT(address, HasSubstr("127.0.0.1:"));
  const pid_t first = StartDaemon(address, {"--num_cpus=2"});
  const pid_t second =
      StartDaemon(address, {"--num-cpus", "1.5", "--num-gpus", "1",
                            "--resources", "slot=3,memory=1e9"});
  EXPECT_THAT(Records(), SizeIs(3));

  const Json state = Status();  // Finds the head by itself.
  ASSERT_THAT(state["nodes"], SizeIs(2));
  EXPECT_EQ(state["nodes"], Status({"--address", address})["nodes"]);
  for (const Json& node : state["nodes"]) {
    EXPECT_EQ(node["state"], "NODE_STATE_ALIVE");
    const Json& total = node["total"]["quantity"];
    if (node["pid"] == absl::StrCat(first)) {
      EXPECT_EQ(total["CPU"], 2);
      EXPECT_GT(total["memory"], 1e8);
      EXPECT_FALSE(total.contains("GPU"));
    } else {
      EXPECT_EQ(node["pid"], absl::StrCat(second));
      EXPECT_EQ(total,
                (Json{{"CPU", 1.5}, {"GPU", 1}, {"memory", 1e9}, {"slot", 3}}));
    }
  }

  const CommandResult table = Run({"status"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, HasSubstr("Nodes: 2"));
  EXPECT_THAT(table.out, HasSubstr("0/1.5"));
  EXPECT_THAT(table.out, HasSubstr("slot 0/3"));

  const CommandResult stop = Run({"stop"});
  EXPECT_EQ(stop.exit_code, 0) << stop.err;
  EXPECT_THAT(stop.out, HasSubstr(absl::StrCat("(pid ", first, ")")));
  EXPECT_THAT(stop.out, HasSubstr(absl::StrCat("(pid ", second, ")")));
  EXPECT_THAT(stop.out, HasSubstr("Stopped the head at " + address));
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
  EXPECT_THAT(Records(), IsEmpty());

  const CommandResult again = Run({"stop"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.out, HasSubstr("Nothing to stop"));
}

TEST_F(StartStopTest, DaemonOffersTheCpusOfItsAffinity) {
  const std::string address = StartHead();
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  StartDaemon(address);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
  EXPECT_EQ(Status()["nodes"][0]["total"]["quantity"]["CPU"], 1);
}

TEST_F(StartStopTest, CpusThatAreCountedTwiceAreSaid) {
  const std::string address = StartHead();
  const std::vector<std::string> join = {"start", "--address", address};
  const CommandResult first = Run(join);
  EXPECT_EQ(first.exit_code, 0);
  EXPECT_THAT(first.err, IsEmpty());
  const CommandResult second = Run(join);
  EXPECT_EQ(second.exit_code, 0);
  EXPECT_THAT(second.out, HasSubstr("joined " + address));
  EXPECT_THAT(
      second.err,
      HasSubstr(absl::StrCat(
          "miniray: warning: this machine is in the cluster at ", address,
          " already, as ", WordAfter("\n" + first.out, "\n"), " with ")));
  EXPECT_EQ(std::count(second.err.begin(), second.err.end(), '\n'), 1);
  EXPECT_THAT(Status()["nodes"], SizeIs(2));
}

TEST_F(StartStopTest, PartsOfAMachineAreNoReasonToWarn) {
  const std::string address = StartHead();
  for (int i = 0; i < 2; ++i) {
    const CommandResult part =
        Run({"start", "--address", address, "--num_cpus=0.5"});
    EXPECT_EQ(part.exit_code, 0);
    EXPECT_THAT(part.err, IsEmpty());
  }
}

TEST_F(StartStopTest, HeadWithCpusBringsADaemon) {
  StartHead({"--num_cpus=3"});
  EXPECT_THAT(Records(), SizeIs(2));
  const Json state = Status();
  ASSERT_THAT(state["nodes"], SizeIs(1));
  EXPECT_EQ(state["nodes"][0]["total"]["quantity"]["CPU"], 3);
}

// Writes to a named pipe once somebody reads it.
void WriteToPipe(const std::string& path, const std::string& text) {
  ScopedFd fd;
  ASSERT_TRUE(Eventually([&] {
    fd = ScopedFd(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    return fd.valid();
  }));
  ASSERT_EQ(write(fd.get(), text.data(), text.size()), text.size());
}

TEST_F(StartStopTest, HeadWhoseDaemonCannotStartIsNotLeft) {
  // The head reads one token, its daemon another.
  const std::string pipe = runtime_dir() + "/token-pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto start =
      Start({"start", "--head", "--port=0", "--dashboard_port=-1",
             "--num_cpus=1", "--token_file", pipe});
  WriteToPipe(pipe, "first");
  ASSERT_TRUE(Eventually([] { return !Records().empty(); }));
  WriteToPipe(pipe, "second");
  const CommandResult result = start->Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("token"));
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
  EXPECT_THAT(Records(), IsEmpty());
}

TEST_F(StartStopTest, ASpillFolderThatCannotBeUsedIsAClearError) {
  const std::string address = StartHead();
  const CommandResult result =
      Run({"start", "--address", address, "--object_spill_dir=/proc/none"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("the spill folder"));
  EXPECT_THAT(result.err, HasSubstr("/proc/none"));
  EXPECT_THAT(Records(), SizeIs(1));
}

TEST_F(StartStopTest, KilledDaemonIsNotAliveAnyMore) {
  const std::string address = StartHead();
  const pid_t living = StartDaemon(address, {"--num_cpus=1"});
  const pid_t killed = StartDaemon(address, {"--num_cpus=1"});
  EXPECT_EQ(StateOfNode(killed), "NODE_STATE_ALIVE");
  ASSERT_EQ(kill(killed, SIGKILL), 0);
  EXPECT_TRUE(Eventually([&] {
    const std::string state = StateOfNode(killed);
    return state == "NODE_STATE_DISCONNECTED" || state == "NODE_STATE_DEAD";
  }));
  EXPECT_EQ(StateOfNode(living), "NODE_STATE_ALIVE");
}

TEST_F(StartStopTest, StatusOfAKilledHead) {
  const std::string address = StartHead();
  const std::vector<pid_t> processes = ProcessesOf(runtime_dir());
  ASSERT_THAT(processes, SizeIs(1));
  ASSERT_EQ(kill(processes[0], SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return ProcessesOf(runtime_dir()).empty(); }));
  const CommandResult result = Run({"status", "--address", address});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("no head answers at " + address));
  EXPECT_THAT(Run({"status"}).err, HasSubstr("miniray start --head"));
}

TEST_F(StartStopTest, StatusUsesTheEnvironment) {
  const std::string address = StartHead();
  StartDaemon(address, {"--num_cpus=1"});
  StartHead();  // A later one, without nodes.
  EXPECT_THAT(Status()["nodes"], IsEmpty());
  setenv("MINIRAY_ADDRESS", address.c_str(), 1);
  EXPECT_THAT(Status()["nodes"], SizeIs(1));
  setenv("MINIRAY_ADDRESS", "somewhere", 1);
  EXPECT_THAT(Run({"status"}).err, HasSubstr("$MINIRAY_ADDRESS: 'somewhere'"));
  unsetenv("MINIRAY_ADDRESS");
}

TEST_F(StartStopTest, PortInUse) {
  const std::string address = StartHead();
  const std::string port = address.substr(address.rfind(':') + 1);
  const CommandResult result = Run({"start", "--head", "--port", port,
                                    "--dashboard_port=-1", "--num_cpus=1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr(address));
  EXPECT_THAT(result.err, HasSubstr("in use"));
  EXPECT_THAT(result.err, HasSubstr("--port"));
  EXPECT_THAT(ProcessesOf(runtime_dir()), SizeIs(1));
}

TEST_F(StartStopTest, DashboardShowsTheState) {
  const CommandResult result =
      Run({"start", "--head", "--port=0", "--dashboard_port=0"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  StartDaemon(WordAfter(result.out, "--address "), {"--num_cpus=7"});
  const std::string url = WordAfter(result.out, "Dashboard: ");
  httplib::Client client(url);
  const httplib::Result answer = client.Get("/api/v1/state");
  ASSERT_TRUE(answer) << url;
  EXPECT_EQ(Json::parse(answer->body)["nodes"][0]["total"]["quantity"]["CPU"],
            7);

  const std::string port = url.substr(url.rfind(':') + 1);
  const CommandResult second =
      Run({"start", "--head", "--port=0", "--dashboard_port", port});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("127.0.0.1:" + port));
  EXPECT_THAT(second.err, HasSubstr("--dashboard_port"));
  EXPECT_THAT(Records(), SizeIs(2));
}

TEST_F(StartStopTest, BeyondLoopbackATokenIsNeeded) {
  const CommandResult start = Run(
      {"start", "--head", "--port=0", "--dashboard_port=0", "--host=0.0.0.0"});
  ASSERT_EQ(start.exit_code, 0) << start.err;
  const std::string address = WordAfter(start.out, "start --address ");
  const std::string token = WordAfter(start.out, "MINIRAY_TOKEN=");
  EXPECT_THAT(token, SizeIs(64));
  StartDaemon(address);  // On this machine the token is known.

  for (const pid_t pid : ProcessesOf(runtime_dir())) {
    EXPECT_THAT(ReadFile(absl::StrCat("/proc/", pid, "/cmdline")).value(),
                Not(HasSubstr(token)));
  }
  for (const ProcessRecord& record : Records()) {
    const std::string name =
        record.role == ProcessRole::kHead ? "/head.log" : "/daemon.log";
    const std::string log = ReadFile(record.session_dir + name).value();
    EXPECT_THAT(log, Not(IsEmpty()));
    EXPECT_THAT(log, Not(HasSubstr(token)));
  }

  UseNewRuntimeDir();  // As on another machine.
  const std::vector<std::string> status = {"status", "--address", address};
  const std::vector<std::string> join = {"start", "--address", address};
  for (const auto& command : {status, join}) {
    const CommandResult missing = Run(command);
    EXPECT_EQ(missing.exit_code, 1);
    EXPECT_THAT(missing.err, HasSubstr("needs a token"));
    EXPECT_THAT(missing.err, HasSubstr("MINIRAY_TOKEN"));
    setenv("MINIRAY_TOKEN", "wrong", 1);
    const CommandResult wrong = Run(command);
    EXPECT_EQ(wrong.exit_code, 1);
    EXPECT_THAT(wrong.err, HasSubstr("token"));
    EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
    setenv("MINIRAY_TOKEN", token.c_str(), 1);
    const CommandResult right = Run(command);
    EXPECT_EQ(right.exit_code, 0) << right.err;
    unsetenv("MINIRAY_TOKEN");
  }

  const std::string file = runtime_dir() + "/my-token";
  ASSERT_TRUE(WriteFileAtomically(file, token + "\n", 0600).ok());
  EXPECT_EQ(
      Run({"status", "--address", address, "--token_file", file}).exit_code, 0);
}

TEST_F(StartStopTest, TokenOfTheUser) {
  setenv("MINIRAY_TOKEN", "chosen-by-me", 1);
  const std::string address = StartHead();
  unsetenv("MINIRAY_TOKEN");
  EXPECT_EQ(TokenFor(address), "chosen-by-me");
  EXPECT_EQ(Run({"status"}).exit_code, 0);
  UseNewRuntimeDir();
  EXPECT_EQ(Run({"status", "--address", address}).exit_code, 1);
}

TEST_F(StartStopTest, ATokenOfAnyCharactersIsPrintedSoThatItComesBack) {
  const std::string token = "a+b/c=&#%41$x";
  setenv("MINIRAY_TOKEN", token.c_str(), 1);
  const CommandResult start =
      Run({"start", "--head", "--port=0", "--dashboard_port=0"});
  unsetenv("MINIRAY_TOKEN");
  ASSERT_EQ(start.exit_code, 0) << start.err;
  // As a shell reads it.
  const std::string word = WordAfter(start.out, "MINIRAY_TOKEN=");
  EXPECT_EQ(Program("/bin/sh", {"-c", absl::StrCat("MINIRAY_TOKEN=", word,
                                                   " printenv MINIRAY_TOKEN")})
                .Wait()
                .out,
            token + "\n");
  // As the dashboard reads it, which a browser does alike.
  const std::string url = WordAfter(start.out, "Dashboard: ");
  const size_t query = url.find("/?token=");
  ASSERT_NE(query, std::string::npos) << url;
  httplib::Client client(url.substr(0, query));
  const std::string path = "/api/v1/state" + url.substr(query + 1);
  const httplib::Result answer = client.Get(path);
  ASSERT_TRUE(answer) << url;
  EXPECT_EQ(answer->status, 200) << path;
}

TEST_F(StartStopTest, StopForceKillsAFrozenDaemon) {
  const std::string address = StartHead();
  const pid_t daemon = StartDaemon(address);
  ASSERT_TRUE(StopProcess(daemon));
  const CommandResult result = Run({"stop", "--force"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Killed the worker daemon"));
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
}

TEST_F(StartStopTest, StopEndsAFrozenHeadInTheEnd) {
  StartHead();
  ASSERT_TRUE(StopProcess(ProcessesOf(runtime_dir()).at(0)));
  const CommandResult result = Run({"stop"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("which did not stop"));
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
}

TEST_F(StartStopTest, InterruptedStartLeavesNothing) {
  // Nobody listens there: the daemon tries for a while.
  const auto start = Start({"start", "--address", "127.0.0.1:1"});
  ASSERT_TRUE(
      Eventually([&] { return ProcessesOf(runtime_dir()).size() == 2; }));
  start->Signal(SIGINT);
  const CommandResult result = start->Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("interrupted"));
  EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
}

class ForegroundTest : public StartStopTest {
 protected:
  static std::vector<std::string> HeadArgs(
      const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"start", "--head", "--block", "--port=0",
                                     "--dashboard_port=-1"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
};

TEST_F(ForegroundTest, SignalsEndItInGoodOrder) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto head = Start(HeadArgs());
    ASSERT_THAT(head->ReadLine().value_or(""), HasSubstr("head listens at"));
    EXPECT_EQ(Run({"status"}).exit_code, 0);
    head->Signal(signal);
    EXPECT_EQ(head->Wait().exit_code, 0);
    EXPECT_THAT(Records(), IsEmpty());
  }
}

TEST_F(ForegroundTest, DaemonEndsInGoodOrder) {
  const std::string address = StartHead();
  const auto daemon =
      Start({"start", "--block", "--address", address, "--num_cpus=1"});
  ASSERT_THAT(daemon->ReadLine().value_or(""), HasSubstr("joined " + address));
  daemon->Signal(SIGTERM);
  const CommandResult result = daemon->Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("stops: SIGTERM"));
  const Json state = Status();
  for (const Json& node : state["nodes"]) {
    EXPECT_EQ(node["state"], "NODE_STATE_DEAD");
  }
}

TEST_F(ForegroundTest, HeadTakesItsDaemonWithIt) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    const auto head = Start(HeadArgs({"--num_cpus=1"}));
    ASSERT_TRUE(head->ReadLine().has_value());
    EXPECT_THAT(Records(), SizeIs(2));
    head->Signal(signal);
    EXPECT_EQ(head->Wait().exit_code, signal == SIGKILL ? 128 + SIGKILL : 0);
    EXPECT_TRUE(Eventually([&] { return ProcessesOf(runtime_dir()).empty(); }));
  }
}

TEST_F(ForegroundTest, HeadEndsWhenItsDaemonIsKilled) {
  const auto head = Start(HeadArgs({"--num_cpus=1"}));
  ASSERT_TRUE(head->ReadLine().has_value());
  for (const ProcessRecord& record : Records()) {
    if (record.pid == head->pid()) continue;
    ASSERT_EQ(kill(record.pid, SIGKILL), 0);
  }
  const CommandResult result = head->Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("worker daemon was killed by signal 9"));
}

TEST_F(ForegroundTest, StopEndsItWell) {
  const auto head = Start(HeadArgs({"--num_cpus=1"}));
  ASSERT_TRUE(head->ReadLine().has_value());
  // It is this process's child: while it is a zombie it counts as gone.
  EXPECT_EQ(Run({"stop"}).exit_code, 0);
  EXPECT_EQ(head->Wait().exit_code, 0);
}

TEST_F(ForegroundTest, OutputThatMayBeALogHasNoToken) {
  const auto head = Start(HeadArgs({"--host=0.0.0.0"}));
  ASSERT_TRUE(head->ReadLine().has_value());
  const std::string token = Records().at(0).token;
  EXPECT_THAT(token, SizeIs(64));
  head->Signal(SIGTERM);
  const CommandResult result = head->Wait();
  EXPECT_THAT(result.out + result.err, Not(HasSubstr(token)));
  EXPECT_THAT(result.out, HasSubstr("MINIRAY_TOKEN=\"$(cat "));
}

// As the embedded cluster starts its processes.
class ReadyFdTest : public ForegroundTest {
 protected:
  void SetUp() override {
    ForegroundTest::SetUp();
    int ready[2], lifeline[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    ASSERT_EQ(pipe2(lifeline, O_CLOEXEC), 0);
    ready_read_ = ScopedFd(fcntl(ready[0], F_DUPFD_CLOEXEC, 50));
    ready_write_ = ScopedFd(fcntl(ready[1], F_DUPFD_CLOEXEC, 50));
    lifeline_read_ = ScopedFd(fcntl(lifeline[0], F_DUPFD_CLOEXEC, 50));
    lifeline_write_ = ScopedFd(fcntl(lifeline[1], F_DUPFD_CLOEXEC, 50));
    for (const int fd : {ready[0], ready[1], lifeline[0], lifeline[1]}) {
      close(fd);
    }
  }

  std::unique_ptr<Program> StartWithPipes(std::vector<std::string> args) {
    args.push_back("--ready_fd=3");
    args.push_back("--lifeline_fd=4");
    auto program =
        Start(args, {{3, ready_write_.get()}, {4, lifeline_read_.get()}});
    ready_write_.reset();
    lifeline_read_.reset();
    return program;
  }

  // Everything up to end-of-file: the program closes it after the line.
  Json ReadReady() {
    std::string text;
    char buffer[4096];
    ssize_t n;
    while ((n = read(ready_read_.get(), buffer, sizeof(buffer))) > 0) {
      text.append(buffer, static_cast<size_t>(n));
    }
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    return Json::parse(text, nullptr, false);
  }

  ScopedFd ready_read_, ready_write_, lifeline_read_, lifeline_write_;
};

TEST_F(ReadyFdTest, HeadLivesAsLongAsItsLifeline) {
  const auto head = StartWithPipes(HeadArgs());
  const Json ready = ReadReady();
  EXPECT_EQ(ready["pid"], head->pid());
  EXPECT_EQ(ready["join"],
            "miniray start --address " + ready["address"].get<std::string>());
  EXPECT_EQ(Run({"status", "--address", ready["address"]}).exit_code, 0);
  lifeline_write_.reset();
  const CommandResult result = head->Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("lifeline"));
  EXPECT_THAT(Records(), IsEmpty());
}

TEST_F(ReadyFdTest, DaemonLivesAsLongAsItsLifeline) {
  const std::string address = StartHead();
  const auto daemon = StartWithPipes(
      {"start", "--block", "--address", address, "--num_cpus=1"});
  const Json ready = ReadReady();
  EXPECT_EQ(ready["address"], address);
  EXPECT_EQ(ready["node_id"], Status()["nodes"][0]["node_id"]);
  lifeline_write_.reset();
  EXPECT_EQ(daemon->Wait().exit_code, 0);
  EXPECT_TRUE(Eventually(
      [&] { return Status()["nodes"][0]["state"] == "NODE_STATE_DEAD"; }));
}

TEST_F(ReadyFdTest, StopLeavesItToItsProgramUnlessItsAddressIsGiven) {
  const auto head = StartWithPipes(HeadArgs({"--num_cpus=1"}));
  const std::string address = ReadReady()["address"];
  const std::string other = StartHead();
  const CommandResult stop = Run({"stop"});
  EXPECT_EQ(stop.exit_code, 0) << stop.err;
  EXPECT_THAT(stop.out,
              HasSubstr("Left alone: the cluster at " + address + ","));
  EXPECT_THAT(stop.out, HasSubstr("Stopped the head at " + other));
  EXPECT_THAT(Records(), SizeIs(2));  // The daemon, too.
  EXPECT_EQ(Status({"--address", address})["nodes"][0]["state"],
            "NODE_STATE_ALIVE");
  const CommandResult again = Run({"stop"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, Not(HasSubstr("Stopped")));
  EXPECT_EQ(Run({"stop", "--address", address}).exit_code, 0);
  EXPECT_EQ(head->Wait().exit_code, 0);
  EXPECT_THAT(Records(), IsEmpty());
}

TEST_F(ReadyFdTest, ALifelineThatEndsWhileTheHeadIsDialledIsNoticed) {
  const LoopbackPort head;  // Listens, and never answers.
  const ScopedFd ended(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto daemon = Start(
      {"start", "--block", "--lifeline_fd=4", "--address", head.address()},
      {{4, ended.get()}});
  // Less than the 10 s for which it would try.
  EXPECT_EQ(daemon->Wait(absl::Seconds(8)).exit_code, 0);
}

TEST_F(ReadyFdTest, FailureIsTold) {
  const std::string address = StartHead();
  const auto head =
      StartWithPipes({"start", "--head", "--block", "--dashboard_port=-1",
                      "--port=" + address.substr(address.rfind(':') + 1)});
  EXPECT_THAT(ReadReady()["error"].get<std::string>(), HasSubstr("in use"));
  const CommandResult result = head->Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("in use"));
}

TEST_F(ReadyFdTest, NobodyWaitsForIt) {
  ready_read_.reset();
  const auto head = StartWithPipes(HeadArgs());
  EXPECT_EQ(head->Wait().exit_code, 1);
  EXPECT_THAT(Records(), IsEmpty());
}

}  // namespace
}  // namespace miniray
