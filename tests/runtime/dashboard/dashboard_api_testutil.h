// What the tests of what is under /api/v1/ share: a server with a token, over a
// state that the test fills.

#ifndef MINIRAY_TESTS_RUNTIME_DASHBOARD_DASHBOARD_API_TESTUTIL_H_
#define MINIRAY_TESTS_RUNTIME_DASHBOARD_DASHBOARD_API_TESTUTIL_H_

#include <httplib.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/dashboard/dashboard_server.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {

using Json = nlohmann::json;

inline const httplib::Headers kBearer = {{"Authorization", "Bearer secret"}};

class DashboardApiTest : public testing::Test {
 protected:
  DashboardApiTest() {
    options_.token = "secret";
    options_.state = [this] { return state_; };
  }

  // With options_. Call it once.
  void Start() {
    auto server = DashboardServer::Start(options_);
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  httplib::Result Get(const std::string& path,
                      const httplib::Headers& headers = kBearer) {
    return httplib::Client("127.0.0.1", server_->port())
        .Get("/api/v1/" + path, headers);
  }

  // EXPECTs 200.
  Json GetJson(const std::string& path) {
    const httplib::Result answer = Get(path);
    EXPECT_TRUE(answer) << path;
    if (!answer) return Json();
    EXPECT_EQ(answer->status, 200) << path << ": " << answer->body;
    EXPECT_EQ(answer->get_header_value("Content-Type"), "application/json");
    return Json::parse(answer->body);
  }

  // EXPECTs an answer {"error": "..."} with this status; returns the text.
  std::string ErrorOf(const std::string& path, int status) {
    const httplib::Result answer = Get(path);
    EXPECT_TRUE(answer) << path;
    if (!answer) return "";
    EXPECT_EQ(answer->status, status) << path << ": " << answer->body;
    return Json::parse(answer->body).value("error", "");
  }

  static std::vector<std::string> Ids(const Json& records, const char* field) {
    std::vector<std::string> ids;
    for (const Json& record : records) ids.push_back(record[field]);
    return ids;
  }

  v1::GetClusterStateResponse state_;
  DashboardServer::Options options_;
  std::unique_ptr<DashboardServer> server_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_DASHBOARD_DASHBOARD_API_TESTUTIL_H_
