// Examples as a user runs them: the custom trainer, the GAN, and the strategy
// in a plug-in with a program that has never heard of it. The others have tests
// of their own.

#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/image/png.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<std::string> LinesOf(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST(ExamplesTest, TheCustomTrainerFindsTheLine) {
  ProcessTree tree;
  const RunResult result =
      tree.Run({BuiltProgram("ml/examples/custom_trainer")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = LinesOf(result.out);
  ASSERT_THAT(lines, SizeIs(12)) << result.out;
  double last = 7.3;  // Of y = 0; see line_searcher_test.cc.
  for (const std::string& line : lines) {
    const std::vector<std::string> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    ASSERT_THAT(words, SizeIs(9)) << line;  // epoch N error E y = A x B
    double error = -1;
    ASSERT_TRUE(absl::SimpleAtod(words[3], &error)) << line;
    EXPECT_GE(error, 0);
    EXPECT_LE(error, last) << line;
    last = error;
  }
  // Simulated in Python with 200 seeds, the worst is 6e-8.
  EXPECT_LT(last, 1e-4) << lines.back();
  EXPECT_TRUE(tree.WaitForCount(0)) << tree.Living().size() << " are left";
}

TEST(ExamplesTest, TheGanMakesAPicture) {
  ProcessTree tree;
  const std::string picture = tree.folder() + "/gan.png";
  const RunResult result = tree.Run(
      {BuiltProgram("ml/examples/gan"), "--dataset=synthetic", "--limit=128",
       "--epochs=2", "--workers=2", "--save=" + picture});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = LinesOf(result.out);
  ASSERT_THAT(lines, SizeIs(2)) << result.out;
  EXPECT_THAT(lines[0],
              AllOf(StartsWith("epoch 1  "), HasSubstr("d_loss=0."),
                    HasSubstr("g_loss=0."), HasSubstr("samples=128")));
  EXPECT_THAT(lines[1], StartsWith("epoch 2  "));
  const absl::StatusOr<at::Tensor> image = ml::ReadPng(picture);
  ASSERT_TRUE(image.ok()) << image.status();
  // 8 images of 32 pixels a side, with 2 black ones around each.
  EXPECT_EQ(image->sizes(), at::IntArrayRef({3, 274, 274}));
  // No two of the first are alike.
  const at::Tensor one = image->slice(2, 2, 34).slice(1, 2, 34);
  const at::Tensor two = image->slice(2, 36, 68).slice(1, 2, 34);
  EXPECT_GT(one.to(at::kFloat).std().item<float>(), 0);
  EXPECT_FALSE(one.equal(two));
  EXPECT_TRUE(tree.WaitForCount(0)) << tree.Living().size() << " are left";
}

TEST(ExamplesTest, AnyProgramTakesTheStrategyOfThePlugin) {
  ProcessTree tree;
  const auto train = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> argv = {BuiltProgram("ml/train"),
                                     "--mode=distributed",
                                     "--workers=3",
                                     "--dataset=synthetic",
                                     "--limit=96",
                                     "--batch-size=16",
                                     "--latent-dim=8",
                                     "--epochs=1",
                                     "--sync-strategy=example_median",
                                     "--save-dir=" + tree.folder() + "/models"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return tree.Run(argv);
  };
  const RunResult unknown = train({});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("'example_median'"));

  const RunResult result = train({absl::StrCat(
      "--plugin=", BuiltProgram("ml/examples/libmedian_plugin.so"))});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("on 3 workers, example_median every"));
  EXPECT_THAT(result.out, HasSubstr("synced"));
  EXPECT_TRUE(tree.WaitForCount(0)) << tree.Living().size() << " are left";
}

}  // namespace
}  // namespace miniray
