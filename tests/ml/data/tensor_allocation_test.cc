#include "ml/data/tensor_allocation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

// AddressSanitizer would end the test where malloc only fails.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace miniray::ml {
namespace {

TEST(AllocateBytesTest, ReturnsAFlatTensor) {
  ASSERT_OK_AND_ASSIGN(const at::Tensor bytes, AllocateBytes(10, "pixels"));
  EXPECT_EQ(bytes.scalar_type(), at::kByte);
  EXPECT_THAT(bytes.sizes(), ::testing::ElementsAre(10));
}

TEST(AllocateBytesTest, ReportsWhatMemoryCannotHold) {
  constexpr int64_t kBeyondAddresses = int64_t{1} << 60;
  ExpectError(AllocateBytes(kBeyondAddresses, "pixels").status(),
              absl::StatusCode::kResourceExhausted,
              {"1152921504606846976 bytes of pixels"});
}

}  // namespace
}  // namespace miniray::ml
