#include "runtime/timeline/timeline_runs.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void AddCall(v1::GetCallRecordsResponse* calls, int64_t start, int64_t end) {
  v1::CallRecord* call = calls->add_records();
  call->set_start_unix_us(start);
  call->set_end_unix_us(end);
}

v1::ListRunsResponse ThreeRuns() {
  v1::ListRunsResponse list;
  const auto add = [&list](const std::string& id, const std::string& job,
                           int64_t start_ms, int64_t end_ms) {
    v1::RunInfo* run = list.add_runs();
    run->set_run_id(id);
    run->set_job_id(job);
    run->set_start_unix_ms(start_ms);
    run->set_end_unix_ms(end_ms);
  };
  add("newest", "j3", 5000, 0);  // It runs.
  add("middle", "j2", 3000, 4000);
  add("oldest", "j1", 1000, 2000);
  return list;
}

TEST(RunsOfTimelineTest, ThoseThatWentOnWhileTheCallsRan) {
  v1::GetCallRecordsResponse calls;
  AddCall(&calls, 2500000, 2600000);
  EXPECT_THAT(RunsOfTimeline(ThreeRuns(), calls, ""), IsEmpty());
  AddCall(&calls, 3900000, 4500000);
  EXPECT_THAT(RunsOfTimeline(ThreeRuns(), calls, ""), ElementsAre("middle"));
  AddCall(&calls, 5000000, 5000000);
  AddCall(&calls, 2000000, 2000000);
  EXPECT_THAT(RunsOfTimeline(ThreeRuns(), calls, ""),
              ElementsAre("newest", "middle", "oldest"));
}

// A node that is an hour ahead, one that is an hour behind, and the head's.
TEST(RunsOfTimelineTest, TheClocksOfTheMachinesMakeNoDifference) {
  constexpr int64_t kHour = 3'600'000'000;
  v1::GetCallRecordsResponse calls;
  const auto add_clock = [&calls](const std::string& name, int64_t ahead) {
    v1::NodeClock* const clock = calls.add_clocks();
    clock->set_node_id("node-" + name);
    clock->set_hostname(name);
    clock->mutable_reading()->set_ahead_us(ahead);
    clock->mutable_reading()->set_error_us(1000);
  };
  add_clock("early", kHour);
  add_clock("late", -kHour);
  add_clock("head", 0);
  v1::ListRunsResponse list = ThreeRuns();
  const auto move = [&list](int i, const std::string& host, int64_t by) {
    v1::RunInfo* const run = list.mutable_runs(i);
    run->set_hostname(host);
    run->set_start_unix_ms(run->start_unix_ms() + by / 1000);
    if (run->end_unix_ms() == 0) return;
    run->set_end_unix_ms(run->end_unix_ms() + by / 1000);
  };
  move(0, "late", -kHour);
  move(1, "early", kHour);
  move(2, "late", -kHour);

  AddCall(&calls, 2500000 + kHour, 2600000 + kHour);
  calls.mutable_records(0)->set_node_id("node-early");
  EXPECT_THAT(RunsOfTimeline(list, calls, ""), IsEmpty());
  AddCall(&calls, 3900000 - kHour, 4500000 - kHour);
  calls.mutable_records(1)->set_node_id("node-late");
  EXPECT_THAT(RunsOfTimeline(list, calls, ""), ElementsAre("middle"));
  AddCall(&calls, 5000000, 5000000);
  calls.mutable_records(2)->set_node_id("node-head");
  AddCall(&calls, 2000000 + kHour, 2000000 + kHour);
  calls.mutable_records(3)->set_node_id("node-early");
  EXPECT_THAT(RunsOfTimeline(list, calls, ""),
              ElementsAre("newest", "middle", "oldest"));
}

// The head says when, by its own clock.
TEST(RunsOfTimelineTest, ALostRunEndsByTheHeadsClock) {
  v1::GetCallRecordsResponse calls;
  v1::NodeClock* const clock = calls.add_clocks();
  clock->set_node_id("node-early");  // The call is of another node.
  clock->set_hostname("early");
  clock->mutable_reading()->set_ahead_us(1'000'000);
  v1::ListRunsResponse list;
  v1::RunInfo* const run = list.add_runs();
  run->set_run_id("lost");
  run->set_hostname("early");
  run->set_state(v1::RUN_STATE_LOST);
  run->set_start_unix_ms(2000);
  run->set_end_unix_ms(4000);
  AddCall(&calls, 3500000, 3600000);
  EXPECT_THAT(RunsOfTimeline(list, calls, ""), ElementsAre("lost"));
  run->set_state(v1::RUN_STATE_FINISHED);
  EXPECT_THAT(RunsOfTimeline(list, calls, ""), IsEmpty());
}

TEST(RunsOfTimelineTest, TheNewestWhereThereAreNoCalls) {
  EXPECT_THAT(RunsOfTimeline(ThreeRuns(), {}, ""), ElementsAre("newest"));
  EXPECT_THAT(RunsOfTimeline({}, {}, ""), IsEmpty());
}

TEST(RunsOfTimelineTest, ThoseOfTheJob) {
  EXPECT_THAT(RunsOfTimeline(ThreeRuns(), {}, "j2"), ElementsAre("middle"));
  EXPECT_THAT(RunsOfTimeline(ThreeRuns(), {}, "other"), IsEmpty());
}

TEST(RunsOfTimelineTest, NotAllOfVeryMany) {
  v1::ListRunsResponse list;
  for (int i = 0; i < 100; ++i) {
    list.add_runs()->set_job_id("j");
    list.mutable_runs(i)->set_run_id(std::to_string(i));
  }
  const std::vector<std::string> ids = RunsOfTimeline(list, {}, "j");
  ASSERT_EQ(ids.size(), 20);
  EXPECT_EQ(ids.front(), "0");
}

}  // namespace
}  // namespace miniray
