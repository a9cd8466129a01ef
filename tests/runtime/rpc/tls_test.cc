// Servers and channels of this process, with and without TLS.

#include "runtime/rpc/tls.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
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
  Server() {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    builder.AddListeningPort("127.0.0.1:0", ServerCredentials(), &port_);
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

 private:
  int port_ = 0;
  grpc::CallbackGenericService service_;
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
