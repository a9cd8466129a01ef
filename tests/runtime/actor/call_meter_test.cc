#include "runtime/actor/call_meter.h"

#include <map>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/metrics/told.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class CallMeterTest : public testing::Test {
 protected:
  std::map<std::string, double> Changes() {
    return Told(metrics_.TakeChanges());
  }

  ProcessMetrics metrics_;
  // Tells nothing of them: there is a test of its own for that.
  ProcessMetrics others_;
  std::shared_ptr<MetricReporter> reporter_ = std::make_shared<MetricReporter>(
      &others_, [] { return false; },
      [](const v1::ActorEvent&, bool) { return false; });
  CallMeters meters_{&metrics_, reporter_};
};

TEST_F(CallMeterTest, CallsAreCountedByClassAndMethod) {
  const std::shared_ptr<CallMeter> counter = meters_.Of("Counter");
  EXPECT_EQ(meters_.Of("Counter"), counter);
  CallMeter::Method* const add = counter->Find("Add");
  EXPECT_EQ(counter->Find("Add"), add);
  counter->Find("Never");
  counter->CountCall(add, /*queue_us=*/5, /*run_us=*/400, /*failed=*/false);
  counter->CountCall(add, 7, 500, true);
  meters_.Of("Other")->CountCall(meters_.Of("Other")->Find("Add"), 1, 1, false);
  EXPECT_FALSE(meters_.Update({}));
  EXPECT_THAT(
      Changes(),
      ElementsAre(
          Pair("miniray_call_failures_total class=Counter method=Add", 1),
          Pair("miniray_call_queue_seconds class=Counter method=Add", 2),
          Pair("miniray_call_queue_seconds class=Other method=Add", 1),
          Pair("miniray_call_run_seconds class=Counter method=Add", 2),
          Pair("miniray_call_run_seconds class=Other method=Add", 1),
          Pair("miniray_calls_total class=Counter method=Add", 2),
          Pair("miniray_calls_total class=Other method=Add", 1)));
}

TEST_F(CallMeterTest, BytesAreCountedByTheWayTheyWent) {
  const std::shared_ptr<CallMeter> meter = meters_.Of("Worker");
  meter->CountBytes(CallPath::kSharedMemory, /*sent=*/true, 1000);
  meter->CountBytes(CallPath::kSharedMemory, true, 500);
  meter->CountBytes(CallPath::kUnixSocket, false, 20);
  meter->CountBytes(CallPath::kTcp, false, 3);
  EXPECT_THAT(Changes(),
              ElementsAre(Pair("miniray_call_bytes_total class=Worker "
                               "direction=received path=tcp",
                               3),
                          Pair("miniray_call_bytes_total class=Worker "
                               "direction=received path=unix_socket",
                               20),
                          Pair("miniray_call_bytes_total class=Worker "
                               "direction=sent path=shared_memory",
                               1500)));
}

TEST_F(CallMeterTest, WhatClassesAreAtIsSeenUntilItIsOver) {
  meters_.Of("A");
  meters_.Of("B");
  EXPECT_TRUE(meters_.Update({{"A", {.waiting = 3, .running = 1}},
                              {"B", {.waiting = 0, .running = 1}}}));
  EXPECT_THAT(Changes(), ElementsAre(Pair("miniray_calls_running class=A", 1),
                                     Pair("miniray_calls_running class=B", 1),
                                     Pair("miniray_calls_waiting class=A", 3)));
  // A's actors are gone.
  EXPECT_TRUE(meters_.Update({{"B", {.waiting = 0, .running = 1}}}));
  EXPECT_THAT(Changes(), ElementsAre(Pair("miniray_calls_running class=A", 0),
                                     Pair("miniray_calls_waiting class=A", 0)));
  EXPECT_FALSE(meters_.Update({{"B", {}}}));
  EXPECT_THAT(Changes(), ElementsAre(Pair("miniray_calls_running class=B", 0)));
  EXPECT_FALSE(meters_.Update({}));
  EXPECT_THAT(Changes(), IsEmpty());
}

}  // namespace
}  // namespace internal
}  // namespace miniray
