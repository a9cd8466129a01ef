// TorchTrainer where a checkpoint cannot be written at once: training goes on,
// and it is tried again.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/functions/walk.h"
#include "train/checkpoint.h"
#include "train/functions/torch_trainer.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace fs = std::filesystem;

class AtEvent : public Callback {
 public:
  std::function<void(int epoch)> at_report;  // May be empty.
  std::vector<int> checkpoints;  // Epochs of those that are written.

  void OnEpochEnd(TrainContext& context, const EpochResult& result) override {
    if (at_report) at_report(result.epoch);
  }
  void OnCheckpoint(TrainContext& context,
                    const CheckpointInfo& info) override {
    checkpoints.push_back(info.epochs);
  }
};

// By the number of workers: 0 is local mode.
class TorchTrainerRetryTest : public ::testing::TestWithParam<int> {
 protected:
  TorchTrainerOptions Options(int epochs, int save_every) {
    TorchTrainerOptions options;
    options.config = {{"epochs", epochs}, {"save_every", save_every}};
    options.scaling.num_workers = GetParam();
    options.run.name = "run";
    options.run.storage_path = temp_.path();
    options.run.callbacks = {events_};
    if (GetParam() > 0) options.cluster = nodes_.emplace().Connect();
    return options;
  }
  std::string PathOf(int epochs) const {
    return temp_ / absl::StrCat("run/", CheckpointName(epochs));
  }
  // In the place of the checkpoint, so that it cannot be written, by root
  // either.
  void PutInTheWay(int epochs) {
    EXPECT_TRUE(fs::create_directories(PathOf(epochs) + "/thing"));
  }
  void Clear(int epochs) { fs::remove_all(PathOf(epochs)); }

  TempFolder temp_;
  std::optional<TestCluster> nodes_;
  std::shared_ptr<AtEvent> events_ = std::make_shared<AtEvent>();
};

TEST_P(TorchTrainerRetryTest, TrainingGoesOnAndItIsWrittenMeanwhile) {
  events_->at_report = [&](int epoch) {
    if (epoch == 2) PutInTheWay(3);
    if (epoch == 3 || epoch == 4) {
      EXPECT_FALSE(ReadCheckpoint(PathOf(3)).ok());
    }
    if (epoch == 5) {
      Clear(3);
      EXPECT_TRUE(Eventually([&] { return ReadCheckpoint(PathOf(3)).ok(); },
                             absl::Seconds(60)));
    }
  };
  TorchTrainer trainer(Walk, Options(/*epochs=*/8, /*save_every=*/3));
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(8));
  EXPECT_THAT(result->warnings, IsEmpty());
  EXPECT_THAT(events_->checkpoints, ElementsAre(3, 6));
  EXPECT_EQ(result->checkpoint, PathOf(6));
}

TEST_P(TorchTrainerRetryTest, TheNextOneTakesItsPlace) {
  events_->at_report = [&](int epoch) {
    if (epoch == 2) PutInTheWay(3);
  };
  TorchTrainer trainer(Walk, Options(/*epochs=*/6, /*save_every=*/3));
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->history, SizeIs(6));
  EXPECT_THAT(result->warnings,
              ElementsAre(AllOf(HasSubstr("a checkpoint could not be written"),
                                HasSubstr("checkpoint_000003"),
                                HasSubstr("given up for a newer one"))));
  EXPECT_THAT(events_->checkpoints, ElementsAre(6));
  EXPECT_EQ(result->checkpoint, PathOf(6));
}

TEST_P(TorchTrainerRetryTest, AtTheEndItIsTriedOnceMoreAndThenTold) {
  events_->at_report = [&](int epoch) {
    if (epoch == 5) PutInTheWay(6);
  };
  TorchTrainer trainer(Walk, Options(/*epochs=*/6, /*save_every=*/3));
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->warnings,
              ElementsAre(AllOf(HasSubstr("a checkpoint could not be written"),
                                HasSubstr("checkpoint_000006"),
                                HasSubstr("it is given up, tried "))));
  EXPECT_THAT(events_->checkpoints, ElementsAre(3));
  EXPECT_EQ(result->checkpoint, PathOf(3));
  // It can be gone on with.
  events_->at_report = nullptr;
  TorchTrainer next(Walk, Options(/*epochs=*/6, /*save_every=*/3));
  const auto again = next.Fit();
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->history, SizeIs(6));
  EXPECT_EQ(again->checkpoint, PathOf(6));
}

TEST_P(TorchTrainerRetryTest, AFailureGoesOnFromTheLastThatIsWritten) {
  TorchTrainerOptions options = Options(/*epochs=*/6, /*save_every=*/2);
  ASSERT_THAT(WriteFileAtomically(temp_ / "fault", "0 5 step throw"), IsOk());
  options.config.Set("fault_file", temp_ / "fault");
  options.run.failure.max_failures = 1;
  bool first = true;
  events_->at_report = [&](int epoch) {
    if (epoch == 3 && first) PutInTheWay(4);
    if (epoch == 3) first = false;
  };
  TorchTrainer trainer(Walk, options);
  const auto result = trainer.Fit();
  ASSERT_THAT(result, IsOk());
  ASSERT_THAT(result->history, SizeIs(6));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(result->history[i].metrics.at("x"), WalkedTo(0, i + 1));
    EXPECT_EQ(result->history[i].metrics.at("generation"), i >= 2);
  }
  EXPECT_THAT(result->failures, SizeIs(1));
  EXPECT_THAT(result->warnings, Contains(HasSubstr("it is given up, tried ")));
  // What was in the way is set aside, as a checkpoint that is damaged.
  EXPECT_EQ(result->checkpoint, PathOf(6));
  EXPECT_THAT(ReadCheckpoint(PathOf(4)), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Workers, TorchTrainerRetryTest,
                         ::testing::Values(0, 1),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
