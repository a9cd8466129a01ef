// The token's check, and the limits that channels and servers have.

#include "runtime/rpc/channel.h"

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/test/server_context_test_spouse.h"
#include "gtest/gtest.h"
#include "runtime/base/version.h"
#include "runtime/rpc/redialler.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What CheckToken says to a call with this metadata.
absl::Status Check(const std::string& key, const std::string& value,
                   const std::string& token) {
  grpc::ServerContext context;
  grpc::testing::ServerContextTestSpouse spouse(&context);
  spouse.AddClientMetadata(kVersionKey, kVersion);
  spouse.AddClientMetadata(key, value);
  return CheckToken(context, token);
}

TEST(CheckTokenTest, TheRightOnePasses) {
  EXPECT_THAT(Check(kTokenKey, "secret", "secret"), IsOk());
}

TEST(CheckTokenTest, AnyOtherIsRefused) {
  for (const char* wrong :
       {"", "s", "secre", "secret ", "secrets", "Secret", "terces", "secreu"}) {
    EXPECT_THAT(Check(kTokenKey, wrong, "secret"),
                StatusIs(absl::StatusCode::kUnauthenticated,
                         AllOf(HasSubstr("not the one of this cluster"),
                               Not(HasSubstr("secret")))))
        << wrong;
  }
}

TEST(CheckTokenTest, NoneAtAllIsRefusedWithWhatToDo) {
  EXPECT_THAT(Check("another-key", "secret", "secret"),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       AllOf(HasSubstr("MINIRAY_TOKEN"),
                             HasSubstr("miniray start --head"))));
  EXPECT_THAT(CheckToken(grpc::ServerContext(), "secret"),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST(CheckTokenTest, AClusterWithoutTokenTakesEverybody) {
  EXPECT_THAT(Check("another-key", "", ""), IsOk());
  EXPECT_THAT(Check(kTokenKey, "any", ""), IsOk());
}

absl::Status CheckCallerOf(const std::string& version) {
  return CheckToken({.version = &version}, "", "peer", "Method");
}

TEST(CheckTokenTest, TheSameReleaseMayDifferInItsPatch) {
  const std::string release(kVersion, 0,
                            absl::string_view(kVersion).rfind('.'));
  for (const char* patch : {".0", ".7", ".12"}) {
    EXPECT_THAT(CheckCallerOf(release + patch), IsOk()) << patch;
  }
}

TEST(CheckTokenTest, AnotherReleaseIsRefusedByName) {
  const std::string release(kVersion, 0,
                            absl::string_view(kVersion).rfind('.'));
  for (const std::string& other :
       {std::string("99.3.0"), "9" + release + ".0", release + "9.0",
        release + ".0.0", release, std::string("."), std::string("x")}) {
    EXPECT_THAT(CheckCallerOf(other),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr("Mini-Ray " + other),
                               HasSubstr(std::string("Mini-Ray ") + kVersion),
                               HasSubstr("same release"))))
        << other;
    EXPECT_TRUE(IsRefusal(CheckCallerOf(other)));
  }
  EXPECT_THAT(CheckToken(grpc::ServerContext(), ""),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("too old to tell its version")));
  EXPECT_THAT(CheckCallerOf("1\n\x1b[31m"),
              StatusIs(absl::StatusCode::kUnimplemented, Not(HasSubstr("\n"))));
}

TEST(CheckTokenTest, WhoHasNoTokenIsNotToldTheVersion) {
  const std::string version = "99.0.0";
  EXPECT_THAT(
      CheckToken({.version = &version}, "secret", "peer", "Method"),
      StatusIs(absl::StatusCode::kUnauthenticated, Not(HasSubstr(kVersion))));
}

TEST(PrepareContextTest, SetsTheDeadline) {
  grpc::ClientContext context;
  const absl::Time before = absl::Now();
  PrepareContext(&context, "", absl::Seconds(100));
  const absl::Time deadline = absl::FromChrono(context.deadline());
  EXPECT_GE(deadline, before + absl::Seconds(99));
  EXPECT_LE(deadline, absl::Now() + absl::Seconds(101));
}

// A server at a port that it had before.
class RestartedServer {
 public:
  bool Start() {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port_),
                             grpc::InsecureServerCredentials(), &port_);
    service_ = std::make_unique<grpc::CallbackGenericService>();
    builder.RegisterCallbackGenericService(service_.get());
    server_ = builder.BuildAndStart();
    return server_ != nullptr;
  }
  void Stop() {
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
    server_.reset();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::CallbackGenericService> service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(RediallerTest, FindsAServerSoonAfterItsRestart) {
  RestartedServer server;
  ASSERT_TRUE(server.Start());
  const auto channel = MakeDialledChannel(server.address());
  Redialler redialler(channel.get());
  EXPECT_TRUE(redialler.AwaitConnected(absl::Now() + absl::Seconds(10)));
  server.Stop();
  // It has to notice first.
  while (channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
    ASSERT_TRUE(channel->WaitForStateChange(
        GRPC_CHANNEL_READY,
        absl::ToChronoTime(absl::Now() + absl::Seconds(10))));
  }
  // Long enough for several attempts to fail.
  EXPECT_FALSE(redialler.AwaitConnected(absl::Now() + absl::Milliseconds(500)));
  ASSERT_TRUE(server.Start());
  const absl::Time start = absl::Now();
  EXPECT_TRUE(redialler.AwaitConnected(start + absl::Seconds(10)));
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  server.Stop();
}

}  // namespace
}  // namespace miniray
