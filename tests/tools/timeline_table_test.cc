#include "tools/cli/timeline_table.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::cli {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace miniray::cli
