#include "ps/tensor_info.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/tensors.h"

namespace miniray::ps {
namespace {

using ::testing::HasSubstr;

NamedTensors Model() {
  return {{"fc.weight", Floats({1})},
          {"bn.running_mean", Floats({1})},
          {"bn.running_var", Floats({1})},
          {"bn.num_batches_tracked", Ints({1})},
          {"scale", Floats({1})}};
}

TEST(TensorInfoTest, NamesTellTheBuffersOfNormalisation) {
  std::vector<bool> buffers;
  for (const TensorInfo& info : InfoOf({.tensors = Model()})) {
    buffers.push_back(info.is_buffer);
    EXPECT_EQ(info.offset, 0);
  }
  EXPECT_EQ(buffers, std::vector<bool>({false, true, true, true, false}));
}

TEST(TensorInfoTest, AWorkerThatNamesItsBuffersKnowsBetter) {
  const auto info = MakeInfo(Model(), {"scale", "bn.running_mean"});
  ASSERT_TRUE(info.ok()) << info.status();
  std::vector<bool> buffers;
  for (const TensorInfo& i : InfoOf({.tensors = Model(), .info = *info})) {
    buffers.push_back(i.is_buffer);
  }
  EXPECT_EQ(buffers, std::vector<bool>({false, true, false, false, true}));
}

TEST(TensorInfoTest, ANameThatTheModelHasNotIsAnError) {
  const absl::Status status = MakeInfo(Model(), {"scale", "shift"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'shift'"));
}

}  // namespace
}  // namespace miniray::ps
