#include <string>

#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

// The program fails unless all actors are in the list and the head has been
// told all of the run.
TEST(BenchDashboardTest, MeasuresAnswersAndAWatchedTraining) {
  const auto rows =
      RunBench("dashboard", {"--actors=150", "--daemons=3", "--requests=5",
                             "--epoch_samples=20", "--batch=8"});
  for (const char* page :
       {"the page of actors", "1,000 of them, from the middle",
        "100 of those that live, by class", "the overview"}) {
    const std::string what = std::string("150 actors: ") + page;
    ASSERT_TRUE(rows.contains(what)) << what;
    EXPECT_GT(rows[what][0]["ours"], 0.0) << what;
    EXPECT_EQ(rows[what][0]["at_most"], 200.0) << what;
  }
  ASSERT_TRUE(rows.contains("150 actors: all tables"));
  EXPECT_TRUE(rows["150 actors: all tables"][0]["at_most"].is_null());
  ASSERT_TRUE(rows.contains("training, 2 workers, watched"));
  const auto& training = rows["training, 2 workers, watched"][0];
  EXPECT_EQ(training["peer_name"], "not watched");
  EXPECT_EQ(training["at_least"], 0.99);
}

}  // namespace
}  // namespace miniray
