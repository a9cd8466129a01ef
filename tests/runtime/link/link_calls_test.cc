// Which way calls inside a machine take, with real actor processes. The
// kernel's list of unix sockets tells.

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/client/actor_connection.h"
#include "runtime/link/tcp_socket.h"
#include "runtime/link/transport.h"
#include "runtime/link/unix_socket.h"
#include "runtime/rpc/fault_injector.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/client/fake_head.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

class Sum {
 public:
  int64_t Add(int64_t n) { return sum_ += n; }
  std::string Large(int64_t bytes) {
    return std::string(static_cast<size_t>(bytes), 'x');
  }
  int64_t Length(const std::string& text) {
    return static_cast<int64_t>(text.size());
  }
  void Die() { _exit(3); }

 private:
  int64_t sum_ = 0;
};
MINIRAY_ACTOR(Sum, Constructor<>, &Sum::Add, &Sum::Large, &Sum::Length,
              &Sum::Die);

struct Sockets {
  int listening = 0;
  int connected = 0;  // That the actor's process accepted.
};

Sockets SocketsOf(const std::string& address) {
  Sockets sockets;
  std::ifstream file("/proc/net/unix");
  // Num RefCount Protocol Flags Type St Inode Path
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 8 || words[7] != internal::UnixName(address)) continue;
    if (words[5] == "01") ++sockets.listening;
    if (words[5] == "03") ++sockets.connected;
  }
  return sockets;
}

class LinkCallsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Large values are to pass the link.
    setenv("MINIRAY_SHARED_MEMORY_MB", "0", 1);
  }
  void TearDown() override { unsetenv(internal::kTransportVariable); }

  static ActorHandle<Sum> Make(const Cluster& driver, ActorOptions options) {
    // Such a process has no environment of its own.
    if (options.shared_process.empty()) {
      options.env.emplace("MINIRAY_SHARED_MEMORY_MB", "0");
    }
    absl::StatusOr<ActorHandle<Sum>> actor = driver.CreateActor<Sum>(options);
    EXPECT_THAT(actor, IsOk());
    EXPECT_THAT(actor->WaitReady(kLong), IsOk());
    return *actor;
  }
};

TEST_F(LinkCallsTest, CallsInsideAMachineGoThroughAUnixSocket) {
  TestCluster cluster({.head = {.token = "secret"}});
  auto driver =
      Cluster::Connect({.address = cluster.address(), .token = "secret"});
  ASSERT_THAT(driver, IsOk());
  const ActorHandle<Sum> actor = Make(*driver, {});
  const std::string address = cluster.Info(actor).address();
  EXPECT_EQ(SocketsOf(address).listening, 1);
  EXPECT_EQ(SocketsOf(address).connected, 0);
  EXPECT_EQ(*actor.Call<&Sum::Add>(1).Get(kLong), 1);
  EXPECT_EQ(SocketsOf(address).connected, 1);
  constexpr int64_t kBytes = 20 << 20;
  const auto large = actor.Call<&Sum::Large>(kBytes).Get(kLong);
  ASSERT_THAT(large, IsOk());
  EXPECT_TRUE(*large == std::string(kBytes, 'x'));
  EXPECT_EQ(*actor.Call<&Sum::Length>(*large).Get(kLong), kBytes);
  // Many at once, in order.
  std::vector<ObjectRef<int64_t>> refs;
  for (int i = 0; i < 20000; ++i) refs.push_back(actor.Call<&Sum::Add>(1));
  const auto values = GetAll(refs);
  ASSERT_THAT(values, IsOk());
  for (int i = 0; i < 20000; ++i) ASSERT_EQ((*values)[i], i + 2);
  EXPECT_EQ(SocketsOf(address).connected, 1);
}

TEST_F(LinkCallsTest, TheVariableTurnsItOffForACaller) {
  TestCluster cluster;
  setenv(internal::kTransportVariable, "tcp", 1);
  const Cluster driver = cluster.Connect();
  const ActorHandle<Sum> actor =
      Make(driver, {.env = {{internal::kTransportVariable, "auto"}}});
  const std::string address = cluster.Info(actor).address();
  EXPECT_EQ(*actor.Call<&Sum::Add>(1).Get(kLong), 1);
  EXPECT_EQ(SocketsOf(address).listening, 1);
  EXPECT_EQ(SocketsOf(address).connected, 0);
}

TEST_F(LinkCallsTest, TheVariableTurnsItOffForAnActor) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  const ActorHandle<Sum> actor =
      Make(driver, {.env = {{internal::kTransportVariable, "tcp"}}});
  const std::string address = cluster.Info(actor).address();
  EXPECT_EQ(*actor.Call<&Sum::Add>(1).Get(kLong), 1);
  EXPECT_EQ(SocketsOf(address).listening, 0);
}

TEST_F(LinkCallsTest, AWrongValueIsAnError) {
  TestCluster cluster;
  setenv(internal::kTransportVariable, "pigeon", 1);
  const absl::Status status =
      Cluster::Connect({.address = cluster.address()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'pigeon'"));
}

TEST_F(LinkCallsTest, FaultsThatAreAskedForHappen) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  const ActorHandle<Sum> actor = Make(driver, {.max_restarts = 0});
  ASSERT_THAT(UseFaults("Channel:delay=1@300ms"), IsOk());
  const absl::Time start = absl::Now();
  EXPECT_EQ(*actor.Call<&Sum::Add>(1).Get(kLong), 1);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(300));
  EXPECT_EQ(SocketsOf(cluster.Info(actor).address()).connected, 0);
  ASSERT_THAT(UseFaults(""), IsOk());
}

TEST_F(LinkCallsTest, ARestartedActorIsFoundAgain) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  const ActorHandle<Sum> actor = Make(driver, {.max_restarts = -1});
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(*actor.Call<&Sum::Add>(1).Get(kLong), 1);
    const v1::ActorInfo info = cluster.Info(actor);
    EXPECT_EQ(SocketsOf(info.address()).connected, 1);
    const ObjectRef<void> death = actor.Call<&Sum::Die>();
    EXPECT_EQ(death.Get(kLong).code(), absl::StatusCode::kUnavailable);
    ASSERT_TRUE(Eventually(
        [&] {
          const v1::ActorInfo now = cluster.Info(actor);
          return now.restarts() == info.restarts() + 1 &&
                 now.state() == v1::ACTOR_STATE_ALIVE;
        },
        kLong));
  }
}

TEST_F(LinkCallsTest, ADeadActorsCallsFailSoon) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  const ActorHandle<Sum> actor = Make(driver, {.max_restarts = 0});
  EXPECT_EQ(*actor.Call<&Sum::Add>(1).Get(kLong), 1);
  kill(static_cast<pid_t>(cluster.Info(actor).pid()), SIGKILL);
  absl::StatusOr<int64_t> result = 0;
  while (result.ok()) result = actor.Call<&Sum::Add>(1).Get(kLong);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(LinkCallsTest, ActorsOfOneProcessHaveASocketEach) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  constexpr int kActors = 20;
  std::vector<ActorHandle<Sum>> actors;
  for (int i = 0; i < kActors; ++i) {
    actors.push_back(
        Make(driver, {.resources = {.cpu = 0}, .shared_process = "light"}));
  }
  std::vector<ObjectRef<int64_t>> refs;
  for (int i = 0; i < kActors; ++i)
    refs.push_back(actors[i].Call<&Sum::Add>(i));
  for (int i = 0; i < kActors; ++i) EXPECT_EQ(*refs[i].Get(kLong), i);
  EXPECT_EQ(SocketsOf(cluster.Info(actors[0]).address()).connected, kActors);
}

// A process that has the name, but is not what it should be.
TEST_F(LinkCallsTest, ASocketThatLeadsNowhereIsNotUsed) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  const ActorHandle<Sum> actor =
      Make(driver, {.env = {{internal::kTransportVariable, "tcp"}}});
  const auto listener = internal::ListenUnix(cluster.Info(actor).address());
  ASSERT_THAT(listener, IsOk());
  auto call = actor.Call<&Sum::Add>(1);
  int fd = -1;
  ASSERT_TRUE(Eventually([&] {
    fd = accept(listener->get(), nullptr, nullptr);
    return fd >= 0;
  }));
  close(fd);
  EXPECT_EQ(*call.Get(kLong), 1);
}

// Breaks the links of this process to an actor at `address` from the side,
// wherever they are; returns how many.
int BreakLinks(const std::string& address, bool tcp) {
  int broken = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
      continue;
    }
    const auto* const name = reinterpret_cast<sockaddr_un*>(&peer);
    const bool found =
        tcp ? internal::PeerName(fd) == absl::StrCat("ipv4:", address)
            : peer.ss_family == AF_UNIX &&
                  absl::StartsWith(std::string(name->sun_path + 1, 8),
                                   "miniray-");
    if (!found) continue;
    shutdown(fd, SHUT_RDWR);
    ++broken;
  }
  return broken;
}

// A link that breaks while a call runs is made again, and the call runs once.
void CallOverALinkThatBreaks(bool tcp) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  const ActorHandle<Sum> actor =
      driver.CreateActor<Sum>({.env = {{"MINIRAY_SHARED_MEMORY_MB", "0"}}})
          .value();
  EXPECT_EQ(*actor.Call<&Sum::Add>(1).Get(kLong), 1);
  const std::string address = cluster.Info(actor).address();
  EXPECT_EQ(SocketsOf(address).connected, tcp ? 0 : 1);
  int64_t sum = 1;
  int broken = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<ObjectRef<int64_t>> refs;
    for (int i = 0; i < 2000; ++i) refs.push_back(actor.Call<&Sum::Add>(1));
    broken += BreakLinks(address, tcp);
    for (auto& ref : refs) {
      const absl::StatusOr<int64_t> value = ref.Get(kLong);
      ASSERT_THAT(value, IsOk());
      ASSERT_EQ(*value, ++sum);
    }
  }
  EXPECT_GE(broken, 3);
}

TEST_F(LinkCallsTest, ABrokenUnixLinkIsMadeAgainAndLosesNothing) {
  CallOverALinkThatBreaks(/*tcp=*/false);
}

TEST_F(LinkCallsTest, ABrokenTcpLinkIsMadeAgainAndLosesNothing) {
  setenv(internal::kTransportVariable, "tcp", 1);
  CallOverALinkThatBreaks(/*tcp=*/true);
}

// As between two machines.
TEST_F(LinkCallsTest, CallsThroughTcpCarryAnything) {
  TestCluster cluster({.head = {.token = "secret"}});
  setenv(internal::kTransportVariable, "tcp", 1);
  auto driver =
      Cluster::Connect({.address = cluster.address(), .token = "secret"});
  ASSERT_THAT(driver, IsOk());
  const ActorHandle<Sum> actor = Make(*driver, {});
  const std::string address = cluster.Info(actor).address();
  constexpr int64_t kBytes = 20 << 20;
  const auto large = actor.Call<&Sum::Large>(kBytes).Get(kLong);
  ASSERT_THAT(large, IsOk());
  EXPECT_TRUE(*large == std::string(kBytes, 'x'));
  EXPECT_EQ(*actor.Call<&Sum::Length>(*large).Get(kLong), kBytes);
  std::vector<ObjectRef<int64_t>> refs;
  for (int i = 0; i < 20000; ++i) refs.push_back(actor.Call<&Sum::Add>(1));
  const auto values = GetAll(refs);
  ASSERT_THAT(values, IsOk());
  for (int i = 0; i < 20000; ++i) ASSERT_EQ((*values)[i], i + 1);
  EXPECT_EQ(SocketsOf(address).connected, 0);
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
