// The example of regression learns Friedman's table, made up or from a file.

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;
using ::testing::SizeIs;

const char kProgram[] = "ml/examples/regression";

RunResult Train(ProcessTree& tree, std::vector<std::string> flags) {
  std::vector<std::string> argv = {BuiltProgram(kProgram), "--rows=2000",
                                   "--epochs=15", "--hidden=32"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return tree.Run(argv);
}

// Of the last line of epochs.
double LastTestError(const std::string& out) {
  const std::vector<std::string> parts =
      absl::StrSplit(out, "test squared error ");
  const std::vector<std::string> lines = absl::StrSplit(parts.back(), '\n');
  double error = -1;
  EXPECT_TRUE(absl::SimpleAtod(lines[0], &error)) << out;
  return error;
}

TEST(RegressionTest, LearnsMadeUpDataAndTheSameFromAFile) {
  ProcessTree tree;
  const RunResult made = Train(tree, {});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::vector<std::string> lines =
      absl::StrSplit(made.out, '\n', absl::SkipEmpty());
  EXPECT_THAT(lines, SizeIs(16)) << made.out;
  EXPECT_THAT(lines.back(), HasSubstr("On 400 rows that nobody trained on"));
  // Of the targets' variance, 24.9, 1 is noise; the best line leaves about 6.
  EXPECT_THAT(LastTestError(made.out), Lt(4)) << made.out;

  const std::string file = tree.folder() + "/friedman.csv";
  const RunResult written =
      tree.Run({BuiltProgram(kProgram), "--rows=2000", "--make-data", file});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_THAT(written.out, IsEmpty());
  const RunResult read = Train(tree, {"--data", file, "--target=y"});
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ(read.out, made.out);
  EXPECT_TRUE(tree.WaitForCount(0)) << tree.Living().size() << " are left";
}

TEST(RegressionTest, SaysWhatIsWrongWithTheTable) {
  ProcessTree tree;
  const RunResult none = Train(tree, {"--data=/no/such.csv"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("/no/such.csv: No such file"));
  const RunResult epochs = Train(tree, {"--epochs=0"});
  EXPECT_EQ(epochs.exit_code, 1);
  EXPECT_THAT(epochs.err, HasSubstr("--epochs must be 1 or more"));
  const RunResult column = Train(tree, {"--target=z"});
  EXPECT_EQ(column.exit_code, 1);
  EXPECT_THAT(column.err, HasSubstr("no column 'z'; there are x1, x2"));
}

}  // namespace
}  // namespace miniray
