#include "ml/examples/classification_flags.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ClassificationFlagsTest : public ::testing::Test {
 protected:
  std::optional<int> Parse(std::vector<std::string> args) {
    const absl::FlagSaver saver;  // Each call begins with the defaults.
    args.insert(args.begin(), "classification");
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    ::testing::internal::CaptureStderr();
    const std::optional<int> code = ParseClassificationFlags(
        static_cast<int>(argv.size()), argv.data(), &flags_);
    error_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  ClassificationFlags flags_;
  std::string error_;
};

TEST_F(ClassificationFlagsTest, DefaultsAreThoseOfTheWorker) {
  EXPECT_EQ(Parse({}), std::nullopt);
  EXPECT_THAT(error_, IsEmpty());
  EXPECT_EQ(flags_.workers, 2);
  EXPECT_EQ(flags_.epochs, 6);
  EXPECT_EQ(flags_.sync_interval, 3);
  EXPECT_EQ(flags_.sync_every, 0);
  const ClassifierWorkerOptions defaults;
  EXPECT_EQ(flags_.data.lr, defaults.lr);
  EXPECT_EQ(flags_.data.batch_size, defaults.batch_size);
  EXPECT_EQ(flags_.data.augment, defaults.augment);
  EXPECT_EQ(flags_.data.seed, defaults.seed);
  EXPECT_EQ(flags_.data.device, defaults.device);
  EXPECT_EQ(flags_.data.loop.schedule.kind, defaults.loop.schedule.kind);
  EXPECT_EQ(flags_.data.dataset, "fashion-mnist");
  EXPECT_EQ(flags_.data.network, "cnn");
  EXPECT_EQ(flags_.data.image_size, 64);
  EXPECT_EQ(flags_.data.image_channels, 3);
  EXPECT_EQ(flags_.save, "");
}

TEST_F(ClassificationFlagsTest, PicturesHaveTheSizeOfTheGenerators) {
  EXPECT_EQ(Parse({"--dataset=image-folder", "--data-dir=pictures",
                   "--image-size=32", "--image-channels=1", "--lazy"}),
            std::nullopt);
  EXPECT_EQ(flags_.data.image_size, 32);
  EXPECT_EQ(flags_.data.image_channels, 1);
  EXPECT_TRUE(flags_.data.lazy);
  EXPECT_EQ(flags_.data.data_dir,
            std::filesystem::absolute("pictures").string());

  EXPECT_EQ(Parse({"--image-size=32"}), 2);
  EXPECT_THAT(error_, HasSubstr("--image-size has no effect without "
                                "--dataset=image-folder"));
  EXPECT_EQ(Parse({"--dataset=image-folder", "--image-size=4097"}), 2);
  EXPECT_THAT(error_, HasSubstr("--image-size is 4097; expected 1 to 4096"));
  EXPECT_EQ(Parse({"--dataset=image-folder", "--image-channels=2"}), 2);
  EXPECT_THAT(error_, HasSubstr("--image-channels is 2; expected 1 or 3"));
}

TEST_F(ClassificationFlagsTest, StepsOrEpochsFromOneAverageToTheNext) {
  EXPECT_EQ(Parse({"--sync-interval=2"}), std::nullopt);
  EXPECT_EQ(flags_.sync_interval, 2);
  EXPECT_EQ(flags_.sync_every, 0);
  EXPECT_EQ(Parse({"--sync-every=5"}), std::nullopt);
  EXPECT_EQ(flags_.sync_interval, 1);
  EXPECT_EQ(flags_.sync_every, 5);
  EXPECT_EQ(Parse({"--sync-every=5", "--sync-interval=2"}), 2);
  EXPECT_THAT(error_, HasSubstr("both given"));
  EXPECT_EQ(Parse({"--sync-every=-1"}), 2);
  EXPECT_THAT(error_, HasSubstr("--sync-every is -1"));
}

TEST_F(ClassificationFlagsTest, AveragesComeBetweenStepsOfTheOptimizer) {
  EXPECT_EQ(Parse({"--accumulate=4"}), std::nullopt);
  EXPECT_EQ(Parse({"--accumulate=4", "--sync-every=8"}), std::nullopt);
  for (const char* every : {"--sync-every=1", "--sync-every=6"}) {
    EXPECT_EQ(Parse({"--accumulate=4", every}), 2) << every;
    EXPECT_THAT(error_, HasSubstr("a multiple of --accumulate=4")) << every;
  }
}

TEST_F(ClassificationFlagsTest, TheTrainingStepIsAsTheFlagsSay) {
  EXPECT_EQ(Parse({"--epochs=10", "--batch-size=32", "--lr=0.1", "--augment",
                   "--seed=7", "--lr-schedule=cosine", "--device=cpu"}),
            std::nullopt);
  EXPECT_EQ(flags_.data.batch_size, 32);
  EXPECT_EQ(flags_.data.lr, 0.1);
  EXPECT_TRUE(flags_.data.augment);
  EXPECT_EQ(flags_.data.seed, 7u);
  EXPECT_EQ(flags_.data.device, "cpu");
  EXPECT_EQ(flags_.data.loop.schedule.kind, train::LrSchedule::Kind::kCosine);
  EXPECT_EQ(flags_.data.loop.schedule.total_steps, 10);
}

TEST_F(ClassificationFlagsTest, NumbersThatCannotBe) {
  for (const char* flag :
       {"--workers=0", "--epochs=0", "--sync-interval=0", "--batch-size=0",
        "--lr=0", "--lr=nan", "--lr-schedule=sideways", "--device=gpu"}) {
    EXPECT_EQ(Parse({flag}), 2) << flag;
    const std::string name =
        std::string(flag).substr(0, std::string(flag).find('='));
    EXPECT_THAT(error_, HasSubstr(name)) << flag;
  }
}

TEST_F(ClassificationFlagsTest, WhatCannotBeSavedIsSaidBefore) {
  const std::string folder = MakeTestFolder();
  EXPECT_EQ(Parse({"--save=" + folder + "/cnn.pt"}), std::nullopt);
  EXPECT_EQ(flags_.save, folder + "/cnn.pt");
  // In the folder that the program runs in.
  EXPECT_EQ(Parse({"--save=cnn.pt"}), std::nullopt);
  EXPECT_EQ(Parse({"--save=" + folder + "/absent/cnn.pt"}), 1);
  EXPECT_THAT(error_,
              HasSubstr("--save: there is no folder " + folder + "/absent"));
  EXPECT_EQ(Parse({"--save=" + folder}), 1);
  EXPECT_THAT(error_, HasSubstr(folder + " is a folder; expected a file"));
}

}  // namespace
}  // namespace miniray::ml
