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
  EXPECT_TRUE(IsOwnOrigin("http://127.0.0.1:8266", "127.0.0.1:8266", false));
  EXPECT_TRUE(IsOwnOrigin("https://127.0.0.1:8266", "127.0.0.1:8266", true));
  // Through a proxy that speaks TLS where the dashboard does not.
  EXPECT_TRUE(IsOwnOrigin("https://localhost", "localhost", false));
  // Not its own page: it would have come through TLS.
  EXPECT_FALSE(IsOwnOrigin("http://127.0.0.1:8266", "127.0.0.1:8266", true));
  for (const char* origin :
       {"", "null", "http://evil.example", "https://evil.example",
        "http://127.0.0.1:8267", "https://127.0.0.1:8267", "http://127.0.0.1",
        "127.0.0.1:8266", "file://127.0.0.1:8266"}) {
    EXPECT_FALSE(IsOwnOrigin(origin, "127.0.0.1:8266", false)) << origin;
    EXPECT_FALSE(IsOwnOrigin(origin, "127.0.0.1:8266", true)) << origin;
  }
}

}  // namespace
}  // namespace miniray
