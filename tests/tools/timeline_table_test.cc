#include "tools/cli/timeline_table.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cli/timeline_runs.h"

namespace miniray::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::CallRecord* AddCall(v1::GetCallRecordsResponse* calls,
                        const std::string& method, int64_t queued,
                        int64_t start, int64_t end) {
  v1::CallRecord* call = calls->add_records();
  call->set_class_name("Counter");
  call->set_method(method);
  call->set_queued_unix_us(queued);
  call->set_start_unix_us(start);
  call->set_end_unix_us(end);
  return call;
}

void AddSpan(v1::GetRunResponse* run, const std::string& name, int64_t start,
             int64_t end) {
  v1::RunSpan* span = run->add_spans();
  span->set_name(name);
  span->set_start_unix_us(start);
  span->set_end_unix_us(end);
}

TEST(TimelineTableTest, SumsOfWhatIsAlike) {
  v1::GetCallRecordsResponse calls;
  calls.set_dropped(7);
  AddCall(&calls, "Get", 0, 100, 400);
  AddCall(&calls, "Add", 0, 1000, 3000);
  AddCall(&calls, "Add", 4000, 5000, 9000)->set_failed(true);
  v1::GetRunResponse run;
  run.mutable_run()->set_run_id("r");
  AddSpan(&run, "epoch 0", 0, 1500000);
  AddSpan(&run, "epoch 1", 1500000, 4000000);
  // 2 ms and 4 ms of 6 ms; waits of 1 ms each. Epochs: 1.5 s and 2.5 s.
  EXPECT_EQ(FormatTimelineTable(calls, {run}),
            "WHAT          COUNT  FAILED  TOTAL  MEAN   LONGEST  MEAN WAIT\n"
            "run r: epoch  2      0       4.00s  2.00s  2.50s    0us\n"
            "Counter.Add   2      1       6.0ms  3.0ms  4.0ms    1.0ms\n"
            "Counter.Get   1      0       300us  300us  300us    100us\n"
            "and 7 calls that were not kept\n");
}

TEST(TimelineTableTest, NothingHappened) {
  EXPECT_EQ(FormatTimelineTable({}, {}),
            "WHAT  COUNT  FAILED  TOTAL  MEAN  LONGEST  MEAN WAIT\n");
}

TEST(TimelineTableTest, LongTimesAndTimesThatMakeNoSense) {
  v1::GetCallRecordsResponse calls;
  AddCall(&calls, "Long", 0, 0, int64_t{3600} * 1000000);
  AddCall(&calls, "Back", 9, 5, 1);
  AddCall(&calls, "Wild", std::numeric_limits<int64_t>::min(),
          std::numeric_limits<int64_t>::min(),
          std::numeric_limits<int64_t>::max());
  const std::string text = FormatTimelineTable(calls, {});
  EXPECT_THAT(text, HasSubstr("Counter.Long  1      0       1:00:00"));
  EXPECT_THAT(text, HasSubstr("Counter.Back  1      0       0us"));
}

// --- Which runs go with the calls.

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
  AddCall(&calls, "Add", 0, 2500000, 2600000);
  EXPECT_THAT(RunsOfTimeline(ThreeRuns(), calls, ""), IsEmpty());
  AddCall(&calls, "Add", 0, 3900000, 4500000);
  EXPECT_THAT(RunsOfTimeline(ThreeRuns(), calls, ""), ElementsAre("middle"));
  AddCall(&calls, "Add", 0, 5000000, 5000000);
  AddCall(&calls, "Add", 0, 2000000, 2000000);
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
}  // namespace miniray::cli
