// How GPUs are told apart; tests/gpu has the rest.

#include "train/collective/gpu_backend.h"

#include "gtest/gtest.h"

namespace miniray::train::internal {
namespace {

TEST(GpuBackendTest, GpusHaveTheMachinesNamesForThem) {
  EXPECT_EQ(GpuName("m", nullptr, 0), "m/0");
  EXPECT_EQ(GpuName("m", nullptr, 3), "m/3");
  EXPECT_EQ(GpuName("m", "3", 0), "m/3");
  EXPECT_EQ(GpuName("m", "2,GPU-8e3f", 1), "m/GPU-8e3f");
  // The same index is another device in another process.
  EXPECT_NE(GpuName("m", "0", 0), GpuName("m", "1", 0));
  EXPECT_NE(GpuName("m", "0", 0), GpuName("other", "0", 0));
}

}  // namespace
}  // namespace miniray::train::internal
