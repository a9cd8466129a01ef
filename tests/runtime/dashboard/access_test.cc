#include "runtime/dashboard/access.h"

#include "gtest/gtest.h"

namespace miniray {
namespace {

TEST(DashboardAccessTest, OwnHosts) {
  for (const char* host :
       {"127.0.0.1", "127.0.0.1:8266", "127.1.2.3:80", "localhost",
        "localhost:8266", "LocalHost:1", "[::1]", "[::1]:8266"}) {
    EXPECT_TRUE(IsOwnHost(host, "127.0.0.1")) << host;
  }
  EXPECT_TRUE(IsOwnHost("10.0.0.1:8266", "10.0.0.1"));
  EXPECT_TRUE(IsOwnHost("[fd00::1]:8266", "fd00::1"));
}

TEST(DashboardAccessTest, ForeignHosts) {
  for (const char* host :
       {"", ":8266", "evil.example", "evil.example:8266", "10.0.0.1:8266",
        "127.0.0.1.evil.example", "localhost.evil.example:8266", "[::1",
        "[::1]evil.example", "[]", "128.0.0.1", "127.0.0.1@evil.example"}) {
    EXPECT_FALSE(IsOwnHost(host, "127.0.0.1")) << host;
  }
}

TEST(DashboardAccessTest, Origins) {
  EXPECT_TRUE(IsOwnOrigin("http://127.0.0.1:8266", "127.0.0.1:8266"));
  EXPECT_TRUE(IsOwnOrigin("https://localhost", "localhost"));
  for (const char* origin :
       {"", "null", "http://evil.example", "http://127.0.0.1:8267",
        "http://127.0.0.1", "127.0.0.1:8266", "file://127.0.0.1:8266"}) {
    EXPECT_FALSE(IsOwnOrigin(origin, "127.0.0.1:8266")) << origin;
  }
}

TEST(DashboardAccessTest, Tokens) {
  EXPECT_TRUE(TokensMatch("abc", "abc"));
  EXPECT_FALSE(TokensMatch("", "abc"));
  EXPECT_FALSE(TokensMatch("ab", "abc"));
  EXPECT_FALSE(TokensMatch("abcd", "abc"));
  EXPECT_FALSE(TokensMatch("abd", "abc"));
}

}  // namespace
}  // namespace miniray
