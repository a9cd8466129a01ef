// The demonstration of the parameter server prints what one works out by hand.

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"
#include "tests/integration/real_cluster.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char kProgram[] = "ml/examples/parameter_server_demo";

// Each run of spaces as one.
std::string Squeezed(const std::string& text) {
  std::string squeezed;
  for (const char c : text) {
    if (c != ' ' || (!squeezed.empty() && squeezed.back() != ' ')) {
      squeezed += c;
    }
  }
  return squeezed;
}

// Workers [1, 2], [2, 4] and [6, 9], which a step of training raises by 1, 2
// and 3; 100, 100 and 200 samples.
//   average:  (1 + 2 + 6) / 3 = 3 and (2 + 4 + 9) / 3 = 5; then 2 more each
//   time weighted: (1 + 2 + 2 * 6) / 4 = 3.75 and (2 + 4 + 2 * 9) / 4 = 6; then
//             (1 + 2 + 2 * 3) / 4 = 2.25 more each time
//   momentum: 3 and 5; then half of itself, half of a mean that is 2 more
// Two floats of three workers in three synchronisations: 2 * 4 * 3 * 3 bytes.
void ExpectTheNumbers(const RunResult& result) {
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  const std::string out = Squeezed(result.out);
  EXPECT_THAT(out, HasSubstr("average [3, 5] [5, 7] [7, 9]\n"));
  EXPECT_THAT(out, HasSubstr("weighted [3.75, 6] [6, 8.25] [8.25, 10.5]\n"));
  EXPECT_THAT(out, HasSubstr("momentum [3, 5] [4, 6] [5, 7]\n"));
  EXPECT_THAT(out, HasSubstr("average 3 3 9 72 B 72 B\n"));
  EXPECT_THAT(out, HasSubstr("weighted 3 3 9 72 B 72 B\n"));
  EXPECT_THAT(out, HasSubstr("momentum (momentum=0.5) 3 3 9 72 B 72 B\n"));
}

TEST(ParameterServerDemoTest, PrintsWhatOneWorksOutByHand) {
  ProcessTree tree;
  ExpectTheNumbers(tree.Run({BuiltProgram(kProgram)}));
  EXPECT_TRUE(tree.WaitForCount(0)) << tree.Living().size() << " are left";
}

TEST(ParameterServerDemoTest, PrintsTheSameFromAClusterThatRuns) {
  RealCluster cluster;
  ExpectTheNumbers(cluster.tree().Run(
      {BuiltProgram(kProgram), "--address", cluster.address()}));
}

TEST(ParameterServerDemoTest, HelpAndBadUsage) {
  ProcessTree tree;
  const RunResult help = tree.Run({BuiltProgram(kProgram), "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--address=HOST:PORT"));
  EXPECT_EQ(tree.Run({BuiltProgram(kProgram), "--workers=3"}).exit_code, 2);
}

}  // namespace
}  // namespace miniray
