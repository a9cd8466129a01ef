#include "tools/havoc/plan.h"

#include <iterator>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace miniray::havoc {
namespace {

std::string Text(const PlanOptions& options) {
  std::string text;
  for (const Fault& fault : MakePlan(options)) {
    absl::StrAppend(&text, absl::FormatDuration(fault.at), " ", Describe(fault),
                    "\n");
  }
  return text;
}

TEST(PlanTest, TheSeedRepeatsIt) {
  EXPECT_EQ(Text({.seed = 7}), Text({.seed = 7}));
  EXPECT_NE(Text({.seed = 7}), Text({.seed = 8}));
  // A longer run begins like a shorter one.
  const std::string one = Text({.seed = 7, .length = absl::Seconds(20)});
  const std::string two = Text({.seed = 7, .length = absl::Seconds(40)});
  EXPECT_EQ(two.substr(0, one.size()), one);
}

TEST(PlanTest, EverythingHappensWithinBounds) {
  const PlanOptions options = {.seed = 3, .length = absl::Minutes(30)};
  std::map<FaultKind, int> kinds;
  absl::Duration last = absl::ZeroDuration();
  for (const Fault& fault : MakePlan(options)) {
    ++kinds[fault.kind];
    EXPECT_GE(fault.at, last);
    EXPECT_LT(fault.at, options.length);
    last = fault.at;
    EXPECT_GE(fault.target, 0);
    const bool is_actor = fault.kind == FaultKind::kKillActor ||
                          fault.kind == FaultKind::kPauseActor;
    EXPECT_LT(fault.target, is_actor ? options.actors : options.nodes);
    EXPECT_LE(fault.duration, 2.5 * options.lease);
  }
  for (const FaultKind kind : kFaultKinds)
    EXPECT_GT(kinds[kind], 50) << Name(kind);
  EXPECT_EQ(kinds.size(), std::size(kFaultKinds));
}

TEST(PlanTest, NothingIsCutWhereThereAreNoLinks) {
  for (const Fault& fault :
       MakePlan({.length = absl::Minutes(30), .can_cut = false})) {
    EXPECT_NE(fault.kind, FaultKind::kCutHeadNode);
    EXPECT_NE(fault.kind, FaultKind::kCutDriverNode);
  }
}

}  // namespace
}  // namespace miniray::havoc
