// The trace that the dashboard hands out.

#include <httplib.h>

#include <atomic>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "proto/run.pb.h"
#include "tests/runtime/dashboard/dashboard_api_testutil.h"
#include "tests/runtime/dashboard/raw_connection.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLong = absl::Seconds(30);

class TimelineRouteTest : public DashboardApiTest {
 protected:
  // Job "j1" has a call and the run "r1", "j2" has them too.
  TimelineRouteTest() {
    options_.call_records = [](const v1::GetCallRecordsRequest& request) {
      v1::GetCallRecordsResponse calls;
      for (const char* job : {"j1", "j2"}) {
        if (!request.job_id().empty() && request.job_id() != job) continue;
        v1::CallRecord* call = calls.add_records();
        call->set_job_id(job);
        call->set_method(absl::StrCat("call of ", job));
        call->set_start_unix_us(2'000'000);
        call->set_end_unix_us(3'000'000);
      }
      return calls;
    };
    options_.list_runs = [](const v1::ListRunsRequest&) {
      v1::ListRunsResponse list;
      // "r3" is gone when it is looked at.
      for (const char* number : {"3", "2", "1"}) {
        *list.add_runs() = Run(number);
      }
      return list;
    };
    options_.get_run = [](const v1::GetRunRequest& request)
        -> absl::StatusOr<v1::GetRunResponse> {
      EXPECT_TRUE(request.with_spans());
      if (request.run_id() != "r1" && request.run_id() != "r2") {
        return absl::NotFoundError("no such run");
      }
      v1::GetRunResponse run;
      *run.mutable_run() = Run(request.run_id().substr(1));
      run.add_spans()->set_name("span of " + request.run_id());
      run.mutable_spans(0)->set_start_unix_us(2'000'000);
      run.mutable_spans(0)->set_end_unix_us(2'500'000);
      return run;
    };
  }

  // Both go on while the calls run.
  static v1::RunInfo Run(const std::string& number) {
    v1::RunInfo run;
    run.set_run_id("r" + number);
    run.set_job_id("j" + number);
    run.set_start_unix_ms(1000);
    return run;
  }

  httplib::Result GetTimeline(const std::string& parameters) const {
    httplib::Client client("127.0.0.1", server_->port());
    client.set_read_timeout(30);
    return client.Get("/api/v1/timeline" + parameters, kBearer);
  }

  // What the trace shows; EXPECTs one.
  std::set<std::string> Shown(const std::string& parameters) const {
    std::set<std::string> names;
    const httplib::Result answer = GetTimeline(parameters);
    EXPECT_TRUE(answer) << answer.error();
    if (!answer) return names;
    EXPECT_EQ(answer->status, 200) << answer->body;
    const Json trace = Json::parse(answer->body, nullptr, false);
    EXPECT_TRUE(trace.is_object()) << answer->body;
    if (!trace.is_object()) return names;
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == "X") names.insert(event["name"].get<std::string>());
    }
    return names;
  }
};

TEST_F(TimelineRouteTest, CallsAndRunsOfAllOrOfSome) {
  Start();
  EXPECT_THAT(Shown(""), ElementsAre("call of j1", "call of j2", "span of r1",
                                     "span of r2"));
  EXPECT_THAT(Shown("?job=j1"), ElementsAre("call of j1", "span of r1"));
  EXPECT_THAT(Shown("?job=other"), IsEmpty());
  EXPECT_THAT(Shown("?run=r2"), ElementsAre("call of j2", "span of r2"));
  EXPECT_THAT(Shown("?run=r2&job=j1"), ElementsAre("call of j1", "span of r2"));
}

TEST_F(TimelineRouteTest, IsAFileThatIsSentAsItIs) {
  Start();
  const httplib::Result answer = GetTimeline("");
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->get_header_value("Content-Type"),
            "application/json; charset=utf-8");
  EXPECT_EQ(answer->get_header_value("Content-Disposition"),
            "attachment; filename=\"miniray-timeline.json\"");
  // Its parts leave as they are made, not as a compressor has enough of them.
  httplib::Headers headers = kBearer;
  headers.emplace("Accept-Encoding", "gzip, deflate, br");
  httplib::Client client("127.0.0.1", server_->port());
  client.set_decompress(false);
  const httplib::Result plain = client.Get("/api/v1/timeline", headers);
  ASSERT_TRUE(plain) << plain.error();
  EXPECT_FALSE(plain->has_header("Content-Encoding"));
  EXPECT_EQ(plain->body, answer->body);
}

TEST_F(TimelineRouteTest, CallsAloneWhereTheHeadKeepsNoRuns) {
  options_.list_runs = nullptr;
  options_.get_run = nullptr;
  Start();
  EXPECT_THAT(Shown(""), ElementsAre("call of j1", "call of j2"));
  const httplib::Result answer = GetTimeline("?run=r1");
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 404);
  EXPECT_THAT(answer->body, HasSubstr("keeps no runs"));
}

TEST_F(TimelineRouteTest, RunsThatAreNotThere) {
  Start();
  const httplib::Result unknown = GetTimeline("?run=r3");
  ASSERT_TRUE(unknown) << unknown.error();
  EXPECT_EQ(unknown->status, 404);
  EXPECT_THAT(unknown->body, HasSubstr("no such run"));
  const httplib::Result wrong = GetTimeline("?run=a%20b");
  ASSERT_TRUE(wrong) << wrong.error();
  EXPECT_EQ(wrong->status, 400);
  EXPECT_THAT(wrong->body, HasSubstr("1 to 128 letters"));
}

// Each holds all calls in memory for as long as its reader takes.
TEST_F(TimelineRouteTest, ThoseWhoReadSlowlyAreNotMany) {
  // 40 MB of text: more than sockets hold.
  constexpr int kCalls = 10'000;
  std::atomic<int> asked = 0;
  options_.call_records = [&asked](const v1::GetCallRecordsRequest&) {
    v1::GetCallRecordsResponse calls;
    for (int i = 0; i < kCalls; ++i) {
      calls.add_records()->set_method(std::string(4000, 'x'));
    }
    ++asked;
    return calls;
  };
  options_.list_runs = nullptr;
  options_.get_run = nullptr;
  Start();
  {
    RawConnection first(server_->port());
    RawConnection second(server_->port());
    for (RawConnection* connection : {&first, &second}) {
      ASSERT_TRUE(
          connection->Say("GET /api/v1/timeline HTTP/1.1\r\nHost: localhost\r\n"
                          "Authorization: Bearer secret\r\n\r\n"));
    }
    const absl::Time deadline = absl::Now() + kLong;
    while (asked < 2) {
      ASSERT_LT(absl::Now(), deadline) << "they were not answered";
      absl::SleepFor(absl::Milliseconds(2));
    }
    const httplib::Result refused = GetTimeline("");
    ASSERT_TRUE(refused) << refused.error();
    EXPECT_EQ(refused->status, 503);
    EXPECT_EQ(refused->get_header_value("Retry-After"), "5");
    EXPECT_THAT(refused->body, HasSubstr("2 timelines"));
  }
  // They have gone, and it comes as a whole.
  const absl::Time deadline = absl::Now() + kLong;
  httplib::Result answer = GetTimeline("");
  while (answer && answer->status == 503 && absl::Now() < deadline) {
    answer = GetTimeline("");
  }
  ASSERT_TRUE(answer) << answer.error();
  ASSERT_EQ(answer->status, 200);
  const Json trace = Json::parse(answer->body, nullptr, false);
  ASSERT_TRUE(trace.is_object());
  int calls = 0;
  for (const Json& event : trace["traceEvents"]) {
    calls += event["ph"] == "X" ? 1 : 0;
  }
  EXPECT_EQ(calls, kCalls);
}

}  // namespace
}  // namespace miniray
