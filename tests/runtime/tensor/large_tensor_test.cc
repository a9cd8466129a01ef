// Tensors of more bytes than a protobuf message holds, as argument and as
// result, between real processes.

#include <cstdint>
#include <fstream>
#include <string>

#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"
#include "runtime/tensor/tensor_codec.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

// Above 4 GiB, so that no 32-bit number counts it.
constexpr int64_t kElements = (int64_t{1} << 32) + 3;

// To be spared, in GB. ThreadSanitizer keeps several bytes for each that is
// touched: the actor alone was seen above 20 GB.
#ifdef __SANITIZE_THREAD__
constexpr int64_t kNeededGigabytes = 48;
#else
constexpr int64_t kNeededGigabytes = 16;
#endif

// In kB; 0 where the system does not say.
int64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t value = 0;
  while (file >> name) {
    if (name == "MemAvailable:" && file >> value) return value;
  }
  return 0;
}

// Zeros but for its ends; what nobody wrote takes no memory.
at::Tensor Marked(int64_t first, int64_t last) {
  at::Tensor tensor = at::zeros({kElements}, at::kByte);
  tensor[0] = first;
  tensor[-1] = last;
  return tensor;
}

class Giant {
 public:
  int64_t Ends(const at::Tensor& tensor) {
    return tensor.numel() == kElements
               ? tensor[0].item<int64_t>() * 100 + tensor[-1].item<int64_t>()
               : -1;
  }
  at::Tensor Make(int64_t first, int64_t last) { return Marked(first, last); }
};
MINIRAY_ACTOR(Giant, Constructor<>, &Giant::Ends, &Giant::Make);

class LargeTensorTest : public testing::TestWithParam<std::string> {};

TEST_P(LargeTensorTest, TravelsAsArgumentAndAsResult) {
  if (AvailableMemory() < kNeededGigabytes * 1'000'000) {
    GTEST_SKIP() << "this machine has less than " << kNeededGigabytes
                 << " GB of memory to spare";
  }
  TestCluster nodes;
  const Cluster driver = nodes.Connect();
  const auto giant = driver.CreateActor<Giant>(
      {.env = {{"MINIRAY_SHARED_MEMORY_MB", GetParam()}}});
  ASSERT_THAT(giant, IsOk());
  const auto ends = giant->Call<&Giant::Ends>(Marked(4, 2)).Get();
  ASSERT_THAT(ends, IsOk());
  EXPECT_EQ(*ends, 402);
  const auto made = giant->Call<&Giant::Make>(7, 9).Get();
  ASSERT_THAT(made, IsOk());
  ASSERT_EQ(made->numel(), kElements);
  EXPECT_EQ((*made)[0].item<int64_t>(), 7);
  EXPECT_EQ((*made)[-1].item<int64_t>(), 9);
}
INSTANTIATE_TEST_SUITE_P(SharedMemory, LargeTensorTest,
                         testing::Values("0", "1000"));

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
