// What holds for every strategy that comes with the server: element types,
// counters, saved state, and models cut into shards.

#include <cmath>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/strategy_testutil.h"

namespace miniray::ps {
namespace {

using ::testing::ElementsAre;

constexpr int kWorkers = 7;  // Bulyan's least.
constexpr int64_t kElements = 1000;

struct Case {
  std::string name;
  StrategyOptions options;
};

std::vector<Case> Cases() {
  return {{"average", {}},
          {"weighted", {}},
          {"momentum", {{"momentum", 0.75}}},
          {"median", {}},
          {"trimmed_mean", {}},
          {"krum", {}},
          {"multi_krum", {}},
          {"bulyan", {}},
          {"fedavgm", {{"momentum", 0.5}}},
          {"fedadam", {}},
          {"fedyogi", {}},
          {"fedadagrad", {}},
          {"diloco", {}},
          {"dp", {{"seed", 5}, {"inner", "fedadam"}}},
          {"sgd", {{"momentum", 0.5}}},
          {"adam", {}},
          {"adamw", {}},
          {"adagrad", {}}};
}

TEST(CasesTest, AreAllStrategiesThatThereAre) {
  std::vector<std::string> names;
  for (const Case& c : Cases()) names.push_back(c.name);
  EXPECT_THAT(StrategyRegistry::Get().Names(),
              ::testing::UnorderedElementsAreArray(names));
}

float Number(int round, int worker, int64_t i) {
  return std::sin(static_cast<float>(i * 7 + worker * 3 + round * 5)) +
         0.1f * static_cast<float>(worker);
}

NamedTensors Model(int round, int worker, at::ScalarType type = at::kFloat) {
  std::vector<float> w, var;
  for (int64_t i = 0; i < kElements; ++i) {
    w.push_back(Number(round, worker, i));
    var.push_back(2 + Number(round, worker, i + 1));
  }
  return {{"fc.weight", Floats(w).view({10, 100}).to(type)},
          {"bn.running_var", Floats(var).to(type)},
          {"bn.num_batches_tracked", Ints({10 * round + worker})}};
}

std::vector<Contribution> Round(int round, at::ScalarType type = at::kFloat) {
  std::vector<NamedTensors> models;
  for (int worker = 0; worker < kWorkers; ++worker) {
    models.push_back(Model(round, worker, type));
  }
  auto contributions = Contributions(models);
  for (Contribution& c : contributions) c.weight = 1 + c.worker_id;
  return contributions;
}

void ExpectSameBits(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(SameBits(a[i].second, b[i].second)) << a[i].first;
  }
}

NamedTensors Clone(const NamedTensors& model) {
  NamedTensors clone;
  for (const auto& [name, tensor] : model) {
    clone.emplace_back(name, tensor.clone());
  }
  return clone;
}

class EveryStrategyTest : public ::testing::TestWithParam<Case> {
 protected:
  // A strategy that started from model (0, 0).
  std::unique_ptr<SyncStrategy> Started(at::ScalarType type = at::kFloat) {
    auto strategy = Create(GetParam().name, GetParam().options);
    strategy->Reset(Model(0, 0, type));
    return strategy;
  }
};

TEST_P(EveryStrategyTest, KeepsTheModelsFormAndItsInputs) {
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto contributions = Round(1, type);
    const auto result = AggregateModel(*Started(type), contributions);
    ASSERT_EQ(result.size(), 3);
    for (size_t i = 0; i < 3; ++i) {
      const auto& [name, tensor] = contributions[0].tensors[i];
      EXPECT_EQ(result[i].first, name);
      EXPECT_EQ(result[i].second.scalar_type(), tensor.scalar_type());
      EXPECT_EQ(result[i].second.sizes(), tensor.sizes());
      EXPECT_TRUE(result[i].second.is_contiguous());
    }
    for (int worker = 0; worker < kWorkers; ++worker) {
      ExpectSameBits(contributions[static_cast<size_t>(worker)].tensors,
                     Model(1, worker, type));
    }
  }
}

TEST_P(EveryStrategyTest, CountersAreTheMaximumOfThoseThatCount) {
  const auto result = AggregateModel(*Started(), Round(1));
  const double counter = Values(result[2].second)[0];
  const std::string& name = GetParam().name;
  if (name == "krum" || name == "multi_krum" || name == "bulyan") {
    EXPECT_GE(counter, 10);
    EXPECT_LE(counter, 10 + kWorkers - 1);
  } else {
    EXPECT_EQ(counter, 10 + kWorkers - 1);
  }
}

TEST_P(EveryStrategyTest, OneWorkerOrManyThatAgreeGiveAFiniteResult) {
  auto strategy = Started();
  auto contributions = Round(1);
  for (Contribution& c : contributions) {
    c.tensors = contributions[0].tensors;
  }
  const auto result = AggregateModel(*strategy, contributions);
  for (const double value : Values(result[0].second)) {
    ASSERT_TRUE(std::isfinite(value));
  }
}

TEST_P(EveryStrategyTest, TheSameCallsGiveTheSameBits) {
  auto a = Started();
  auto b = Started();
  for (int round = 1; round < 4; ++round) {
    ExpectSameBits(AggregateModel(*a, Round(round)),
                   AggregateModel(*b, Round(round)));
  }
}

TEST_P(EveryStrategyTest, EarlierResultsStayAsTheyAre) {
  auto strategy = Started();
  const auto first = AggregateModel(*strategy, Round(1));
  const auto copy = Clone(first);
  AggregateModel(*strategy, Round(2));
  ExpectSameBits(first, copy);
}

// Saved after each of the rounds, the start included, and restored into another
// strategy, it goes on to the bit.
TEST_P(EveryStrategyTest, WhatItMayWriteOverGivesTheSameBits) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf}) {
    // With a start, and without.
    for (const bool started : {true, false}) {
      const auto a = Started(type);
      const auto b = Started(type);
      if (!started && GetParam().name != "dp") {
        a->Reset({});
        b->Reset({});
      }
      NamedTensors before;
      NamedTensors kept;
      for (int round = 1; round <= 3; ++round) {
        Contribution contribution = Round(round, type).front();
        contribution.tensors = Clone(contribution.tensors);
        const auto expected = a->Aggregate({&contribution, 1});
        const auto result = b->AggregateOwn(contribution);
        ASSERT_EQ(result.status(), expected.status());
        if (!expected.ok()) break;  // It wants more workers.
        ExpectSameBits(*result, *expected);
        // Earlier results stay as they are.
        ExpectSameBits(before, kept);
        before = *result;
        kept = Clone(*result);
      }
    }
  }
}

TEST_P(EveryStrategyTest, RestoredItGoesOnToTheBit) {
  for (int saved_after = 0; saved_after < 3; ++saved_after) {
    auto original = Started();
    NamedTensors weights = Model(0, 0);
    for (int round = 1; round <= saved_after; ++round) {
      weights = AggregateModel(*original, Round(round));
    }
    const auto saved = original->SaveState();
    ASSERT_TRUE(saved.ok()) << saved.status();
    StrategyState state = *saved;
    for (auto& [name, tensor] : state.tensors) {
      // As if it had been on disk.
      tensor = tensor.clone();
      EXPECT_THAT(name, ::testing::EndsWith("/fc.weight"));
    }
    auto restored = Create(GetParam().name, GetParam().options);
    ASSERT_TRUE(restored->RestoreState(state, Clone(weights)).ok());
    for (int round = saved_after + 1; round < saved_after + 4; ++round) {
      ExpectSameBits(AggregateModel(*restored, Round(round)),
                     AggregateModel(*original, Round(round)));
    }
  }
}

// The elements [begin, end) of each tensor, as a shard would get them.
NamedTensors Part(const NamedTensors& model, int64_t begin, int64_t end) {
  NamedTensors part;
  for (const auto& [name, tensor] : model) {
    if (tensor.numel() < end) continue;
    part.emplace_back(name, tensor.flatten().slice(0, begin, end));
  }
  return part;
}

std::vector<Contribution> Parts(const std::vector<Contribution>& whole,
                                int64_t begin, int64_t end) {
  std::vector<Contribution> parts = whole;
  for (Contribution& c : parts) {
    c.tensors = Part(c.tensors, begin, end);
    std::vector<TensorInfo> info;
    for (const auto& [name, tensor] : c.tensors) {
      info.push_back({.is_buffer = name == "bn.running_var", .offset = begin});
    }
    c.info = std::make_shared<const std::vector<TensorInfo>>(info);
  }
  return parts;
}

// A server of two shards, cut where no vector ends, has the same bits, but for
// rules whose sums over the model are rounded otherwise.
TEST_P(EveryStrategyTest, TwoShardsAreOne) {
  constexpr int64_t kCut = 333;
  auto whole = Started();
  auto low = Create(GetParam().name, GetParam().options);
  auto high = Create(GetParam().name, GetParam().options);
  low->Reset(Part(Model(0, 0), 0, kCut));
  high->Reset(Part(Model(0, 0), kCut, kElements));
  for (int round = 1; round < 4; ++round) {
    const auto expected = AggregateModel(*whole, Round(round));
    const auto low_in = Parts(Round(round), 0, kCut);
    const auto high_in = Parts(Round(round), kCut, kElements);
    absl::StatusOr<NamedTensors> low_out, high_out;
    auto* const low_model = dynamic_cast<WholeModelStrategy*>(low.get());
    auto* const high_model = dynamic_cast<WholeModelStrategy*>(high.get());
    ASSERT_EQ(low_model == nullptr, high_model == nullptr);
    if (low_model != nullptr) {
      auto sums = low_model->Sums(low_in);
      const auto more = high_model->Sums(high_in);
      ASSERT_TRUE(sums.ok() && more.ok());
      ASSERT_EQ(sums->size(), more->size());
      for (size_t i = 0; i < sums->size(); ++i) (*sums)[i].Add((*more)[i]);
      low_out = low_model->AggregateWith(low_in, ValuesOf(*sums));
      high_out = high_model->AggregateWith(high_in, ValuesOf(*sums));
    } else {
      low_out = low->Aggregate(low_in);
      high_out = high->Aggregate(high_in);
    }
    ASSERT_TRUE(low_out.ok() && high_out.ok());
    const bool rounded = GetParam().name == "dp";
    for (size_t i = 0; i < 2; ++i) {
      const at::Tensor all = expected[i].second.flatten();
      const at::Tensor parts[] = {all.slice(0, 0, kCut),
                                  all.slice(0, kCut, kElements)};
      const at::Tensor got[] = {(*low_out)[i].second, (*high_out)[i].second};
      for (size_t shard = 0; shard < 2; ++shard) {
        if (!rounded) {
          EXPECT_TRUE(SameBits(got[shard], parts[shard]))
              << expected[i].first << ", shard " << shard;
          continue;
        }
        const auto a = Values(got[shard]);
        const auto b = Values(parts[shard]);
        for (size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], 1e-5);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryStrategyTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace miniray::ps
