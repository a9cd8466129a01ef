#include "train/device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::train {
namespace {

using ::testing::HasSubstr;

TEST(ChooseDeviceTest, TakesWhatThereIs) {
  const auto name = [](const char* asked, int devices) {
    return internal::ChooseDevice(asked, devices, "'3,5'")->str();
  };
  EXPECT_EQ(name("auto", 0), "cpu");
  EXPECT_EQ(name("auto", 2), "cuda:0");
  EXPECT_EQ(name("cpu", 2), "cpu");
  EXPECT_EQ(name("cuda", 2), "cuda:0");
  EXPECT_EQ(name("cuda:1", 2), "cuda:1");
}

TEST(ChooseDeviceTest, SaysWhatIsMissing) {
  const auto few = internal::ChooseDevice("cuda:2", 2, "'3,5'").status();
  EXPECT_EQ(few.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(few.message(), HasSubstr("sees 2 CUDA devices, from cuda:0 on "
                                       "(CUDA_VISIBLE_DEVICES is '3,5')"));
  const auto none = internal::ChooseDevice("cuda", 0, "not set").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(none.message(), HasSubstr("no CUDA device"));
}

TEST(ChooseDeviceTest, RefusesOtherNames) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda: 1", "cuda:x",
                           "cuda:99999999999", "CPU"}) {
    EXPECT_EQ(internal::ChooseDevice(name, 2, "").status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST(ChooseDeviceTest, OfThisProcess) {
  EXPECT_TRUE(ChooseDevice("auto").ok());
  EXPECT_TRUE(ChooseDevice("cpu")->is_cpu());
}

}  // namespace
}  // namespace miniray::train
