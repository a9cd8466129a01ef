// Servers and channels of this process, with and without TLS.

#include "runtime/rpc/tls.h"

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/rpc/certificates.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Answers UNIMPLEMENTED to everybody whom it lets in.
class Server {
 public:
  explicit Server(std::shared_ptr<grpc::ServerCredentials> credentials =
                      ServerCredentials()) {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~Server() { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

  // What a call with the present setting comes to.
  absl::Status Call() const {
    grpc::GenericStub stub(MakeChannel("127.0.0.1:" + std::to_string(port_)));
    grpc::ClientContext context;
    PrepareContext(&context, "", absl::Seconds(20));
    grpc::CompletionQueue queue;
    const grpc::Slice slice("x");
    const auto call = stub.PrepareUnaryCall(
        &context, "/some.Service/Method", grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, &queue);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return FromGrpcStatus(status);
  }

  // Calls that have arrived.
  int calls() const { return service_.calls; }

 private:
  struct Service : grpc::CallbackGenericService {
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      ++calls;
      return grpc::CallbackGenericService::CreateReactor(context);
    }
    std::atomic<int> calls = 0;
  };

  int port_ = 0;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    EXPECT_THAT(MakeCertificates({.tls_dir = a_}), IsOk());
    EXPECT_THAT(MakeCertificates({.tls_dir = b_}), IsOk());
  }
  ~TlsTest() override { EXPECT_THAT(UseTls(""), IsOk()); }

  TempFolder folder_;
  const std::string a_ = folder_ / "a", b_ = folder_ / "b";
};

TEST_F(TlsTest, BothSidesOfOneCluster) {
  ASSERT_THAT(UseTls(a_), IsOk());
  EXPECT_EQ(TlsDir(), a_);
  const Server server;
  EXPECT_THAT(server.Call(), StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(TlsTest, ACertificateOfTheSameAuthorityIsAsGood) {
  const std::string c = folder_ / "c";
  ASSERT_THAT(MakeCertificates({.tls_dir = c, .ca_dir = a_}), IsOk());
  ASSERT_THAT(UseTls(a_), IsOk());
  const Server server;
  ASSERT_THAT(UseTls(c), IsOk());
  EXPECT_THAT(server.Call(), StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(TlsTest, ABadFolderLeavesTheSettingAsItWas) {
  ASSERT_THAT(UseTls(a_), IsOk());
  EXPECT_THAT(UseTls(folder_ / "none"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(TlsDir(), a_);
}

TEST_F(TlsTest, PlainTextToTls) {
  ASSERT_THAT(UseTls(a_), IsOk());
  const Server server;
  ASSERT_THAT(UseTls(""), IsOk());
  EXPECT_THAT(server.Call(), StatusIs(absl::StatusCode::kUnavailable,
                                      HasSubstr("give --tls_dir")));
}

TEST_F(TlsTest, TlsToPlainText) {
  const Server server;
  ASSERT_THAT(UseTls(a_), IsOk());
  EXPECT_THAT(server.Call(), StatusIs(absl::StatusCode::kUnavailable,
                                      HasSubstr("does not speak TLS")));
}

TEST_F(TlsTest, AnotherCluster) {
  ASSERT_THAT(UseTls(a_), IsOk());
  const Server server;
  ASSERT_THAT(UseTls(b_), IsOk());
  EXPECT_THAT(server.Call(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("was not signed by " + b_ + "/ca.crt"),
                             HasSubstr("of the same cluster?"))));
}

// What a server shows may be wrong: it hears nothing of what it was to be told,
// and the client says what to do.
TEST_F(TlsTest, AServerWithAWrongCertificateIsToldNothing) {
  const std::string expired = folder_ / "expired", named = folder_ / "named";
  ASSERT_THAT(MakeCertificates({.tls_dir = expired,
                                .ca_dir = a_,
                                .not_before = absl::Now() - absl::Hours(48),
                                .not_after = absl::Now() - absl::Hours(24)}),
              IsOk());
  ASSERT_THAT(MakeCertificates(
                  {.tls_dir = named, .ca_dir = a_, .name = "another.example"}),
              IsOk());
  // A server that asks for nothing, so that only the client can refuse.
  const auto showing = [](const std::string& dir) {
    grpc::SslServerCredentialsOptions options(
        GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
    options.pem_key_cert_pairs.push_back({ReadFile(dir + "/node.key").value(),
                                          ReadFile(dir + "/node.crt").value()});
    return grpc::SslServerCredentials(options);
  };
  ASSERT_THAT(UseTls(a_), IsOk());
  for (const auto& [dir, advice] : std::map<std::string, std::string>{
           {b_, "was not signed by " + a_ + "/ca.crt"},
           {expired, "the other side's certificate is expired"},
           {named, "miniray make-certs"}}) {
    SCOPED_TRACE(dir);
    const Server server(showing(dir));
    EXPECT_THAT(server.Call(),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr(advice)));
    EXPECT_EQ(server.calls(), 0);
  }
  const Server right(showing(a_));
  EXPECT_THAT(right.Call(), StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(right.calls(), 1);
}

TEST_F(TlsTest, AdviceOnlyWhereTheConnectionFailed) {
  EXPECT_EQ(TlsAdvice("Socket closed"), "");
  EXPECT_EQ(TlsAdvice("failed to connect to all addresses; last error: "
                      "UNKNOWN: ipv4:127.0.0.1:1: Connection refused"),
            "");
  EXPECT_THAT(TlsAdvice("failed to connect to all addresses; last error: "
                        "UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed"),
              HasSubstr("MINIRAY_TLS_DIR"));
}

}  // namespace
}  // namespace miniray
