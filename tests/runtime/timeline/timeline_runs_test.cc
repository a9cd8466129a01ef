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
