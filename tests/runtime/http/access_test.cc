#include "runtime/http/access.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

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

TEST(DashboardAccessTest, Bearers) {
  EXPECT_TRUE(BearsToken("Bearer secret", "secret"));
  for (const char* header :
       {"", "secret", "Bearer", "Bearer ", "Bearersecret", "bearer secret",
        "Basic secret", "Bearer secre", "Bearer secrets", "Bearer  secret"}) {
    EXPECT_FALSE(BearsToken(header, "secret")) << header;
  }
  // "Bearer a%41%+" as it comes from the HTTP server.
  EXPECT_TRUE(BearsToken("Bearer aA%+", "a%41%+"));
  EXPECT_FALSE(BearsToken("Bearer a%41% ", "a%41%+"));
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

TEST(DashboardAccessTest, WritesWithoutAToken) {
  constexpr char kHost[] = "127.0.0.1:8266";
  constexpr char kOrigin[] = "http://127.0.0.1:8266";
  constexpr char kType[] = "application/json";
  EXPECT_EQ(WhyNoWriteWithoutToken(
                {.host = kHost, .origin = kOrigin, .content_type = kType}),
            "");
  EXPECT_EQ(WhyNoWriteWithoutToken({.host = "[::1]:80",
                                    .origin = "http://[::1]:80",
                                    .content_type = " APPLICATION/JSON ; x"}),
            "");
  EXPECT_EQ(WhyNoWriteWithoutToken({.host = kHost,
                                    .origin = "https://127.0.0.1:8266",
                                    .content_type = kType,
                                    .tls = true}),
            "");
  // The address that it listens on, which is not loopback.
  EXPECT_THAT(WhyNoWriteWithoutToken({.host = "10.0.0.1:8266",
                                      .origin = "http://10.0.0.1:8266",
                                      .content_type = kType}),
              HasSubstr("127.0.0.1 or localhost"));
  EXPECT_THAT(WhyNoWriteWithoutToken({.host = kHost, .content_type = kType}),
              HasSubstr("Origin: http://127.0.0.1:8266"));
  EXPECT_THAT(WhyNoWriteWithoutToken({.host = kHost,
                                      .origin = kOrigin,
                                      .content_type = kType,
                                      .tls = true}),
              HasSubstr("Origin: https://127.0.0.1:8266"));
  for (const char* type : {"", "text/plain", "application/jsonx", "json"}) {
    EXPECT_THAT(WhyNoWriteWithoutToken(
                    {.host = kHost, .origin = kOrigin, .content_type = type}),
                HasSubstr("Content-Type: application/json"))
        << type;
  }
}

}  // namespace
}  // namespace miniray
