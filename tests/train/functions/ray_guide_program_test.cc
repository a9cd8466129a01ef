// The program of train/README.md trains alike in its own process, on a cluster
// of its own and as a job of another.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kProgram[] = "tests/train/functions/ray_guide";

TEST(RayGuideProgramTest, InProcessEmbeddedAndSubmittedItTrainsAlike) {
  RealCluster cluster;
  ProcessTree& tree = cluster.tree();
  const std::string program = BuiltProgram(kProgram);
  const auto run = [&](std::vector<std::string> argv, int num_workers) {
    argv.push_back(program);
    argv.push_back(absl::StrCat(num_workers));
    const RunResult result = tree.Run(argv);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    // A job's log lies between what it prints.
    const std::vector<std::string> lines =
        absl::StrSplit(result.out, '\n', absl::SkipEmpty());
    const std::string last = lines.empty() ? "" : lines.back();
    EXPECT_THAT(last, StartsWith("loss "));
    return last;
  };
  const std::vector<std::string> submit = {BuiltProgram("tools/miniray"),
                                           "submit",
                                           "--address",
                                           cluster.address(),
                                           "--wait",
                                           "--"};
  const std::string in_process = run({}, 0);
  EXPECT_EQ(run({}, 1), in_process);
  EXPECT_EQ(run(submit, 1), in_process);
  EXPECT_EQ(run(submit, 0), in_process);

  const std::string embedded = run({}, 2);
  EXPECT_EQ(run(submit, 2), embedded);
  // Of rank 0's half of the samples.
  EXPECT_NE(embedded, in_process);
}

TEST(RayGuideProgramTest, ASubmittedProgramThatFailsSaysWhy) {
  RealCluster cluster;
  const RunResult result = cluster.tree().Run(
      {BuiltProgram("tools/miniray"), "submit", "--address", cluster.address(),
       "--wait", "--", BuiltProgram(kProgram), "-3"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out + result.err,
              HasSubstr("scaling.num_workers must be at least 1"));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
