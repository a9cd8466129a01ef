// What the dashboard's server has for Prometheus.

#include <httplib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/dashboard/dashboard_server.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

constexpr char kMetrics[] = "/metrics";
constexpr char kTargets[] = "/api/v1/prometheus/targets";

v1::GetClusterStateResponse NoState() { return {}; }

class MetricsRouteTest : public testing::Test {
 protected:
  void Start(DashboardServer::Options options) {
    options.token = "secret";
    options.state = &NoState;
    auto server = DashboardServer::Start(std::move(options));
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }
  void StartWithMetrics() {
    Start({.metrics = [] { return std::string("a_metric 1\n"); },
           .metric_targets =
               [](const std::string& host) {
                 return absl::StrCat("[\"", host, "\"]");
               }});
  }

  httplib::Result Get(const std::string& path,
                      const httplib::Headers& headers) const {
    return httplib::Client("127.0.0.1", server_->port()).Get(path, headers);
  }

  // What a refusal says.
  static std::string ErrorOf(const httplib::Result& answer) {
    const nlohmann::json json =
        nlohmann::json::parse(answer->body, nullptr, false);
    return json.is_object() ? json.value("error", "") : "";
  }

  const httplib::Headers bearer_ = {{"Authorization", "Bearer secret"}};
  std::unique_ptr<DashboardServer> server_;
};

TEST_F(MetricsRouteTest, ThePageAndTheTargetsAreForWhoHasTheToken) {
  StartWithMetrics();
  const httplib::Result page = Get(kMetrics, bearer_);
  ASSERT_TRUE(page) << page.error();
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->body, "a_metric 1\n");
  EXPECT_EQ(page->get_header_value("Content-Type"),
            "text/plain; version=0.0.4; charset=utf-8");
  // Whoever asks reaches the head where it has just asked.
  const httplib::Result targets =
      Get(kTargets, {{"Host", "localhost:4321"}, *bearer_.begin()});
  ASSERT_TRUE(targets) << targets.error();
  EXPECT_EQ(targets->status, 200);
  EXPECT_EQ(targets->body, "[\"localhost:4321\"]");
  // Prometheus takes nothing else.
  EXPECT_EQ(targets->get_header_value("Content-Type"), "application/json");

  for (const char* path : {kMetrics, kTargets}) {
    SCOPED_TRACE(path);
    for (const httplib::Headers& headers :
         {httplib::Headers(),
          httplib::Headers{{"Authorization", "Bearer x"}}}) {
      const httplib::Result refused = Get(path, headers);
      ASSERT_TRUE(refused) << refused.error();
      EXPECT_EQ(refused->status, 401);
      EXPECT_THAT(ErrorOf(refused), HasSubstr("needs its token"));
    }
    // Nor does a name of somebody else's lead here.
    const httplib::Result rebound =
        Get(path, {{"Host", "evil.example"}, *bearer_.begin()});
    ASSERT_TRUE(rebound) << rebound.error();
    EXPECT_EQ(rebound->status, 403);
    EXPECT_THAT(ErrorOf(rebound), HasSubstr("this Host is not"));
  }
}

TEST_F(MetricsRouteTest, TheyAreRoutesLikeOthers) {
  StartWithMetrics();
  for (const char* path : {kMetrics, kTargets}) {
    SCOPED_TRACE(path);
    httplib::Client client("127.0.0.1", server_->port());
    const httplib::Result in_address =
        client.Get(absl::StrCat(path, "?token=secret"));
    ASSERT_TRUE(in_address) << in_address.error();
    EXPECT_EQ(in_address->status, 200);
    const httplib::Result head = client.Head(path, bearer_);
    ASSERT_TRUE(head) << head.error();
    EXPECT_EQ(head->status, 200);
    EXPECT_EQ(head->body, "");
    EXPECT_EQ(head->get_header_value("Content-Length"),
              absl::StrCat(in_address->body.size()));
    const httplib::Result post =
        client.Post(path, bearer_, std::string(), "text/plain");
    ASSERT_TRUE(post) << post.error();
    EXPECT_EQ(post->status, 405);
    EXPECT_EQ(post->get_header_value("Allow"), "GET, HEAD");
  }
}

TEST_F(MetricsRouteTest, WithoutFiguresThereIsNoSuchPage) {
  Start({});
  for (const char* path : {kMetrics, kTargets}) {
    const httplib::Result answer = Get(path, bearer_);
    ASSERT_TRUE(answer) << answer.error();
    EXPECT_EQ(answer->status, 404) << path;
    EXPECT_THAT(ErrorOf(answer), HasSubstr("nothing for Prometheus"));
  }
}

}  // namespace
}  // namespace miniray
