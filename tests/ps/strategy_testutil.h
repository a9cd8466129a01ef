// What tests of strategies have in common.

#ifndef MINIRAY_TESTS_PS_STRATEGY_TESTUTIL_H_
#define MINIRAY_TESTS_PS_STRATEGY_TESTUTIL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"
#include "tests/ps/tensors.h"

namespace miniray::ps {

inline std::unique_ptr<SyncStrategy> Create(
    absl::string_view name, const StrategyOptions& options = {}) {
  auto strategy = StrategyRegistry::Get().Create(name, options);
  EXPECT_TRUE(strategy.ok()) << strategy.status();
  return *std::move(strategy);
}

// Why a strategy cannot be created.
inline std::string CreateError(absl::string_view name,
                               const StrategyOptions& options) {
  const absl::Status status =
      StrategyRegistry::Get().Create(name, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

inline NamedTensors AggregateModel(
    SyncStrategy& strategy, const std::vector<Contribution>& contributions) {
  absl::StatusOr<NamedTensors> result = strategy.Aggregate(contributions);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : NamedTensors();
}

// The first tensor of the result.
inline std::vector<double> AggregateValues(
    SyncStrategy& strategy, const std::vector<Contribution>& contributions) {
  const NamedTensors result = AggregateModel(strategy, contributions);
  return result.empty() ? std::vector<double>() : Values(result[0].second);
}

// Workers with one float tensor each.
inline std::vector<Contribution> Workers(
    const std::vector<std::vector<float>>& values) {
  std::vector<NamedTensors> models;
  for (const std::vector<float>& of_one : values) {
    models.push_back({{"w", Floats(of_one)}});
  }
  return Contributions(models);
}

}  // namespace miniray::ps

#endif  // MINIRAY_TESTS_PS_STRATEGY_TESTUTIL_H_
