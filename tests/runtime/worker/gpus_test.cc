#include "runtime/worker/gpus.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using Ids = std::vector<std::string>;

v1::Resources Gpus(double count) {
  v1::Resources resources;
  (*resources.mutable_quantity())["CPU"] = 4;
  if (count > 0) (*resources.mutable_quantity())["GPU"] = count;
  return resources;
}

google::protobuf::RepeatedField<int32_t> Numbers(
    const std::vector<int32_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

TEST(GpusTest, ByDefaultTheyAreTheFirstOnes) {
  EXPECT_THAT(GpuIds(Gpus(0), nullptr), IsOkAndHolds(Ids()));
  EXPECT_THAT(GpuIds(Gpus(2), nullptr), IsOkAndHolds(Ids{"0", "1"}));
  EXPECT_THAT(GpuIds(Gpus(0.5), nullptr), IsOkAndHolds(Ids{"0"}));
}

TEST(GpusTest, TheVariableNamesThem) {
  EXPECT_THAT(GpuIds(Gpus(2), "3, GPU-12ab ,1"),
              IsOkAndHolds(Ids{"3", "GPU-12ab"}));
  // None are offered: it may say anything.
  EXPECT_THAT(GpuIds(Gpus(0), "-1"), IsOkAndHolds(Ids()));
}

TEST(GpusTest, AsManyAsAreOfferedMustBeNamed) {
  // What is no device ends the list, as it does for CUDA.
  for (const char* few : {"", "3", "3,-1,4", "3,,4", "NoDevFiles"}) {
    EXPECT_THAT(GpuIds(Gpus(2), few),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("2 GPUs"), HasSubstr(few),
                               HasSubstr("--num_gpus"))))
        << few;
  }
  EXPECT_THAT(GpuIds(Gpus(2), "3,3"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_THAT(GpuIds(Gpus(1e9), nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(GpusTest, AProcessSeesItsOwn) {
  const std::vector<std::string> node_ids = {"3", "GPU-12ab", "1"};
  EXPECT_THAT(GpuIdsOf(Numbers({0, 2}), node_ids), ElementsAre("3", "1"));
  EXPECT_THAT(GpuIdsOf(Numbers({3}), node_ids), IsEmpty());
  EXPECT_THAT(GpuIdsOf(Numbers({-1}), node_ids), IsEmpty());

  std::map<std::string, std::string> env;
  ShowGpus({"3", "1"}, Gpus(2), node_ids, &env);
  EXPECT_THAT(env, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "3,1")));
  // Who asked for none sees none.
  ShowGpus({}, Gpus(0), node_ids, &env);
  EXPECT_THAT(env, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "")));
  // Where none are offered, or the head names none, it is not touched.
  env.clear();
  ShowGpus({}, Gpus(0), {}, &env);
  ShowGpus({}, Gpus(1), node_ids, &env);
  EXPECT_THAT(env, IsEmpty());
}

}  // namespace
}  // namespace miniray
