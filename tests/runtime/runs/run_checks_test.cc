#include "runtime/runs/run_checks.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/runs/run_events.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckRunIdTest, SaysWhatIsAllowed) {
  for (const std::string& good :
       {std::string("a"), std::string("GAN_2024-01-02.final"),
        std::string(128, '9')}) {
    EXPECT_THAT(CheckRunId(good), IsOk()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string(129, 'a'), std::string("a b"),
        std::string("a/b"), std::string("l\xc3\xa4uft"),
        std::string("a\0b", 3)}) {
    EXPECT_THAT(CheckRunId(bad),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("1 to 128 letters, digits, '.', '_' and "
                                   "'-'")))
        << bad;
  }
  // Browsers and proxies would take them out of an address.
  for (const std::string& bad : {std::string("."), std::string("..")}) {
    EXPECT_THAT(CheckRunId(bad), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("a step between folders")))
        << bad;
  }
  EXPECT_THAT(CheckRunId("..."), IsOk());
}

TEST(CheckRunIdTest, AnyNameMakesOne) {
  EXPECT_EQ(RunIdFrom("gan-1.b_c"), "gan-1.b_c");
  EXPECT_EQ(RunIdFrom(std::string(128, 'x')), std::string(128, 'x'));
  EXPECT_EQ(RunIdFrom(""), "");
  // FNV-1a of 64 bits, of which the halves are added without carry.
  EXPECT_EQ(RunIdFrom("my gan/2"), "my-gan-2-d58fa67d");
  EXPECT_EQ(RunIdFrom(std::string(200, 'x')),
            std::string(119, 'x') + "-c02c10c9");
  EXPECT_EQ(RunIdFrom("."), ".-296228fd");
  EXPECT_EQ(RunIdFrom(".."), "..-b37a252a");
}

TEST(CheckRunIdTest, NamesThatDifferMakeRunsThatDo) {
  std::set<std::string> ids;
  // Two of two characters, in UTF-8 and in Latin-1, and what they look like.
  const std::vector<std::string> names = {"\xe6\x97\xa5\xe6\x9c\xac",
                                          "\xe4\xb8\xad\xe5\x9b\xbd",
                                          "\xe4\xf6",
                                          "\xfc\xdf",
                                          "------",
                                          "--",
                                          "a b",
                                          "a/b",
                                          "a-b",
                                          std::string(200, 'x'),
                                          std::string(201, 'x'),
                                          std::string(127, 'x') + " ",
                                          ".",
                                          ".."};
  for (const std::string& name : names) {
    const std::string id = RunIdFrom(name);
    EXPECT_THAT(CheckRunId(id), IsOk()) << name;
    EXPECT_EQ(RunIdFrom(name), id);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), names.size());
}

// Each changes one field of an event that is fine.
TEST(CheckRunEventTest, NamesTheFieldThatCannotBe) {
  const std::vector<v1::RunEvent> fine = {
      Started(10),
      ProgressAt(1, 0, 1, 2, 3),
      Point(0.5, std::nan("")),  // A loss may well be that.
      Sync(0, 1),
      Server("server", 1),
      Image(0, PngOf(kMaxImageBytes)),
      Span("epoch 1", 0, 1),
      Ended("it broke"),
      EventAt(0)};  // Of a newer version.
  for (const v1::RunEvent& event : fine) {
    EXPECT_THAT(CheckRunEvent(event), IsOk()) << event.kind_case();
  }
  std::vector<std::pair<v1::RunEvent, std::string>> cases;
  const auto add = [&](v1::RunEvent event, const std::string& what) {
    cases.emplace_back(std::move(event), what);
  };
  v1::RunEvent event = Started(-1);
  add(event, "started: epochs is -1");
  event = Started(10);
  event.mutable_started()->set_kind(std::string(257, 'k'));
  add(event, "started: kind has 257 bytes; at most 256");
  event = Started(10);
  event.mutable_started()->set_folder(std::string(4097, 'f'));
  add(event, "started: folder has 4097 bytes");
  event = Started(10);
  event.mutable_started()->set_hostname("\xff");
  add(event, "started: hostname is not UTF-8");
  add(ProgressAt(1, 0, -1, 2, 3), "progress: step is -1");
  add(ProgressAt(1, 0, 1, 2, 3, -2), "progress: worker is -2");
  add(Point(-0.5, 1), "point: epoch is -0.5");
  event = Point(1, 1);
  event.mutable_point()->set_epoch(std::numeric_limits<double>::infinity());
  add(event, "point: epoch is inf");
  event.mutable_point()->set_epoch(1e300);  // No count can be so much.
  add(event, "point: epoch is 1e+300");
  add(Point(1, 1, kMaxRunWorkers), "point: worker is 1000000");
  add(Point(1, 1, 0, ""), "point: metric is empty");
  event = Sync(0, 1);
  event.mutable_sync()->set_seconds_push(std::nan(""));
  add(event, "sync: seconds_push is nan");
  add(Server("", 1), "server: name is empty");
  add(Image(0, PngOf(kMaxImageBytes + 1)),
      "image: png has 2097153 bytes; at most 2097152");
  add(Image(0, "<svg>"), "image: png is no PNG");
  add(Span("epoch 1", 2, 1), "span: end_unix_us is before start_unix_us");
  add(Ended(std::string(4097, 'e')), "ended: error has 4097 bytes");
  event = Point(1, 1);
  event.set_unix_us(-1);
  add(event, "unix_us is -1");
  for (const auto& [bad, what] : cases) {
    EXPECT_THAT(CheckRunEvent(bad),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  }
}

TEST(CheckReportTest, LooksAtEveryEvent) {
  EXPECT_THAT(CheckReport(ReportOf("run", 1, {Started(1), Point(1, 2)})),
              IsOk());
  EXPECT_THAT(CheckReport(ReportOf("run", 7, {})), IsOk());
  EXPECT_THAT(CheckReport(ReportOf("run", 1, {Started(1), Point(-1, 2)})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("events[1]: point: epoch is -1")));
  EXPECT_THAT(CheckReport(ReportOf("a run", 1, {})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("run_id"), HasSubstr("a run"))));
  EXPECT_THAT(CheckReport(ReportOf("run", 0, {})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("first_sequence is 0")));
  EXPECT_THAT(CheckReport(ReportOf("run", 1, {}, "")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("reporter_id is empty")));
  v1::ReportRunRequest request = ReportOf("run", 1, {});
  request.set_dropped(-1);
  EXPECT_THAT(CheckReport(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("dropped is -1")));
}

}  // namespace
}  // namespace miniray
