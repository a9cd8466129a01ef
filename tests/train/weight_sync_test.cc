// A trainer's parameter server, and the worker that gets its weights.

#include "train/weight_sync.h"

#include <cmath>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
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
  double NumSamples() const { return x_; }

 private:
  float x_;
};
MINIRAY_ACTOR(Number, Constructor<float>, &Number::GetWeights,
              &Number::SetWeights, &Number::X, &Number::NumSamples);

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

// Those set here stand, or NumSamples if none are: a resumed training may have
// other data.
TEST_F(WeightSyncTest, AStateDoesNotBringItsWorkerWeightsBack) {
  const auto start = [&](const std::vector<double>& weights) {
    auto sync = std::make_unique<WeightSync>(
        "weighted", ps::StrategyOptions(), ps::ServerOptions(), 2,
        [](const auto&) { return absl::OkStatus(); });
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_THAT(sync->SetWorkerWeight(static_cast<int>(i), weights[i]),
                  IsOk());
    }
    EXPECT_THAT(
        sync->Start(cluster_, {.resources = {.cpu = 0}}, /*anew=*/false),
        IsOk());
    EXPECT_THAT(sync->SendWorkerWeights(), IsOk());
    return sync;
  };
  // The mean of 1 and 3.
  const auto mean = [&](WeightSync* sync) {
    const ActorHandle<Number> first = Create(1);
    EXPECT_THAT(sync->Sync({first, Create(3)}), IsOk());
    return *first.Call<&Number::X>().Get();
  };
  const auto first = start({3, 1});
  EXPECT_EQ(mean(first.get()), 1.5);
  const auto state = first->ExportState();
  ASSERT_THAT(state, IsOk());
  const auto second = start({1, 1});
  ASSERT_THAT(second->ImportState(*state), IsOk());
  EXPECT_EQ(mean(second.get()), 2);
  const auto third = start({});
  ASSERT_THAT(third->ImportState(*state), IsOk());
  EXPECT_EQ(mean(third.get()), 2.5) << "1 and 3 samples";
}

TEST_F(WeightSyncTest, WhatAnEarlierServerLeftIsForgotten) {
  TempFolder folder;
  const auto start = [&] {
    auto sync = std::make_unique<WeightSync>(
        "weighted", ps::StrategyOptions(),
        ps::ServerOptions{.state_dir = folder.path()}, 2,
        [](const auto&) { return absl::OkStatus(); });
    EXPECT_THAT(
        sync->Start(cluster_, {.resources = {.cpu = 0}}, /*anew=*/false),
        IsOk());
    return sync;
  };
  {
    const auto sync = start();
    ASSERT_THAT(sync->SetWorkerWeight(0, 3), IsOk());
    ASSERT_THAT(sync->Sync({Create(1), Create(3)}), IsOk());
    EXPECT_THAT(sync->Stop(), IsOk());
  }
  const auto sync = start();
  ASSERT_THAT(sync->BeginAnew(), IsOk());
  EXPECT_EQ(sync->Stats()->version, 0);
  // One made anew before the first synchronisation keeps what all began with.
  const ActorHandle<Number> fresh = Create(1);
  EXPECT_THAT(sync->SendTo("worker 0", fresh), IsOk());
  EXPECT_THAT(fresh.Call<&Number::X>().Get(), IsOkAndHolds(1));
  ASSERT_THAT(sync->Sync({fresh, Create(3)}), IsOk());
  EXPECT_THAT(fresh.Call<&Number::X>().Get(), IsOkAndHolds(2.5));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
