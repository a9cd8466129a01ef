// /metrics of a worker daemon: what actors' processes count gets there.

#include <httplib.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/metrics/process_metrics.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::Duration kLong = absl::Seconds(30);

class Metered {
 public:
  int64_t Add(int64_t n) { return n + 1; }
  void Fail() { throw std::runtime_error("as it was asked to"); }
  std::string Echo(const std::string& text) { return text; }
  void Wait() { released_.WaitForNotification(); }
  void Release() { released_.Notify(); }
  // Counts something of its own.
  void Count(const std::string& what) {
    ProcessMetrics::Get()
        .Counter("shop_things_total", "Things.", {{"what", what}})
        .Add();
  }
  // Takes memory, and keeps it.
  void Take(int64_t bytes) { memory_.assign(static_cast<size_t>(bytes), 'm'); }

 private:
  absl::Notification released_;
  std::string memory_;
};
MINIRAY_ACTOR(Metered, Constructor<>, &Metered::Add, &Metered::Fail,
              &Metered::Echo, &Metered::Wait, &Metered::Release,
              &Metered::Count, &Metered::Take);

TestCluster::Options WithMetrics() {
  return {.configure_node = [](WorkerDaemon::Options* options) {
    options->metrics_port = 0;
    // An actor that is told to end has the time to say its last.
    options->stop_grace = kLong;
  }};
}

std::string PageOf(const WorkerDaemon& daemon) {
  httplib::Client client("http://" + daemon.metrics_address());
  const httplib::Result answer = client.Get("/metrics");
  return answer && answer->status == 200 ? answer->body : "";
}

// The number behind `series` on the page; -1: it is not there.
double ValueOf(const std::string& page, const std::string& series) {
  const std::string line = "\n" + series + " ";
  const size_t at = page.find(line);
  return at == std::string::npos ? -1
                                 : std::stod(page.substr(at + line.size()));
}

// Waits until the series has that value.
testing::AssertionResult Becomes(const WorkerDaemon& daemon,
                                 const std::string& series, double value) {
  std::string page;
  if (Eventually(
          [&] {
            page = PageOf(daemon);
            return ValueOf(page, series) == value;
          },
          kLong)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << series << " is " << ValueOf(page, series) << ", not " << value;
}

TEST(DaemonMetricsTest, CallsAreCountedByClassAndMethod) {
  TestCluster cluster(WithMetrics());
  Cluster driver = cluster.Connect();
  const auto actor = driver.CreateActor<Metered>({});
  ASSERT_THAT(actor, IsOk());
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(actor->Call<&Metered::Add>(i).Get(kLong), IsOk());
  }
  EXPECT_THAT(actor->Call<&Metered::Fail>().Get(kLong), Not(IsOk()));
  EXPECT_THAT(actor->CallByName<void>("Whatever").Get(kLong),
              StatusIs(absl::StatusCode::kUnimplemented));
  const WorkerDaemon& daemon = cluster.daemon(0);
  EXPECT_TRUE(Becomes(
      daemon, "miniray_calls_total{class=\"Metered\",method=\"Add\"}", 5));
  EXPECT_TRUE(Becomes(
      daemon, "miniray_call_failures_total{class=\"Metered\",method=\"Fail\"}",
      1));
  // Names that callers make up have one series together.
  EXPECT_TRUE(Becomes(
      daemon, "miniray_calls_total{class=\"Metered\",method=\"(unknown)\"}",
      1));
  const std::string page = PageOf(daemon);
  EXPECT_EQ(ValueOf(page,
                    "miniray_call_run_seconds_count{class=\"Metered\","
                    "method=\"Add\"}"),
            5);
  EXPECT_EQ(ValueOf(page,
                    "miniray_call_queue_seconds_bucket{class=\"Metered\","
                    "method=\"Add\",le=\"+Inf\"}"),
            5);
  // What nobody called has no series.
  EXPECT_THAT(page, Not(HasSubstr("method=\"Echo\"")));
  EXPECT_THAT(page, Not(HasSubstr("method=\"Whatever\"")));
  EXPECT_THAT(page,
              Not(HasSubstr("miniray_call_failures_total{class=\"Metered\","
                            "method=\"Add\"}")));
}

TEST(DaemonMetricsTest, WhatACallWaitsForIsSeen) {
  TestCluster cluster(WithMetrics());
  Cluster driver = cluster.Connect();
  const auto actor = driver.CreateActor<Metered>(
      {.concurrency_groups = {
           {.name = "control", .methods = {MethodName<&Metered::Release>()}}}});
  ASSERT_THAT(actor, IsOk());
  std::vector<ObjectRef<void>> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(actor->Call<&Metered::Wait>());
  const WorkerDaemon& daemon = cluster.daemon(0);
  const std::string running = "miniray_calls_running{class=\"Metered\"}";
  const std::string waiting = "miniray_calls_waiting{class=\"Metered\"}";
  EXPECT_TRUE(Becomes(daemon, waiting, 2));
  EXPECT_TRUE(Becomes(daemon, running, 1));
  ASSERT_THAT(actor->Call<&Metered::Release>().Get(kLong), IsOk());
  for (const ObjectRef<void>& call : calls) {
    EXPECT_THAT(call.Get(kLong), IsOk());
  }
  EXPECT_TRUE(Becomes(daemon, waiting, 0));
  EXPECT_TRUE(Becomes(daemon, running, 0));
}

TEST(DaemonMetricsTest, BytesAreCountedByTheWayTheyWent) {
  TestCluster cluster(WithMetrics());
  Cluster driver = cluster.Connect();
  const auto actor = driver.CreateActor<Metered>({});
  ASSERT_THAT(actor, IsOk());
  constexpr int64_t kBytes = 3 << 20;
  // The first calls find out that there is shared memory.
  ASSERT_THAT(actor->Call<&Metered::Add>(1).Get(kLong), IsOk());
  const auto echo =
      actor->Call<&Metered::Echo>(std::string(kBytes, 'e')).Get(kLong);
  ASSERT_THAT(echo, IsOk());
  EXPECT_EQ(echo->size(), kBytes);
  const WorkerDaemon& daemon = cluster.daemon(0);
  ASSERT_TRUE(Becomes(
      daemon, "miniray_calls_total{class=\"Metered\",method=\"Echo\"}", 1));
  const std::string page = PageOf(daemon);
  const auto bytes = [&](const char* direction, const char* path) {
    return ValueOf(page, absl::StrCat("miniray_call_bytes_total{class="
                                      "\"Metered\",direction=\"",
                                      direction, "\",path=\"", path, "\"}"));
  };
  for (const char* direction : {"received", "sent"}) {
    SCOPED_TRACE(direction);
    EXPECT_GE(bytes(direction, "shared_memory"), kBytes);
    EXPECT_LT(bytes(direction, "shared_memory"), kBytes + 1000);
    // What says where they lie.
    EXPECT_GT(bytes(direction, "unix_socket"), 0);
    EXPECT_LT(bytes(direction, "unix_socket"), 10'000);
  }
}

TEST(DaemonMetricsTest, CountersOutliveTheActor) {
  TestCluster cluster(WithMetrics());
  Cluster driver = cluster.Connect();
  const WorkerDaemon& daemon = cluster.daemon(0);
  const std::string calls =
      "miniray_calls_total{class=\"Metered\",method=\"Add\"}";
  auto first = driver.CreateActor<Metered>({});
  ASSERT_THAT(first, IsOk());
  for (int i = 0; i < 5; ++i) {
    ASSERT_THAT(first->Call<&Metered::Add>(i).Get(kLong), IsOk());
  }
  // Within the second in which its process gathers what it tells.
  ASSERT_THAT(first->Kill(), IsOk());
  EXPECT_TRUE(Becomes(daemon, calls, 5));
  EXPECT_TRUE(Becomes(daemon, "miniray_node_actor_processes", 0));
  const auto second = driver.CreateActor<Metered>({});
  ASSERT_THAT(second, IsOk());
  for (int i = 0; i < 2; ++i) {
    ASSERT_THAT(second->Call<&Metered::Add>(i).Get(kLong), IsOk());
  }
  EXPECT_TRUE(Becomes(daemon, calls, 7));
  EXPECT_TRUE(Becomes(daemon, "miniray_node_actor_processes", 1));
}

TEST(DaemonMetricsTest, ActorsOfASharedProcessCountTogether) {
  TestCluster cluster(WithMetrics());
  Cluster driver = cluster.Connect();
  std::vector<ActorHandle<Metered>> actors;
  for (int i = 0; i < 3; ++i) {
    auto actor = driver.CreateActor<Metered>(
        {.resources = {.cpu = 0}, .shared_process = "pool"});
    ASSERT_THAT(actor, IsOk());
    ASSERT_THAT(actor->Call<&Metered::Add>(i).Get(kLong), IsOk());
    ASSERT_THAT(actor->Call<&Metered::Count>(std::string("own")).Get(kLong),
                IsOk());
    actors.push_back(*actor);
  }
  const WorkerDaemon& daemon = cluster.daemon(0);
  EXPECT_TRUE(Becomes(
      daemon, "miniray_calls_total{class=\"Metered\",method=\"Add\"}", 3));
  // A program's own figures come along.
  EXPECT_TRUE(Becomes(daemon, "shop_things_total{what=\"own\"}", 3));
  EXPECT_TRUE(Becomes(daemon, "miniray_node_actor_processes", 1));
  EXPECT_TRUE(Becomes(daemon, "miniray_node_actors", 3));
}

TEST(DaemonMetricsTest, AKillForMemoryIsCountedAndSoIsTheRestart) {
  // The next look finds the memory full, and those after it do not.
  std::atomic<bool> full = false;
  TestCluster cluster({.configure_node = [&](WorkerDaemon::Options* options) {
    options->metrics_port = 0;
    options->memory.period = absl::Milliseconds(10);
    options->memory.read = [&full]() -> absl::StatusOr<MemoryReading> {
      return MemoryReading{.used_bytes = full.exchange(false) ? 97 : 10,
                           .total_bytes = 100};
    };
  }});
  Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<Metered>({.max_restarts = 1});
  ASSERT_THAT(actor, IsOk());
  ASSERT_THAT(actor->Call<&Metered::Take>(int64_t{50} << 20).Get(kLong),
              IsOk());
  const auto call = actor->Call<&Metered::Wait>();
  const WorkerDaemon& daemon = cluster.daemon(0);
  EXPECT_TRUE(Becomes(daemon, "miniray_oom_kills_total{by=\"daemon\"}", 0));
  EXPECT_EQ(cluster.head().GetCounts().actor_restarts, 0);
  full = true;
  EXPECT_THAT(call.Get(kLong), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(Becomes(daemon, "miniray_oom_kills_total{by=\"daemon\"}", 1));
  const std::string page = PageOf(daemon);
  EXPECT_EQ(ValueOf(page, "miniray_oom_kills_total{by=\"kernel\"}"), 0);
  EXPECT_EQ(ValueOf(page, "miniray_node_memory_used_bytes"), 10);
  EXPECT_EQ(ValueOf(page, "miniray_node_memory_capacity_bytes"), 100);
  EXPECT_TRUE(Eventually(
      [&] { return cluster.head().GetCounts().actor_restarts == 1; }, kLong));
}

TEST(DaemonMetricsTest, TheHeadKnowsWhereItIsAndTheTokenGuardsIt) {
  TestCluster::Options options = WithMetrics();
  options.head.token = "secret";
  TestCluster cluster(options);
  const WorkerDaemon& daemon = cluster.daemon(0);
  const ClusterCounts counts = cluster.head().GetCounts();
  ASSERT_EQ(counts.metrics_addresses.size(), 1);
  EXPECT_EQ(counts.metrics_addresses[0].node_id, daemon.node_id());
  EXPECT_EQ(counts.metrics_addresses[0].address, daemon.metrics_address());
  EXPECT_THAT(daemon.metrics_address(), HasSubstr("127.0.0.1:"));

  httplib::Client client("http://" + daemon.metrics_address());
  const auto status = [&](const httplib::Headers& headers) {
    const httplib::Result answer = client.Get("/metrics", headers);
    return answer ? answer->status : 0;
  };
  EXPECT_EQ(status({}), 401);
  EXPECT_EQ(status({{"Authorization", "Bearer wrong"}}), 401);
  EXPECT_EQ(status({{"Authorization", "Bearer secret"}}), 200);
  const httplib::Result page =
      client.Get("/metrics", {{"Authorization", "Bearer secret"}});
  ASSERT_TRUE(page);
  EXPECT_THAT(page->body,
              AllOf(HasSubstr(absl::StrCat(",node=\"", daemon.node_id(), "\"")),
                    HasSubstr("\nminiray_head_connected 1\n"),
                    HasSubstr("\nminiray_object_store_bytes{place=\"memory\"} "
                              "0\n"),
                    Not(HasSubstr("secret"))));

  // A daemon that ends takes its page along.
  const std::string address = daemon.metrics_address();
  cluster.StopDaemon(0);
  EXPECT_FALSE(httplib::Client("http://" + address).Get("/metrics"));
  EXPECT_TRUE(Eventually(
      [&] { return cluster.head().GetCounts().metrics_addresses.empty(); },
      kLong));
}

TEST(DaemonMetricsTest, APortInUseIsAnErrorThatSaysWhatToDo) {
  TestCluster cluster(WithMetrics());
  const std::string address = cluster.daemon(0).metrics_address();
  WorkerDaemon::Options options;
  options.head_address = cluster.address();
  options.session_dir = cluster.NodeFolder(1);
  options.metrics_port = std::stoi(address.substr(address.rfind(':') + 1));
  EXPECT_THAT(
      WorkerDaemon::Start(options),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr(address), HasSubstr("Address already in use"),
                     HasSubstr("choose another --metrics_port"))));
}

TEST(DaemonMetricsTest, WithoutAPortThereIsNone) {
  TestCluster cluster;
  EXPECT_EQ(cluster.daemon(0).metrics_address(), "");
  EXPECT_THAT(cluster.head().GetCounts().metrics_addresses, IsEmpty());
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
