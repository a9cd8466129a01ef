#include "runtime/dashboard/routes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RoutesTest : public testing::Test {
 protected:
  RoutesTest() {
    Add("GET", "/");
    Add("GET", "/api/v1/runs");
    Add("GET", "/api/v1/runs/{}");
    Add("GET", "/api/v1/runs/{}/images/{}");
    Add("POST", "/api/v1/runs/{}/stop");
    Add("GET", "/both");
    Add("POST", "/both");
  }
  void Add(const std::string& method, const std::string& pattern) {
    routes_.Add(method, pattern, Access::kData,
                [this, name = absl::StrCat(method, " ", pattern)](
                    const httplib::Request&, const Routes::Args&,
                    httplib::Response&) { called_ = name; });
  }
  // The pattern whose handler answers; empty: none does.
  std::string Answering(const std::string& method, const std::string& path) {
    const Routes::Found found = routes_.Find(method, path);
    args_ = found.args;
    allow_ = found.allow;
    called_ = "";
    if (found.route == nullptr) return "";
    httplib::Request request;
    httplib::Response response;
    found.route->handler(request, found.args, response);
    return called_;
  }

  Routes routes_;
  std::string called_, allow_;
  std::vector<std::string> args_;
};

TEST_F(RoutesTest, EachPathHasItsHandler) {
  EXPECT_EQ(Answering("GET", "/"), "GET /");
  EXPECT_THAT(args_, IsEmpty());
  EXPECT_EQ(Answering("GET", "/api/v1/runs"), "GET /api/v1/runs");
  EXPECT_EQ(Answering("HEAD", "/api/v1/runs/a.b"), "GET /api/v1/runs/{}");
  EXPECT_THAT(args_, ElementsAre("a.b"));
  EXPECT_EQ(Answering("GET", "/api/v1/runs/a/images/7.png"),
            "GET /api/v1/runs/{}/images/{}");
  EXPECT_THAT(args_, ElementsAre("a", "7.png"));
  EXPECT_EQ(Answering("POST", "/api/v1/runs/a/stop"),
            "POST /api/v1/runs/{}/stop");
}

TEST_F(RoutesTest, WhatIsNotThere) {
  for (const char* path :
       {"", "/x", "/api/v1/runs/", "/api/v1/runs//stop", "/api/v1/runs/a/",
        "/api/v1/runs/a/images", "/api/v1/runs/a/images/7/8", "//",
        "/API/v1/runs", "api/v1/runs"}) {
    EXPECT_EQ(Answering("GET", path), "") << path;
    EXPECT_EQ(allow_, "") << path;
  }
}

TEST_F(RoutesTest, AnotherMethod) {
  EXPECT_EQ(Answering("GET", "/api/v1/runs/a/stop"), "");
  EXPECT_EQ(allow_, "POST");
  EXPECT_EQ(Answering("POST", "/api/v1/runs"), "");
  EXPECT_EQ(allow_, "GET, HEAD");
  EXPECT_EQ(Answering("DELETE", "/both"), "");
  EXPECT_EQ(allow_, "GET, HEAD, POST");
  EXPECT_EQ(Answering("POST", "/both"), "POST /both");
}

// What would overflow the stack of a matcher that recurses.
TEST_F(RoutesTest, ALongPath) {
  EXPECT_EQ(Answering("GET", "/" + std::string(1 << 20, 'a')), "");
  EXPECT_EQ(Answering("GET", std::string(1 << 20, '/')), "");
}

}  // namespace
}  // namespace miniray
