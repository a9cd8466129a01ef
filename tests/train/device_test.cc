#include "train/device.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// An actor that chooses.
class Chooser {
 public:
  absl::StatusOr<std::string> Choose(const std::string& name) {
    MR_ASSIGN_OR_RETURN(const c10::Device device, ChooseDevice(name));
    return device.str();
  }
};
MINIRAY_ACTOR(Chooser, Constructor<>, &Chooser::Choose);

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

TEST(ChooseDeviceTest, OfAnActorThatHasAskedForAGpu) {
  const std::vector<std::string> given = {"3", "5"};
  EXPECT_EQ(internal::ChooseDevice("auto", 2, "'3,5'", given)->str(), "cuda:0");
  EXPECT_EQ(internal::ChooseDevice("cpu", 0, "'3,5'", given)->str(), "cpu");
  EXPECT_THAT(internal::ChooseDevice("auto", 0, "'3,5'", given),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("given (3, 5)"),
                             HasSubstr("CUDA_VISIBLE_DEVICES ('3,5')"))));
}

// On any machine: the node offers what it says, and nothing is to be seen.
TEST(ChooseDeviceTest, AnActorsGpuThatIsNotThereIsNotTheCpu) {
  unsetenv("CUDA_VISIBLE_DEVICES");  // It might name too few.
  TestCluster nodes({.configure_node = [](WorkerDaemon::Options* node) {
    (*node->resources.mutable_quantity())["GPU"] = 1;
  }});
  const Cluster cluster = nodes.Connect();
  const auto choose = [&](double gpus, const std::string& name) {
    const auto chooser = cluster.CreateActor<Chooser>(
        {.resources = {.gpu = gpus}, .env = {{"CUDA_VISIBLE_DEVICES", ""}}});
    EXPECT_THAT(chooser, IsOk());
    return chooser->Call<&Chooser::Choose>(name).Get(absl::Seconds(60));
  };
  EXPECT_THAT(choose(0.5, "auto"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("LibTorch finds none")));
  EXPECT_THAT(choose(0.5, "cpu"), IsOkAndHolds("cpu"));
  EXPECT_THAT(choose(0, "auto"), IsOkAndHolds("cpu"));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
