// A few seconds of chaos; see README.md for longer runs.

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"
#include "tools/havoc/network.h"
#include "tools/havoc/plan.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RunResult RunChaos(std::vector<std::string> args) {
  ProcessTree tree;
  tree.env()["MINIRAY_BIN"] = BuiltProgram("tools/miniray");
  args.insert(args.begin(), BuiltProgram("tools/chaos"));
  return tree.Run(args);
}

// Whether this user may make the network that links are cut in.
bool CanMakeNamespaces() {
  auto network = havoc::Network::Create(havoc::Network::Kind::kNamespaces,
                                        havoc::kFirstNodeMachine + 1);
  if (!network.ok()) return false;
  EXPECT_TRUE((*network)->can_cut());
  EXPECT_TRUE((*network)->Remove().ok());
  return true;
}

// The line that counts what was done, without what was left out.
std::string FaultsDone(const std::string& output) {
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    if (absl::StartsWith(line, "faults: ")) return std::string(line);
  }
  return "";
}

// The plan of this seed has every kind of fault, none of them where another one
// is still on, and the actors' more than once.
TEST(ChaosTest, EverythingHoldsForAFewSeconds) {
  const RunResult result =
      RunChaos({"--seed=247", "--seconds=10", "--lease=1.5"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("head starts again"),
                                HasSubstr("all held (seed 247)")));
  const bool links = absl::StrContains(result.out, "network namespaces");
  EXPECT_EQ(links, CanMakeNamespaces()) << result.out;
  for (const havoc::FaultKind kind : havoc::kFaultKinds) {
    if (!links && (kind == havoc::FaultKind::kCutHeadNode ||
                   kind == havoc::FaultKind::kCutDriverNode)) {
      continue;
    }
    EXPECT_THAT(FaultsDone(result.out), HasSubstr(havoc::Name(kind)));
  }
}

TEST(ChaosTest, EverythingHoldsOnLoopback) {
  const RunResult result = RunChaos(
      {"--seed=21", "--seconds=4", "--lease=1.5", "--network=loopback"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(
      FaultsDone(result.out),
      AllOf(HasSubstr("kill"), HasSubstr("pause"), Not(HasSubstr("cut"))));
}

// A daemon, a worker, the head, and the parameter server.
TEST(ChaosTest, TrainingsComeToTheirEnd) {
  const RunResult result =
      RunChaos({"--scenario=train", "--seed=5", "--runs=4"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("all held: 4 of 4 runs"));
}

// The checks see what they are to see.
TEST(ChaosTest, LostStateIsNoticed) {
  const RunResult result = RunChaos(
      {"--seed=20", "--seconds=3", "--lease=1.5", "--sabotage=forget"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("FAILED with seed 20"),
                                HasSubstr("was told the count")));
}

TEST(ChaosTest, ALeftoverIsNoticed) {
  const RunResult result = RunChaos(
      {"--seed=20", "--seconds=1", "--lease=1.5", "--sabotage=orphan"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("left over:"), HasSubstr("sleep")));
}

TEST(ChaosTest, ACheckpointThatIsNotPutBackIsNoticed) {
  const RunResult result = RunChaos(
      {"--scenario=train", "--seed=6", "--runs=1", "--sabotage=forget"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("undisturbed it is"));
}

TEST(ChaosTest, MistakesOnTheCommandLine) {
  for (const std::string arg :
       {"--seed=x", "--seconds=0", "--seconds=1e9", "--lease=0", "--network=x",
        "--no_such", "--scenario=x", "--runs=0"}) {
    const RunResult result = RunChaos({arg});
    EXPECT_EQ(result.exit_code, 2) << arg;
    // Flag and value, however they were given.
    EXPECT_THAT(result.err, HasSubstr(absl::StrReplaceAll(arg, {{"=", " "}})));
  }
}

}  // namespace
}  // namespace miniray
