// The pages are whole, and ask for nothing from elsewhere.

#include "runtime/dashboard/assets.h"

#include <httplib.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/dashboard/dashboard_server.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::map<std::string, std::string> Files() {
  std::map<std::string, std::string> files;
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    const bool is_new =
        files.emplace(std::string(file.name), std::string(file.bytes)).second;
    EXPECT_TRUE(is_new) << file.name;
  }
  return files;
}

// Not ours: it has addresses in its comments.
bool IsOurs(absl::string_view name) { return name != "chart.min.js"; }

// Without what stands between /* and */.
std::string WithoutComments(std::string text) {
  size_t begin;
  while ((begin = text.find("/*")) != std::string::npos) {
    const size_t end = text.find("*/", begin + 2);
    if (end == std::string::npos) return text.substr(0, begin);
    text.erase(begin, end + 2 - begin);
  }
  return text;
}

// What stands behind each `before`, up to the next `end`.
std::set<std::string> Named(absl::string_view text, absl::string_view before,
                            char end) {
  std::set<std::string> names;
  for (size_t at = text.find(before); at != absl::string_view::npos;
       at = text.find(before, at + 1)) {
    const absl::string_view rest = text.substr(at + before.size());
    names.emplace(rest.substr(0, rest.find(end)));
  }
  return names;
}

class AssetsTest : public testing::Test {
 protected:
  AssetsTest() {
    auto server =
        DashboardServer::Start({.token = "secret", .state = [] {
                                  return v1::GetClusterStateResponse();
                                }});
    EXPECT_THAT(server, IsOk());
    if (server.ok()) server_ = *std::move(server);
  }

  httplib::Result Get(const std::string& path,
                      const httplib::Headers& headers = {}) {
    return httplib::Client("127.0.0.1", server_->port()).Get(path, headers);
  }

  const std::map<std::string, std::string> files_ = Files();
  std::unique_ptr<DashboardServer> server_;
};

TEST_F(AssetsTest, WhatThePageNamesIsServed) {
  const httplib::Result page = Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->body, files_.at("index.html"));
  std::set<std::string> named = Named(page->body, "src=\"", '"');
  for (const std::string& href : Named(page->body, "href=\"", '"')) {
    if (!absl::StartsWith(href, "#")) named.insert(href);
  }
  EXPECT_THAT(named, IsSupersetOf({"assets/app.js", "assets/chart.min.js",
                                   "assets/style.css", "assets/icon.svg"}));
  for (const std::string& name : named) {
    // No token: a browser does not send it with these.
    const httplib::Result answer = Get("/" + name);
    ASSERT_TRUE(answer) << name;
    EXPECT_EQ(answer->status, 200) << name;
    EXPECT_FALSE(answer->body.empty()) << name;
    const std::string type = answer->get_header_value("Content-Type");
    if (absl::EndsWith(name, ".js")) {
      EXPECT_EQ(type, "text/javascript; charset=utf-8") << name;
    } else if (absl::EndsWith(name, ".css")) {
      EXPECT_EQ(type, "text/css; charset=utf-8") << name;
    } else {
      EXPECT_EQ(type, "image/svg+xml") << name;
    }
  }
}

TEST_F(AssetsTest, WhatModulesImportIsThere) {
  std::set<std::string> imported = {"app.js"};
  for (const auto& [name, bytes] : files_) {
    if (!IsOurs(name) || !absl::EndsWith(name, ".js")) continue;
    for (const std::string& other : Named(bytes, " from './", '\'')) {
      EXPECT_TRUE(files_.contains(other)) << name << " imports " << other;
      imported.insert(other);
    }
  }
  // And nothing is there that nobody imports.
  for (const auto& [name, bytes] : files_) {
    if (IsOurs(name) && absl::EndsWith(name, ".js")) {
      EXPECT_THAT(imported, Contains(name));
    }
  }
}

TEST_F(AssetsTest, EachByteIsServed) {
  for (const auto& [name, bytes] : files_) {
    if (name == "index.html") continue;
    const httplib::Result answer = Get("/assets/" + name);
    ASSERT_TRUE(answer) << name;
    EXPECT_TRUE(answer->body == bytes) << name;
  }
  // Of a whole program, the last words too.
  EXPECT_THAT(files_.at("chart.min.js"), HasSubstr("Chart.js v3"));
  EXPECT_THAT(files_.at("chart.min.js"), HasSubstr("window.Chart="));
  EXPECT_THAT(files_.at("index.html"), HasSubstr("</html>\n"));
}

TEST_F(AssetsTest, NothingIsAskedForFromElsewhere) {
  for (const auto& [name, bytes] : files_) {
    // The name of a namespace is no address that is asked.
    const std::string text =
        absl::StrReplaceAll(IsOurs(name) ? bytes : WithoutComments(bytes),
                            {{"http://www.w3.org/", ""}});
    for (const char* what : {"http://", "https://", "ws://", "wss://"}) {
      EXPECT_THAT(text, Not(HasSubstr(what))) << name;
    }
  }
}

// What comes from users is text, never markup or program; and the
// Content-Security-Policy would let nothing else run.
TEST_F(AssetsTest, NothingMakesMarkupOfData) {
  for (const auto& [name, bytes] : files_) {
    if (!IsOurs(name)) continue;
    for (const char* what :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
          "eval(", "new Function", "javascript:"}) {
      EXPECT_THAT(bytes, Not(HasSubstr(what))) << name;
    }
  }
  const std::string& page = files_.at("index.html");
  for (const char* what : {"<script>", "<style",
                           " style=", " onclick=", " onload=", " onsubmit="}) {
    EXPECT_THAT(page, Not(HasSubstr(what)));
  }
}

TEST_F(AssetsTest, WhatABrowserHasIsNotSentAgain) {
  for (const char* path : {"/", "/assets/app.js", "/assets/chart.min.js"}) {
    const httplib::Result first = Get(path);
    ASSERT_TRUE(first) << path;
    EXPECT_EQ(first->status, 200);
    EXPECT_EQ(first->get_header_value("Cache-Control"), "no-cache");
    EXPECT_EQ(first->get_header_value_count("Cache-Control"), 1u);
    const std::string tag = first->get_header_value("ETag");
    EXPECT_THAT(tag, testing::MatchesRegex("\"[0-9a-f]+-[0-9]+\""));
    const httplib::Result second = Get(path, {{"If-None-Match", tag}});
    ASSERT_TRUE(second) << path;
    EXPECT_EQ(second->status, 304);
    EXPECT_EQ(second->body, "");
    EXPECT_EQ(second->get_header_value("ETag"), tag);
    const httplib::Result other = Get(path, {{"If-None-Match", "\"0-0\""}});
    ASSERT_TRUE(other) << path;
    EXPECT_EQ(other->status, 200);
    EXPECT_EQ(other->body, first->body);
  }
}

TEST_F(AssetsTest, OtherFilesAreNotServed) {
  for (const char* path :
       {"/assets/", "/assets/index.html", "/assets/nothing.js", "/app.js",
        "/assets/../BUILD.bazel", "/assets/..%2fapp.js", "/etc/passwd",
        "/assets/app.js/", "/assets/%2fetc%2fpasswd"}) {
    const httplib::Result answer = Get(path);
    ASSERT_TRUE(answer) << path;
    EXPECT_EQ(answer->status, 404) << path;
  }
}

TEST(EntityTagTest, IsAnotherForOtherBytes) {
  // FNV-1a, 64 bits: of nothing its basis, of "a" as its authors publish it.
  EXPECT_EQ(EntityTagOf(""), "\"cbf29ce484222325-0\"");
  EXPECT_EQ(EntityTagOf("a"), "\"af63dc4c8601ec8c-1\"");
  EXPECT_NE(EntityTagOf("ab"), EntityTagOf("ba"));
}

}  // namespace
}  // namespace miniray
