// What the command line does with clusters whose heads were killed.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/base/process_records.h"
#include "runtime/head/state_folder.h"
#include "tests/runtime/base/loopback_port.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/tools/miniray_command.h"
#include "tools/cli/start_flags.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::json;

constexpr char kGoesOn[] = "It goes on with the cluster of an earlier head";

std::optional<ProcessRecord> RecordOf(ProcessRole role) {
  const auto records = ListProcessRecords();
  EXPECT_TRUE(records.ok()) << records.status();
  if (!records.ok()) return std::nullopt;
  for (const ProcessRecord& record : *records) {
    if (record.role == role) return record;
  }
  return std::nullopt;
}
std::optional<ProcessRecord> HeadRecord() {
  return RecordOf(ProcessRole::kHead);
}
std::optional<ProcessRecord> DaemonRecord() {
  return RecordOf(ProcessRole::kWorkerDaemon);
}

size_t NumProcesses() {
  const auto records = ListProcessRecords();
  EXPECT_TRUE(records.ok()) << records.status();
  return records.ok() ? records->size() : 0;
}

std::string PortOf(const std::string& address) {
  return address.substr(address.rfind(':') + 1);
}

class KilledHeadTest : public CommandTest {
 protected:
  // SIGKILL for the only head.
  void KillHead() {
    const std::optional<ProcessRecord> head = HeadRecord();
    ASSERT_TRUE(head.has_value());
    ASSERT_EQ(kill(head->pid, SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] { return !IsAlive(*head); }));
  }

  static CommandResult StartAgain(const std::string& address,
                                  std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"start", "--head", "--dashboard_port=-1",
                                     "--port", PortOf(address)};
    args.insert(args.end(), more.begin(), more.end());
    return Run(args);
  }

  std::string MakeCerts(const std::string& name) {
    const std::string folder = absl::StrCat(runtime_dir(), "/", name);
    const CommandResult made = Run({"make-certs", "--tls_dir", folder});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return folder;
  }

  // The state folders of heads, and links to them.
  std::vector<std::string> HeadStates() const {
    std::vector<std::string> found;
    for (const auto& entry :
         std::filesystem::directory_iterator(runtime_dir())) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("head-", 0) == 0) found.push_back(name);
    }
    return found;
  }

  static bool Exists(const std::string& path) {
    return std::filesystem::exists(std::filesystem::symlink_status(path));
  }

  static std::vector<std::string> StatesOfNodes(const std::string& address) {
    const CommandResult result =
        Run({"status", "--address", address, "--format", "json"});
    std::vector<std::string> states;
    const Json state = Json::parse(result.out, nullptr, false);
    if (!state.is_object()) return states;
    for (const Json& node : state.value("nodes", Json::array())) {
      states.push_back(node["state"]);
    }
    return states;
  }

  // The command behind `before` in a message, up to a semicolon.
  static std::vector<std::string> CommandAfter(const std::string& text,
                                               const std::string& before) {
    const size_t at = text.find(before);
    if (at == std::string::npos) return {};
    const std::string rest = text.substr(at + before.size());
    return absl::StrSplit(rest.substr(0, rest.find_first_of(";\n")), ' ');
  }
};

TEST_F(KilledHeadTest, ThePrintedCommandGoesOnWithTheCluster) {
  const std::string certs = MakeCerts("certs");
  const std::string address =
      StartHead({"--host=127.0.0.2", "--tls_dir", certs});
  ASSERT_THAT(address, HasSubstr("127.0.0.2:"));
  StartDaemon(address, {"--num_cpus=1"});
  KillHead();

  const CommandResult status = Run({"status"});
  EXPECT_EQ(status.exit_code, 1);
  EXPECT_THAT(status.err,
              HasSubstr(absl::StrCat(
                  "go on with its cluster with: miniray start --head --host "
                  "127.0.0.2 --port ",
                  PortOf(address), " --tls_dir ", certs)));
  EXPECT_THAT(status.err, HasSubstr("miniray stop --address " + address));
  std::vector<std::string> command =
      CommandAfter(status.err, "with its cluster with: miniray ");
  ASSERT_THAT(command, Not(IsEmpty()));
  command.push_back("--dashboard_port=-1");
  const CommandResult again = Run(command);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("listens at " + address));
  EXPECT_THAT(again.out, HasSubstr(kGoesOn));
  EXPECT_TRUE(Eventually([&] {
    return StatesOfNodes(address) ==
           std::vector<std::string>{"NODE_STATE_ALIVE"};
  }));
}

TEST_F(KilledHeadTest, TheCommandIsKnownWhereNoProcessIsLeft) {
  const std::string folder = std::filesystem::path(runtime_dir() + "/my state")
                                 .lexically_normal()
                                 .string();
  const std::string address = StartHead({"--state_dir", folder});
  KillHead();
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{
           {"status"},
           {"status", "--address", address},
           {"job", "list", "--address", "localhost:" + PortOf(address)},
           {"start", "--address", address}}) {
    const CommandResult result = Run(command);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err,
                HasSubstr(absl::StrCat(
                    "the head at ", address,
                    " was killed: go on with its cluster with: "
                    "miniray start --head --host 127.0.0.1 --port ",
                    PortOf(address), " --state_dir '", folder, "'; or")));
  }
  EXPECT_EQ(Run({"start", "--head", "--dashboard_port=-1", "--state_dir",
                 folder + "/"})
                .exit_code,
            0);
  EXPECT_EQ(Run({"status", "--address", address}).exit_code, 0);
  EXPECT_EQ(Run({"stop"}).exit_code, 0);
  EXPECT_THAT(HeadStates(), IsEmpty());
}

TEST_F(KilledHeadTest, WhereNoStateIsKnownThePortIsSaid) {
  EXPECT_THAT(Run({"status", "--address=127.0.0.1:1"}).err,
              HasSubstr("miniray start --head --port 1\n"));
  const std::string certs = MakeCerts("certs");
  EXPECT_THAT(Run({"status", "--address=127.0.0.1:1", "--tls_dir", certs}).err,
              HasSubstr("miniray start --head --port 1 --tls_dir " + certs));
}

TEST_F(KilledHeadTest, WhatIsNotGivenIsAsItWas) {
  const std::string certs = MakeCerts("certs");
  const std::string address = StartHead({"--host=0.0.0.0", "--tls_dir", certs});
  const std::string token = HeadRecord()->token;
  ASSERT_THAT(token, SizeIs(64));
  KillHead();
  const CommandResult again = StartAgain(address);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("listens at " + address));
  const ProcessRecord head = HeadRecord().value();
  EXPECT_EQ(head.listen_host, "0.0.0.0");
  EXPECT_EQ(head.tls_dir, certs);
  EXPECT_EQ(head.token, token);
}

TEST_F(KilledHeadTest, HowItWasTunedIsAsItWas) {
  const std::string address = StartHead({"--lease=4100ms"});
  StartDaemon(address, {"--num_cpus=1"});
  ASSERT_EQ(HeadRecord()->dashboard_port, -1);
  KillHead();
  // Without --dashboard_port.
  CommandResult again = Run({"start", "--head", "--port", PortOf(address)});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(HeadRecord()->dashboard_port, -1);
  ASSERT_TRUE(Eventually([&] {
    return StatesOfNodes(address) ==
           std::vector<std::string>{"NODE_STATE_ALIVE"};
  }));
  // A daemon that stands still shows the lease.
  const ProcessRecord daemon = DaemonRecord().value();
  ASSERT_TRUE(StopProcess(daemon.pid));
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(Run({"status", "--address", address}).out,
                             "no sign of life for 4.1s");
  }));
  kill(daemon.pid, SIGCONT);
  // What is given is not as it was.
  KillHead();
  again =
      Run({"start", "--head", "--port", PortOf(address), "--dashboard_port=0"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_GT(HeadRecord()->dashboard_port, 0);
}

TEST_F(KilledHeadTest, EveryFlagThatTunesItIsAsItWas) {
  // None the default.
  const std::map<std::string, std::string> values = {
      {"dashboard_port", "-1"},       {"driver_grace", "77s"},
      {"group_hold", "71s"},          {"group_patience", "72s"},
      {"infeasible_timeout", "73s"},  {"lease", "74s"},
      {"long_life", "75s"},           {"max_reconnect_pause", "760ms"},
      {"max_restart_delay", "78s"},   {"max_state_bytes", "1234567890"},
      {"package_limit", "123456789"}, {"reconnect_timeout", "79s"},
      {"session_life", "81s"},        {"silence_timeout", "82s"},
      {"max_waiting", "123"}};
  std::vector<std::string> args;
  for (const std::string& flag : cli::HeadTuningFlags()) {
    ASSERT_TRUE(values.contains(flag)) << "it has no value here: " << flag;
  }
  for (const auto& [flag, value] : values) {
    if (flag == "dashboard_port") continue;  // StartHead gives it.
    args.push_back(absl::StrCat("--", flag, "=", value));
  }
  const std::string address = StartHead(args);
  ASSERT_TRUE(HeadRecord().has_value());
  const auto remembered = [] {
    std::map<std::string, std::string> found;
    const auto text =
        ReadFile(absl::StrCat(HeadRecord()->state_dir, "/", kHeadFlagsFile));
    EXPECT_TRUE(text.ok()) << text.status();
    for (const absl::string_view line :
         absl::StrSplit(text.value_or(""), '\n', absl::SkipEmpty())) {
      found.insert(absl::StrSplit(line, absl::MaxSplits('=', 1)));
    }
    return found;
  };
  const auto before = remembered();
  ASSERT_THAT(before, SizeIs(values.size()));
  KillHead();
  const CommandResult again =
      Run({"start", "--head", "--port", PortOf(address)});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  // It wrote down what it runs with.
  EXPECT_EQ(remembered(), before);
}

TEST_F(KilledHeadTest, WhatIsGivenAndDiffersIsRefused) {
  const std::string certs = MakeCerts("certs");
  const std::string others = MakeCerts("other-certs");
  const std::string token = runtime_dir() + "/my-token";
  ASSERT_TRUE(WriteFileAtomically(token, "another", 0600).ok());
  const std::string address =
      StartHead({"--host=127.0.0.2", "--tls_dir", certs});
  KillHead();
  const std::string stop = "miniray stop --address " + address;

  const CommandResult host = StartAgain(address, {"--host=127.0.0.1"});
  EXPECT_EQ(host.exit_code, 1);
  EXPECT_THAT(host.err, AllOf(HasSubstr("--host=127.0.0.1 "),
                              HasSubstr("127.0.0.2"), HasSubstr(stop)));
  const CommandResult tls = StartAgain(address, {"--tls_dir", others});
  EXPECT_EQ(tls.exit_code, 1);
  EXPECT_THAT(tls.err, AllOf(HasSubstr(others), HasSubstr("in " + certs),
                             HasSubstr(stop)));
  const CommandResult secret = StartAgain(address, {"--token_file", token});
  EXPECT_EQ(secret.exit_code, 1);
  EXPECT_THAT(secret.err, AllOf(HasSubstr("has none"), HasSubstr(stop)));
  EXPECT_THAT(secret.err, Not(HasSubstr("another")));

  // The same authority is the same cluster.
  std::filesystem::copy(certs, runtime_dir() + "/moved");
  const CommandResult right = StartAgain(
      address, {"--host=127.0.0.2", "--tls_dir", runtime_dir() + "/moved"});
  EXPECT_EQ(right.exit_code, 0) << right.err;
}

TEST_F(KilledHeadTest, AnotherPortForAStateFolderIsRefused) {
  const std::string folder = runtime_dir() + "/state";
  const std::string certs = MakeCerts("certs");
  const std::string address = StartHead({"--state_dir", folder});
  KillHead();
  const CommandResult port = Run({"start", "--head", "--dashboard_port=-1",
                                  "--port=1234", "--state_dir", folder});
  EXPECT_EQ(port.exit_code, 1);
  EXPECT_THAT(port.err,
              AllOf(HasSubstr("--port=1234 "), HasSubstr(PortOf(address)),
                    HasSubstr("miniray stop --address " + address)));
  const CommandResult tls =
      StartAgain(address, {"--state_dir", folder, "--tls_dir", certs});
  EXPECT_EQ(tls.exit_code, 1);
  EXPECT_THAT(tls.err,
              AllOf(HasSubstr(certs), HasSubstr("does not speak TLS")));
  // Port 0 stands for any.
  const CommandResult any = Run({"start", "--head", "--dashboard_port=-1",
                                 "--port=0", "--state_dir", folder});
  EXPECT_EQ(any.exit_code, 0) << any.err;
  EXPECT_THAT(any.out, HasSubstr("listens at " + address));
}

TEST_F(KilledHeadTest, StopEndsTheClusterOfAKilledHead) {
  for (const bool with_daemon : {false, true}) {
    setenv("MINIRAY_TOKEN", "of-the-old-cluster", 1);
    const std::string address = StartHead();
    if (with_daemon) StartDaemon(address, {"--num_cpus=1"});
    unsetenv("MINIRAY_TOKEN");
    KillHead();
    const CommandResult stop = Run({"stop"});
    EXPECT_EQ(stop.exit_code, 0) << stop.err;
    EXPECT_THAT(stop.out,
                HasSubstr(absl::StrCat("Ended the cluster of the head at ",
                                       address, ", which was killed.\n")));
    EXPECT_THAT(HeadStates(), IsEmpty());
    const CommandResult next = StartAgain(address);
    EXPECT_EQ(next.exit_code, 0) << next.err;
    EXPECT_THAT(next.out, Not(HasSubstr(kGoesOn)));
    EXPECT_EQ(HeadRecord()->token, "");
    EXPECT_EQ(Run({"stop"}).exit_code, 0);
    EXPECT_THAT(Run({"stop"}).out, HasSubstr("Nothing to stop"));
  }
}

TEST_F(KilledHeadTest, StopEndsTheClusterInAStateFolder) {
  const std::string folder = runtime_dir() + "/state";
  setenv("MINIRAY_TOKEN", "of-the-old-cluster", 1);
  const std::string address = StartHead({"--state_dir", folder});
  unsetenv("MINIRAY_TOKEN");
  KillHead();
  EXPECT_THAT(Run({"stop"}).out, HasSubstr("Ended the cluster of the head"));
  EXPECT_THAT(HeadStates(), IsEmpty());
  EXPECT_TRUE(Exists(folder));  // The user's.
  const CommandResult next = StartAgain(address, {"--state_dir", folder});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_EQ(HeadRecord()->token, "");
}

TEST_F(KilledHeadTest, AnotherClusterIsStartedWithAWarning) {
  const std::string address = StartHead();
  KillHead();
  const CommandResult other =
      Run({"start", "--head", "--port=0", "--dashboard_port=-1"});
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("miniray: warning: this is a new cluster"),
                    HasSubstr("--port " + PortOf(address))));
}

TEST_F(KilledHeadTest, AStartThatFailsLeavesNothing) {
  const LoopbackPort busy;
  const std::string folder = runtime_dir() + "/state";
  setenv("MINIRAY_TOKEN", "secret", 1);
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{
           {"--dashboard_port=-1", "--port", absl::StrCat(busy.number())},
           {"--dashboard_port", absl::StrCat(busy.number()), "--port=0"},
           {"--dashboard_port=-1", "--port=7777", "--host=198.51.100.1"},
           {"--dashboard_port=-1", "--port=0", "--num_cpus=1",
            "--object_spill_dir=/proc/none"},
           {"--dashboard_port=-1", "--port=0", "--num_cpus=1", "--block",
            "--object_spill_dir=/proc/none"}}) {
    for (const bool own_folder : {false, true}) {
      std::vector<std::string> all = {"start", "--head"};
      all.insert(all.end(), args.begin(), args.end());
      if (own_folder) all.insert(all.end(), {"--state_dir", folder});
      const CommandResult result = Run(all);
      EXPECT_EQ(result.exit_code, 1);
      EXPECT_THAT(HeadStates(), IsEmpty()) << result.err;
      EXPECT_FALSE(Exists(folder)) << result.err;
      EXPECT_THAT(ProcessesOf(runtime_dir()), IsEmpty());
    }
  }
  unsetenv("MINIRAY_TOKEN");
}

TEST_F(KilledHeadTest, AStartThatFailsLeavesAClusterToGoOnWith) {
  const LoopbackPort busy;
  const std::string folder = runtime_dir() + "/state";
  for (const bool own_folder : {false, true}) {
    const std::vector<std::string> state =
        own_folder ? std::vector<std::string>{"--state_dir", folder}
                   : std::vector<std::string>{};
    const std::string address = StartHead(state);
    StartDaemon(address, {"--num_cpus=1"});
    KillHead();
    for (const std::vector<std::string>& args :
         std::vector<std::vector<std::string>>{
             {"--dashboard_port", absl::StrCat(busy.number())},
             {"--num_cpus=1", "--object_spill_dir=/proc/none"},
             {"--num_cpus=1", "--object_spill_dir=/proc/none", "--block"}}) {
      std::vector<std::string> all = state;
      all.insert(all.end(), args.begin(), args.end());
      EXPECT_EQ(StartAgain(address, all).exit_code, 1);
      EXPECT_THAT(HeadStates(), SizeIs(1));
      EXPECT_FALSE(HeadRecord().has_value());
    }
    // Whoever started it has gone before it was ready.
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
    const ScopedFd unread(fcntl(fds[1], F_DUPFD_CLOEXEC, 50));
    close(fds[0]);
    close(fds[1]);
    std::vector<std::string> all = {
        "start",  "--head",        "--block",     "--dashboard_port=-1",
        "--port", PortOf(address), "--ready_fd=3"};
    all.insert(all.end(), state.begin(), state.end());
    EXPECT_EQ(Start(all, {{3, unread.get()}})->Wait().exit_code, 1);

    const CommandResult again = StartAgain(address, state);
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr(kGoesOn));
    EXPECT_EQ(Run({"stop"}).exit_code, 0);
    EXPECT_THAT(HeadStates(), IsEmpty());
  }
}

TEST_F(KilledHeadTest, APortThatTheClusterNeedsIsNotToBeAnother) {
  const std::string address = StartHead();
  KillHead();
  ScopedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(PortOf(address), &port));
  own.sin_port = htons(static_cast<uint16_t>(port));
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  // Somebody's outgoing connection may have the port for a while.
  ASSERT_TRUE(Eventually([&] {
    return bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own)) == 0;
  }));
  ASSERT_EQ(listen(fd.get(), 8), 0);
  const CommandResult result = StartAgain(address);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("in use"), HasSubstr("free it"),
                                HasSubstr("miniray stop --address " + address),
                                Not(HasSubstr("another --port"))));
  fd.reset();
  EXPECT_EQ(StartAgain(address).exit_code, 0);
}

using StopAtTest = KilledHeadTest;

TEST_F(StopAtTest, OneOfTwoClustersEnds) {
  const std::string first = StartHead();
  const pid_t first_daemon = StartDaemon(first, {"--num_cpus=1"});
  const std::string second = StartHead({"--host=0.0.0.0"});
  const pid_t second_daemon = StartDaemon(second, {"--num_cpus=1"});

  const CommandResult none = Run({"stop", "--address", "127.0.0.1:1"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, AllOf(HasSubstr("nothing to stop: no head at "
                                        "127.0.0.1:1"),
                              HasSubstr(first), HasSubstr(second)));
  EXPECT_EQ(NumProcesses(), 4);

  // By another name than the daemon knows it.
  const CommandResult stop =
      Run({"stop", "--address", "localhost:" + PortOf(second)});
  EXPECT_EQ(stop.exit_code, 0) << stop.err;
  EXPECT_THAT(stop.out, HasSubstr("Stopped the head at " + second));
  EXPECT_THAT(stop.out, HasSubstr(absl::StrCat("(pid ", second_daemon, ")")));
  EXPECT_THAT(stop.out, Not(HasSubstr(first)));
  EXPECT_EQ(NumProcesses(), 2);
  EXPECT_THAT(StatesOfNodes(first), SizeIs(1));
  EXPECT_EQ(kill(first_daemon, 0), 0);
  EXPECT_THAT(HeadStates(), SizeIs(1));
}

TEST_F(StopAtTest, TheKilledOneEnds) {
  const std::string killed = StartHead();
  const pid_t daemon = StartDaemon(killed, {"--num_cpus=1"});
  KillHead();
  const std::string other = StartHead();
  const CommandResult stop = Run({"stop", "--address", killed});
  EXPECT_EQ(stop.exit_code, 0) << stop.err;
  EXPECT_THAT(stop.out,
              HasSubstr("Ended the cluster of the head at " + killed));
  EXPECT_THAT(stop.out, HasSubstr(absl::StrCat("(pid ", daemon, ")")));
  EXPECT_THAT(HeadStates(), SizeIs(1));
  EXPECT_EQ(Run({"status", "--address", other}).exit_code, 0);
  EXPECT_EQ(Run({"stop", "--address", killed}).exit_code, 1);
}

}  // namespace
}  // namespace miniray
