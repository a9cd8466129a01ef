#include "runtime/dashboard/dashboard_server.h"

#include <httplib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kState[] = "/api/v1/state";

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

std::unique_ptr<DashboardServer> StartServer(const std::string& token = "") {
  auto server = DashboardServer::Start({.token = token, .state = &SomeState});
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

httplib::Result Get(const DashboardServer& server, const std::string& path,
                    const httplib::Headers& headers = {}) {
  httplib::Client client("127.0.0.1", server.port());
  return client.Get(path, headers);
}

// The status of the answer; 0: there was none.
int StatusOf(const DashboardServer& server, const std::string& path,
             const httplib::Headers& headers = {}) {
  const httplib::Result answer = Get(server, path, headers);
  return answer ? answer->status : 0;
}

TEST(DashboardServerTest, StateIsJson) {
  const auto server = StartServer();
  const httplib::Result answer = Get(*server, kState);
  ASSERT_TRUE(answer);
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

TEST(DashboardServerTest, PageNeedsNothingFromElsewhere) {
  const auto server = StartServer();
  const httplib::Result answer = Get(*server, "/");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_THAT(answer->get_header_value("Content-Type"), HasSubstr("text/html"));
  EXPECT_THAT(answer->get_header_value("Content-Security-Policy"),
              HasSubstr("default-src 'none'"));
  EXPECT_THAT(answer->body, HasSubstr("fetch('api/v1/state'"));
  EXPECT_THAT(answer->body, HasSubstr("</html>"));
  EXPECT_THAT(answer->body, Not(HasSubstr("http://")));
  EXPECT_THAT(answer->body, Not(HasSubstr("https://")));
  // Names come from users: they are put in as text only.
  EXPECT_THAT(answer->body, Not(HasSubstr("innerHTML")));
}

TEST(DashboardServerTest, UnknownPathIsNotFound) {
  EXPECT_EQ(StatusOf(*StartServer(), "/api/v1/nothing"), 404);
}

TEST(DashboardServerTest, ForeignHostIsRefusedEverywhere) {
  const auto server = StartServer();
  for (const char* path : {"/", kState, "/nothing"}) {
    EXPECT_EQ(StatusOf(*server, path, {{"Host", "evil.example"}}), 403) << path;
    EXPECT_EQ(
        StatusOf(*server, path,
                 {{"Host", absl::StrCat("evil.example:", server->port())}}),
        403)
        << path;
  }
  EXPECT_EQ(StatusOf(*server, kState, {{"Host", "localhost:8266"}}), 200);
}

TEST(DashboardServerTest, ForeignOriginIsRefused) {
  const auto server = StartServer();
  EXPECT_EQ(StatusOf(*server, kState, {{"Origin", "http://evil.example"}}),
            403);
  EXPECT_EQ(StatusOf(*server, kState, {{"Origin", "null"}}), 403);
  const std::string own = absl::StrCat("http://127.0.0.1:", server->port());
  EXPECT_EQ(StatusOf(*server, kState, {{"Origin", own}}), 200);
}

TEST(DashboardServerTest, DataNeedsTheToken) {
  const auto server = StartServer("secret");
  const httplib::Result refused = Get(*server, kState);
  ASSERT_TRUE(refused);
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
  EXPECT_EQ(StatusOf(*server, path, {{"Authorization", "Bearer secret"}}), 200);
  EXPECT_EQ(StatusOf(*server, path + "?token=secret"), 200);
  // The page holds no data; it asks for them with the token.
  EXPECT_EQ(StatusOf(*server, "/"), 200);
}

TEST(DashboardServerTest, TokenDoesNotOpenForForeignHosts) {
  EXPECT_EQ(
      StatusOf(*StartServer("secret"), kState,
               {{"Host", "evil.example"}, {"Authorization", "Bearer secret"}}),
      403);
}

TEST(DashboardServerTest, PortInUseIsAnError) {
  const auto first = StartServer();
  const auto second =
      DashboardServer::Start({.port = first->port(), .state = &SomeState});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("127.0.0.1:", first->port(),
                                     ": Address already in use")));
}

TEST(DashboardServerTest, ShutdownFreesThePort) {
  const auto first = StartServer();
  const int port = first->port();
  first->Shutdown();
  first->Shutdown();
  EXPECT_EQ(StatusOf(*first, "/"), 0);
  const auto second =
      DashboardServer::Start({.port = port, .state = &SomeState});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(StatusOf(**second, "/"), 200);
}

}  // namespace
}  // namespace miniray
