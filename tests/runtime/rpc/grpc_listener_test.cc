#include "runtime/rpc/grpc_listener.h"

#include <glog/logging.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Server {
 public:
  explicit Server(const std::string& host) {
    auto listener = GrpcListener::Start(host, 0);
    EXPECT_THAT(listener, IsOk());
    listener_ = *std::move(listener);
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    listener_->AddTo(&builder);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    listener_->Accept();
  }
  ~Server() {
    listener_.reset();
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
  }

  int port() const { return listener_->port(); }

  bool CanBeHadAt(const std::string& host) const {
    return MakeChannel(absl::StrCat(host, ":", port()))
        ->WaitForConnected(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
  }

 private:
  grpc::CallbackGenericService service_;
  std::unique_ptr<GrpcListener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(GrpcListenerTest, LetsConnectionsInAtTheAddress) {
  const Server server("127.0.0.1");
  EXPECT_TRUE(server.CanBeHadAt("127.0.0.1"));
}

TEST(GrpcListenerTest, AllAddressesAreThoseOfBothFamilies) {
  const bool has_ipv6 = GrpcListener::Start("::1", 0).ok();
  for (const char* host : {"0.0.0.0", "::"}) {
    if (host[0] == ':' && !has_ipv6) continue;
    const Server server(host);
    EXPECT_TRUE(server.CanBeHadAt("127.0.0.1")) << host;
    if (has_ipv6) {
      EXPECT_TRUE(server.CanBeHadAt("[::1]")) << host;
    }
  }
}

TEST(GrpcListenerTest, SaysWhyItCannotListen) {
  const auto first = GrpcListener::Start("127.0.0.1", 0);
  ASSERT_THAT(first, IsOk());
  const int port = (*first)->port();
  EXPECT_THAT(GrpcListener::Start("127.0.0.1", port),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(absl::StrCat("127.0.0.1:", port)),
                             HasSubstr("in use"))));
  EXPECT_THAT(GrpcListener::Start("198.51.100.1", 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not an IP address of this machine")));
}

TEST(GrpcListenerTest, ItsPortIsFreeWhenItHasGone) {
  auto server = std::make_unique<Server>("127.0.0.1");
  const int port = server->port();
  // The server ends this connection, which then stays for a while.
  const ScopedFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address),
                    sizeof(address)),
            0);
  char settings;
  ASSERT_EQ(recv(client.get(), &settings, 1, 0), 1);
  server.reset();
  EXPECT_THAT(GrpcListener::Start("127.0.0.1", port), IsOk());
}

// Is notified by the line about connections that have to wait.
class ShortageLine : public google::LogSink {
 public:
  ShortageLine() { google::AddLogSink(this); }
  ~ShortageLine() override { google::RemoveLogSink(this); }

  void send(google::LogSeverity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message,
            size_t size) override {
    if (absl::StrContains(absl::string_view(message, size), "have to wait") &&
        !came_.HasBeenNotified()) {
      came_.Notify();
    }
  }

  bool Await() {
    return came_.WaitForNotificationWithTimeout(absl::Seconds(30));
  }

 private:
  absl::Notification came_;
};

// gRPC's own listener would stay deaf.
TEST(GrpcListenerTest, LetsConnectionsInAgainAfterFilesHaveRunOut) {
  const Server server("127.0.0.1");
  ASSERT_TRUE(server.CanBeHadAt("127.0.0.1"));
  // More than files of the first connection, which ends, may become free yet.
  std::vector<ScopedFd> callers;
  for (int i = 0; i < 20; ++i) {
    callers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(callers.back().valid());
  }
  ShortageLine line;

  // A limit that is soon reached, and then reached.
  struct rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old_limit), 0);
  struct rlimit limit = old_limit;
  limit.rlim_cur = static_cast<rlim_t>(callers.back().get()) + 50;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<ScopedFd> others;
  do {
    others.emplace_back(dup(callers[0].get()));
  } while (others.back().valid());

  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int connected = 0;
  for (const ScopedFd& caller : callers) {
    connected += connect(caller.get(), reinterpret_cast<sockaddr*>(&address),
                         sizeof(address)) == 0
                     ? 1
                     : 0;
  }
  const bool waited = line.Await();
  others.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old_limit), 0);

  EXPECT_EQ(connected, 20);
  EXPECT_TRUE(waited);
  EXPECT_TRUE(server.CanBeHadAt("127.0.0.1"));
}

}  // namespace
}  // namespace miniray
