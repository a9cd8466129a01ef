#include "runtime/base/net.h"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/tcp_bind.h"
#include "tests/runtime/base/loopback_port.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct GoodAddress {
  const char* text;
  const char* host;
  int port;
};

class ParseHostPortGoodTest : public ::testing::TestWithParam<GoodAddress> {};

TEST_P(ParseHostPortGoodTest, SplitsAndJoinsBack) {
  const GoodAddress& good = GetParam();
  const absl::StatusOr<HostPort> parsed = ParseHostPort(good.text);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->host, good.host);
  EXPECT_EQ(parsed->port, good.port);
  EXPECT_EQ(JoinHostPort(parsed->host, parsed->port), good.text);
}

INSTANTIATE_TEST_SUITE_P(
    All, ParseHostPortGoodTest,
    ::testing::Values(
        GoodAddress{"127.0.0.1:6380", "127.0.0.1", 6380},
        GoodAddress{"head-1.cluster.example:1", "head-1.cluster.example", 1},
        GoodAddress{"localhost:65535", "localhost", 65535},
        GoodAddress{"[::1]:6380", "::1", 6380},
        GoodAddress{"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
        GoodAddress{"[2001:db8::7:8]:443", "2001:db8::7:8", 443}));

class ParseHostPortBadTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ParseHostPortBadTest, IsRefusedWithAnExample) {
  EXPECT_THAT(
      ParseHostPort(GetParam()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(std::string("'") + GetParam() + "'"),
                     HasSubstr("HOST:PORT"), HasSubstr("127.0.0.1:6380"))));
}

INSTANTIATE_TEST_SUITE_P(
    All, ParseHostPortBadTest,
    ::testing::Values("", ":", "host", "host:", ":6380", "host:0", "host:-1",
                      "host:65536", "host:99999999999999999999", "host:12a",
                      "host:0x50", "host:6380:", "host:+80", "host: 80",
                      "host:80 ", " host:80", "ho st:80", "host\t:80", "::1",
                      "::1:6380", "[::1]", "[::1]:", "[::1:6380", "::1]:6380",
                      "[]:6380", "[:6380", "]:6380", "[::1]6380",
                      "http://host:80"));

TEST(NetTest, JoinHostPortPutsBracketsAroundIpv6Only) {
  EXPECT_EQ(JoinHostPort("10.0.0.1", 80), "10.0.0.1:80");
  EXPECT_EQ(JoinHostPort("::", 80), "[::]:80");
  EXPECT_EQ(JoinHostPort("name", 0), "name:0");
}

TEST(NetTest, IsLoopback) {
  for (const char* host :
       {"127.0.0.1", "127.0.0.0", "127.255.255.255", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  // In doubt an address counts as one that others may reach, and needs a token.
  for (const char* host :
       {"", "0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "126.255.255.255",
        "127.1", "127.0.0.1.example.com", "localhost.example.com", "127.0.0.1 ",
        "::ffff:10.0.0.1", "fe80::1"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
  EXPECT_FALSE(IsLoopback(absl::string_view("127.0.0.1\0.example.com", 22)));
}

TEST(NetTest, LocalAddressTowardsLoopbackIsLoopback) {
  EXPECT_THAT(LocalAddressTowards({"127.0.0.1", 6380}), IsOk());
  EXPECT_EQ(LocalAddressTowards({"127.0.0.1", 6380}).value(), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards({"127.8.8.8", 1}).value(), "127.0.0.1");
}

TEST(NetTest, LocalAddressTowardsLocalhostNeedsNoHostsFile) {
  EXPECT_EQ(LocalAddressTowards({"localhost", 6380}).value_or(""), "127.0.0.1");
}

TEST(NetTest, LocalAddressTowardsAnUnknownHost) {
  // No resolver asks the network for a label of more than 63 characters.
  const std::string host(64, 'a');
  EXPECT_THAT(LocalAddressTowards({host, 6380}),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("cannot resolve"), HasSubstr(host))));
}

TEST(NetTest, LocalAddressTowardsNowhere) {
  // A datagram socket may not connect to the broadcast address.
  EXPECT_THAT(
      LocalAddressTowards({"255.255.255.255", 6380}),
      StatusIs(absl::StatusCode::kUnavailable,
               HasSubstr("no route to '255.255.255.255' from this machine")));
}

TEST(NetTest, BindTcp) {
  const BoundSocket first = BindTcp("127.0.0.1", 0);
  EXPECT_EQ(first.error, 0);
  ASSERT_TRUE(first.fd.valid());
  EXPECT_GT(first.port, 0);
  ASSERT_EQ(listen(first.fd.get(), 1), 0);
  EXPECT_EQ(BindTcp("127.0.0.1", first.port).error, EADDRINUSE);
  for (const char* host : {"198.51.100.1", "localhost", ""}) {
    const BoundSocket none = BindTcp(host, 0);
    EXPECT_EQ(none.error, EADDRNOTAVAIL) << host;
    EXPECT_FALSE(none.fd.valid()) << host;
  }
}

TEST(NetTest, RefusesConnections) {
  const int port = FreePort("127.0.0.1").value();
  EXPECT_TRUE(RefusesConnections({"127.0.0.1", port}, absl::Seconds(5)));
  const LoopbackPort taken;
  EXPECT_FALSE(
      RefusesConnections({"127.0.0.1", taken.number()}, absl::Seconds(5)));
}

TEST(NetTest, Hostname) {
  char expected[256] = {};
  ASSERT_EQ(gethostname(expected, sizeof(expected) - 1), 0);
  EXPECT_EQ(Hostname(), expected);
}

}  // namespace
}  // namespace miniray
