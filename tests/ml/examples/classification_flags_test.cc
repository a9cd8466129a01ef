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
