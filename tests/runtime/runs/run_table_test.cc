#include "runtime/runs/run_table.h"

#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/runs/collected_run.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/runs/run_events.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class RunTableTest : public ::testing::Test {
 protected:
  // The head's clock; those of the events are others.
  absl::Time now_ = absl::FromUnixSeconds(kRunBegin);

  RunTable::Options Options() {
    RunTable::Options options;
    options.clock = [this] { return now_; };
    return options;
  }

  static v1::RunInfo InfoOf(const RunTable& table, const std::string& id) {
    const auto run = table.Get(GetOf(id));
    EXPECT_THAT(run, IsOk());
    return run.ok() ? run->run() : v1::RunInfo();
  }
  static std::vector<std::string> Listed(const RunTable& table) {
    std::vector<std::string> ids;
    const v1::ListRunsResponse runs = *table.List({});
    for (const v1::RunInfo& run : runs.runs()) ids.push_back(run.run_id());
    return ids;
  }
  static std::vector<double> Epochs(const v1::RunCurve& curve) {
    return {curve.epochs().begin(), curve.epochs().end()};
  }
  static std::vector<double> Values(const v1::RunCurve& curve) {
    return {curve.values().begin(), curve.values().end()};
  }
  static std::vector<int64_t> ImageEpochs(const RunTable& table,
                                          const std::string& id) {
    std::vector<int64_t> epochs;
    const v1::GetRunResponse run = *table.Get(GetOf(id));
    for (const v1::RunImageInfo& image : run.images()) {
      epochs.push_back(image.epoch());
    }
    return epochs;
  }
};

TEST_F(RunTableTest, ARunIsWhatWasToldOfIt) {
  RunTable table(Options());
  v1::RunEvent server = Server("parameter-server", 3);
  ASSERT_THAT(table.Report(ReportOf(
                  "gan", 1,
                  {Started(4), Point(1, 0.5), Point(1, 0.4, 0),
                   Point(1, 0.6, 1), Point(1, 0.9, -1, "accuracy"), Sync(0, 1),
                   server, Image(0, PngOf(100)), Span("epoch 1", 0, 2),
                   ProgressAt(1, 1, 3, 10, 30, 1)})),
              IsOk());
  const auto run = table.Get(GetOf("gan", 0, /*with_spans=*/true));
  ASSERT_THAT(run, IsOk());
  const v1::RunInfo& info = run->run();
  EXPECT_EQ(info.run_id(), "gan");
  EXPECT_EQ(info.kind(), "DataParallelTrainer");
  EXPECT_EQ(info.job_id(), "job-1");
  EXPECT_EQ(info.state(), v1::RUN_STATE_RUNNING);
  EXPECT_EQ(info.num_workers(), 2);
  EXPECT_EQ(info.epochs(), 4);
  EXPECT_EQ(info.hostname(), "host");
  EXPECT_EQ(info.folder(), "/runs/a");
  EXPECT_EQ(info.start_unix_ms(), kRunBegin * 1000);
  EXPECT_EQ(info.end_unix_ms(), 0);
  EXPECT_EQ(info.num_syncs(), 1);
  EXPECT_EQ(info.num_images(), 1);
  EXPECT_EQ(info.num_starts(), 1);
  EXPECT_EQ(info.dropped_events(), 0);
  EXPECT_FALSE(info.stop_requested());
  EXPECT_EQ(info.metrics().size(), 2u);
  EXPECT_EQ(info.metrics().at("loss"), 0.5);
  EXPECT_EQ(info.metrics().at("accuracy"), 0.9);

  // By metric, then by worker.
  ASSERT_EQ(run->curves_size(), 4);
  EXPECT_EQ(run->curves(0).metric(), "accuracy");
  std::vector<int> workers;
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(run->curves(i).metric(), "loss");
    workers.push_back(run->curves(i).worker());
  }
  EXPECT_THAT(workers, ElementsAre(-1, 0, 1));
  EXPECT_THAT(Epochs(run->curves(2)), ElementsAre(1));
  EXPECT_THAT(Values(run->curves(2)), ElementsAre(0.4));
  EXPECT_EQ(run->curves(2).num_points(), 1);

  ASSERT_EQ(run->workers_size(), 1);
  EXPECT_EQ(run->workers(0).step(), 3);
  ASSERT_EQ(run->syncs_size(), 1);
  EXPECT_EQ(run->syncs(0).sync().bytes(), 1000);
  EXPECT_EQ(run->syncs(0).unix_ms(), kRunBegin * 1000);
  ASSERT_EQ(run->servers_size(), 1);
  EXPECT_EQ(run->servers(0).version(), 3);
  ASSERT_EQ(run->spans_size(), 1);
  EXPECT_EQ(run->spans(0).name(), "epoch 1");
  EXPECT_EQ(table.Get(GetOf("gan"))->spans_size(), 0);

  ASSERT_EQ(run->images_size(), 1);
  EXPECT_EQ(run->images(0).name(), "samples");
  EXPECT_EQ(run->images(0).width(), 242);
  v1::GetRunImageRequest get;
  get.set_run_id("gan");
  get.set_image_id(run->images(0).image_id());
  const auto image = table.GetImage(get);
  ASSERT_THAT(image, IsOk());
  EXPECT_EQ(image->png(), PngOf(100));
  get.set_image_id(get.image_id() + 1);
  EXPECT_THAT(table.GetImage(get),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("gan")));
  get.set_run_id("other");
  EXPECT_THAT(table.GetImage(get),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("other")));
  EXPECT_THAT(table.Get(GetOf("other")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("other")));
  EXPECT_THAT(table.Get(GetOf("gan", -1)),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(RunTableTest, KnowsHowFarARunIsAndHowLongItTakes) {
  RunTable table(Options());
  ASSERT_THAT(
      table.Report(ReportOf("a", 1, {Started(4), ProgressAt(0, 0, 0, 10, 0)})),
      IsOk());
  v1::RunInfo info = InfoOf(table, "a");
  EXPECT_EQ(info.epoch(), 0);
  EXPECT_EQ(info.progress(), 0);
  EXPECT_EQ(info.eta_seconds(), -1);
  // Half an epoch of four and 500 samples, in ten seconds.
  ASSERT_THAT(table.Report(ReportOf("a", 3, {ProgressAt(10, 0, 5, 10, 500)})),
              IsOk());
  info = InfoOf(table, "a");
  EXPECT_DOUBLE_EQ(info.progress(), 0.125);
  EXPECT_DOUBLE_EQ(info.eta_seconds(), 70);
  EXPECT_DOUBLE_EQ(info.samples_per_second(), 50);
  // The rate of the last epoch stands until there is one of this.
  ASSERT_THAT(table.Report(ReportOf("a", 4,
                                    {ProgressAt(20, 0, 10, 10, 1000),
                                     ProgressAt(21, 1, 0, 10, 0)})),
              IsOk());
  info = InfoOf(table, "a");
  EXPECT_EQ(info.epoch(), 1);
  EXPECT_DOUBLE_EQ(info.progress(), 0.25);
  EXPECT_DOUBLE_EQ(info.eta_seconds(), 60);
  EXPECT_DOUBLE_EQ(info.samples_per_second(), 50);
  EXPECT_EQ(info.samples(), 1000);
  ASSERT_THAT(
      table.Report(ReportOf(
          "a", 6, {ProgressAt(80, 3, 10, 10, 1000), Ended("", false, 81)})),
      IsOk());
  info = InfoOf(table, "a");
  EXPECT_EQ(info.state(), v1::RUN_STATE_FINISHED);
  EXPECT_EQ(info.epoch(), 4);
  EXPECT_EQ(info.progress(), 1);
  EXPECT_EQ(info.eta_seconds(), -1);
  EXPECT_EQ(info.samples_per_second(), 0);
  EXPECT_EQ(info.samples(), 2000);
  EXPECT_EQ(info.end_unix_ms(), (kRunBegin + 81) * 1000);
  // It goes on from its third epoch: what is trained again counts again.
  ASSERT_THAT(table.Report(ReportOf(
                  "a", 8, {Started(4, 2), ProgressAt(90, 2, 5, 10, 500, -1)})),
              IsOk());
  EXPECT_EQ(InfoOf(table, "a").samples(), 2500);
}

// Of a reporter that tells of workers alone.
TEST_F(RunTableTest, WorkersTogetherAreTheRun) {
  RunTable table(Options());
  ASSERT_THAT(table.Report(ReportOf(
                  "a", 1,
                  {Started(2), ProgressAt(0, 0, 0, 4, 0, 0),
                   ProgressAt(0, 0, 0, 4, 0, 1), ProgressAt(2, 0, 4, 4, 40, 0),
                   ProgressAt(2, 0, 2, 4, 20, 1)})),
              IsOk());
  const v1::RunInfo info = InfoOf(table, "a");
  EXPECT_DOUBLE_EQ(info.progress(), 0.375);  // 0.75 of two epochs.
  EXPECT_DOUBLE_EQ(info.samples_per_second(), 30);
  EXPECT_EQ(info.samples(), 60);
  // Train functions tell nothing but points: two of two epochs are done.
  ASSERT_THAT(table.Report(ReportOf("b", 1, {Started(0), Point(2, 1)})),
              IsOk());
  EXPECT_EQ(InfoOf(table, "b").epoch(), 2);
  EXPECT_EQ(InfoOf(table, "b").progress(), 0);
  EXPECT_EQ(InfoOf(table, "b").eta_seconds(), -1);
}

TEST_F(RunTableTest, HowItEnds) {
  RunTable table(Options());
  ASSERT_THAT(table.Report(
                  ReportOf("failed", 1, {Started(4), Ended("worker 1: gone")})),
              IsOk());
  EXPECT_EQ(InfoOf(table, "failed").state(), v1::RUN_STATE_FAILED);
  EXPECT_EQ(InfoOf(table, "failed").error(), "worker 1: gone");
  ASSERT_THAT(table.Report(ReportOf(
                  "stopped", 1,
                  {Started(4), Point(2, 1), Ended("", /*stopped=*/true)})),
              IsOk());
  EXPECT_EQ(InfoOf(table, "stopped").state(), v1::RUN_STATE_STOPPED);
  EXPECT_EQ(InfoOf(table, "stopped").epoch(), 2);
  EXPECT_EQ(InfoOf(table, "stopped").progress(), 0.5);
}

TEST_F(RunTableTest, WhatCameAlreadyIsPassedOver) {
  RunTable table(Options());
  const auto first = ReportOf("a", 1, {Started(4), Point(1, 1), Point(2, 2)});
  ASSERT_THAT(table.Report(first), IsOk());
  ASSERT_THAT(table.Report(first), IsOk());
  // 2 and 3 came already.
  ASSERT_THAT(
      table.Report(ReportOf("a", 2, {Point(1, 1), Point(2, 2), Point(3, 3)})),
      IsOk());
  // Another reporter has numbers of its own.
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Point(1, 7, 0)}, "worker")),
              IsOk());
  const v1::GetRunResponse run = *table.Get(GetOf("a"));
  ASSERT_EQ(run.curves_size(), 2);
  EXPECT_THAT(Values(run.curves(0)), ElementsAre(1, 2, 3));
  EXPECT_THAT(Values(run.curves(1)), ElementsAre(7));
  EXPECT_EQ(run.run().dropped_events(), 0);
  EXPECT_EQ(run.run().num_starts(), 1);
}

TEST_F(RunTableTest, NumbersThatNeverCameAreCounted) {
  RunTable table(Options());
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(4), Point(1, 1)})),
              IsOk());
  // 3 to 5 are missing; the reporter knows of two.
  v1::ReportRunRequest request = ReportOf("a", 6, {Point(2, 2)});
  request.set_dropped(2);
  ASSERT_THAT(table.Report(request), IsOk());
  EXPECT_EQ(InfoOf(table, "a").dropped_events(), 3);
  // What it dropped last has no successor yet.
  request = ReportOf("a", 7, {});
  request.set_dropped(5);
  ASSERT_THAT(table.Report(request), IsOk());
  EXPECT_EQ(InfoOf(table, "a").dropped_events(), 5);
  // Those of another reporter are others.
  ASSERT_THAT(table.Report(ReportOf("a", 3, {Point(3, 3)}, "second")), IsOk());
  EXPECT_EQ(InfoOf(table, "a").dropped_events(), 7);
}

TEST_F(RunTableTest, ASignOfLifeMakesNoRun) {
  RunTable table(Options());
  EXPECT_FALSE(table.Report(ReportOf("a", 1, {}))->stop_requested());
  EXPECT_THAT(Listed(table), IsEmpty());
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(4)})), IsOk());
  table.MarkLost("job-1");
  // Who is about to go on with it says so when it does.
  ASSERT_THAT(table.Report(ReportOf("a", 1, {}, "second")), IsOk());
  EXPECT_EQ(InfoOf(table, "a").state(), v1::RUN_STATE_LOST);
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(4, 1)}, "second")),
              IsOk());
  EXPECT_EQ(InfoOf(table, "a").state(), v1::RUN_STATE_RUNNING);
}

// A reporter whose first event never came.
TEST_F(RunTableTest, ARunWithoutABeginningIsStillOne) {
  RunTable table(Options());
  ASSERT_THAT(table.Report(ReportOf("a", 2, {Point(1, 1)})), IsOk());
  const v1::RunInfo info = InfoOf(table, "a");
  EXPECT_EQ(info.state(), v1::RUN_STATE_RUNNING);
  EXPECT_EQ(info.num_starts(), 1);
  EXPECT_EQ(info.dropped_events(), 1);
}

TEST_F(RunTableTest, ThinsWhatItKeepsAndWhatItAnswers) {
  RunTable::Options options = Options();
  options.limits.max_points = 8;
  options.limits.min_points = 8;
  RunTable table(options);
  std::vector<v1::RunEvent> events = {Started(20)};
  const std::vector<double> values = {5, 1, 9,  4, 2, 8, 3, 7,
                                      6, 0, 10, 5, 1, 2, 3, 4};
  for (size_t i = 0; i < values.size(); ++i) {
    events.push_back(Point(static_cast<double>(i + 1), values[i]));
  }
  ASSERT_THAT(table.Report(ReportOf("a", 1, events)), IsOk());
  // See CurveTest.ThinsOldAndNewPointsAlike.
  v1::GetRunResponse run = *table.Get(GetOf("a"));
  EXPECT_THAT(Epochs(run.curves(0)), ElementsAre(2, 3, 10, 11));
  EXPECT_THAT(Values(run.curves(0)), ElementsAre(1, 9, 0, 10));
  EXPECT_EQ(run.curves(0).num_points(), 16);
  EXPECT_EQ(run.run().metrics().at("loss"), 4);

  RunTable wide(Options());
  ASSERT_THAT(wide.Report(ReportOf("a", 1, events)), IsOk());
  EXPECT_EQ(wide.Get(GetOf("a"))->curves(0).epochs_size(), 16);
  // The ends; between them 1 9 4 2 8 3 7 and 6 0 10 5 1 2 3.
  run = *wide.Get(GetOf("a", 6));
  EXPECT_THAT(Epochs(run.curves(0)), ElementsAre(1, 2, 3, 10, 11, 16));
  EXPECT_THAT(Values(run.curves(0)), ElementsAre(5, 1, 9, 0, 10, 4));
  EXPECT_EQ(run.curves(0).num_points(), 16);
}

// What a page fetches does not grow with the training, and one bad epoch in the
// midst of it is still seen.
TEST_F(RunTableTest, TenRunsOfTenThousandPointsAreAnsweredWithAFewHundred) {
  constexpr int kPoints = 10'000;
  constexpr int kSpike = 7'777;
  RunTable table(Options());
  std::vector<v1::RunEvent> events = {Started(kPoints)};
  for (int i = 1; i <= kPoints; ++i) {
    for (int worker = -1; worker < 2; ++worker) {
      events.push_back(Point(i, i == kSpike ? 1e6 : kPoints - i, worker));
    }
  }
  for (int i = 0; i < 10; ++i) {
    ASSERT_THAT(table.Report(ReportOf(absl::StrCat("run-", i), 1, events)),
                IsOk());
  }
  for (int i = 0; i < 10; ++i) {
    const auto run = table.Get(GetOf(absl::StrCat("run-", i), 500));
    ASSERT_THAT(run, IsOk());
    // Three curves of 500 points of 16 bytes are 24,000.
    EXPECT_LT(run->ByteSizeLong(), 30'000u);
    ASSERT_EQ(run->curves_size(), 3);
    for (const v1::RunCurve& curve : run->curves()) {
      EXPECT_LE(curve.epochs_size(), 500);
      EXPECT_GE(curve.epochs_size(), 250);
      EXPECT_EQ(curve.num_points(), kPoints);
      EXPECT_THAT(Epochs(curve), Contains(static_cast<double>(kSpike)));
      EXPECT_THAT(Values(curve), Contains(1e6));
    }
  }
}

TEST_F(RunTableTest, MoreCurvesHaveFewerPointsEach) {
  CollectedRun run("a", RunLimits(), 0);
  int64_t sequence = 1;
  // 101 curves: 2,000 points each instead of 4,000.
  for (int worker = 0; worker <= 100; ++worker) {
    std::vector<v1::RunEvent> events;
    for (int i = 1; i <= (worker < 2 ? 4000 : 1); ++i) {
      events.push_back(Point(i, i, worker));
    }
    v1::ReportRunRequest report = ReportOf("a", sequence, events);
    EXPECT_EQ(run.Apply(&report, 1).too_many, 0);
    sequence += static_cast<int64_t>(events.size());
    EXPECT_EQ(run.Store().curves(0).epochs_size(), worker < 100 ? 4000 : 1000)
        << worker;
  }
}

TEST_F(RunTableTest, AnAnswerIsBoundedHoweverManyCurvesThereAre) {
  constexpr int kPoints = 100;
  RunTable table(Options());
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(kPoints)})), IsOk());
  int64_t sequence = 2;
  int workers = 0;
  struct Case {
    int curves, points_of_each;
  };
  for (const Case& wanted :
       {Case{400, kPoints}, Case{800, 50}, Case{2000, 20}}) {
    for (; workers < wanted.curves; ++workers) {
      std::vector<v1::RunEvent> events;
      for (int i = 1; i <= kPoints; ++i) events.push_back(Point(i, i, workers));
      ASSERT_THAT(table.Report(ReportOf("a", sequence, events)), IsOk());
      sequence += kPoints;
    }
    for (const int asked : {0, 5000}) {
      const auto run = table.Get(GetOf("a", asked));
      ASSERT_THAT(run, IsOk());
      ASSERT_EQ(run->curves_size(), wanted.curves);
      for (const v1::RunCurve& curve : run->curves()) {
        ASSERT_EQ(curve.epochs_size(), wanted.points_of_each);
        ASSERT_EQ(curve.epochs(0), 1);
        ASSERT_EQ(*curve.epochs().rbegin(), kPoints);
      }
      // 40,000 points of 16 bytes, and the names.
      EXPECT_LT(run->ByteSizeLong(), 800'000u);
    }
    // What asks for fewer gets fewer.
    EXPECT_EQ(table.Get(GetOf("a", 10))->curves(0).epochs_size(), 10);
  }
}

TEST_F(RunTableTest, AStartThatGoesOnForgetsWhatItTrainsAgain) {
  RunTable table(Options());
  std::vector<v1::RunEvent> events = {Started(10)};
  for (int epoch = 1; epoch <= 5; ++epoch) {
    events.push_back(Point(epoch - 0.5, 10 * epoch - 5));
    events.push_back(Point(epoch, 10 * epoch));
    events.push_back(Point(epoch, epoch, 0));
    events.push_back(Image(epoch - 1, PngOf(100, epoch)));
    events.push_back(Sync(epoch - 1, epoch));
  }
  events.push_back(Point(5, 99, -1, "late"));
  events.push_back(Ended("worker 0 died"));
  ASSERT_THAT(table.Report(ReportOf("a", 1, events)), IsOk());
  // From a checkpoint after three epochs, in another process.
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(10, 3, 1000)}, "second")),
              IsOk());
  v1::GetRunResponse run = *table.Get(GetOf("a"));
  EXPECT_EQ(run.run().state(), v1::RUN_STATE_RUNNING);
  EXPECT_EQ(run.run().error(), "");
  EXPECT_EQ(run.run().end_unix_ms(), 0);
  EXPECT_EQ(run.run().num_starts(), 2);
  EXPECT_EQ(run.run().start_unix_ms(), kRunBegin * 1000);
  EXPECT_EQ(run.run().epoch(), 3);
  EXPECT_DOUBLE_EQ(run.run().progress(), 0.3);
  EXPECT_EQ(run.run().eta_seconds(), -1);
  ASSERT_EQ(run.curves_size(), 2);
  EXPECT_THAT(Epochs(run.curves(0)), ElementsAre(0.5, 1, 1.5, 2, 2.5, 3));
  EXPECT_THAT(Epochs(run.curves(1)), ElementsAre(1, 2, 3));
  EXPECT_EQ(run.run().metrics().size(), 1u);
  EXPECT_EQ(run.run().metrics().at("loss"), 30);
  EXPECT_THAT(ImageEpochs(table, "a"), ElementsAre(0, 1, 2));
  EXPECT_EQ(run.syncs_size(), 5);  // They have been.
  // What it takes from here on says how long it will.
  ASSERT_THAT(
      table.Report(ReportOf("a", 2, {ProgressAt(1010, 4, 0, 1, 0)}, "second")),
      IsOk());
  EXPECT_DOUBLE_EQ(InfoOf(table, "a").eta_seconds(), 60);

  // From the beginning, all is another training's.
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(6, 0, 2000)}, "third")),
              IsOk());
  run = *table.Get(GetOf("a", 0, /*with_spans=*/true));
  EXPECT_EQ(run.run().num_starts(), 3);
  EXPECT_EQ(run.run().start_unix_ms(), (kRunBegin + 2000) * 1000);
  EXPECT_EQ(run.run().epochs(), 6);
  EXPECT_EQ(run.run().num_syncs(), 0);
  EXPECT_EQ(run.run().num_images(), 0);
  EXPECT_TRUE(run.run().metrics().empty());
  EXPECT_EQ(run.curves_size() + run.images_size() + run.syncs_size() +
                run.workers_size() + run.spans_size(),
            0);
}

TEST_F(RunTableTest, TheNewestRunsComeFirst) {
  RunTable table(Options());
  for (const char* id : {"b", "a", "c"}) {
    ASSERT_THAT(table.Report(ReportOf(id, 1, {Started(4)})), IsOk());
  }
  EXPECT_THAT(Listed(table), ElementsAre("c", "a", "b"));
  ASSERT_THAT(table.Report(ReportOf("a", 2, {Point(1, 1)})), IsOk());
  EXPECT_THAT(Listed(table), ElementsAre("c", "a", "b"));
  ASSERT_THAT(table.Report(ReportOf("b", 1, {Started(4, 1)}, "second")),
              IsOk());
  EXPECT_THAT(Listed(table), ElementsAre("b", "c", "a"));
}

TEST_F(RunTableTest, AStopIsToldToTheReporterOfThisStart) {
  RunTable table(Options());
  v1::StopRunRequest stop;
  stop.set_run_id("a");
  EXPECT_THAT(table.Stop(stop), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(table.Report(ReportOf("a", 1, {Started(4)}))->stop_requested());
  ASSERT_THAT(table.Stop(stop), IsOk());
  ASSERT_THAT(table.Stop(stop), IsOk());
  EXPECT_TRUE(InfoOf(table, "a").stop_requested());
  EXPECT_TRUE(table.Report(ReportOf("a", 2, {}))->stop_requested());
  // The same process makes its workers anew; it may not have heard of it.
  EXPECT_TRUE(
      table.Report(ReportOf("a", 2, {Started(4, 1)}))->stop_requested());
  ASSERT_THAT(table.Report(ReportOf("a", 3, {Ended("", true)})), IsOk());
  EXPECT_THAT(table.Stop(stop), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("run a has ended")));
  EXPECT_FALSE(table.Report(ReportOf("a", 1, {Started(4, 1)}, "second"))
                   ->stop_requested());
}

TEST_F(RunTableTest, ASilentRunIsLostUntilItSpeaks) {
  RunTable table(Options());
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(4)})), IsOk());
  ASSERT_THAT(table.Report(ReportOf("ended", 1, {Started(4), Ended()})),
              IsOk());
  now_ += absl::Minutes(5);
  table.Tick();
  EXPECT_EQ(InfoOf(table, "a").state(), v1::RUN_STATE_RUNNING);
  // A sign of life, without any event, is one.
  ASSERT_THAT(table.Report(ReportOf("a", 2, {})), IsOk());
  now_ += absl::Minutes(5);
  table.Tick();
  EXPECT_EQ(InfoOf(table, "a").state(), v1::RUN_STATE_RUNNING);
  now_ += absl::Milliseconds(1);
  table.Tick();
  v1::RunInfo info = InfoOf(table, "a");
  EXPECT_EQ(info.state(), v1::RUN_STATE_LOST);
  EXPECT_EQ(info.error(), "nothing was heard of it for 5m");
  EXPECT_EQ(info.end_unix_ms(), absl::ToUnixMillis(now_));
  EXPECT_EQ(InfoOf(table, "ended").state(), v1::RUN_STATE_FINISHED);
  v1::StopRunRequest stop;
  stop.set_run_id("a");
  EXPECT_THAT(table.Stop(stop),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  // It was the network.
  ASSERT_THAT(table.Report(ReportOf("a", 2, {})), IsOk());
  info = InfoOf(table, "a");
  EXPECT_EQ(info.state(), v1::RUN_STATE_RUNNING);
  EXPECT_EQ(info.error(), "");
  EXPECT_EQ(info.end_unix_ms(), 0);
}

TEST_F(RunTableTest, TheEndOfAJobIsThatOfItsRuns) {
  RunTable table(Options());
  v1::RunEvent other = Started(4);
  other.mutable_started()->set_job_id("job-2");
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(4)})), IsOk());
  ASSERT_THAT(table.Report(ReportOf("b", 1, {other})), IsOk());
  ASSERT_THAT(table.Report(ReportOf("c", 1, {Started(4), Ended("oh")})),
              IsOk());
  table.MarkLost("job-1");
  EXPECT_EQ(InfoOf(table, "a").state(), v1::RUN_STATE_LOST);
  EXPECT_THAT(InfoOf(table, "a").error(), HasSubstr("its job ended"));
  EXPECT_EQ(InfoOf(table, "b").state(), v1::RUN_STATE_RUNNING);
  EXPECT_EQ(InfoOf(table, "c").error(), "oh");
  // Its last word was on its way.
  ASSERT_THAT(table.Report(ReportOf("a", 2, {Ended()})), IsOk());
  EXPECT_EQ(InfoOf(table, "a").state(), v1::RUN_STATE_FINISHED);
  EXPECT_EQ(InfoOf(table, "a").error(), "");
}

TEST_F(RunTableTest, KeepsTheNewestPicturesSyncsAndSpans) {
  RunTable::Options options = Options();
  options.limits.max_images = 3;
  options.limits.max_image_bytes = 1000;
  options.limits.max_syncs = 2;
  options.limits.max_spans = 2;
  RunTable table(options);
  ASSERT_THAT(
      table.Report(ReportOf(
          "a", 1,
          {Started(9), Image(0, PngOf(100)), Image(1, PngOf(100)),
           Image(2, PngOf(100)), Image(3, PngOf(100)), Sync(0, 1), Sync(1, 2),
           Sync(2, 3), Span("1", 0, 1), Span("2", 1, 2), Span("3", 2, 3)})),
      IsOk());
  EXPECT_THAT(ImageEpochs(table, "a"), ElementsAre(1, 2, 3));
  // 900 bytes leave room for one of the others.
  ASSERT_THAT(table.Report(ReportOf("a", 12, {Image(4, PngOf(900))})), IsOk());
  EXPECT_THAT(ImageEpochs(table, "a"), ElementsAre(3, 4));
  // One that is larger than all may be is better than none.
  ASSERT_THAT(table.Report(ReportOf("a", 13, {Image(5, PngOf(2000))})), IsOk());
  EXPECT_THAT(ImageEpochs(table, "a"), ElementsAre(5));
  const v1::GetRunResponse run = *table.Get(GetOf("a", 0, true));
  EXPECT_EQ(run.run().num_images(), 6);
  EXPECT_EQ(run.run().num_syncs(), 3);
  ASSERT_EQ(run.syncs_size(), 2);
  EXPECT_EQ(run.syncs(0).sync().version(), 2);
  ASSERT_EQ(run.spans_size(), 2);
  EXPECT_EQ(run.spans(0).name(), "2");
}

TEST_F(RunTableTest, WhatThereIsNoRoomForIsCountedAndTheRestTaken) {
  RunTable::Options options = Options();
  options.limits.max_curves = 2;
  options.limits.max_servers = 1;
  RunTable table(options);
  EXPECT_THAT(table.Report(ReportOf(
                  "a", 1,
                  {Started(4), Point(1, 1), Point(1, 2, 0), Point(1, 3, 1),
                   Server("x", 1), Server("y", 1), Point(2, 4)})),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("run a has more curves"),
                             HasSubstr("2 events were left out"))));
  const v1::GetRunResponse run = *table.Get(GetOf("a"));
  ASSERT_EQ(run.curves_size(), 2);
  EXPECT_THAT(Values(run.curves(0)), ElementsAre(1, 4));
  EXPECT_EQ(run.servers_size(), 1);
  EXPECT_EQ(run.run().dropped_events(), 2);
  // They came, though.
  ASSERT_THAT(table.Report(ReportOf("a", 8, {Point(3, 5)})), IsOk());
  EXPECT_EQ(InfoOf(table, "a").dropped_events(), 2);
}

TEST_F(RunTableTest, ABadFieldLeavesARunAsItWas) {
  RunTable table(Options());
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(4)})), IsOk());
  const std::string before = table.Get(GetOf("a"))->SerializeAsString();
  EXPECT_THAT(table.Report(ReportOf("a", 2, {Point(1, 1), Image(0, "GIF89a")})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("events[1]: image: png is no PNG")));
  EXPECT_THAT(table.Report(ReportOf("a b", 1, {Started(4)})),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(table.Get(GetOf("a"))->SerializeAsString(), before);
  EXPECT_THAT(Listed(table), ElementsAre("a"));
}

TEST_F(RunTableTest, TheOldestEndedRunsMakeRoom) {
  RunTable::Options options = Options();
  options.max_runs = 3;
  RunTable table(options);
  ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(4)})), IsOk());
  ASSERT_THAT(table.Report(ReportOf("b", 1, {Started(4)})), IsOk());
  ASSERT_THAT(table.Report(ReportOf("c", 1, {Started(4), Ended()})), IsOk());
  ASSERT_THAT(table.Report(ReportOf("b", 2, {Ended()})), IsOk());
  // c ended before b.
  ASSERT_THAT(table.Report(ReportOf("d", 1, {Started(4)})), IsOk());
  EXPECT_THAT(Listed(table), UnorderedElementsAre("a", "b", "d"));
  ASSERT_THAT(table.Report(ReportOf("e", 1, {Started(4)})), IsOk());
  EXPECT_THAT(Listed(table), UnorderedElementsAre("a", "d", "e"));
  EXPECT_THAT(table.Report(ReportOf("f", 1, {Started(4)})),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("keeps 3 runs"),
                             HasSubstr("no room for run f"))));
  ASSERT_THAT(table.Report(ReportOf("a", 2, {Point(1, 1)})), IsOk());
  EXPECT_THAT(Listed(table), UnorderedElementsAre("a", "d", "e"));
}

TEST_F(RunTableTest, RunsAndPicturesMakeRoomInMemory) {
  RunTable::Options options = Options();
  options.max_bytes = 200000;
  RunTable table(options);
  ASSERT_THAT(table.Report(ReportOf(
                  "old", 1, {Started(4), Image(0, PngOf(80000)), Ended()})),
              IsOk());
  ASSERT_THAT(
      table.Report(ReportOf("new", 1, {Started(4), Image(0, PngOf(80000))})),
      IsOk());
  EXPECT_THAT(Listed(table), ElementsAre("new", "old"));
  // The ended run goes first,
  ASSERT_THAT(table.Report(ReportOf("new", 3, {Image(1, PngOf(80000))})),
              IsOk());
  EXPECT_THAT(Listed(table), ElementsAre("new"));
  EXPECT_THAT(ImageEpochs(table, "new"), ElementsAre(0, 1));
  // and then this run's own pictures.
  ASSERT_THAT(table.Report(ReportOf("new", 4, {Image(2, PngOf(80000))})),
              IsOk());
  EXPECT_THAT(ImageEpochs(table, "new"), ElementsAre(1, 2));
}

TEST_F(RunTableTest, WhoFollowsHearsOfEveryChange) {
  RunTable table(Options());
  const int64_t begin = table.AwaitChange(0, absl::InfiniteDuration());
  EXPECT_GT(begin, 0);
  // Nothing happens.
  EXPECT_EQ(table.AwaitChange(begin, absl::Milliseconds(1)), begin);
  std::thread reporter([&table] {
    ASSERT_THAT(table.Report(ReportOf("a", 1, {Started(4)})), IsOk());
  });
  const int64_t started = table.AwaitChange(begin, absl::Seconds(60));
  reporter.join();
  EXPECT_GT(started, begin);
  EXPECT_EQ(InfoOf(table, "a").version(), started);
  // A sign of life changes nothing that anybody sees.
  ASSERT_THAT(table.Report(ReportOf("a", 2, {})), IsOk());
  EXPECT_EQ(table.AwaitChange(started, absl::ZeroDuration()), started);
  v1::StopRunRequest stop;
  stop.set_run_id("a");
  ASSERT_THAT(table.Stop(stop), IsOk());
  EXPECT_GT(table.AwaitChange(started, absl::ZeroDuration()), started);
  // The version of another head is none of ours.
  EXPECT_NE(table.AwaitChange(started + 1000000, absl::InfiniteDuration()),
            started + 1000000);
  // A head that is started later has later ones.
  now_ += absl::Seconds(10);
  EXPECT_GT(RunTable(Options()).AwaitChange(0, absl::ZeroDuration()),
            InfoOf(table, "a").version());
}

TEST_F(RunTableTest, NobodyWaitsForATableThatEnds) {
  RunTable table(Options());
  const int64_t version = table.AwaitChange(0, absl::ZeroDuration());
  std::thread follower([&] {
    EXPECT_EQ(table.AwaitChange(version, absl::InfiniteDuration()), version);
  });
  table.StopWaiting();
  follower.join();
}

}  // namespace
}  // namespace miniray
