#include "runtime/dashboard/dashboard_server.h"

#include <httplib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rpc/certificates.h"
#include "tests/runtime/base/refusal_lines.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/dashboard/raw_connection.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kState[] = "/api/v1/state";
constexpr absl::Duration kLong = absl::Seconds(30);

v1::GetClusterStateResponse SomeState() {
  v1::GetClusterStateResponse state;
  v1::NodeInfo* node = state.add_nodes();
  node->set_node_id("node-1");
  node->set_state(v1::NODE_STATE_ALIVE);
  (*node->mutable_total()->mutable_quantity())["CPU"] = 2;
  v1::ActorInfo* actor = state.add_actors();
  actor->set_class_name("Counter");
  actor->set_name("<b>\"c\"</b>");
  actor->set_state(v1::ACTOR_STATE_PENDING);
  actor->set_cause("waits for 4 CPU");
  state.add_jobs()->set_start_unix_ms(1700000000123);
  return state;
}

// The first bytes of a TLS handshake: a record that claims more than follows.
constexpr absl::string_view kHalfHello("\x16\x03\x01\x02\x00\x01\x00", 7);

// With TLS, or in plain text.
class DashboardServerTest : public testing::TestWithParam<bool> {
 protected:
  DashboardServerTest() {
    if (!tls()) return;
    EXPECT_THAT(MakeCertificates({.tls_dir = certs()}), IsOk());
  }

  bool tls() const { return GetParam(); }
  std::string certs() const { return folder_ / "certs"; }
  std::string Origin(const DashboardServer& server) const {
    return absl::StrCat(tls() ? "https" : "http",
                        "://127.0.0.1:", server.port());
  }

  // With TLS a cluster needs a token, or certificates of its clients.
  std::unique_ptr<DashboardServer> StartServer(
      const std::string& token = "secret",
      absl::Duration patience = absl::Seconds(5)) {
    auto server = DashboardServer::Start({.token = token,
                                          .tls_dir = tls() ? certs() : "",
                                          .patience = patience,
                                          .state = &SomeState});
    EXPECT_THAT(server, IsOk());
    return server.ok() ? *std::move(server) : nullptr;
  }

  httplib::Result Get(const DashboardServer& server, const std::string& path,
                      const httplib::Headers& headers = {}) const {
    httplib::Client client(Origin(server));
    if (tls()) client.set_ca_cert_path((certs() + "/ca.crt").c_str());
    return client.Get(path, headers);
  }

  // The status of the answer; 0: there was none.
  int StatusOf(const DashboardServer& server, const std::string& path,
               const httplib::Headers& headers = {}) const {
    const httplib::Result answer = Get(server, path, headers);
    return answer ? answer->status : 0;
  }

  const httplib::Headers bearer_ = {{"Authorization", "Bearer secret"}};
  TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Dashboard, DashboardServerTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "WithTls" : "PlainText";
                         });

TEST_P(DashboardServerTest, StateIsJson) {
  const auto server = StartServer();
  const httplib::Result answer = Get(*server, kState, bearer_);
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->get_header_value("Content-Type"), "application/json");
  EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store");
  const Json json = Json::parse(answer->body);
  EXPECT_EQ(json["nodes"][0]["node_id"], "node-1");
  EXPECT_EQ(json["nodes"][0]["state"], "NODE_STATE_ALIVE");
  EXPECT_EQ(json["nodes"][0]["total"]["quantity"]["CPU"], 2);
  EXPECT_EQ(json["actors"][0]["name"], "<b>\"c\"</b>");
  EXPECT_EQ(json["actors"][0]["cause"], "waits for 4 CPU");
  EXPECT_EQ(json["actors"][0]["restarts"], 0);
  EXPECT_EQ(json["jobs"][0]["start_unix_ms"], "1700000000123");
}

TEST_P(DashboardServerTest, ThePageRunsScriptsOfThisServerAlone) {
  const auto server = StartServer();
  const httplib::Result answer = Get(*server, "/");
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->get_header_value("Content-Type"),
            "text/html; charset=utf-8");
  const std::string policy =
      answer->get_header_value("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'; script-src 'self'; "
                                "style-src 'self'; "));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_THAT(answer->body, HasSubstr("</html>"));
}

TEST_P(DashboardServerTest, UnknownPathIsNotFound) {
  EXPECT_EQ(StatusOf(*StartServer(), "/api/v1/nothing", bearer_), 404);
}

TEST_P(DashboardServerTest, ManyRequestsOfOneConnectionAreAnswered) {
  const auto server = StartServer();
  httplib::Client client(Origin(*server));
  if (tls()) client.set_ca_cert_path((certs() + "/ca.crt").c_str());
  client.set_keep_alive(true);
  for (int i = 0; i < 12; ++i) {
    const httplib::Result answer = client.Get(kState, bearer_);
    ASSERT_TRUE(answer) << i << ": " << answer.error();
    EXPECT_EQ(answer->status, 200);
  }
}

TEST_P(DashboardServerTest, ForeignHostIsRefusedEverywhere) {
  RefusalLines lines;
  const auto server = StartServer();
  for (const char* path : {"/", kState, "/nothing"}) {
    EXPECT_EQ(StatusOf(*server, path, {{"Host", "evil.example"}}), 403) << path;
    EXPECT_EQ(
        StatusOf(*server, path,
                 {{"Host", absl::StrCat("evil.example:", server->port())}}),
        403)
        << path;
  }
  EXPECT_EQ(lines.Await("its Host is 'evil.example", 6), 6);
  EXPECT_EQ(
      StatusOf(*server, kState, {{"Host", "localhost:8266"}, *bearer_.begin()}),
      200);
}

TEST_P(DashboardServerTest, ForeignOriginIsRefused) {
  RefusalLines lines;
  const auto server = StartServer();
  for (const char* origin :
       {"http://evil.example", "https://evil.example", "null"}) {
    EXPECT_EQ(StatusOf(*server, kState, {{"Origin", origin}, *bearer_.begin()}),
              403);
  }
  EXPECT_EQ(lines.Await("its Origin is '", 3), 3);
  EXPECT_EQ(StatusOf(*server, kState,
                     {{"Origin", Origin(*server)}, *bearer_.begin()}),
            200);
  // A page that came in plain text is not the dashboard's where it uses TLS.
  const std::string plain = absl::StrCat("http://127.0.0.1:", server->port());
  EXPECT_EQ(StatusOf(*server, kState, {{"Origin", plain}, *bearer_.begin()}),
            tls() ? 403 : 200);
}

TEST_P(DashboardServerTest, DataNeedsTheToken) {
  RefusalLines lines;
  const auto server = StartServer();
  const httplib::Result refused = Get(*server, kState);
  ASSERT_TRUE(refused) << refused.error();
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(refused->get_header_value("WWW-Authenticate"), "Bearer");
  EXPECT_THAT(Json::parse(refused->body)["error"], HasSubstr("token"));
  EXPECT_THAT(refused->body, Not(HasSubstr("secret")));
  EXPECT_THAT(refused->body, Not(HasSubstr("node-1")));

  const std::string path = kState;
  EXPECT_EQ(StatusOf(*server, path, {{"Authorization", "Bearer wrong"}}), 401);
  EXPECT_EQ(StatusOf(*server, path, {{"Authorization", "secret"}}), 401);
  EXPECT_EQ(StatusOf(*server, path + "?token=secre"), 401);
  EXPECT_EQ(StatusOf(*server, path + "?token="), 401);
  EXPECT_EQ(lines.Await("refused GET /api/v1/state from 127.0.0.1:", 5), 5);
  for (const std::string& line : lines.lines()) {
    EXPECT_THAT(line, Not(HasSubstr("secre")));
  }
  EXPECT_EQ(StatusOf(*server, path, bearer_), 200);
  EXPECT_EQ(StatusOf(*server, path + "?token=secret"), 200);
  // The page holds no data; it asks for them with the token.
  EXPECT_EQ(StatusOf(*server, "/"), 200);
}

TEST_P(DashboardServerTest, TokenDoesNotOpenForForeignHosts) {
  EXPECT_EQ(StatusOf(*StartServer(), kState,
                     {{"Host", "evil.example"}, *bearer_.begin()}),
            403);
}

TEST_P(DashboardServerTest, OnlyGetIsAnswered) {
  RefusalLines lines;
  const auto server = StartServer();
  httplib::Client client(Origin(*server));
  if (tls()) client.set_ca_cert_path((certs() + "/ca.crt").c_str());
  const httplib::Result answer =
      client.Post(kState, bearer_, std::string(1 << 20, 'x'), "text/plain");
  // It need not have read all of it.
  EXPECT_EQ(answer ? answer->status : 405, 405);
  EXPECT_EQ(lines.Await("refused POST /api/v1/state from ", 1), 1);
  EXPECT_EQ(StatusOf(*server, kState, bearer_), 200);
}

TEST_P(DashboardServerTest, WhatIsNoRequestIsRefusedWithALine) {
  const auto server = StartServer();
  for (const std::string& bytes :
       {std::string("nonsense\r\n\r\n"), std::string(3000, '\xff') + "\r\n",
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string("MiniRay1"), std::string("\0\0\0\0\0\0\0\0\0\n", 10)}) {
    RefusalLines lines;
    {
      RawConnection connection(server->port());
      ASSERT_TRUE(connection.Say(bytes));
      // Half a word of HTTP may become a whole one: it ends here.
      if (bytes != "MiniRay1" || tls()) {
        EXPECT_THAT(connection.ReadToEnd(), Not(HasSubstr("node-1")));
      }
    }
    EXPECT_EQ(lines.Await("refused a connection to the dashboard from 127.", 1),
              1);
    EXPECT_EQ(lines.lines().size(), 1u);
  }
  EXPECT_EQ(StatusOf(*server, kState, bearer_), 200);
}

TEST_P(DashboardServerTest, ARequestWithoutAnEndIsNotKept) {
  RefusalLines lines;
  const auto server = StartServer();
  RawConnection connection(server->port());
  const std::string much(1 << 16, 'A');
  // It hangs up: this would go on for ever.
  while (connection.Say(much)) continue;
  EXPECT_EQ(lines.Await(tls() ? "it does not speak TLS"
                              : "its request has more than 131072 bytes",
                        1),
            1);
  EXPECT_EQ(StatusOf(*server, kState, bearer_), 200);
}

// More than there are threads, each in the midst of what it has to say.
TEST_P(DashboardServerTest, SlowClientsKeepNobodyOut) {
  RefusalLines lines;
  const auto server = StartServer("secret", absl::Hours(1));
  std::vector<std::unique_ptr<RawConnection>> slow;
  for (int i = 0; i < 80; ++i) {
    slow.push_back(std::make_unique<RawConnection>(server->port()));
    if (i % 2 == 0) continue;
    EXPECT_TRUE(slow.back()->Say(
        tls() ? kHalfHello : absl::string_view("GET / HTTP/1.1\r\nHos")));
  }
  EXPECT_EQ(StatusOf(*server, kState, bearer_), 200);
  // The oldest made room.
  EXPECT_NE(slow.front()->ReadToEnd(), "(open)");
  EXPECT_GE(lines.Await("it was slow, and others waited", 1), 1);

  const absl::Time start = absl::Now();
  server->Shutdown();
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));  // Not an hour.
  EXPECT_THAT(slow.back()->ReadToEnd(), Not(HasSubstr("node-1")));
}

TEST_P(DashboardServerTest, WhoIsTooSlowIsRefusedWithALine) {
  const auto server = StartServer("secret", absl::Milliseconds(100));
  for (const absl::string_view bytes :
       {absl::string_view(""),
        tls() ? kHalfHello : absl::string_view("GET / HTTP/1.1\r\nHos")}) {
    RefusalLines lines;
    RawConnection connection(server->port());
    if (!bytes.empty()) {
      ASSERT_TRUE(connection.Say(bytes));
    }
    EXPECT_NE(connection.ReadToEnd(), "(open)");
    EXPECT_EQ(lines.Await("refused a connection to the dashboard from ", 1), 1);
    EXPECT_EQ(lines.Await(" 100ms", 1), 1);
  }
  EXPECT_EQ(StatusOf(*server, kState, bearer_), 200);
}

// The time is for the whole, not for each byte.
TEST_P(DashboardServerTest, ByteAfterByteIsTooSlow) {
  RefusalLines lines;
  const auto server = StartServer("secret", absl::Milliseconds(200));
  RawConnection connection(server->port());
  const std::string bytes = tls() ? std::string(kHalfHello) : "GET / HTTP/1.1";
  // Many times 200 ms.
  constexpr size_t kTooMany = 2000;
  for (size_t said = 0;
       connection.Say(said < bytes.size() ? bytes.substr(said, 1) : "x");
       ++said) {
    ASSERT_LT(said, kTooMany) << "it is heard for ever";
    absl::SleepFor(absl::Milliseconds(10));  // It is slow on purpose.
  }
  EXPECT_EQ(lines.Await(" 200ms", 1), 1);
}

TEST_P(DashboardServerTest, WhoOnlyLooksLeavesNoLine) {
  RefusalLines lines;
  const auto server = StartServer();
  { RawConnection connection(server->port()); }
  EXPECT_EQ(StatusOf(*server, kState, bearer_), 200);
  server->Shutdown();
  EXPECT_THAT(lines.lines(), testing::IsEmpty());
}

TEST_P(DashboardServerTest, PortInUseIsAnError) {
  const auto first = StartServer();
  const auto second =
      DashboardServer::Start({.port = first->port(), .state = &SomeState});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("127.0.0.1:", first->port(),
                                     ": Address already in use")));
}

TEST_P(DashboardServerTest, ShutdownFreesThePort) {
  const auto first = StartServer();
  const int port = first->port();
  first->Shutdown();
  first->Shutdown();
  EXPECT_EQ(StatusOf(*first, "/"), 0);
  const auto second = DashboardServer::Start({.port = port,
                                              .token = "secret",
                                              .tls_dir = tls() ? certs() : "",
                                              .state = &SomeState});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(StatusOf(**second, "/"), 200);
}

TEST(DashboardWithoutTokenTest, PlainTextIsOpen) {
  const auto server = DashboardServer::Start({.state = &SomeState});
  ASSERT_THAT(server, IsOk());
  httplib::Client client("127.0.0.1", (*server)->port());
  const httplib::Result answer = client.Get(kState);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
}

class DashboardTlsTest : public testing::Test {
 protected:
  DashboardTlsTest() {
    EXPECT_THAT(MakeCertificates({.tls_dir = own_}), IsOk());
    EXPECT_THAT(MakeCertificates({.tls_dir = foreign_}), IsOk());
    EXPECT_THAT(MakeCertificates({.tls_dir = expired_,
                                  .ca_dir = own_,
                                  .not_before = absl::Now() - absl::Hours(48),
                                  .not_after = absl::Now() - absl::Hours(24)}),
                IsOk());
  }

  std::unique_ptr<DashboardServer> StartServer(const std::string& token) {
    auto server = DashboardServer::Start(
        {.token = token, .tls_dir = own_, .state = &SomeState});
    EXPECT_THAT(server, IsOk());
    return server.ok() ? *std::move(server) : nullptr;
  }

  // shown: the folder of the client's certificate; empty: none.
  httplib::Result Get(const DashboardServer& server, const std::string& trusted,
                      const std::string& shown) {
    const std::string url = absl::StrCat("https://127.0.0.1:", server.port());
    httplib::Client client(url, shown.empty() ? "" : shown + "/node.crt",
                           shown.empty() ? "" : shown + "/node.key");
    client.set_ca_cert_path((trusted + "/ca.crt").c_str());
    return client.Get(kState, {{"Authorization", "Bearer secret"}});
  }

  TempFolder folder_;
  const std::string own_ = folder_ / "own", foreign_ = folder_ / "foreign",
                    expired_ = folder_ / "expired";
};

TEST_F(DashboardTlsTest, PlainHttpIsRefusedAtOnceWithALine) {
  RefusalLines lines;
  const auto server = StartServer("secret");
  httplib::Client client("127.0.0.1", server->port());
  EXPECT_FALSE(client.Get(kState, {{"Authorization", "Bearer secret"}}));
  EXPECT_EQ(lines.Await("it does not speak TLS", 1), 1);
  EXPECT_EQ(lines.lines().size(), 1u);
  EXPECT_THAT(lines.lines()[0], Not(HasSubstr("secret")));
}

TEST_F(DashboardTlsTest,
       ACertificateOfAnotherAuthorityOrAnExpiredOneIsRefused) {
  for (const std::string& token : {std::string("secret"), std::string()}) {
    const auto server = StartServer(token);
    for (const std::string& shown : {foreign_, expired_}) {
      RefusalLines lines;
      EXPECT_FALSE(Get(*server, own_, shown)) << shown;
      EXPECT_EQ(lines.Await("its certificate is expired, or not signed by", 1),
                1);
    }
  }
}

TEST_F(DashboardTlsTest, WithoutATokenACertificateIsNeeded) {
  RefusalLines lines;
  const auto server = StartServer("");
  EXPECT_FALSE(Get(*server, own_, ""));
  EXPECT_EQ(lines.Await("it shows no certificate", 1), 1);
  const httplib::Result answer = Get(*server, own_, own_);
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 200);
}

TEST_F(DashboardTlsTest, ACertificateDoesNotReplaceTheToken) {
  const auto server = StartServer("another");
  const httplib::Result answer = Get(*server, own_, own_);
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 401);
}

TEST_F(DashboardTlsTest, WhoTrustsAnotherAuthoritySendsNothing) {
  RefusalLines lines;
  // A request that arrives leaves a line: its token is wrong here.
  const auto server = StartServer("another");
  const httplib::Result answer = Get(*server, foreign_, "");
  EXPECT_FALSE(answer);
  EXPECT_EQ(answer.error(), httplib::Error::SSLServerVerification);
  EXPECT_EQ(Get(*server, own_, "")->status, 401);
  server->Shutdown();
  EXPECT_EQ(lines.lines().size(), 1u);
}

TEST_F(DashboardTlsTest, AnExpiredCertificateIsNotServed) {
  const auto server = DashboardServer::Start(
      {.token = "secret", .tls_dir = expired_, .state = &SomeState});
  EXPECT_THAT(server.status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("expired")));
}

// One that expires while it is shown.
TEST_F(DashboardTlsTest, ClientsNoticeThatTheCertificateHasExpired) {
  const std::string brief = folder_ / "brief";
  ASSERT_THAT(MakeCertificates({.tls_dir = brief,
                                .ca_dir = own_,
                                .not_after = absl::Now() + absl::Seconds(3)}),
              IsOk());
  const auto server = DashboardServer::Start(
      {.token = "secret", .tls_dir = brief, .state = &SomeState});
  ASSERT_THAT(server, IsOk());
  const absl::Time deadline = absl::Now() + kLong;
  while (Get(**server, own_, "")) {
    ASSERT_LT(absl::Now(), deadline);
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_THAT(ReadCertificateFolder(brief),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(Get(**server, own_, ""));
}

}  // namespace
}  // namespace miniray
