// Actors end to end: real processes, a real head, real streams.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Order {
  int64_t id = 0;
  std::string item;
  std::optional<double> price;
  std::map<std::string, std::vector<int>> notes;
  bool operator==(const Order&) const = default;
};
MINIRAY_STRUCT(Order, id, item, price, notes);

class Counter {
 public:
  explicit Counter(int64_t start) : value_(start) {}
  int64_t Add(int64_t n) { return value_ += n; }
  int64_t Get() const { return value_; }
  void Reset() { value_ = 0; }
  Order Echo(const Order& order) { return order; }
  std::string EchoBytes(std::string bytes) { return bytes; }
  int64_t Throw() { throw std::runtime_error("the well is dry"); }
  int64_t ThrowWithBacktrace() {
    throw std::runtime_error(
        "sizes differ\nException raised from f at g.cpp:1\nframe #0: h");
  }
  absl::Status Fail() { return absl::NotFoundError("no such shelf"); }
  absl::StatusOr<int64_t> Half(int64_t n) {
    if (n % 2 != 0) return absl::InvalidArgumentError("odd");
    return n / 2;
  }
  // Counts calls that do not follow the one before; now and then lets calls
  // pile up.
  int64_t InOrder(int64_t n) {
    if (n != last_ + 1) ++out_of_order_;
    last_ = n;
    if (n % 4096 == 0) usleep(1);
    return out_of_order_;
  }
  int64_t Pid() { return getpid(); }
  // Never returns: what a test kills.
  void Hang() {
    while (true) pause();
  }
  int64_t AddTo(ActorHandle<Counter> other, int64_t n);
  int64_t MakeAnother();
  std::string Variable(std::string name) {
    const char* value = getenv(name.c_str());
    return value == nullptr ? "" : value;
  }
  // Starts a process that outlives it unless its process group is killed.
  int64_t StartChild() {
    const pid_t pid = fork();
    if (pid == 0) {
      while (true) pause();
    }
    return pid;
  }
  void Exit(int code) { _exit(code); }
  void AbortInBytes() {
    for (int i = 0; i < 700; ++i) fputc(0xff, stderr);
    abort();
  }
  void Abort() {
    fprintf(stderr, "the last words\n");
    abort();
  }

 private:
  int64_t value_;
  int64_t last_ = 0;
  int64_t out_of_order_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<int64_t>, &Counter::Add, &Counter::Get,
              &Counter::Reset, &Counter::Echo, &Counter::EchoBytes,
              &Counter::Throw, &Counter::Fail, &Counter::Half, &Counter::Pid,
              &Counter::Hang, &Counter::AddTo, &Counter::MakeAnother,
              &Counter::Variable, &Counter::StartChild, &Counter::Exit,
              &Counter::Abort, &Counter::AbortInBytes, &Counter::InOrder,
              &Counter::ThrowWithBacktrace);

// Calls of the class's own kind stand after its MINIRAY_ACTOR.
int64_t Counter::AddTo(ActorHandle<Counter> other, int64_t n) {
  return other.Call<&Counter::Add>(n).Get().value();
}

int64_t Counter::MakeAnother() {
  auto child = ActorContext::Current()->cluster().CreateActor<Counter>(
      {.resources = {.cpu = 0}}, 100);
  return child->Call<&Counter::Add>(1).Get().value();
}

class Fragile {
 public:
  explicit Fragile(std::string why) { throw std::runtime_error(why); }
  int64_t Get() { return 0; }
};
MINIRAY_ACTOR(Fragile, Constructor<std::string>, &Fragile::Get);

TEST(ActorTest, CallsRunAndReturn) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({.name = "c"}, 5);
  ASSERT_TRUE(counter.ok()) << counter.status();
  EXPECT_EQ(*counter->Call<&Counter::Add>(3).Get(), 8);
  EXPECT_TRUE(counter->Call<&Counter::Reset>().Get().ok());
  EXPECT_EQ(*counter->Call<&Counter::Get>().Get(), 0);
  EXPECT_EQ(*counter->Call<&Counter::Half>(8).Get(), 4);
}

TEST(ActorTest, ValuesOfManyTypesTravel) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 0);
  const Order order{-7, "Grüße", 2.5, {{"a", {1, 2}}, {"", {}}}};
  EXPECT_EQ(*counter->Call<&Counter::Echo>(order).Get(), order);
  std::string bytes("\xff\x00\x80", 3);
  EXPECT_EQ(*counter->Call<&Counter::EchoBytes>(bytes).Get(), bytes);
  const std::string large(20'000'000, 'x');
  EXPECT_EQ(*counter->Call<&Counter::EchoBytes>(large).Get(), large);
}

TEST(ActorTest, CallsOfOneCallerRunInOrder) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 0);
  std::vector<ObjectRef<int64_t>> refs;
  for (int i = 0; i < 10000; ++i) {
    refs.push_back(counter->Call<&Counter::Add>(1));
  }
  auto values = GetAll(refs);
  ASSERT_TRUE(values.ok()) << values.status();
  for (int i = 0; i < 10000; ++i) ASSERT_EQ((*values)[i], i + 1);
}

// More calls than the actor takes at once: reading from the caller pauses and
// goes on many times.
TEST(ActorTest, CallsStayInOrderWhenTheyPileUp) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 0);
  int64_t next = 1;
  for (int round = 0; round < 8; ++round) {
    std::vector<ObjectRef<int64_t>> refs;
    for (int i = 0; i < 50000; ++i) {
      refs.push_back(counter->Call<&Counter::InOrder>(next++));
    }
    auto values = GetAll(refs);
    ASSERT_TRUE(values.ok()) << values.status();
    ASSERT_EQ(values->back(), 0);
  }
}

TEST(ActorTest, AnActorThatPausesWhileItIsCalledFirstAnswersLater) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 3);
  ASSERT_TRUE(counter->WaitReady(absl::Seconds(10)).ok());
  const auto pid = static_cast<pid_t>(cluster.Info(*counter).pid());
  ASSERT_TRUE(StopProcess(pid));
  auto value = counter->Call<&Counter::Get>();
  EXPECT_EQ(value.Get(absl::Milliseconds(700)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  kill(pid, SIGCONT);
  const absl::StatusOr<int64_t> result = value.Get(absl::Seconds(10));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result, 3);
}

TEST(ActorTest, ManyThreadsMayCallOneHandle) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        ASSERT_TRUE(counter->Call<&Counter::Add>(1).Get().ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(*counter->Call<&Counter::Get>().Get(), 1600);
}

TEST(ActorTest, AThrowBecomesAStatusAndTheActorLivesOn) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({.name = "well"}, 1);
  absl::Status status = counter->Call<&Counter::Throw>().Get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("Counter.Throw on 'well'"),
                    HasSubstr("the well is dry")));
  // As LibTorch's errors are.
  status = counter->Call<&Counter::ThrowWithBacktrace>().Get().status();
  EXPECT_THAT(std::string(status.message()),
              testing::EndsWith("threw: sizes differ"));
  status = counter->Call<&Counter::Fail>().Get();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such shelf"));
  EXPECT_EQ(counter->Call<&Counter::Half>(3).Get().status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*counter->Call<&Counter::Get>().Get(), 1);
}

TEST(ActorTest, UnknownMethodAndWrongArgumentsAreErrors) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 1);
  EXPECT_EQ(counter->CallByName<int64_t>("Nope").Get().status().code(),
            absl::StatusCode::kUnimplemented);
  absl::Status status =
      counter->CallByName<int64_t>("Add", std::string("x")).Get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("argument 1: expected an integer, got a string"));
  status = counter->CallByName<int64_t>("Add").Get().status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("takes 1 arguments, got 0"));
  status = counter->CallByName<std::string>("Get").Get().status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("result: expected a string, got an integer"));
}

TEST(ActorTest, AKilledProcessFailsPendingCallsAtOnceWithTheCause) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({.name = "victim"}, 0);
  const int64_t pid = *counter->Call<&Counter::Pid>().Get();
  auto hanging = counter->Call<&Counter::Hang>();
  auto behind = counter->Call<&Counter::Add>(1);
  const absl::Time start = absl::Now();
  kill(static_cast<pid_t>(pid), SIGKILL);
  absl::Status status = hanging.Get(absl::Seconds(10));
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'victim'"), HasSubstr("signal 9 (SIGKILL)"),
                    HasSubstr(cluster.daemon(0).node_id())));
  EXPECT_EQ(behind.Get(absl::Seconds(10)).status().code(),
            absl::StatusCode::kUnavailable);
  // And later ones too.
  EXPECT_EQ(
      counter->Call<&Counter::Get>().Get(absl::Seconds(10)).status().code(),
      absl::StatusCode::kUnavailable);
}

TEST(ActorTest, ExitCodeAndLastOutputAreInTheCause) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 0);
  EXPECT_THAT(std::string(counter->Call<&Counter::Exit>(3).Get().message()),
              HasSubstr("exited with code 3"));
  auto second = driver.CreateActor<Counter>({}, 0);
  EXPECT_THAT(
      std::string(second->Call<&Counter::Abort>().Get().message()),
      AllOf(HasSubstr("signal 6 (SIGABRT)"), HasSubstr("the last words")));
  // Output need not be text.
  auto third = driver.CreateActor<Counter>({}, 0);
  EXPECT_THAT(
      std::string(third->Call<&Counter::AbortInBytes>().Get().message()),
      HasSubstr("signal 6 (SIGABRT)"));
}

TEST(ActorTest, AConstructorThatThrowsFailsTheCalls) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto fragile =
      driver.CreateActor<Fragile>({.max_restarts = 5}, std::string("no glue"));
  ASSERT_TRUE(fragile.ok());
  absl::Status status = fragile->Call<&Fragile::Get>().Get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("constructor"), HasSubstr("no glue")));
  EXPECT_FALSE(fragile->WaitReady(absl::Seconds(5)).ok());
  EXPECT_EQ(cluster.Info(*fragile).restarts(), 0);
  // Of a long text only the beginning goes round.
  fragile = driver.CreateActor<Fragile>({}, std::string(1 << 20, 'x'));
  ASSERT_TRUE(fragile.ok());
  status = fragile->Call<&Fragile::Get>().Get().status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("threw: xxx"));
  EXPECT_LT(status.message().size(), 100000u);
}

TEST(ActorTest, ARestartedActorAnswersAgain) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({.max_restarts = 1}, 5);
  EXPECT_EQ(*counter->Call<&Counter::Add>(1).Get(), 6);
  const int64_t pid = *counter->Call<&Counter::Pid>().Get();
  kill(static_cast<pid_t>(pid), SIGKILL);
  ASSERT_TRUE(Eventually([&] {
    return cluster.Info(*counter).restarts() == 1 &&
           cluster.Info(*counter).state() == v1::ACTOR_STATE_ALIVE;
  }));
  // The connection may still be finding out.
  absl::StatusOr<int64_t> value;
  ASSERT_TRUE(Eventually([&] {
    value = counter->Call<&Counter::Add>(1).Get();
    return value.ok();
  }));
  EXPECT_EQ(*value, 6);  // The constructor ran again.
  kill(static_cast<pid_t>(*counter->Call<&Counter::Pid>().Get()), SIGKILL);
  ASSERT_TRUE(Eventually(
      [&] { return cluster.Info(*counter).state() == v1::ACTOR_STATE_DEAD; }));
}

TEST(ActorTest, HandlesTravelAndActorsCallAndCreateActors) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto one = driver.CreateActor<Counter>({}, 0);
  auto two = driver.CreateActor<Counter>({}, 10);
  EXPECT_EQ(*one->Call<&Counter::AddTo>(*two, 5).Get(), 15);
  EXPECT_EQ(*one->Call<&Counter::MakeAnother>().Get(), 101);
}

TEST(ActorTest, NamesAreUniqueAndFreedByDeath) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto one = driver.CreateActor<Counter>({.name = "n"}, 1);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(driver.CreateActor<Counter>({.name = "n"}, 2).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(
      driver.CreateActor<Counter>({.name = "n", .actor_namespace = "o"}, 2)
          .ok());
  auto found = driver.GetActor<Counter>("n");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found->Call<&Counter::Get>().Get(), 1);
  EXPECT_EQ(driver.GetActor<Fragile>("n").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(driver.GetActor<Counter>("m").status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(one->Kill().ok());
  EXPECT_TRUE(driver.CreateActor<Counter>({.name = "n"}, 3).ok());
}

TEST(ActorTest, NamesAndEnvironmentMustBeUtf8) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  EXPECT_EQ(driver.CreateActor<Counter>({.name = "\xff"}, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      driver.CreateActor<Counter>({.env = {{"A", "\xff"}}}, 1).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      driver.CreateActor<Counter>({.env = {{"A=B", ""}}}, 1).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST(ActorTest, KillEndsTheProcessGroupAndFailsCalls) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 1);
  const int64_t pid = *counter->Call<&Counter::Pid>().Get();
  const int64_t child = *counter->Call<&Counter::StartChild>().Get();
  auto hanging = counter->Call<&Counter::Hang>();
  ASSERT_TRUE(counter->Kill().ok());
  EXPECT_THAT(std::string(hanging.Get(absl::Seconds(10)).message()),
              HasSubstr("killed by request"));
  EXPECT_TRUE(
      Eventually([&] { return !ProcessLives(pid) && !ProcessLives(child); }));
}

TEST(ActorTest, AKillThatMeetsAStartLeavesNothing) {
  TestCluster cluster({.node_cpus = {8}});
  Cluster driver = cluster.Connect();
  std::vector<ActorHandle<Counter>> actors;
  for (int i = 0; i < 60; ++i) {
    auto counter = driver.CreateActor<Counter>({}, i);
    ASSERT_TRUE(counter.ok()) << counter.status();
    // At different moments of the start, from before the fork to after it.
    const absl::Time until = absl::Now() + absl::Microseconds(200 * (i % 30));
    while (absl::Now() < until) std::this_thread::yield();
    ASSERT_TRUE(counter->Kill().ok());
    actors.push_back(*counter);
  }
  EXPECT_TRUE(Eventually([&] {
    const v1::GetClusterStateResponse state = cluster.head().GetState();
    const v1::NodeInfo& node = state.nodes(0);
    return node.available().quantity().at("CPU") ==
           node.total().quantity().at("CPU");
  }));
}

TEST(ActorTest, GetTimesOutAndTheCallGoesOn) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 1);
  auto hanging = counter->Call<&Counter::Hang>();
  absl::Status status = hanging.Get(absl::Milliseconds(50));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(hanging.ready());
}

TEST(ActorTest, WaitReturnsWhatIsDone) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto slow = driver.CreateActor<Counter>({}, 1);
  auto quick = driver.CreateActor<Counter>({}, 1);
  std::vector<ObjectRef<int64_t>> refs = {slow->CallByName<int64_t>("Hang"),
                                          quick->Call<&Counter::Get>()};
  EXPECT_THAT(Wait(refs, 1), ElementsAre(1));
  EXPECT_THAT(Wait(refs, 2, absl::Milliseconds(50)), ElementsAre(1));
  EXPECT_EQ(GetAll(refs, absl::Milliseconds(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(ActorTest, ThreadsAndEnvironmentReachTheProcess) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>(
      {.resources = {.cpu = 3}, .env = {{"COLOUR", "teal"}}}, 1);
  EXPECT_EQ(*counter->Call<&Counter::Variable>("COLOUR").Get(), "teal");
  EXPECT_EQ(*counter->Call<&Counter::Variable>("OMP_NUM_THREADS").Get(), "3");
  auto one = driver.CreateActor<Counter>({.resources = {.cpu = 0}}, 1);
  EXPECT_EQ(*one->Call<&Counter::Variable>("OMP_NUM_THREADS").Get(), "1");
}

TEST(ActorTest, ActorsWaitForResourcesInTurn) {
  TestCluster cluster({.node_cpus = {1}});
  Cluster driver = cluster.Connect();
  auto first = driver.CreateActor<Counter>({}, 1);
  ASSERT_TRUE(first->WaitReady(absl::Seconds(10)).ok());
  auto second = driver.CreateActor<Counter>({}, 2);
  absl::Status status = second->WaitReady(absl::Milliseconds(100));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("waits for CPU 1"));
  auto value = second->Call<&Counter::Get>();
  ASSERT_TRUE(first->Kill().ok());
  EXPECT_EQ(*value.Get(absl::Seconds(10)), 2);
}

TEST(ActorTest, AnInfeasibleRequestFailsWithWhatTheNodesHave) {
  TestCluster cluster(
      {.node_cpus = {2},
       .head = {.infeasible_timeout = absl::Milliseconds(200)}});
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({.resources = {.cpu = 64}}, 1);
  absl::Status status =
      counter->Call<&Counter::Get>().Get(absl::Seconds(10)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("CPU 64"), HasSubstr("CPU 2")));
  EXPECT_EQ(driver.CreateActor<Counter>({.resources = {.cpu = -1}}, 1)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ActorTest, ADriversActorsEndWithItUnlessDetached) {
  TestCluster cluster;
  int64_t pid = 0, kept_pid = 0;
  {
    Cluster driver = cluster.Connect();
    auto counter = driver.CreateActor<Counter>({}, 1);
    auto kept =
        driver.CreateActor<Counter>({.name = "kept", .detached = true}, 7);
    pid = *counter->Call<&Counter::Pid>().Get();
    kept_pid = *kept->Call<&Counter::Pid>().Get();
  }
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
  EXPECT_TRUE(ProcessLives(kept_pid));
  Cluster other = cluster.Connect();
  auto kept = other.GetActor<Counter>("kept");
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept->Call<&Counter::Get>().Get(), 7);
}

TEST(ActorTest, AStoppedDaemonEndsItsActorsAndTheirCalls) {
  TestCluster cluster({.node_cpus = {1}});
  Cluster driver = cluster.Connect();
  auto counter = driver.CreateActor<Counter>({}, 1);
  const int64_t pid = *counter->Call<&Counter::Pid>().Get();
  auto hanging = counter->Call<&Counter::Hang>();
  cluster.StopDaemon(0);
  EXPECT_FALSE(ProcessLives(pid));
  EXPECT_EQ(hanging.Get(absl::Seconds(10)).code(),
            absl::StatusCode::kUnavailable);
}

TEST(ActorTest, ATokenIsCheckedOnEveryPath) {
  TestCluster cluster({.head = {.token = "secret"}});
  EXPECT_EQ(Cluster::Connect({.address = cluster.address(), .token = "wrong"})
                .status()
                .code(),
            absl::StatusCode::kUnauthenticated);
  auto driver =
      Cluster::Connect({.address = cluster.address(), .token = "secret"});
  ASSERT_TRUE(driver.ok()) << driver.status();
  auto counter = driver->CreateActor<Counter>({}, 1);
  EXPECT_EQ(*counter->Call<&Counter::Get>().Get(), 1);
}

// Its head may do without one: it listens on loopback.
TEST(ActorTest, ANodeBeyondLoopbackNeedsAToken) {
  TestCluster cluster({.node_cpus = {}});
  for (const char* ip : {"0.0.0.0", "::", "192.0.2.1"}) {
    const auto node =
        WorkerDaemon::Start({.head_address = cluster.address(),
                             .node_ip = ip,
                             .session_dir = cluster.NodeFolder(0)});
    EXPECT_THAT(node, StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr(ip), HasSubstr("needs a token"),
                                     HasSubstr("MINIRAY_TOKEN"))));
  }
  EXPECT_EQ(cluster.head().GetState().nodes_size(), 0);
}

TEST(ActorTest, AJobIdBelongsToOneDriverAtATime) {
  TestCluster cluster;
  {
    auto first =
        Cluster::Connect({.address = cluster.address(), .job_id = "j"});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->job_id(), "j");
    const absl::Status second =
        Cluster::Connect({.address = cluster.address(), .job_id = "j"})
            .status();
    EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(second.message()), HasSubstr("job 'j' is running"));
  }
  auto third = Cluster::Connect({.address = cluster.address(), .job_id = "j"});
  ASSERT_TRUE(third.ok()) << third.status();
  auto counter = third->CreateActor<Counter>({}, 1);
  ASSERT_TRUE(counter.ok()) << counter.status();
  EXPECT_EQ(*counter->Call<&Counter::Get>().Get(), 1);
}

TEST(ActorTest, AnUnreachableHeadIsAClearError) {
  const absl::Status status =
      Cluster::Connect({.address = "127.0.0.1:1",
                        .connect_timeout = absl::Milliseconds(300)})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("miniray start")));
  EXPECT_EQ(Cluster::Connect({.address = "nowhere"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ActorTest, AProgramThatWasDamagedAtTheHeadIsSentAnew) {
  TestCluster cluster({.node_cpus = {1, 1}});
  Cluster driver = cluster.Connect();
  const auto first = driver.CreateActor<Counter>({.resources = {.cpu = 1}}, 1);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->WaitReady(absl::Seconds(30)).ok());
  for (const auto& package : std::filesystem::directory_iterator(
           cluster.NodeFolder(0) + "/../head/packages")) {
    std::filesystem::resize_file(package.path(), 1000);
  }
  // The other node has no copy yet.
  const auto second = driver.CreateActor<Counter>({.resources = {.cpu = 1}}, 1);
  ASSERT_TRUE(second.ok()) << second.status();
  const absl::Status status = second->WaitReady(absl::Seconds(30));
  EXPECT_NE(status.message().find("was damaged on its disk"), std::string::npos)
      << status;
  const auto third = driver.CreateActor<Counter>({.resources = {.cpu = 1}}, 7);
  ASSERT_TRUE(third.ok()) << third.status();
  const auto value = third->Call<&Counter::Get>().Get(absl::Seconds(30));
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, 7);
}

TEST(ActorTest, OptionsThatMeanNothingAreRefused) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  const std::vector<std::pair<ActorOptions, std::string>> wrong = {
      {{.num_threads = -1}, "num_threads"},
      {{.name = "\xff"}, "the actor's name is not UTF-8"},
      {{.actor_namespace = "\xff"}, "the actor's namespace is not UTF-8"},
      {{.node_id = "\xff"}, "node_id is not UTF-8"},
      {{.node_labels = {{"\xff", "a"}}}, "a name in node_labels is not UTF-8"},
      {{.node_labels = {{"a", "\xff"}}}, "a value in node_labels is not UTF-8"},
      {{.placement_group = "\xff"}, "placement_group is not UTF-8"},
      {{.env = {{"A", std::string("a\0b", 3)}}}, "zero bytes"},
      {{.resources = {.custom = {{"", 1}}}}, "needs a name"},
      {{.resources = {.custom = {{"\xff", 1}}}}, "UTF-8"},
      {{.resources = {.custom = {{"CPU", 1}}}}, "no custom resource"},
      {{.concurrency_groups = {{.name = "g", .methods = {"Ad"}}}},
       "has no method 'Ad'; it has: "},
  };
  for (const auto& [options, text] : wrong) {
    const absl::Status status =
        driver.CreateActor<Counter>(options, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  }
  const absl::Status found = driver.GetActor<Counter>("\xff").status();
  EXPECT_THAT(found, StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("the actor's name is not UTF-8")));
}

TEST(ActorTest, ATokenThatCannotTravelIsRefusedBeforeItIsSent) {
  for (const std::string& token :
       {std::string("\xc3\xa4"), std::string(20000, 't')}) {
    EXPECT_EQ(Cluster::Connect({.address = "127.0.0.1:1", .token = token})
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
    setenv("MINIRAY_TOKEN", token.c_str(), 1);
    const absl::Status status =
        Cluster::Connect({.address = "127.0.0.1:1"}).status();
    unsetenv("MINIRAY_TOKEN");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("$MINIRAY_TOKEN"), std::string::npos);
  }
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
