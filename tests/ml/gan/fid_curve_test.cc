// The distance of a generator's images from the real ones while it trains, in
// this process and by real worker processes.

#include "ml/gan/fid_curve.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/full.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/data/dataset_loader.h"
#include "ml/gan/gan_fid_team.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/gan_worker.h"
#include "ml/gan/training_run.h"
#include "ml/image/png.h"
#include "ml/metrics/fid_run.h"
#include "ml/metrics/fid_team.h"
#include "runtime/base/files.h"
#include "tests/ml/cli/text_bar.h"
#include "tests/ml/data/data_testutil.h"
#include "tests/ml/gan/gan_testutil.h"
#include "tests/ml/metrics/metrics_testutil.h"
#include "tests/runtime/test_cluster.h"
#include "train/result.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const DatasetRegistrar kTiny("tiny", &MakeTinyDataset);

constexpr char kName[] = "FID (inception file script.pt)";

GanWorkerOptions TinyOptions() {
  // A folder, so that statistics are kept; "tiny" does not look at it.
  return {.dataset = "tiny",
          .data_dir = "/nowhere",
          .batch_size = 16,
          .latent_dim = 8,
          .seed = 5};
}

class FidCurveTest : public ::testing::Test {
 protected:
  // As in workers, so that images are the same.
  FidCurveTest() { at::set_num_threads(1); }

  FidCurveOptions CurveOptions() const {
    return {.every = 2, .extractor = MakeScript(kQuarters, 8), .count = 300};
  }

  // What the program `fid` says of the images of that generator.
  FidResult Program(const GanModel& model, const std::string& cache_dir) {
    ProgressBar bar({.draw = false});
    absl::StatusOr<FidResult> result =
        RunFid(model,
               {.data = {.dataset = "tiny",
                         .data_dir = TinyOptions().data_dir,
                         .image_size = 8,
                         .image_channels = 1},
                .extractor = MakeScript(kQuarters, 8),
                .count = 300,
                .seed = 1,
                .cache_dir = cache_dir},
               &bar);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : FidResult();
  }

  // Calls it with a bar; text_ is what was printed.
  template <class Function>
  auto WithBar(Function function) {
    TextBar bar;
    auto result = function(bar.get());
    text_ = bar.text();
    return result;
  }

  const std::string folder_ = MakeTestFolder();
  std::string text_;
};

TEST_F(FidCurveTest, AWorkerNeedsAnExtractorAndACopyOfItsGenerator) {
  GanWorker worker(TinyOptions());
  const ExtractorFile extractor = MakeScript(kQuarters, 8);
  ExpectError(worker.RealStatistics().status(), kFailedPrecondition,
              {"LoadDataShard"});
  ExpectError(worker.SnapshotGenerator(), kFailedPrecondition,
              {"LoadDataShard"});
  ExpectError(worker.DescribeData().status(), kFailedPrecondition,
              {"LoadDataShard"});
  ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
  ExpectError(worker.RealStatistics().status(), kFailedPrecondition,
              {"LoadExtractor"});
  ExpectError(worker.GeneratedStatistics(1, 0, 10).status(),
              kFailedPrecondition, {"LoadExtractor"});
  ExpectError(worker.LoadExtractor({.kind = "magic"}), kInvalidArgument,
              {"'magic'"});
  ASSERT_EQ(worker.LoadExtractor(extractor), absl::OkStatus());
  ExpectError(worker.GeneratedStatistics(1, 0, 10).status(),
              kFailedPrecondition, {"SnapshotGenerator"});
  ASSERT_EQ(worker.SnapshotGenerator(), absl::OkStatus());
  ASSERT_OK_AND_ASSIGN(const FeatureStatistics statistics,
                       worker.GeneratedStatistics(1, 0, 100));
  EXPECT_EQ(statistics.count, 100);
  EXPECT_EQ(statistics.num_features(), 4);
  ExpectError(worker.GeneratedStatistics(1, 0, 0).status(), kInvalidArgument,
              {"at least 1 image"});
  // That of the epoch before is not kept.
  ASSERT_EQ(worker.TrainEpoch(0).status(), absl::OkStatus());
  ExpectError(worker.GeneratedStatistics(1, 0, 10).status(),
              kFailedPrecondition, {"SnapshotGenerator"});
}

TEST_F(FidCurveTest, ShardsTogetherAreAllRealImages) {
  for (const char* sharding : {"contiguous", "shuffled"}) {
    std::vector<FeatureStatistics> sums;
    for (const int num_shards : {1, 4}) {
      FeatureStatistics sum;
      for (int shard = 0; shard < num_shards; ++shard) {
        GanWorkerOptions options = TinyOptions();
        options.sharding = sharding;
        GanWorker worker(options);
        ASSERT_EQ(worker.LoadDataShard(shard, num_shards), absl::OkStatus());
        ASSERT_EQ(worker.LoadExtractor(MakeScript(kQuarters, 8)),
                  absl::OkStatus());
        ASSERT_OK_AND_ASSIGN(const FeatureStatistics part,
                             worker.RealStatistics());
        ASSERT_EQ(sum.Merge(part), absl::OkStatus());
      }
      sums.push_back(std::move(sum));
    }
    EXPECT_EQ(sums[0].count, 90);
    EXPECT_EQ(sums[1].count, 90);
    EXPECT_TRUE(sums[0].mean.allclose(sums[1].mean, 1e-9));
    EXPECT_TRUE(sums[0].scatter.allclose(sums[1].scatter, 1e-9, 1e-6));
  }
}

TEST_F(FidCurveTest, RealImagesMayStayOnTheDisk) {
  // More than a batch.
  const std::string root = MakeTestFolder();
  std::filesystem::create_directories(root + "/train/grey");
  for (int i = 0; i < 70; ++i) {
    ASSERT_EQ(WritePng(absl::StrCat(root, "/train/grey/", i, ".png"),
                       at::full({3, 8, 8}, 3 * i, at::kByte)),
              absl::OkStatus());
  }
  for (const bool lazy : {false, true}) {
    GanWorker worker({.dataset = "image-folder",
                      .data_dir = root,
                      .image_size = 8,
                      .lazy = lazy,
                      .batch_size = 16,
                      .latent_dim = 8});
    ASSERT_EQ(worker.LoadDataShard(0, 1), absl::OkStatus());
    ASSERT_EQ(worker.LoadExtractor(MakeScript(kMeanPixel, 8)),
              absl::OkStatus());
    ASSERT_OK_AND_ASSIGN(const FeatureStatistics statistics,
                         worker.RealStatistics());
    // Of 3 i, i from 0 to n - 1: 3 (n - 1) / 2 and 9 n (n^2 - 1) / 12.
    EXPECT_EQ(statistics.count, 70);
    EXPECT_NEAR(statistics.mean[0].item<double>(), 103.5, 1e-9);
    EXPECT_NEAR(statistics.scatter[0][0].item<double>(), 257197.5, 1e-3);
  }
}

TEST_F(FidCurveTest, IsWhatTheProgramSaysAndChangesNothing) {
  GanWorker worker(TinyOptions());
  GanWorker plain(TinyOptions());
  for (GanWorker* each : {&worker, &plain}) {
    ASSERT_EQ(each->LoadDataShard(0, 1), absl::OkStatus());
  }
  ASSERT_EQ(worker.LoadExtractor(MakeScript(kQuarters, 8)), absl::OkStatus());
  LocalGanFidTeam team(&worker);
  FidCurve curve(CurveOptions());
  ASSERT_EQ(WithBar([&](ProgressBar* bar) {
              return curve.Start({1, 8, 8}, &team, bar);
            }),
            absl::OkStatus());
  EXPECT_EQ(curve.name(), kName);
  EXPECT_THAT(text_, HasSubstr(absl::StrCat(
                         "fid: ", kName, " of 300 images, every 2 epochs; ")));
  EXPECT_THAT(text_, HasSubstr("Real images: 90, "));

  std::vector<double> distances;
  for (int epoch = 0; epoch < 2; ++epoch) {
    ASSERT_EQ(plain.TrainEpoch(epoch).status(), absl::OkStatus());
    ASSERT_EQ(worker.TrainEpoch(epoch).status(), absl::OkStatus());
    const train::Metrics metrics = WithBar([&](ProgressBar* bar) {
      train::Metrics measured = {{"g_loss", 1}};
      curve.Measure(epoch, &team, bar, &measured);
      return measured;
    });
    EXPECT_THAT(text_, IsEmpty());
    ASSERT_THAT(metrics, SizeIs(3));
    EXPECT_GT(metrics.at("fid_seconds"), 0);
    distances.push_back(metrics.at("fid"));
  }
  EXPECT_NE(distances[0], distances[1]);
  const NamedTensors weights = *worker.GetWeights();
  EXPECT_TRUE(Equal(weights, *plain.GetWeights()));

  const FidResult program =
      Program({.network = GanNetwork::kGenerator,
               .latent_dim = 8,
               .shape = {1, 8, 8},
               .weights = SelectTrainedGenerator(weights)},
              "");
  EXPECT_GT(program.distance, 0);
  EXPECT_NEAR(distances[1], program.distance, 1e-6 * program.distance);
}

TEST_F(FidCurveTest, WorkersPutItIntoTheHistory) {
  TestCluster cluster;
  TrainingRunOptions options = {.worker = TinyOptions(),
                                .epochs = 3,
                                .save_dir = folder_ + "/models",
                                .fid = CurveOptions(),
                                .distributed = true,
                                .trainer = {.num_workers = 2,
                                            .cluster = cluster.Connect(),
                                            .storage_path = folder_,
                                            .name = "run",
                                            .sync_interval = 5}};
  // What is compared is what is saved: the average.
  options.worker.ema_decay = 0.5;
  options.fid.cache_dir = folder_ + "/cache";
  ASSERT_EQ(
      WithBar([&](ProgressBar* bar) { return RunTraining(options, bar); }),
      absl::OkStatus());
  const std::string printed = text_;

  std::vector<train::EpochResult> history;
  for (const absl::string_view line :
       absl::StrSplit(*ReadFile(folder_ + "/run/history.jsonl"), '\n',
                      absl::SkipEmpty())) {
    ASSERT_OK_AND_ASSIGN(train::EpochResult epoch,
                         train::EpochResult::FromJson(line));
    history.push_back(std::move(epoch));
  }
  ASSERT_THAT(history, SizeIs(3));
  EXPECT_FALSE(history[0].metrics.contains("fid"));
  EXPECT_FALSE(history[0].synced);
  for (const int epoch : {1, 2}) {  // Every second one, and the last.
    EXPECT_GT(history[epoch].metrics.at("fid"), 0);
    EXPECT_GT(history[epoch].seconds, history[epoch].metrics.at("fid_seconds"));
    EXPECT_TRUE(history[epoch].synced);
    ASSERT_THAT(history[epoch].notes, SizeIs(2));
    EXPECT_EQ(history[epoch].notes[0].at("fid"), kName);
  }
  EXPECT_NE(history[1].metrics.at("fid"), history[2].metrics.at("fid"));

  // The program finds the real images' statistics.
  const FidResult program = Program(
      *LoadGanModel(folder_ + "/models/generator.pt", GanNetwork::kGenerator),
      options.fid.cache_dir);
  EXPECT_TRUE(program.from_cache);
  EXPECT_EQ(program.real_images, 90);
  EXPECT_NEAR(history[2].metrics.at("fid"), program.distance,
              1e-6 * program.distance);

  EXPECT_THAT(printed, HasSubstr(absl::StrCat("fid: ", kName, " of 300")));
  for (const absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (!absl::StartsWith(line, "epoch ")) continue;
    EXPECT_EQ(absl::StrContains(line, "  fid "),
              !absl::StartsWith(line, "epoch 1/3"))
        << line;
  }
}

TEST_F(FidCurveTest, OneProcessPrintsIt) {
  TrainingRunOptions options = {.worker = TinyOptions(),
                                .epochs = 3,
                                .save_dir = folder_ + "/models",
                                .fid = CurveOptions()};
  ASSERT_EQ(
      WithBar([&](ProgressBar* bar) { return RunTraining(options, bar); }),
      absl::OkStatus());
  int epochs = 0;
  for (const absl::string_view line : absl::StrSplit(text_, '\n')) {
    if (!absl::StartsWith(line, "epoch ")) continue;
    ++epochs;
    EXPECT_EQ(absl::StrContains(line, "  fid "),
              !absl::StartsWith(line, "epoch 1/3"))
        << line;
  }
  EXPECT_EQ(epochs, 3);
}

TEST_F(FidCurveTest, WhatCannotBeComparedIsSaidBeforeTraining) {
  TestCluster cluster;
  TrainingRunOptions options = {.worker = TinyOptions(),
                                .epochs = 1,
                                .save_dir = folder_ + "/models",
                                .fid = CurveOptions()};
  options.fid.extractor.bytes = "text";
  options.trainer = {.num_workers = 2,
                     .cluster = cluster.Connect(),
                     .storage_path = folder_,
                     .name = "run"};
  for (const bool distributed : {false, true}) {
    options.distributed = distributed;
    const absl::Status status =
        WithBar([&](ProgressBar* bar) { return RunTraining(options, bar); });
    ExpectError(status, kInvalidArgument, {"not a TorchScript module"});
    EXPECT_THAT(text_, Not(HasSubstr("epoch ")));
    EXPECT_FALSE(std::filesystem::exists(options.save_dir));
  }
  // It has failed; nobody has stopped it.
  EXPECT_THAT(*ReadFile(folder_ + "/run/result.json"),
              HasSubstr("not a TorchScript module"));
}

TEST_F(FidCurveTest, WhatADeadWorkerWouldMakeIsMadeByTheOthers) {
  TestCluster test_cluster;
  const Cluster cluster = test_cluster.Connect();
  std::vector<ActorHandle<GanWorker>> workers;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(workers.emplace_back(),
                         cluster.CreateActor<GanWorker>({}, TinyOptions()));
    ASSERT_EQ(workers[i].Call<&GanWorker::LoadDataShard>(0, 1).Get(),
              absl::OkStatus());
    ASSERT_EQ(workers[i]
                  .Call<&GanWorker::LoadExtractor>(MakeScript(kQuarters, 8))
                  .Get(),
              absl::OkStatus());
  }
  GanFidTeam team(workers);
  const auto generated = [&] {
    return WithBar([&](ProgressBar* bar) {
      FidProgress progress(bar, "images");
      return team.Generated(/*seed=*/3, /*count=*/1000, &progress);
    });
  };
  ASSERT_OK_AND_ASSIGN(const FeatureStatistics all, generated());
  EXPECT_EQ(all.count, 1000);
  // Dead before it has copied its generator, or while it does, or makes images.
  std::thread killer([&] { EXPECT_EQ(workers[1].Kill(), absl::OkStatus()); });
  const absl::StatusOr<FeatureStatistics> fewer = generated();
  killer.join();
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_EQ(workers[0].Kill(), absl::OkStatus());
  ASSERT_OK_AND_ASSIGN(const FeatureStatistics last, generated());
  for (const FeatureStatistics* each : {&*fewer, &last}) {
    EXPECT_EQ(each->count, 1000);
    EXPECT_TRUE(each->mean.allclose(all.mean, 1e-9));
    EXPECT_TRUE(each->scatter.allclose(all.scatter, 1e-9, 1e-6));
  }
  EXPECT_EQ(workers[2].Kill(), absl::OkStatus());
  EXPECT_EQ(generated().status().code(), absl::StatusCode::kUnavailable);
}

TEST(FidCurveScheduleTest, IsDueEverySoManyEpochsAndAfterTheLast) {
  const auto due = [](int every, int epoch, bool last) {
    return FidCurve({.every = every}).IsDue(epoch, last);
  };
  EXPECT_FALSE(due(3, 0, false));
  EXPECT_FALSE(due(3, 1, false));
  EXPECT_TRUE(due(3, 2, false));
  EXPECT_FALSE(due(3, 3, false));
  EXPECT_TRUE(due(3, 5, false));
  EXPECT_TRUE(due(3, 3, true));
  EXPECT_TRUE(due(1, 0, false));
  EXPECT_FALSE(due(0, 0, false));
  EXPECT_FALSE(due(0, 0, true));
}

// Says what it is told to.
class FakeTeam : public FidTeam {
 public:
  absl::StatusOr<std::string> Identity() override { return std::string("x"); }
  absl::StatusOr<FeatureStatistics> Real(FidProgress* progress) override {
    return real;
  }
  absl::StatusOr<FeatureStatistics> Generated(uint64_t seed, int64_t count,
                                              FidProgress* progress) override {
    seen_seed = seed;
    seen_count = count;
    return generated;
  }

  absl::StatusOr<FeatureStatistics> real;
  absl::StatusOr<FeatureStatistics> generated;
  uint64_t seen_seed = 0;
  int64_t seen_count = 0;
};

FeatureStatistics OneFeature(int64_t count, double mean, double scatter) {
  return {.count = count,
          .mean = at::full({1}, mean, at::kDouble),
          .scatter = at::full({1, 1}, scatter, at::kDouble)};
}

TEST_F(FidCurveTest, ADistanceThatFailsIsALineAndTrainingGoesOn) {
  FakeTeam team;
  team.real = OneFeature(3, 1, 2);  // Variance 2 / (3 - 1) = 1.
  FidCurve curve({.every = 1,
                  .extractor = MakeScript(kMeanPixel, 8),
                  .count = 5,
                  .seed = 9});
  ASSERT_EQ(WithBar([&](ProgressBar* bar) {
              return curve.Start({1, 8, 8}, &team, bar);
            }),
            absl::OkStatus());
  EXPECT_THAT(text_, HasSubstr("every epoch; "));

  const auto measure = [&] {
    return WithBar([&](ProgressBar* bar) {
      train::Metrics metrics;
      curve.Measure(2, &team, bar, &metrics);
      return metrics;
    });
  };
  team.generated = OneFeature(5, 4, 16);  // Variance 16 / (5 - 1) = 4.
  // (1 - 4)^2 + (1 - 2)^2, with the standard deviations.
  EXPECT_NEAR(measure().at("fid"), 10, 1e-9);
  EXPECT_EQ(team.seen_seed, 9);
  EXPECT_EQ(team.seen_count, 5);
  EXPECT_THAT(text_, IsEmpty());

  team.generated = absl::UnavailableError("gone");
  const train::Metrics metrics = measure();
  EXPECT_FALSE(metrics.contains("fid"));
  EXPECT_TRUE(metrics.contains("fid_seconds"));
  EXPECT_EQ(text_, "Warning: no fid after epoch 3 (training goes on): gone\n");

  // Before training it is an error.
  FidCurve broken({.every = 1, .extractor = MakeScript(kMeanPixel, 8)});
  team.real = absl::DataLossError("bad picture");
  const absl::Status status = WithBar([&](ProgressBar* bar) {
    return broken.Start({1, 8, 8}, &team, bar);
  });
  ExpectError(status, absl::StatusCode::kDataLoss, {"bad picture"});
}

}  // namespace
}  // namespace miniray::ml

TEST_CLUSTER_MAIN()
