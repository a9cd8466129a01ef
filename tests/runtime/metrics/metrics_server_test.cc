#include "runtime/metrics/metrics_server.h"

#include <httplib.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/net.h"
#include "runtime/rpc/certificates.h"
#include "tests/runtime/base/refusal_lines.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// With TLS, or in plain text.
class MetricsServerTest : public testing::TestWithParam<bool> {
 protected:
  MetricsServerTest() {
    if (!tls()) return;
    EXPECT_THAT(MakeCertificates({.tls_dir = certs()}), IsOk());
  }

  bool tls() const { return GetParam(); }
  std::string certs() const { return folder_ / "certs"; }

  std::unique_ptr<MetricsServer> StartServer(
      const std::string& token = "secret") {
    auto server = MetricsServer::Start(
        {.token = token, .tls_dir = tls() ? certs() : "", .page = [] {
           return std::string("a_metric 1\n");
         }});
    EXPECT_THAT(server, IsOk());
    return server.ok() ? *std::move(server) : nullptr;
  }

  // certificate: the client shows one of the cluster.
  httplib::Client ClientOf(const MetricsServer& server,
                           bool certificate = false) const {
    const std::string url =
        absl::StrCat(tls() ? "https://" : "http://", server.address());
    httplib::Client client =
        tls() && certificate
            ? httplib::Client(url, certs() + "/node.crt", certs() + "/node.key")
            : httplib::Client(url);
    if (tls()) client.set_ca_cert_path((certs() + "/ca.crt").c_str());
    return client;
  }

  httplib::Result Get(const MetricsServer& server,
                      const httplib::Headers& headers = {},
                      const std::string& path = "/metrics") const {
    return ClientOf(server).Get(path, headers);
  }

  // The status of the answer; 0: there was none.
  int StatusOf(const MetricsServer& server,
               const httplib::Headers& headers = {},
               const std::string& path = "/metrics") const {
    const httplib::Result answer = Get(server, headers, path);
    return answer ? answer->status : 0;
  }

  const httplib::Headers bearer_ = {{"Authorization", "Bearer secret"}};
  TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Metrics, MetricsServerTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "WithTls" : "PlainText";
                         });

TEST_P(MetricsServerTest, ThePageIsForWhoHasTheToken) {
  const auto server = StartServer();
  const httplib::Result answer = Get(*server, bearer_);
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "a_metric 1\n");
  EXPECT_EQ(answer->get_header_value("Content-Type"),
            "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store");
  // Whatever it calls the node: a token is more than a name.
  EXPECT_EQ(StatusOf(*server, {{"Host", "node.example"}, *bearer_.begin()}),
            200);
  EXPECT_EQ(StatusOf(*server, bearer_, "/"), 404);
  EXPECT_EQ(StatusOf(*server, bearer_, "/" + std::string(8000, 'm')), 404);
  EXPECT_EQ(StatusOf(*server, {{"Range", "bytes=5-9999"}, *bearer_.begin()}),
            416);
}

TEST_P(MetricsServerTest, WithoutTheTokenNothingIsTold) {
  RefusalLines lines;
  const auto server = StartServer();
  const httplib::Result refused = Get(*server);
  ASSERT_TRUE(refused) << refused.error();
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(refused->get_header_value("WWW-Authenticate"), "Bearer");
  EXPECT_THAT(refused->body,
              AllOf(HasSubstr("credentials_file"), Not(HasSubstr("a_metric")),
                    Not(HasSubstr("secret"))));
  for (const char* header : {"Bearer wrong", "Bearer secre", "Bearer secrets",
                             "secret", "Bearer ", "Basic secret"}) {
    EXPECT_EQ(StatusOf(*server, {{"Authorization", header}}), 401) << header;
  }
  // It stands in no address, where logs of others would have it.
  EXPECT_EQ(StatusOf(*server, {}, "/metrics?token=secret"), 401);
  // Nor is a stranger told which pages there are.
  EXPECT_EQ(StatusOf(*server, {}, "/nothing"), 401);
  EXPECT_EQ(lines.Await("refused GET /metrics from 127.0.0.1:", 8), 8);
  for (const std::string& line : lines.lines()) {
    EXPECT_THAT(line, Not(HasSubstr("secre")));
  }
}

TEST_P(MetricsServerTest, AWebPageReadsNothing) {
  const auto guarded = StartServer();
  for (const char* origin : {"http://evil.example", "null"}) {
    EXPECT_EQ(StatusOf(*guarded, {{"Origin", origin}, *bearer_.begin()}), 403);
  }
}

TEST_P(MetricsServerTest, WithoutATokenTheHostMustBeTheNodes) {
  const auto server = StartServer("");
  httplib::Client client = ClientOf(*server, /*certificate=*/true);
  const httplib::Result answer = client.Get("/metrics");
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 200);
  const httplib::Result rebound =
      client.Get("/metrics", {{"Host", "evil.example"}});
  ASSERT_TRUE(rebound) << rebound.error();
  EXPECT_EQ(rebound->status, 403);
  EXPECT_THAT(rebound->body, Not(HasSubstr("a_metric")));
  // With TLS the certificate is what proves who asks.
  if (tls()) {
    EXPECT_EQ(StatusOf(*server), 0);
  }
}

TEST_P(MetricsServerTest, OnlyGetIsAnswered) {
  const auto server = StartServer();
  const httplib::Result answer =
      ClientOf(*server).Post("/metrics", bearer_, "x", "text/plain");
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 405);
  EXPECT_EQ(answer->get_header_value("Allow"), "GET, HEAD");
}

TEST_P(MetricsServerTest, APortInUseIsAnErrorThatNamesIt) {
  const auto server = StartServer();
  const auto port = ParseHostPort(server->address());
  ASSERT_THAT(port, IsOk());
  EXPECT_THAT(MetricsServer::Start({.port = port->port}),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(server->address()),
                             HasSubstr("Address already in use"))));
  server->Shutdown();
  EXPECT_EQ(StatusOf(*server, bearer_), 0);
  EXPECT_THAT(MetricsServer::Start({.port = port->port}), IsOk());
}

TEST(MetricsServerAddressTest, AnAddressOfAnotherMachineIsAnError) {
  // Reserved for examples (RFC 5737).
  EXPECT_THAT(MetricsServer::Start({.host = "192.0.2.1"}),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("/metrics cannot listen on 192.0.2.1")));
}

}  // namespace
}  // namespace miniray
