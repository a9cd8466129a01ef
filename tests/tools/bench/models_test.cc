#include <string>

#include "gtest/gtest.h"
#include "tests/tools/bench/run_bench.h"

namespace miniray {
namespace {

TEST(BenchModelsTest, MeasuresEveryModelAgainstThePlainOne) {
  // The program fails unless both have as many parameters.
  const auto rows = RunBench("models", {"--batch=2"});
  for (const char* model : {"mlp_gan", "dcgan", "conditional_gan", "mlp", "cnn",
                            "resnet20", "regression"}) {
    ASSERT_TRUE(rows.contains(model)) << model;
    const bool is_mlp_gan = std::string(model) == "mlp_gan";
    ASSERT_EQ(rows[model].size(), is_mlp_gan ? 3u : 2u) << model;
    EXPECT_EQ(rows[model][0]["peer_name"], "plain LibTorch");
    EXPECT_EQ(rows[model][0]["at_most"], is_mlp_gan ? 0.88 : 1.02);
    EXPECT_EQ(rows[model][1]["peer_name"], "plain LibTorch, actors' malloc");
    EXPECT_TRUE(rows[model][1]["at_most"].is_null());
    EXPECT_EQ(rows[model][1]["note"].get<std::string>().rfind("rounds ", 0),
              0u);
  }
  // With a version, or "not installed".
  const std::string torch = rows["mlp_gan"][2]["peer_name"].get<std::string>();
  EXPECT_EQ(torch.rfind("PyTorch", 0), 0u) << torch;
}

}  // namespace
}  // namespace miniray
