// Links over TCP against a real ActorServer in this process, at the port that
// also speaks gRPC: who gets in, who does not, and what strangers can do.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/actor/actor_server.h"
#include "runtime/api/miniray.h"
#include "runtime/base/net.h"
#include "runtime/base/version.h"
#include "runtime/client/actor_connection.h"
#include "runtime/client/actor_stream.h"
#include "runtime/client/link_fallback.h"
#include "runtime/link/link_call.h"
#include "runtime/link/tcp_socket.h"
#include "runtime/link/transport.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "tests/runtime/base/refusal_lines.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/client/fake_head.h"
#include "tests/runtime/tcp_proxy.h"

namespace miniray {
namespace internal {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr char kToken[] = "sesame-7d1c";

class Adder {
 public:
  int64_t Add(int64_t n) { return sum_ += n; }

 private:
  int64_t sum_ = 0;
};
MINIRAY_ACTOR(Adder, Constructor<>, &Adder::Add);

// A blocking connection that says what it likes.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(ParseHostPort(address)->port));
    connected_ =
        connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    const timeval limit = {30, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  bool connected() const { return connected_; }

  void Say(const std::string& bytes) {
    // The other end may have closed it.
    if (send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;
  }
  // So many bytes, or those that come before the end.
  std::string Read(size_t size) {
    std::string all(size, '\0');
    const ssize_t got = recv(fd_.get(), all.data(), size, MSG_WAITALL);
    all.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return all;
  }
  // What comes until the other end closes the connection; nothing if it does
  // not.
  std::optional<std::string> ReadToEnd() {
    std::string all;
    char buffer[4096];
    while (true) {
      const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), 0);
      if (got < 0 && errno == EAGAIN) return std::nullopt;
      if (got <= 0) return all;
      all.append(buffer, static_cast<size_t>(got));
    }
  }

 private:
  ScopedFd fd_;
  bool connected_ = false;
};

std::string Number32(uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i)));
  }
  return bytes;
}

std::string Frame(uint32_t kind, const std::string& bytes) {
  return Number32(static_cast<uint32_t>(bytes.size())) + Number32(kind) + bytes;
}

std::string Hello(const std::string& token, const std::string& version) {
  return std::string(EncodeLinkHello({{kTokenKey, token},
                                      {kVersionKey, version},
                                      {kActorKey, "actor-1"},
                                      {kIncarnationKey, "0"},
                                      {kCallerKey, "caller-1"}}));
}

class TcpLinkTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const auto& connection : connections_) {
      connection->Close(absl::CancelledError("the test ends"));
    }
    unsetenv(kTransportVariable);
  }

  void Serve() {
    auto server = ActorServer::Start({.token = kToken});
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
    v1::HostActor host;
    host.mutable_spec()->set_actor_id("actor-1");
    host.mutable_spec()->set_class_name(DemangledName(typeid(Adder)));
    server_->AddActor(host, {}, [](const v1::ActorEvent&) {});
  }
  const std::string& address() const { return server_->address(); }

  std::shared_ptr<ActorConnection> Connect(const std::string& at) {
    v1::ActorInfo info;
    info.set_actor_id("actor-1");
    info.set_state(v1::ACTOR_STATE_ALIVE);
    info.set_max_restarts(-1);
    info.set_version(1);
    info.set_address(at);
    ActorConnection::Options options;
    options.token = kToken;
    options.head_address = "head:1";
    options.transport = Transport::kTcp;
    options.channels = std::make_shared<ChannelPool>(
        [made = channels_made_](const std::string& to) {
          ++*made;
          return MakeChannel(to);
        });
    head_ = std::make_shared<FakeHead>(info);
    options.lookup = head_->lookup();
    ActorIdentity actor;
    actor.actor_id = "actor-1";
    actor.class_name = "Adder";
    connections_.push_back(
        std::make_shared<ActorConnection>(actor, std::move(options)));
    return connections_.back();
  }

  absl::StatusOr<int64_t> Add(ActorConnection* connection, int64_t n) {
    CallRequest request;
    request.method = "Add";
    request.args = {*EncodeValue(n)};
    auto result = connection->Call(std::move(request))->Wait(kLong);
    if (!result.ok()) return result.status();
    int64_t value = 0;
    absl::Status status = DecodeValue(*result, &value);
    if (!status.ok()) return status;
    return value;
  }

  // Both ways in are open.
  void ExpectServing() {
    const auto connection = Connect(address());
    const int made = *channels_made_;
    EXPECT_THAT(Add(connection.get(), 0), IsOk());
    EXPECT_EQ(*channels_made_, made);
    grpc::ClientContext context;
    PrepareContext(&context, kToken, kLong);
    v1::InspectRequest request;
    request.set_actor_id("actor-1");
    v1::InspectResponse response;
    const auto stub = v1::ActorService::NewStub(MakeChannel(address()));
    EXPECT_THAT(FromGrpcStatus(stub->Inspect(&context, request, &response)),
                IsOk());
  }

  std::unique_ptr<ActorServer> server_;
  const std::shared_ptr<std::atomic<int>> channels_made_ =
      std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<FakeHead> head_;  // Of the last connection.
  std::vector<std::shared_ptr<ActorConnection>> connections_;
};

TEST_F(TcpLinkTest, OnePortServesLinksAndGrpc) {
  Serve();
  ExpectServing();
}

TEST_F(TcpLinkTest, AnIpv6AddressIsServedToo) {
  auto listener = ListenTcp("::1");
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here";
  auto server = ActorServer::Start({.host = "::1", .token = kToken});
  ASSERT_THAT(server, IsOk());
  server_ = *std::move(server);
  v1::HostActor host;
  host.mutable_spec()->set_actor_id("actor-1");
  host.mutable_spec()->set_class_name(DemangledName(typeid(Adder)));
  server_->AddActor(host, {}, [](const v1::ActorEvent&) {});
  ExpectServing();
}

// An actor that serves no links stands for one of an older release.
TEST_F(TcpLinkTest, AnActorThatServesNoLinksIsCalledThroughGrpc) {
  setenv(kTransportVariable, "grpc", 1);
  Serve();
  const auto connection = Connect(address());
  EXPECT_THAT(Add(connection.get(), 5), IsOkAndHolds(5));
  EXPECT_EQ(*channels_made_, 1);
}

// Lets connections of gRPC through, and takes others without an answer.
TEST_F(TcpLinkTest, WhereLinksAreSwallowedCallsGoThroughGrpc) {
  Serve();
  TcpProxy proxy(address());
  proxy.Swallow(std::string(kLinkPreface));
  const auto connection = Connect(proxy.address());
  const absl::Time start = absl::Now();
  EXPECT_THAT(Add(connection.get(), 5), IsOkAndHolds(5));
  EXPECT_EQ(*channels_made_, 1);
  EXPECT_LT(absl::Now() - start, absl::Seconds(15));
  // Once such a session breaks, the link is tried again.
  proxy.Swallow("");
  proxy.Cut();
  EXPECT_THAT(Add(connection.get(), 1), IsOkAndHolds(6));
  EXPECT_EQ(*channels_made_, 1);
}

// Once gRPC has failed as well, all that lets only links through is no way out.
TEST_F(TcpLinkTest, WhereGrpcFailsTooALinkIsTriedAgain) {
  Serve();
  TcpProxy proxy(address());
  proxy.Refuse(true);
  const auto connection = Connect(proxy.address());
  CallRequest request;
  request.method = "Add";
  request.args = {*EncodeValue(int64_t{5})};
  const auto call = connection->Call(std::move(request));
  // The head is asked first, and after each time that neither got through.
  const absl::Time deadline = absl::Now() + kLong;
  while (head_->lookups() < 3 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  ASSERT_GE(head_->lookups(), 3);
  EXPECT_GE(*channels_made_, 1);
  proxy.Swallow("PRI * HTTP/2.0");
  proxy.Refuse(false);
  EXPECT_THAT(call->Wait(kLong), IsOk());
}

// As something in between does that looks at what it does not know: it lets the
// session through, and breaks the connection then.
TEST_F(TcpLinkTest, WhereLinksBreakAtOnceCallsGoThroughGrpc) {
  Serve();
  TcpProxy proxy(address());
  proxy.BreakOnceAnswered(std::string(kLinkPreface));
  const auto connection = Connect(proxy.address());
  EXPECT_THAT(Add(connection.get(), 5), IsOkAndHolds(5));
  EXPECT_EQ(*channels_made_, 1);
  EXPECT_EQ(proxy.connections(), LinkFallback::kMaxUseless + 1);
  EXPECT_THAT(Add(connection.get(), 1), IsOkAndHolds(6));
  // Links rest, though this stream breaks.
  proxy.Cut();
  EXPECT_THAT(Add(connection.get(), 1), IsOkAndHolds(7));
  EXPECT_GE(proxy.connections(), LinkFallback::kMaxUseless + 2);
}

TEST_F(TcpLinkTest, TheTokenIsAskedFor) {
  Serve();
  for (const auto& [token, version, code] :
       {std::tuple<std::string, std::string, absl::StatusCode>{
            "wrong", kVersion, absl::StatusCode::kUnauthenticated},
        {"", kVersion, absl::StatusCode::kUnauthenticated},
        {kToken, "99.1.0", absl::StatusCode::kUnimplemented}}) {
    RefusalLines lines;
    RawConnection raw(address());
    raw.Say(absl::StrCat(kLinkPreface, Frame(kLinkHello, Hello(token, version)),
                         Frame(kLinkFrame, "anything")));
    const std::optional<std::string> answer = raw.ReadToEnd();
    ASSERT_TRUE(answer.has_value());
    ASSERT_GE(answer->size(), 8);
    EXPECT_EQ(answer->substr(4, 4), Number32(kLinkEnd));
    v1::Status status;
    ASSERT_TRUE(status.ParseFromString(answer->substr(8)));
    EXPECT_EQ(FromProto(status).code(), code);
    EXPECT_EQ(lines.Await("refused Channel from ipv4:127.0.0.1:", 1), 1);
    EXPECT_EQ(lines.lines().size(), 1u);
  }
  ExpectServing();
}

TEST_F(TcpLinkTest, GarbageDoesNoHarm) {
  Serve();
  const std::string preface(kLinkPreface);
  std::mt19937 random(7);
  std::string noise(100000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  const std::vector<std::string> sayings = {
      noise, "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      "MiniRay2" + Frame(kLinkHello, Hello(kToken, kVersion)), preface + noise,
      // A hello that is far too large, and one that says it is.
      preface + Frame(kLinkHello, noise),
      preface + Number32(0xffffffff) + Number32(kLinkHello),
      // Before the hello nothing is heard; a kind that there is not.
      preface + Frame(kLinkFrame, "frame"), preface + Frame(7, ""),
      preface + Frame(0, "not alive"), preface + Frame(kLinkHello, "no pairs"),
      // Behind a good hello, garbage and a size that no message has.
      preface + Frame(kLinkHello, Hello(kToken, kVersion)) +
          Frame(kLinkFrame, noise),
      preface + Frame(kLinkHello, Hello(kToken, kVersion)) +
          Number32(0xfffffff0) + Number32(kLinkFrame),
      preface + Frame(kLinkHello, Hello(kToken, kVersion)) +
          Frame(kLinkHello, Hello(kToken, kVersion))};
  for (size_t i = 0; i < sayings.size(); ++i) {
    RefusalLines lines;
    RawConnection raw(address());
    raw.Say(sayings[i]);
    EXPECT_TRUE(raw.ReadToEnd().has_value()) << i;
    // Who has shown the token is no stranger.
    const bool known =
        sayings[i].find(preface + Frame(kLinkHello, Hello(kToken, kVersion))) ==
        0;
    if (!known) {
      EXPECT_EQ(lines.Await("from ipv4:127.0.0.1:", 1), 1) << i;
    }
    EXPECT_EQ(lines.lines().size(), known ? 0u : 1u) << i;
  }
  ExpectServing();
}

// What is cut off anywhere leaves nothing behind that waits for the rest.
TEST_F(TcpLinkTest, HalfAHelloDoesNoHarm) {
  Serve();
  const std::string all =
      absl::StrCat(kLinkPreface, Frame(kLinkHello, Hello(kToken, kVersion)));
  for (size_t size = 0; size < all.size(); ++size) {
    RawConnection raw(address());
    raw.Say(all.substr(0, size));
  }
  ExpectServing();
}

TEST_F(TcpLinkTest, APrefaceMayComeByteByByte) {
  Serve();
  RawConnection raw(address());
  for (const char c : absl::StrCat(
           kLinkPreface, Frame(kLinkHello, Hello("wrong", kVersion)))) {
    raw.Say(std::string(1, c));
  }
  const auto answer = raw.ReadToEnd();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->substr(4, 4), Number32(kLinkEnd));
}

TEST_F(TcpLinkTest, ACrowdThatSaysLittleKeepsNobodyOut) {
  RefusalLines lines;
  Serve();
  const std::string begun = absl::StrCat(
      kLinkPreface, Frame(kLinkHello, Hello(kToken, kVersion)).substr(0, 20));
  std::vector<std::unique_ptr<RawConnection>> crowd;
  constexpr size_t kCrowd = 400;
  for (size_t i = 0; i < kCrowd; ++i) {
    crowd.push_back(std::make_unique<RawConnection>(address()));
    ASSERT_TRUE(crowd.back()->connected());
    if (i % 3 > 0) crowd.back()->Say(i % 3 == 1 ? "M" : begun);
  }
  const absl::Time start = absl::Now();
  ExpectServing();
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  // The first had to make room long ago; the last have their time.
  EXPECT_TRUE(crowd.front()->ReadToEnd().has_value());
  EXPECT_TRUE(crowd.back()->ReadToEnd().has_value());
  EXPECT_GT(absl::Now() - start, absl::Seconds(5));
  // Not each: there were too many of them.
  EXPECT_GE(lines.Await("it says too little", 1), 1);
}

// Those who have not shown the token take no place from those who have.
TEST_F(TcpLinkTest, StrangersTakeNoCallersPlace) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // 128 links over TCP, and as many strangers.
  rlimit files = before;
  files.rlim_cur = std::min<rlim_t>(1024, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  Serve();
  constexpr int kCallers = 40, kStrangers = 100;
  for (int i = 0; i < kCallers; ++i) {
    EXPECT_THAT(Add(Connect(address()).get(), 0), IsOk());
  }
  EXPECT_EQ(*channels_made_, 0);
  const std::string begun = absl::StrCat(
      kLinkPreface, Frame(kLinkHello, Hello(kToken, kVersion)).substr(0, 20));
  std::vector<std::unique_ptr<RawConnection>> strangers;
  for (int i = 0; i < kStrangers; ++i) {
    strangers.push_back(std::make_unique<RawConnection>(address()));
    strangers.back()->Say(begun);
  }
  // The actor takes them for links: it tells each that it lives.
  for (const auto& stranger : strangers) {
    EXPECT_EQ(stranger->Read(8), Frame(0, ""));
  }
  EXPECT_THAT(Add(Connect(address()).get(), 0), IsOk());
  EXPECT_EQ(*channels_made_, 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(TcpLinkTest, CallersBeyondThePlacesUseGrpc) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit files = before;
  files.rlim_cur = 256;  // 32 links over TCP.
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  Serve();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  for (int i = 0; i < 32; ++i) {
    EXPECT_THAT(Add(Connect(address()).get(), 1), IsOkAndHolds(i + 1));
  }
  EXPECT_EQ(*channels_made_, 0);
  const auto late = Connect(address());
  EXPECT_THAT(Add(late.get(), 1), IsOkAndHolds(33));
  EXPECT_EQ(*channels_made_, 1);
  // A place that is given up is there for the next.
  connections_.front()->Close(absl::CancelledError("it is done"));
  const absl::Time deadline = absl::Now() + kLong;
  while (absl::Now() < deadline) {
    const int made = *channels_made_;
    EXPECT_THAT(Add(Connect(address()).get(), 0), IsOk());
    if (*channels_made_ == made) return;
    connections_.back()->Close(absl::CancelledError("it is done"));
  }
  FAIL() << "no place was given back";
}

TEST_F(TcpLinkTest, ACallersStreamEndsWhereNobodyListens) {
  Serve();
  const std::string gone = address();
  server_.reset();
  class Caller : public ActorStreamUser {
   public:
    void OnWritable(ActorStream*) override {}
    void OnFrame(ActorStream*, const absl::Cord&) override {}
    void OnStreamEnded(ActorStream*, const absl::Status& status) override {
      why = status;
      ended.Notify();
    }
    absl::Notification ended;
    absl::Status why;
  };
  const auto caller = std::make_shared<Caller>();
  const auto stream = StartTcpActorStream(caller, gone, kToken, {});
  if (stream == nullptr) return;  // The kernel said so at once.
  ASSERT_TRUE(caller->ended.WaitForNotificationWithTimeout(kLong));
  EXPECT_EQ(caller->why.code(), absl::StatusCode::kUnavailable);
}

// A peer whose machine vanished is not waited for as long as TCP would: what
// was sent and is not acknowledged for two minutes ends the connection.
TEST(TcpSocketTest, AnAcceptedConnectionHasATimeLimitForASilentPeer) {
  auto listener = ListenTcp("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  const ScopedFd caller = DialTcp(absl::StrCat("127.0.0.1:", listener->port));
  ASSERT_TRUE(caller.valid());
  pollfd waiting = {listener->fd.get(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 30000), 1);
  const ScopedFd accepted(
      accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(accepted.valid());
  const auto option = [&](int name) {
    int value = 0;
    socklen_t size = sizeof(value);
    EXPECT_EQ(getsockopt(accepted.get(), IPPROTO_TCP, name, &value, &size), 0);
    return value;
  };
  EXPECT_EQ(option(TCP_USER_TIMEOUT), 0);  // Of the system: 15 minutes or so.
  PrepareAccepted(accepted.get());
  EXPECT_EQ(option(TCP_USER_TIMEOUT), 120000);
  EXPECT_NE(option(TCP_NODELAY), 0);
}

TEST(TcpSocketTest, OnlyTheAddressOfOneInterfaceIsListenedAt) {
  const auto listener = ListenTcp("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  EXPECT_GT(listener->port, 0);
  for (const char* host : {"0.0.0.0", "::", "localhost", "nowhere", ""}) {
    EXPECT_FALSE(ListenTcp(host).ok()) << host;
  }
  EXPECT_FALSE(DialTcp("localhost:80").valid());
  EXPECT_FALSE(DialTcp("127.0.0.1").valid());
  const ScopedFd dialled = DialTcp(absl::StrCat("127.0.0.1:", listener->port));
  ASSERT_TRUE(dialled.valid());
  pollfd connecting = {dialled.get(), POLLOUT, 0};
  ASSERT_EQ(poll(&connecting, 1, 30000), 1);
  EXPECT_EQ(PeerName(dialled.get()),
            absl::StrCat("ipv4:127.0.0.1:", listener->port));
}

}  // namespace
}  // namespace internal
}  // namespace miniray
