// What the head knows of real trainings.

#include "train/report_run.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/runs/run_checks.h"
#include "runtime/runs/run_table.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/runs/run_events.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/points_worker.h"
#include "tests/train/quadratic_worker.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Pair;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Shows a picture after each epoch.
class PictureTrainer : public QuadraticTrainer {
 public:
  using QuadraticTrainer::QuadraticTrainer;

 protected:
  void OnEpochEnd(int epoch, const EpochResult& result) override {
    ReportImage("samples", epoch, PngOf(100, epoch), 10, 20);
  }
};

class ReportRunTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {8}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  static TrainerOptions Named(const std::string& run_id) {
    return {.num_workers = 2, .cluster = *cluster_, .run_id = run_id};
  }

  static RunTable& runs() { return nodes_->head().runs(); }

  // REQUIRES: there is such a run.
  static v1::GetRunResponse Run(const std::string& id) {
    const auto run = runs().Get(GetOf(id, 100000, /*with_spans=*/true));
    EXPECT_THAT(run, IsOk());
    return run.ok() ? *run : v1::GetRunResponse();
  }

  // By epoch.
  static std::map<double, double> Curve(const v1::GetRunResponse& run,
                                        const std::string& metric,
                                        int worker = -1) {
    std::map<double, double> points;
    for (const v1::RunCurve& curve : run.curves()) {
      if (curve.metric() != metric || curve.worker() != worker) continue;
      for (int i = 0; i < curve.epochs_size(); ++i) {
        points[curve.epochs(i)] = curve.values(i);
      }
    }
    return points;
  }

  static std::vector<std::string> Spans(const v1::GetRunResponse& run) {
    std::vector<std::string> names;
    for (const v1::RunSpan& span : run.spans()) {
      names.push_back(absl::StrCat(span.track(), ": ", span.name()));
      EXPECT_LE(span.start_unix_us(), span.end_unix_us());
    }
    return names;
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};
TestCluster* ReportRunTest::nodes_;
Cluster* ReportRunTest::cluster_;

TEST_F(ReportRunTest, TheHeadKnowsAllOfATraining) {
  QuadraticTrainer trainer(Named("quadratic"), {.targets = {4, 8}});
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_THAT(result, IsOk());
  const v1::GetRunResponse run = Run("quadratic");
  const v1::RunInfo& info = run.run();
  EXPECT_EQ(info.kind(), "DataParallelTrainer");
  EXPECT_EQ(info.job_id(), cluster_->job_id());
  EXPECT_EQ(info.state(), v1::RUN_STATE_FINISHED);
  EXPECT_EQ(info.num_workers(), 2);
  EXPECT_EQ(info.epochs(), 3);
  EXPECT_EQ(info.epoch(), 3);
  EXPECT_EQ(info.progress(), 1);
  EXPECT_EQ(info.num_starts(), 1);
  EXPECT_EQ(info.dropped_events(), 0);
  EXPECT_EQ(info.num_syncs(), 3);
  EXPECT_EQ(info.folder(), "");
  // From 0, half of the way to 4 and to 8, and their mean at each epoch's end.
  EXPECT_THAT(Curve(run, "x"),
              ElementsAre(Pair(1, 3), Pair(2, 4.5), Pair(3, 5.25)));
  EXPECT_THAT(Curve(run, "x", 0),
              ElementsAre(Pair(1, 2), Pair(2, 3.5), Pair(3, 4.25)));
  EXPECT_THAT(Curve(run, "x", 1),
              ElementsAre(Pair(1, 4), Pair(2, 5.5), Pair(3, 6.25)));
  EXPECT_EQ(info.metrics().at("x"), 5.25);
  ASSERT_EQ(run.syncs_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run.syncs(i).sync().epoch(), i);
    EXPECT_EQ(run.syncs(i).sync().version(), i + 1);
    EXPECT_EQ(run.syncs(i).sync().num_workers(), 2);
    EXPECT_GT(run.syncs(i).sync().bytes(), 0);
  }
  // As it was behind the last synchronisation, however short the training was.
  ASSERT_EQ(run.servers_size(), 1);
  EXPECT_EQ(run.servers(0).version(), 3);
  EXPECT_EQ(run.servers(0).num_syncs(), 3);
  EXPECT_GT(run.servers(0).bytes_pulled(), 0);
  EXPECT_GT(run.servers(0).bytes_pushed(), 0);
  EXPECT_NE(run.servers(0).strategy(), "");
  EXPECT_NE(run.servers(0).actor_id(), "");
  EXPECT_THAT(
      Spans(run),
      IsSupersetOf({"trainer: epoch 1", "trainer: epoch 2", "trainer: epoch 3",
                    "parameter server: sync 1", "parameter server: sync 3"}));
}

// Both workers stand before the fourth of six batches until the head knows it.
TEST_F(ReportRunTest, TheHeadKnowsHowFarAnEpochIs) {
  PointsTrainer trainer(Named("within"), {.batch = 8, .pause_before = 3});
  std::optional<v1::GetRunResponse> seen;
  std::thread watcher;
  trainer.at_train_start = [&] {
    watcher = std::thread([&] {
      EXPECT_TRUE(Eventually(
          [&] {
            const auto run = runs().Get(GetOf("within", 100000));
            if (!run.ok() || !Curve(*run, "loss").contains(0.5)) {
              return false;
            }
            seen = *run;
            return true;
          },
          kPatience));
      for (const auto& worker : trainer.workers()) {
        EXPECT_THAT(worker.Call<&PointsWorker::Proceed>().Get(), IsOk());
      }
    });
  };
  const auto result = trainer.Train({.epochs = 2});
  watcher.join();
  ASSERT_THAT(result, IsOk());
  ASSERT_TRUE(seen.has_value());
  // 24 of 48 points each, in the first of two epochs.
  EXPECT_EQ(seen->run().state(), v1::RUN_STATE_RUNNING);
  EXPECT_EQ(seen->run().epoch(), 0);
  EXPECT_DOUBLE_EQ(seen->run().progress(), 0.25);
  std::map<int, int64_t> samples;
  for (const v1::RunProgress& progress : seen->workers()) {
    samples[progress.worker()] = progress.samples();
    EXPECT_EQ(2 * progress.step(), progress.steps());
  }
  EXPECT_THAT(samples, ElementsAre(Pair(-1, 48), Pair(0, 24), Pair(1, 24)));
  const auto first = Curve(*seen, "loss", 0);
  const auto second = Curve(*seen, "loss", 1);
  ASSERT_TRUE(first.contains(0.5) && second.contains(0.5));
  EXPECT_GT(first.at(0.5), 0);
  EXPECT_DOUBLE_EQ(Curve(*seen, "loss").at(0.5),
                   (first.at(0.5) + second.at(0.5)) / 2);
  // And the ends of the epochs as ever.
  const v1::GetRunResponse run = Run("within");
  EXPECT_EQ(run.run().state(), v1::RUN_STATE_FINISHED);
  for (const EpochResult& epoch : result->history) {
    EXPECT_EQ(Curve(run, "loss").at(epoch.epoch + 1), epoch.metrics.at("loss"));
  }
}

TEST_F(ReportRunTest, AStopEndsTheTrainingEarly) {
  QuadraticTrainer trainer(Named("stopped"), {});
  bool asked = false;
  v1::StopRunRequest stop;
  stop.set_run_id("stopped");
  trainer.at_epoch_end = [&](int) {
    // The head may not have heard of it yet.
    asked = asked || runs().Stop(stop).ok();
  };
  RunOptions options = {.epochs = 100000};
  options.config.Set("epoch_seconds", 0.005);
  const auto result = trainer.Train(options);
  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(asked);
  EXPECT_LT(result->history.size(), 100000u);
  // The last synchronisation was after the last epoch.
  EXPECT_TRUE(result->history.back().synced);
  const v1::RunInfo info = Run("stopped").run();
  EXPECT_EQ(info.state(), v1::RUN_STATE_STOPPED);
  EXPECT_EQ(info.error(), "");
  EXPECT_EQ(info.epoch(), static_cast<int64_t>(result->history.size()));
  EXPECT_TRUE(info.stop_requested());
}

TEST_F(ReportRunTest, AFailureIsToldWithItsCause) {
  QuadraticTrainer trainer(Named("failed"), {.faults = {{1, {2, "kill"}}}});
  ASSERT_FALSE(trainer.Train({.epochs = 5}).ok());
  const v1::RunInfo info = Run("failed").run();
  EXPECT_EQ(info.state(), v1::RUN_STATE_FAILED);
  EXPECT_THAT(info.error(),
              AllOf(HasSubstr("epoch 3/5: worker 1"), HasSubstr("signal 9")));
  EXPECT_EQ(info.epoch(), 2);
  EXPECT_DOUBLE_EQ(info.progress(), 0.4);
}

// Before the first epoch, too.
TEST_F(ReportRunTest, ATrainingThatDoesNotBeginHasFailed) {
  TrainerOptions options = Named("placeless");
  options.worker_resources.custom["unicorn"] = 1;
  options.start_timeout = absl::Milliseconds(100);
  QuadraticTrainer trainer(options, {});
  ASSERT_FALSE(trainer.Train({.epochs = 5}).ok());
  const v1::RunInfo info = Run("placeless").run();
  EXPECT_EQ(info.state(), v1::RUN_STATE_FAILED);
  EXPECT_THAT(info.error(), HasSubstr("unicorn"));
  EXPECT_EQ(info.epoch(), 0);
}

TEST_F(ReportRunTest, PicturesAreShown) {
  PictureTrainer trainer(Named("pictures"), {});
  ASSERT_THAT(trainer.Train({.epochs = 2}), IsOk());
  const v1::GetRunResponse run = Run("pictures");
  ASSERT_EQ(run.images_size(), 2);
  EXPECT_EQ(run.images(1).name(), "samples");
  EXPECT_EQ(run.images(1).epoch(), 1);
  EXPECT_EQ(run.images(1).width(), 10);
  EXPECT_EQ(run.images(1).height(), 20);
  v1::GetRunImageRequest get;
  get.set_run_id("pictures");
  get.set_image_id(run.images(1).image_id());
  EXPECT_EQ(runs().GetImage(get)->png(), PngOf(100, 1));
}

TEST_F(ReportRunTest, GoesOnWithTheRunThatItGoesOnWith) {
  TrainerOptions options = Named("");
  options.storage_path = temp_.path();
  options.name = "my points";
  options.checkpoint.frequency = 1;
  options.checkpoint.resume = "auto";
  {
    PointsTrainer trainer(options);
    ASSERT_THAT(trainer.Train({.epochs = 2}), IsOk());
  }
  // The folder's name, as far as it can name a run.
  const std::string id = RunIdFrom("my points");
  v1::GetRunResponse run = Run(id);
  EXPECT_EQ(run.run().folder(), temp_ / "my points");
  EXPECT_THAT(Spans(run), Contains(HasSubstr("checkpoints: checkpoint ")));
  const auto before = Curve(run, "loss");
  PointsTrainer trainer(options);
  const auto result = trainer.Train({.epochs = 4});
  ASSERT_THAT(result, IsOk());
  run = Run(id);
  EXPECT_EQ(run.run().num_starts(), 2);
  EXPECT_EQ(run.run().epoch(), 4);
  EXPECT_EQ(run.run().state(), v1::RUN_STATE_FINISHED);
  const auto after = Curve(run, "loss");
  for (int epoch = 1; epoch <= 4; ++epoch) {
    ASSERT_TRUE(after.contains(epoch)) << epoch;
  }
  EXPECT_EQ(after.at(1), before.at(1));
  EXPECT_EQ(after.at(2), before.at(2));
  EXPECT_EQ(after.at(4), result->metrics().at("loss"));
}

// All are made anew: it is one training, in one process, with two starts.
TEST_F(ReportRunTest, AGroupThatIsMadeAnewGoesOn) {
  TrainerOptions options = Named("anew");
  options.failure = {.max_failures = 1};
  const std::string fault_file = temp_ / "fault";
  options.evaluate_every = 1;
  PointsTrainer trainer(options, {.fault_file = fault_file});
  ASSERT_THAT(WriteFileAtomically(fault_file, "kill"), IsOk());
  ASSERT_THAT(trainer.Train({.epochs = 2}), IsOk());
  const v1::GetRunResponse run = Run("anew");
  EXPECT_EQ(run.run().state(), v1::RUN_STATE_FINISHED);
  EXPECT_EQ(run.run().num_starts(), 2);
  EXPECT_EQ(run.run().dropped_events(), 0);
  EXPECT_EQ(run.run().epoch(), 2);
  EXPECT_FALSE(Curve(run, "eval/accuracy").empty());
}

TEST_F(ReportRunTest, NobodyIsToldWhereNobodyIsToBe) {
  TrainerOptions options = Named("secret");
  options.report = false;
  PictureTrainer trainer(options, {});
  ASSERT_THAT(trainer.Train({.epochs = 1}), IsOk());
  EXPECT_THAT(runs().Get(GetOf("secret")),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ReportRunTest, ANameThatCannotBeIsSaidBeforeAnythingIsCreated) {
  QuadraticTrainer trainer(Named("my run"), {});
  EXPECT_THAT(trainer.Train({.epochs = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("run_id: 'my run' cannot name a run: 1 to 128 "
                                 "letters, digits")));
  EXPECT_TRUE(trainer.configs.empty());
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
