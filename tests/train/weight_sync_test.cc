// A trainer's parameter server, and the worker that gets its weights.

#include "train/weight_sync.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Number {
 public:
  explicit Number(float x) : x_(x) {}
  NamedTensors GetWeights() const { return {{"x", ps::Floats({x_})}}; }
  absl::Status SetWeights(const NamedTensors& weights) {
    x_ = weights.at(0).second.item<float>();
    return absl::OkStatus();
  }
  float X() const { return x_; }

 private:
  float x_;
};
MINIRAY_ACTOR(Number, Constructor<float>, &Number::GetWeights,
              &Number::SetWeights, &Number::X);

class WeightSyncTest : public ::testing::Test {
 protected:
  ActorHandle<Number> Create(float x) {
    auto number = cluster_.CreateActor<Number>({.resources = {.cpu = 0}}, x);
    EXPECT_THAT(number, IsOk());
    return *number;
  }

  TestCluster nodes_;
  Cluster cluster_ = nodes_.Connect();
};

TEST_F(WeightSyncTest, AWorkerMadeAnewDoesNotGoOnWithWhatItsConstructorMade) {
  WeightSync sync("average", {}, ps::ServerOptions{.keep_weights = false}, 2,
                  [](const auto&) { return absl::OkStatus(); });
  ASSERT_THAT(sync.Start(cluster_, {.resources = {.cpu = 0}}, /*anew=*/false),
              IsOk());
  const std::vector<AnyActorHandle> sound = {Create(1), Create(3)};
  const std::vector<AnyActorHandle> broken = {Create(1), Create(NAN)};
  // Before the first synchronisation it has what all began with.
  const ActorHandle<Number> fresh = Create(9);
  EXPECT_THAT(sync.SendTo("worker 1", fresh), IsOk());
  EXPECT_THAT(fresh.Call<&Number::X>().Get(), IsOkAndHolds(9));
  ASSERT_THAT(sync.Sync(sound), IsOk());
  EXPECT_THAT(sync.SendTo("worker 1", fresh), IsOk());
  EXPECT_THAT(fresh.Call<&Number::X>().Get(), IsOkAndHolds(2));

  // The server has let its weights go by the time that this fails.
  EXPECT_THAT(sync.Sync(broken).status().ToString(), HasSubstr("NaN"));
  EXPECT_THAT(
      sync.SendTo("worker 1", Create(9)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("worker 1 ("), HasSubstr("keep_weights = false"),
                     HasSubstr("synchronise the other workers"))));
  // Nor does a checkpoint.
  EXPECT_THAT(sync.ExportState(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT(sync.Sync(sound), IsOk());
  EXPECT_THAT(sync.SendTo("worker 1", fresh), IsOk());
  EXPECT_THAT(sync.ExportState(), IsOk());
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
