// Bytes that no peer of ours would send, to every port of a running cluster:
// nothing crashes, hangs or grows, and the cluster works on.

#include <httplib.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/rpc/certificates.h"
#include "runtime/rpc/tls.h"
#include "tests/integration/intruder.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "open-sesame";
constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// What a process may grow by, whatever is sent to it.
constexpr int64_t kMaxGrowthBytes = int64_t{150} << 20;

class Counter {
 public:
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<>, &Counter::Add);

std::string RandomBytes(std::mt19937* random, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>((*random)());
  return bytes;
}

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) {
    text.push_back(static_cast<char>(value >> (8 * i)));
  }
  return text;
}

// An HTTP/2 frame; `length` is what its header claims.
std::string Frame(uint32_t length, uint8_t type, uint8_t flags, uint32_t stream,
                  absl::string_view payload) {
  return absl::StrCat(BigEndian(length, 3), BigEndian(type, 1),
                      BigEndian(flags, 1), BigEndian(stream, 4), payload);
}

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream,
                  absl::string_view payload) {
  return Frame(static_cast<uint32_t>(payload.size()), type, flags, stream,
               payload);
}

constexpr uint8_t kData = 0, kHeaders = 1, kSettings = 4, kPing = 6,
                  kWindowUpdate = 8, kContinuation = 9;
constexpr uint8_t kEndHeaders = 4;

// A header field in HPACK: literal, not indexed, not compressed.
std::string Field(absl::string_view name, absl::string_view value) {
  return absl::StrCat(BigEndian(0, 1), BigEndian(name.size(), 1), name,
                      BigEndian(value.size(), 1), value);
}

std::string CallHeaders(absl::string_view path) {
  return absl::StrCat(Field(":method", "POST"), Field(":scheme", "http"),
                      Field(":path", path), Field(":authority", "x"),
                      Field("te", "trailers"),
                      Field("content-type", "application/grpc"));
}

std::string Hello() {
  return absl::StrCat(kPreface, Frame(kSettings, 0, 0, ""));
}

// The beginning of a call whose message claims `claimed` bytes.
std::string Call(absl::string_view path, uint32_t claimed,
                 absl::string_view bytes) {
  return absl::StrCat(
      Hello(), Frame(kHeaders, kEndHeaders, 1, CallHeaders(path)),
      Frame(kData, 0, 1,
            absl::StrCat(BigEndian(0, 1), BigEndian(claimed, 4), bytes)));
}

// What a frame of a link begins with: 32 bits each, lowest byte first.
std::string LinkHeader(uint32_t size, uint32_t kind) {
  std::string bytes = BigEndian((uint64_t{kind} << 32) | size, 8);
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

// Each is sent over a connection of its own.
std::vector<std::string> HostileBytes() {
  std::mt19937 random(20240);
  std::vector<std::string> all = {
      "",
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string(1 << 20, 'A'),  // A request line without an end.
      absl::StrCat("GET /", std::string(1 << 20, 'a'), " HTTP/1.1\r\n\r\n"),
      absl::StrCat("POST /api/v1/state HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                   "Content-Length: 9223372036854775807\r\n\r\n",
                   std::string(1000, 'a')),
      absl::StrCat("GET / HTTP/1.1\r\n", std::string(200000, 'h'),
                   ": v\r\n\r\n"),
      std::string(kPreface.substr(0, 10)),
      std::string(kPreface),
      Hello(),
      absl::StrCat(kPreface, RandomBytes(&random, 1000)),
      absl::StrCat(Hello(), RandomBytes(&random, 100000)),
      // Lengths that lie.
      absl::StrCat(Hello(), Frame(0xffffff, kData, 0, 1, "abc")),
      absl::StrCat(Hello(), Frame(0xffffff, kHeaders, kEndHeaders, 1, "abc")),
      absl::StrCat(Hello(), Frame(0xffffff, kSettings, 0, 0, "abc")),
      absl::StrCat(Hello(), Frame(2, kPing, 0, 0, "ab")),
      absl::StrCat(Hello(), Frame(kWindowUpdate, 0, 0, BigEndian(0, 4))),
      absl::StrCat(Hello(),
                   Frame(kWindowUpdate, 0, 0, BigEndian(0x7fffffff, 4)),
                   Frame(kWindowUpdate, 0, 0, BigEndian(0x7fffffff, 4))),
      // Header compression: an index that does not exist, a length that lies.
      absl::StrCat(Hello(),
                   Frame(kHeaders, kEndHeaders, 1, "\xff\xff\xff\x7f")),
      absl::StrCat(Hello(), Frame(kHeaders, kEndHeaders, 1,
                                  absl::StrCat(BigEndian(0, 1),
                                               "\x7f\xff\xff\xff\x7f"))),
      // A TLS hello that claims 64 KiB, and one of an unknown version.
      absl::StrCat("\x16\x03\x01\xff\xff\x01", BigEndian(0xffffff, 3),
                   "\x03\x03"),
      "\x16\x09\x09\x05",
      // Links: half a preface, none of ours, sizes that lie, no hello.
      "Mini",
      "MiniRay2",
      "MiniRay1",
      absl::StrCat("MiniRay1", RandomBytes(&random, 100000)),
      absl::StrCat("MiniRay1", std::string(8, '\xff')),
      absl::StrCat("MiniRay1", LinkHeader(16 << 10, 16), "abc"),
      absl::StrCat("MiniRay1", LinkHeader(3, 16), "abc"),
      absl::StrCat("MiniRay1", LinkHeader(0x7fffffff, 17), "abc"),
      absl::StrCat("MiniRay1", LinkHeader(0, 0), LinkHeader(0, 0)),
  };
  // Messages that claim the most, of which nothing or little follows.
  for (const char* path :
       {"/miniray.v1.Head/GetClusterState", "/miniray.v1.Head/PutPackage",
        "/miniray.v1.ActorService/Channel", "/miniray.v1.ActorService/Inspect",
        "/miniray.v1.ObjectStore/PutObject", "/no.Such/Method"}) {
    for (uint32_t claimed : {0xffffffffU, 0x7fffffffU, 0x40000000U}) {
      all.push_back(Call(path, claimed, ""));
      all.push_back(Call(path, claimed, std::string(16000, 'x')));
    }
    all.push_back(Call(path, 100, RandomBytes(&random, 100)));
  }
  // Much of a message that nobody may send.
  for (int i = 0; i < 24; ++i) {
    std::string much = absl::StrCat(
        Hello(),
        Frame(kHeaders, kEndHeaders, 1,
              CallHeaders("/miniray.v1.Head/GetClusterState")),
        Frame(kData, 0, 1,
              absl::StrCat(BigEndian(0, 1), BigEndian(0x3fffffff, 4))));
    for (int frame = 0; frame < 2000; ++frame) {
      absl::StrAppend(&much, Frame(kData, 0, 1, std::string(16000, 'x')));
    }
    all.push_back(much);
  }
  // Headers that never end.
  std::string endless = absl::StrCat(Hello(), Frame(kHeaders, 0, 1, "x"));
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&endless, Frame(kContinuation, 0, 1,
                                    Field("a", std::string(100, 'v'))));
  }
  all.push_back(endless);
  std::string pings = Hello();
  for (int i = 0; i < 20000; ++i) {
    absl::StrAppend(&pings, Frame(kPing, 0, 0, "12345678"));
  }
  all.push_back(pings);
  std::string streams = Hello();
  for (uint32_t i = 0; i < 2000; ++i) {
    absl::StrAppend(&streams,
                    Frame(kHeaders, kEndHeaders, 2 * i + 1,
                          CallHeaders("/miniray.v1.Head/PutPackage")));
  }
  all.push_back(streams);
  for (size_t size : {1, 5, 100, 4096, 1 << 20}) {
    all.push_back(RandomBytes(&random, size));
  }
  return all;
}

class HostileBytesTest : public ::testing::TestWithParam<bool> {
 protected:
  ~HostileBytesTest() override { EXPECT_THAT(UseTls(""), IsOk()); }
};

INSTANTIATE_TEST_SUITE_P(Security, HostileBytesTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "WithTls" : "PlainText";
                         });

TEST_P(HostileBytesTest, EveryPortStandsThem) {
  const bool tls = GetParam();
  TempFolder files;
  RealCluster::Options options;
  const std::string token_file = files / "token";
  ASSERT_THAT(WriteFileAtomically(token_file, kToken, 0600), IsOk());
  options.head_flags = {"--token_file=" + token_file, "--dashboard_port=0"};
  options.node_flags = {"--token_file=" + token_file};
  const std::string certs = tls ? files / "certs" : "";
  if (tls) {
    ASSERT_THAT(MakeCertificates({.tls_dir = certs}), IsOk());
    options.head_flags.push_back("--tls_dir=" + certs);
    options.node_flags.push_back("--tls_dir=" + certs);
  }
  RealCluster real(options);
  std::string dashboard;
  do {
    dashboard = real.head().ReadLine();
    ASSERT_FALSE(dashboard.empty());
  } while (dashboard.find("Dashboard: ") == std::string::npos);
  dashboard = dashboard.substr(dashboard.find("://") + 3);
  dashboard = dashboard.substr(0, dashboard.find('/'));
  const auto driver = Cluster::Connect(
      {.address = real.address(), .token = kToken, .tls_dir = certs});
  ASSERT_THAT(driver, IsOk());
  const auto counter = driver->CreateActor<Counter>({});
  ASSERT_THAT(counter, IsOk());
  ASSERT_THAT(counter->Call<&Counter::Add>(1).Get(absl::Seconds(30)), IsOk());
  const v1::ActorInfo info = RealCluster::Info(*driver, *counter);
  const v1::NodeInfo node = driver->GetState()->nodes(0);

  struct Target {
    std::string address;
    int64_t pid;
  };
  std::vector<Target> targets = {{real.address(), real.head().pid()},
                                 {dashboard, real.head().pid()},
                                 {info.address(), info.pid()},
                                 {node.object_address(), node.pid()}};
  const std::vector<std::string> hostile = HostileBytes();
  // Those that have said a byte of what could become something.
  std::vector<int> half_open;
  for (const Target& target : targets) {
    SCOPED_TRACE(target.address);
    const int64_t before = ResidentBytes(target.pid);
    ASSERT_GT(before, 0);
    std::vector<int> sockets;
    // All of them stay open while the next ones come.
    for (const std::string& bytes : hostile) {
      const int fd = SendRaw(target.address, bytes);
      EXPECT_GE(fd, 0) << "refuses connections after " << sockets.size();
      sockets.push_back(fd);
    }
    // Idle connections by the hundred keep nobody out.
    for (int i = 0; i < 100; ++i) {
      (i % 2 == 0 ? half_open : sockets)
          .push_back(SendRaw(target.address, i % 2 == 0 ? "P" : Hello()));
    }
    const int64_t after = ResidentBytes(target.pid);
    ASSERT_GT(after, 0) << "it died";
    EXPECT_LT(after - before, kMaxGrowthBytes);
    if (target.address !=
        dashboard) {  // It has a few threads, and time limits.
      EXPECT_THAT(counter->Call<&Counter::Add>(0).Get(absl::Seconds(30)),
                  IsOkAndHolds(1));
      EXPECT_THAT(driver->GetState(), IsOk());
    }
    for (const int fd : sockets) close(fd);
  }
  const auto another = driver->CreateActor<Counter>({});
  ASSERT_THAT(another, IsOk());
  EXPECT_THAT(another->Call<&Counter::Add>(7).Get(absl::Seconds(30)),
              IsOkAndHolds(7));
  EXPECT_EQ(RealCluster::Info(*driver, *counter).restarts(), 0);
  // They are not kept for ever.
  EXPECT_TRUE(Eventually(
      [&] {
        return std::all_of(half_open.begin(), half_open.end(), &ClosedByPeer);
      },
      absl::Seconds(60)));
  for (const int fd : half_open) close(fd);
  // The dashboard as well.
  httplib::Client client(absl::StrCat(tls ? "https://" : "http://", dashboard));
  client.set_ca_cert_path((certs + "/ca.crt").c_str());
  EXPECT_TRUE(Eventually([&] {
    const auto answer = client.Get(
        "/api/v1/state", {{"Authorization", absl::StrCat("Bearer ", kToken)}});
    return answer && answer->status == 200;
  }));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
