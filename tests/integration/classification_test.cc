// The example of classification learns Fashion-MNIST.

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(ClassificationTest, AveragesEveryThirdEpochAndLearns) {
  ProcessTree tree;
  const RunResult result =
      tree.Run({BuiltProgram("ml/examples/classification"), "--workers=2",
                "--epochs=3", "--limit=4000"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines =
      absl::StrSplit(result.out, '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(3)) << result.out;
  EXPECT_THAT(lines[1],
              AllOf(HasSubstr("epoch  2  loss"), Not(HasSubstr("averaged"))));
  EXPECT_THAT(lines[2], HasSubstr("averaged; test accuracy "));
  // Of ten classes; chance is 10 %.
  const std::vector<std::string> parts = absl::StrSplit(lines[2], "accuracy ");
  const std::vector<std::string> words = absl::StrSplit(parts.back(), ' ');
  double accuracy = 0;
  ASSERT_TRUE(absl::SimpleAtod(words[0], &accuracy)) << lines[2];
  EXPECT_GT(accuracy, 65);
  EXPECT_TRUE(tree.WaitForCount(0)) << tree.Living().size() << " are left";
}

TEST(ClassificationTest, AveragesWithinEpochs) {
  ProcessTree tree;
  const RunResult result = tree.Run(
      {BuiltProgram("ml/examples/classification"), "--workers=2", "--epochs=2",
       "--dataset=synthetic", "--limit=200", "--network=mlp", "--batch-size=10",
       "--sync-every=4", "--lr-schedule=linear"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines =
      absl::StrSplit(result.out, '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(2)) << result.out;
  EXPECT_THAT(lines, Each(HasSubstr("averaged; test accuracy ")));
}

TEST(ClassificationTest, TrainsNothingThatCannotBeSaved) {
  ProcessTree tree;
  const std::string folder = tree.folder() + "/absent";
  const RunResult result = tree.Run({BuiltProgram("ml/examples/classification"),
                                     "--save=" + folder + "/cnn.pt"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("--save: there is no folder " + folder));
}

}  // namespace
}  // namespace miniray
