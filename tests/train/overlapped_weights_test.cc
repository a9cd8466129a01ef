#include "train/overlapped_weights.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray::train {
namespace {

using ps::Floats;
using ps::Ints;
using ps::Values;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OverlappedWeightsTest : public ::testing::Test {
 protected:
  OverlappedWeightsTest()
      : overlapped_([this] { return ReadOnly<NamedTensors>{model_}; },
                    [this](const NamedTensors& weights) {
                      if (!load_.ok()) return load_;
                      for (size_t i = 0; i < model_.size(); ++i) {
                        model_[i].second.copy_(weights.at(i).second);
                      }
                      return absl::OkStatus();
                    }) {}

  void Set(const NamedTensors& weights) {
    for (size_t i = 0; i < model_.size(); ++i) {
      model_[i].second.copy_(weights.at(i).second);
    }
  }
  static NamedTensors Model(std::vector<float> w, float variance,
                            int64_t batches) {
    return {{"w", Floats(w)},
            {"norm.running_var", Floats({variance})},
            {"norm.num_batches_tracked", Ints({batches})}};
  }
  std::vector<double> Now(size_t i) const { return Values(model_[i].second); }

  NamedTensors model_ = Model({1, 2}, 1, 10);
  absl::Status load_;
  OverlappedWeights overlapped_;
};

TEST_F(OverlappedWeightsTest, WithoutASnapshotItIsTheModel) {
  EXPECT_EQ(overlapped_.Lend().value[0].second.data_ptr(),
            model_[0].second.data_ptr());
  EXPECT_THAT(overlapped_.Receive(Model({5, 6}, 2, 11)), IsOk());
  EXPECT_THAT(Now(0), ElementsAre(5, 6));
  EXPECT_THAT(Now(2), ElementsAre(11));
  EXPECT_THAT(overlapped_.Apply(/*trained=*/true), IsOk());  // Nothing to do.
  EXPECT_THAT(Now(0), ElementsAre(5, 6));
}

TEST_F(OverlappedWeightsTest, KeepsWhatWasTrainedSinceTheSnapshot) {
  ASSERT_THAT(overlapped_.Snapshot(), IsOk());
  Set(Model({1.5, 1}, 0.25, 12));
  // The snapshot stays, and so does the model.
  EXPECT_THAT(Values(overlapped_.Lend().value[0].second), ElementsAre(1, 2));
  ASSERT_THAT(overlapped_.Receive(Model({3, 4}, 0.5, 11)), IsOk());
  EXPECT_THAT(Now(0), ElementsAre(1.5, 1));
  ASSERT_THAT(overlapped_.Apply(/*trained=*/true), IsOk());
  EXPECT_THAT(Now(0), ElementsAre(3.5, 3));  // 1.5 + 3 - 1, 1 + 4 - 2.
  EXPECT_THAT(Now(1), ElementsAre(0.5));     // Not 0.25 + 0.5 - 1.
  EXPECT_THAT(Now(2), ElementsAre(13));      // 12 + 11 - 10.
  // None is out any more.
  EXPECT_EQ(overlapped_.Lend().value[0].second.data_ptr(),
            model_[0].second.data_ptr());
}

TEST_F(OverlappedWeightsTest, TheNextSnapshotIsOfWhatWasApplied) {
  ASSERT_THAT(overlapped_.Snapshot(), IsOk());
  ASSERT_THAT(overlapped_.Receive(Model({3, 4}, 1, 10)), IsOk());
  Set(Model({2, 2}, 1, 10));
  ASSERT_THAT(overlapped_.Snapshot(), IsOk());
  EXPECT_THAT(Now(0), ElementsAre(4, 4));  // 2 + 3 - 1, 2 + 4 - 2.
  Set(Model({0, 0}, 1, 10));
  EXPECT_THAT(Values(overlapped_.Lend().value[0].second), ElementsAre(4, 4));
  ASSERT_THAT(overlapped_.Receive(Model({8, 0}, 1, 10)), IsOk());
  ASSERT_THAT(overlapped_.Apply(/*trained=*/true), IsOk());
  EXPECT_THAT(Now(0), ElementsAre(4, -4));  // 0 + 8 - 4, 0 + 0 - 4.
}

// 0.1f + (0.3f - 0.1f) is another float than 0.3f.
TEST_F(OverlappedWeightsTest, WhereNothingWasTrainedItIsWhatCame) {
  Set(Model({0.1f, 1e-8f}, 1, 10));
  ASSERT_THAT(overlapped_.Snapshot(), IsOk());
  const NamedTensors came = Model({0.3f, 1e8f}, 1, 10);
  ASSERT_THAT(overlapped_.Receive(came), IsOk());
  ASSERT_THAT(overlapped_.Apply(/*trained=*/false), IsOk());
  EXPECT_TRUE(ps::SameBits(model_[0].second, came[0].second));
}

// What is received may be the sender's memory, and change with it.
TEST_F(OverlappedWeightsTest, KeepsACopyOfTheLastThatCame) {
  ASSERT_THAT(overlapped_.Snapshot(), IsOk());
  NamedTensors came = Model({9, 9}, 1, 10);
  ASSERT_THAT(overlapped_.Receive(came), IsOk());
  came[0].second.fill_(3);
  ASSERT_THAT(overlapped_.Receive(came), IsOk());
  came[0].second.fill_(7);
  ASSERT_THAT(overlapped_.Apply(/*trained=*/true), IsOk());
  EXPECT_THAT(Now(0), ElementsAre(3, 3));
}

TEST_F(OverlappedWeightsTest, ErrorsSayWhatIsWrong) {
  ASSERT_THAT(overlapped_.Snapshot(), IsOk());
  const auto nothing = StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("nothing has come yet"));
  EXPECT_THAT(overlapped_.Snapshot(), nothing);
  EXPECT_THAT(overlapped_.Apply(true), nothing);
  EXPECT_THAT(overlapped_.Receive({{"w", Floats({1, 2})}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("are 1 tensors, and the snapshot that they "
                                 "came for 3")));
  EXPECT_THAT(overlapped_.Receive(Model({1, 2, 3}, 1, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'w' Float [3] in the weights, but 'w' Float "
                                 "[2] in the snapshot")));
  EXPECT_THAT(overlapped_.Apply(true), nothing);  // None of them came.
  ASSERT_THAT(overlapped_.Receive(Model({3, 4}, 1, 10)), IsOk());
  load_ = absl::InternalError("no load");
  EXPECT_THAT(overlapped_.Apply(true),
              StatusIs(absl::StatusCode::kInternal, "no load"));
}

}  // namespace
}  // namespace miniray::train
