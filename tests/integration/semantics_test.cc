// What users rely on, row by row as the design's table of semantics lists it,
// on a cluster of real processes.

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "tests/integration/process_tools.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);

// Counts; its state survives a restart.
class Tally {
 public:
  explicit Tally(int64_t start) : value_(start) {}
  int64_t Add(int64_t n) { return value_ += n; }
  int64_t Value() const { return value_; }
  int64_t Pid() const { return getpid(); }
  void Exit(int code) { _exit(code); }
  void Sleep(double seconds) { absl::SleepFor(absl::Seconds(seconds)); }
  int64_t Sizes(const std::string& a, const std::string& b) const {
    return static_cast<int64_t>(a.size() * 10 + b.size());
  }

  int64_t SaveState() const { return value_; }
  void RestoreState(int64_t value) { value_ = value; }

 private:
  int64_t value_;
};
MINIRAY_ACTOR(Tally, Constructor<int64_t>, &Tally::Add, &Tally::Value,
              &Tally::Pid, &Tally::Exit, &Tally::Sleep, &Tally::Sizes);

// The same without a state that survives.
class Plain {
 public:
  int64_t Add(int64_t n) { return value_ += n; }
  int64_t Pid() const { return getpid(); }
  void Sleep(double seconds) { absl::SleepFor(absl::Seconds(seconds)); }
  void IgnoreStops() { signal(SIGTERM, SIG_IGN); }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Plain, Constructor<>, &Plain::Add, &Plain::Pid, &Plain::Sleep,
              &Plain::IgnoreStops);

// "actor process dies"
TEST(SemanticsTest, ADeadProcessFailsPendingCallsWithTheCauseAndComesBack) {
  RealCluster cluster;
  Cluster driver = cluster.Connect();
  auto plain = driver.CreateActor<Plain>({.name = "p", .max_restarts = 1});
  auto tally = driver.CreateActor<Tally>({.name = "t", .max_restarts = 1}, 5);
  ASSERT_EQ(plain->Call<&Plain::Add>(2).Get(kLong).value(), 2);
  ASSERT_EQ(tally->Call<&Tally::Add>(2).Get(kLong).value(), 7);
  const int64_t pid = plain->Call<&Plain::Pid>().Get(kLong).value();
  auto running = plain->Call<&Plain::Sleep>(60.0);
  auto queued = plain->Call<&Plain::Add>(1);
  const absl::Time killed = absl::Now();
  kill(static_cast<pid_t>(pid), SIGKILL);
  for (const absl::Status& status :
       {running.Get(kLong), queued.Get(kLong).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("signal 9 (SIGKILL)"),
                                        HasSubstr("node-"), HasSubstr("'p'")));
  }
  EXPECT_LT(absl::Now() - killed, absl::Seconds(5));
  EXPECT_THAT(std::string(tally->Call<&Tally::Exit>(3).Get(kLong).message()),
              HasSubstr("exited with code 3"));
  // A new object; a state comes back where the class keeps one.
  ASSERT_TRUE(plain->WaitReady(kLong).ok());
  ASSERT_TRUE(tally->WaitReady(kLong).ok());
  EXPECT_EQ(plain->Call<&Plain::Add>(1).Get(kLong).value(), 1);
  EXPECT_EQ(tally->Call<&Tally::Value>().Get(kLong).value(), 7);
  // No restart is left.
  EXPECT_THAT(std::string(tally->Call<&Tally::Exit>(4).Get(kLong).message()),
              HasSubstr("exited with code 4"));
  EXPECT_THAT(
      std::string(tally->Call<&Tally::Value>().Get(kLong).status().message()),
      AllOf(HasSubstr("dead"), HasSubstr("exited with code 4")));
}

// "call while an actor restarts"
TEST(SemanticsTest, ACallDuringARestartFailsUnlessItMayBeRetried) {
  RealCluster cluster;
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Plain>({.max_restarts = -1});
  const int64_t pid = actor->Call<&Plain::Pid>().Get(kLong).value();
  auto lost = actor->Call<&Plain::Sleep>(0.2);
  auto retried = actor->With({.max_retries = 3}).Call<&Plain::Sleep>(0.2);
  kill(static_cast<pid_t>(pid), SIGKILL);
  EXPECT_EQ(lost.Get(kLong).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(retried.Get(kLong), absl::OkStatus());
  EXPECT_EQ(RealCluster::Info(driver, *actor).restarts(), 1);
}

// "node silent"
TEST(SemanticsTest, ASilentNodesActorsRestartElsewhereAndItsOwnAreEnded) {
  RealCluster cluster({.num_nodes = 2, .head_flags = {"--lease=3s"}});
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Tally>({.max_restarts = -1}, 0);
  ASSERT_EQ(actor->Call<&Tally::Add>(4).Get(kLong).value(), 4);
  const v1::ActorInfo before = RealCluster::Info(driver, *actor);
  const auto state = driver.GetState();
  for (size_t i = 0; i < 2; ++i) {
    for (const v1::NodeInfo& node : state->nodes()) {
      if (node.node_id() == before.node_id() &&
          node.pid() == cluster.node(i).pid()) {
        ASSERT_TRUE(StopProcess(node.pid()));
      }
    }
  }
  ASSERT_TRUE(StopProcess(before.pid()));
  const absl::Time stopped = absl::Now();
  // Its state has moved as well.
  EXPECT_EQ(
      actor->With({.max_retries = -1}).Call<&Tally::Value>().Get(kLong).value(),
      4);
  // The caller hears of it from the head: nothing else tells it so early.
  EXPECT_LT(absl::Now() - stopped, absl::Seconds(20));
  EXPECT_NE(RealCluster::Info(driver, *actor).node_id(), before.node_id());
  EXPECT_TRUE(ProcessLives(before.pid()));  // Nobody could end it yet.
  for (size_t i = 0; i < 2; ++i) cluster.node(i).Signal(SIGCONT);
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(before.pid()); }, kLong));
}

// "head restarts"
TEST(SemanticsTest, AHeadThatIsKilledAndStartedAgainHasLostNothing) {
  RealCluster cluster({.num_nodes = 2});
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Plain>({.name = "kept"});
  ASSERT_EQ(actor->Call<&Plain::Add>(1).Get(kLong).value(), 1);
  cluster.KillHead();
  for (int i = 2; i < 50; ++i) {  // Calls do not pass through the head.
    ASSERT_EQ(actor->Call<&Plain::Add>(1).Get(kLong).value(), i);
  }
  cluster.StartHead();
  auto found = driver.GetActor<Plain>("kept");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->Call<&Plain::Add>(1).Get(kLong).value(), 50);
  EXPECT_TRUE(Eventually([&] {
    const auto state = driver.GetState();
    return state.ok() && state->nodes_size() == 2 &&
           state->nodes(0).state() == v1::NODE_STATE_ALIVE &&
           state->nodes(1).state() == v1::NODE_STATE_ALIVE &&
           state->jobs_size() == 1 &&
           state->jobs(0).state() == v1::JOB_STATE_RUNNING;
  }));
  auto second = driver.CreateActor<Plain>({.name = "new"});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->Call<&Plain::Add>(1).Get(kLong).value(), 1);
}

// "driver dies": LeftoversTest.AKilledDriversActorsGoAndTheClusterStays.

// A head that stands still blames nobody else for it.
TEST(SemanticsTest, AHeadThatStoodStillLosesNoNode) {
  RealCluster cluster({.head_flags = {"--lease=2s"}});
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Plain>({});
  const int64_t pid = actor->Call<&Plain::Pid>().Get(kLong).value();
  ASSERT_TRUE(StopProcess(cluster.head().pid()));
  absl::SleepFor(absl::Seconds(4));  // Longer than the lease: what is tested.
  cluster.head().Signal(SIGCONT);
  auto second = driver.CreateActor<Plain>({});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(second->WaitReady(kLong).ok());
  EXPECT_EQ(driver.GetState()->nodes_size(), 1);
  EXPECT_EQ(actor->Call<&Plain::Pid>().Get(kLong).value(), pid);
}

// "request no node can ever satisfy"
TEST(SemanticsTest, AnInfeasibleRequestIsShownAndFailsWithWhatTheNodesHave) {
  RealCluster cluster({.head_flags = {"--infeasible_timeout=3s"}});
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Plain>({.resources = {.cpu = 64}});
  ASSERT_TRUE(actor.ok());
  const RunResult status =
      cluster.tree().Run({BuiltProgram("tools/miniray"), "status", "--address",
                          cluster.address()});
  EXPECT_THAT(status.out,
              AllOf(HasSubstr("CPU 64"), HasSubstr("no node has that much")));
  const absl::Status failed = actor->Call<&Plain::Pid>().Get(kLong).status();
  EXPECT_THAT(std::string(failed.message()),
              AllOf(HasSubstr("CPU 64"), HasSubstr("CPU 4")));
}

// The same of a submitted program.
TEST(SemanticsTest, AnInfeasibleJobSaysSoAndFailsWithWhatTheNodesHave) {
  RealCluster cluster({.head_flags = {"--infeasible_timeout=3s"}});
  const std::string miniray = BuiltProgram("tools/miniray");
  const RunResult job = cluster.tree().Run(
      {miniray, "submit", "--address", cluster.address(), "--job_id=j",
       "--num_cpus=64", "--timeout=60", "--", "true"});
  EXPECT_EQ(job.exit_code, 1) << job.err;
  EXPECT_THAT(job.err,
              AllOf(HasSubstr("job j waits for CPU 64: no node has that much"),
                    HasSubstr("job j failed: cannot be placed: it asks for "
                              "CPU 64, but "),
                    HasSubstr("CPU 4")));
  EXPECT_EQ(job.out, "");
  const RunResult state = cluster.tree().Run(
      {miniray, "job", "status", "j", "--address", cluster.address()});
  EXPECT_THAT(state.out,
              AllOf(HasSubstr("failed"), HasSubstr("cannot be placed")));
}

// "name taken"
TEST(SemanticsTest, ANameIsTakenWhileItsActorLivesAndFreeAtOnceAfterwards) {
  RealCluster cluster;
  Cluster driver = cluster.Connect();
  auto first = driver.CreateActor<Plain>({.name = "n"});
  EXPECT_EQ(driver.CreateActor<Plain>({.name = "n"}).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(
      driver.CreateActor<Plain>({.name = "n", .actor_namespace = "x"}).ok());
  ASSERT_TRUE(first->Kill().ok());
  EXPECT_TRUE(driver.CreateActor<Plain>({.name = "n"}).ok());
}

// "queue too long"
TEST(SemanticsTest, TooManyPendingCallsAreRefused) {
  RealCluster cluster;
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Plain>({.max_pending_calls = 10});
  auto blocker = actor->Call<&Plain::Sleep>(2.0);
  std::vector<ObjectRef<int64_t>> refs;
  for (int i = 0; i < 30; ++i) refs.push_back(actor->Call<&Plain::Add>(1));
  int refused = 0;
  for (const auto& ref : refs) {
    const absl::Status status = ref.Get(kLong).status();
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    ++refused;
  }
  EXPECT_EQ(refused, 30 - 9);
  EXPECT_TRUE(actor->Call<&Plain::Add>(1).Get(kLong).ok());
}

// Its constructor takes what no message of the head can hold.
class Greedy {
 public:
  explicit Greedy(const std::string& text) : size_(text.size()) {}
  int64_t Size() const { return static_cast<int64_t>(size_); }

 private:
  size_t size_;
};
MINIRAY_ACTOR(Greedy, Constructor<std::string>, &Greedy::Size);

// "message too large": arguments go another way, everything else is an error.
TEST(SemanticsTest, LargeArgumentsArriveAndALargeConstructorIsAnError) {
  RealCluster cluster;
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Tally>({}, 0);
  constexpr size_t kSize = size_t{3} << 28;  // Together more than 1 GiB.
  EXPECT_EQ(actor
                ->Call<&Tally::Sizes>(std::string(kSize, 'a'),
                                      std::string(kSize + 1, 'b'))
                .Get(kLong)
                .value(),
            static_cast<int64_t>(kSize * 11 + 1));
  const absl::Status too_large =
      driver.CreateActor<Greedy>({}, std::string((size_t{2} << 30) + 1, 'x'))
          .status();
  EXPECT_EQ(too_large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_large.message()), HasSubstr("too large"));
  EXPECT_EQ(actor->Call<&Tally::Add>(1).Get(kLong).value(), 1);
}

// Connects to 127.0.0.1:PORT and sends `bytes`.
void SendGarbage(const std::string& address, const std::string& bytes) {
  const auto peer = ParseHostPort(address);
  ASSERT_TRUE(peer.ok()) << peer.status();
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(peer->port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const ScopedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  (void)send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// "bad bytes from the network"
TEST(SemanticsTest, GarbageFromTheNetworkHarmsNobody) {
  RealCluster cluster;
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Plain>({});
  ASSERT_TRUE(actor->WaitReady(kLong).ok());
  const std::string actor_address = RealCluster::Info(driver, *actor).address();
  std::mt19937 random(7);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (int i = 0; i < 100; ++i) {
    std::string bytes = i % 2 == 0 ? preface : "";
    for (int n = 0; n < 2000; ++n) {
      bytes.push_back(static_cast<char>(random()));
    }
    SendGarbage(cluster.address(), bytes);
    SendGarbage(actor_address, bytes);
  }
  EXPECT_EQ(actor->Call<&Plain::Add>(1).Get(kLong).value(), 1);
  EXPECT_TRUE(driver.CreateActor<Plain>({}).ok());
}

// "stop": SIGTERM is ignored, so only the grace's end ends the process.
TEST(SemanticsTest, StopEndsEverything) {
  RealCluster cluster({.num_nodes = 2});
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Plain>({});
  ASSERT_EQ(actor->Call<&Plain::IgnoreStops>().Get(kLong), absl::OkStatus());
  auto running = actor->Call<&Plain::Sleep>(60.0);
  const RunResult stop =
      cluster.tree().Run({BuiltProgram("tools/miniray"), "stop"});
  EXPECT_EQ(stop.exit_code, 0) << stop.err;
  EXPECT_TRUE(cluster.tree().WaitForCount(0));
  EXPECT_EQ(running.Get(kLong).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
