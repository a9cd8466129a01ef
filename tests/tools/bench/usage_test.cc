// What every benchmark says of itself, and to a wrong use.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/process_tools.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class BenchUsageTest : public testing::TestWithParam<const char*> {
 protected:
  RunResult Run(const std::vector<std::string>& flags) {
    std::vector<std::string> argv = {
        BuiltProgram(std::string("tools/bench/") + GetParam())};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return tree_.Run(argv);
  }

  ProcessTree tree_;
};

TEST_P(BenchUsageTest, HelpSaysWhatItMeasuresAndHow) {
  const RunResult result = Run({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out,
              AllOf(HasSubstr(std::string("\n  ") + GetParam() + " [FLAGS]\n"),
                    HasSubstr("--json"), HasSubstr("--check")));
}

TEST_P(BenchUsageTest, WhatItDoesNotKnowIsRefused) {
  for (const char* flag : {"--no_such_flag=1", "word", "--rounds=0"}) {
    const RunResult result = Run({flag});
    EXPECT_NE(result.exit_code, 0) << flag;
    EXPECT_THAT(result.out, IsEmpty()) << flag;
    EXPECT_THAT(result.err, Not(IsEmpty())) << flag;
  }
}

INSTANTIATE_TEST_SUITE_P(Benchmarks, BenchUsageTest,
                         testing::Values("broadcast", "calls", "dashboard",
                                         "gpu_training", "gradients", "head",
                                         "kernels", "models", "pieces", "ps",
                                         "start", "sync", "tensors", "train",
                                         "train_functions"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace miniray
