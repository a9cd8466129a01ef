#include "ps/piecewise_strategy.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/strategy_testutil.h"

namespace miniray::ps {
namespace {

using ::testing::HasSubstr;

// 5 pieces: of 4,096 floats at most.
constexpr int64_t kPieceBytes = 1 << 14;

NamedTensors Model(double phase) {
  const auto wave = [phase](int64_t size) {
    return at::arange(size).mul(0.37).add(phase).sin().to(at::kFloat);
  };
  return {{"fc/weight", wave(3 * 5000).view({3, 5000})},
          {"fc/bias", wave(3)},
          {"bn.running_var", wave(4100).abs()},
          {"half", wave(9).to(at::kHalf)}};
}

std::vector<Contribution> Round(int round) {
  return Contributions({Model(round), Model(round + 0.5)});
}

PiecewiseStrategy InPieces(const std::string& name) {
  return PiecewiseStrategy([name] { return Create(name); }, kPieceBytes);
}

void ExpectSame(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(SameBits(a[i].second, b[i].second)) << a[i].first;
  }
}

// One round, piece by piece.
NamedTensors Step(PiecewiseStrategy* strategy,
                  const std::vector<Contribution>& contributions) {
  NamedTensors next;
  for (const auto& [name, tensor] : contributions[0].tensors) {
    next.emplace_back(name, tensor.clone());
  }
  for (size_t k = 0; k < strategy->pieces().size(); ++k) {
    const ModelPart& piece = strategy->pieces()[k];
    const auto begun = strategy->Begin(k);
    EXPECT_TRUE(begun.ok()) << begun.status();
    std::vector<NamedTensors> tensors;
    for (const Contribution& contribution : contributions) {
      tensors.push_back(TensorsOfPart(contribution.tensors, piece));
    }
    CopyPart(AggregateModel(**begun, Contributions(tensors)), piece, &next);
  }
  return next;
}

TEST(PiecewiseStrategyTest, RemembersWhatTheStrategyItselfDoes) {
  for (const char* name : {"average", "momentum", "fedadam", "fedavgm"}) {
    SCOPED_TRACE(name);
    const auto whole = Create(name);
    PiecewiseStrategy pieces = InPieces(name);
    EXPECT_TRUE(pieces.pieces().empty());
    whole->Reset(Model(-1));
    pieces.Reset(Model(-1));
    EXPECT_EQ(pieces.pieces().size(), 5u);
    NamedTensors expected;
    for (int round = 0; round < 3; ++round) {
      expected = AggregateModel(*whole, Round(round));
      // By itself and piece by piece.
      if (round == 1) {
        ExpectSame(AggregateModel(pieces, Round(round)), expected);
      } else {
        const NamedTensors next = Step(&pieces, Round(round));
        ExpectSame(next, expected);
        pieces.Commit(next);
      }
    }
    const auto saved_whole = whole->SaveState();
    const auto saved = pieces.SaveState();
    ASSERT_TRUE(saved_whole.ok() && saved.ok()) << saved.status();
    ExpectSame(saved->tensors, saved_whole->tensors);
    // Either goes on from the other's.
    PiecewiseStrategy next_pieces = InPieces(name);
    EXPECT_TRUE(next_pieces.RestoreState(*saved_whole, expected).ok());
    const auto next_whole = Create(name);
    EXPECT_TRUE(next_whole->RestoreState(*saved, expected).ok());
    expected = AggregateModel(*whole, Round(3));
    ExpectSame(AggregateModel(next_pieces, Round(3)), expected);
    ExpectSame(AggregateModel(*next_whole, Round(3)), expected);
  }
}

TEST(PiecewiseStrategyTest, WithoutWeightsAnyModelMayBeNext) {
  for (const char* name : {"momentum", "fedadam"}) {
    SCOPED_TRACE(name);
    PiecewiseStrategy pieces = InPieces(name);
    pieces.Reset(Model(-1));
    AggregateModel(pieces, Round(0));
    pieces.Reset({});
    EXPECT_TRUE(pieces.pieces().empty());
    const std::vector<Contribution> others =
        Contributions({{{"w", Floats({1, 2})}}, {{"w", Floats({3, 6})}}});
    ExpectSame(AggregateModel(pieces, others), {{"w", Floats({2, 4})}});
  }
}

TEST(PiecewiseStrategyTest, RollbackForgetsWhatWasBegun) {
  PiecewiseStrategy pieces = InPieces("fedadam");
  pieces.Reset(Model(-1));
  const NamedTensors first = Step(&pieces, Round(0));
  pieces.Commit(first);
  const NamedTensors second = Step(&pieces, Round(1));
  ASSERT_TRUE(pieces.Rollback().ok());
  // Half of another one.
  ASSERT_TRUE(pieces.Begin(2).ok());
  ASSERT_TRUE(pieces.Rollback().ok());
  ExpectSame(Step(&pieces, Round(1)), second);
}

TEST(PiecewiseStrategyTest, AStateOfAnotherModelIsRefused) {
  PiecewiseStrategy pieces = InPieces("fedadam");
  pieces.Reset(Model(-1));
  const NamedTensors weights = AggregateModel(pieces, Round(0));
  const auto refused = [&](const StrategyState& state) {
    const absl::Status status = pieces.RestoreState(state, weights);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({.tensors = {{"m", Floats({1})}}}),
              HasSubstr("'m', which is not named WHAT/NAME"));
  EXPECT_THAT(refused({.tensors = {{"m/other", Floats({1})}}}),
              HasSubstr("'m/other'"));
  EXPECT_THAT(refused({.tensors = {{"m/fc/bias", Floats({1})}}}),
              HasSubstr("'m/fc/bias'"));
  // Nothing has changed.
  PiecewiseStrategy other = InPieces("fedadam");
  other.Reset(Model(-1));
  AggregateModel(other, Round(0));
  ExpectSame(AggregateModel(pieces, Round(1)), AggregateModel(other, Round(1)));
}

// What a piece alone knows is no rule for elements.
class Counting : public SyncStrategy {
 public:
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override {
    count_ += contributions[0].tensors[0].second.numel();
    if (count_ == fail_at) return absl::InternalError("enough");
    return contributions[0].tensors;
  }
  absl::StatusOr<StrategyState> SaveState() const override {
    return StrategyState{.scalars = {{"count", count_}}};
  }
  absl::Status RestoreState(const StrategyState& state,
                            const NamedTensors& weights) override {
    count_ = *state.scalars.GetInt("count", 0);
    return absl::OkStatus();
  }
  int64_t count() const { return count_; }
  int64_t fail_at = -1;

 private:
  int64_t count_ = 0;
};

TEST(PiecewiseStrategyTest, NumbersThatDifferBetweenPiecesAreAnError) {
  PiecewiseStrategy pieces([] { return std::make_unique<Counting>(); },
                           kPieceBytes);
  ASSERT_TRUE(pieces.SaveState().ok());
  AggregateModel(pieces, Round(0));
  EXPECT_THAT(pieces.SaveState().status().ToString(),
              HasSubstr("different numbers for the pieces"));
}

TEST(PiecewiseStrategyTest, AnAggregationThatFailsAtTheEndChangesNothing) {
  std::vector<Counting*> all;  // The first is only asked what it is.
  PiecewiseStrategy pieces(
      [&all] {
        auto one = std::make_unique<Counting>();
        all.push_back(one.get());
        return one;
      },
      kPieceBytes);
  AggregateModel(pieces, Round(0));
  ASSERT_EQ(all.size(), 6u);
  const auto counts = [&all] {
    std::vector<int64_t> result;
    for (const Counting* one : all) result.push_back(one->count());
    return result;
  };
  const std::vector<int64_t> before = counts();
  EXPECT_EQ(before[1], 4096);
  all.back()->fail_at = 2 * before.back();
  EXPECT_THAT(pieces.Aggregate(Round(1)).status().ToString(),
              HasSubstr("enough"));
  EXPECT_EQ(counts(), before);
}

}  // namespace
}  // namespace miniray::ps
