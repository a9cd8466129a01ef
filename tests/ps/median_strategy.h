// The strategy that ps/README.md shows; a test compares the two.

#ifndef MINIRAY_TESTS_PS_MEDIAN_STRATEGY_H_
#define MINIRAY_TESTS_PS_MEDIAN_STRATEGY_H_

#include <tuple>

#include "ATen/ops/median.h"
#include "ATen/ops/stack.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"
#include "ps/tensor_math.h"

// README begins.
// The elementwise median, which one outlier does not move. Of an even number of
// workers: the lower of the two in the middle.
class LowerMedian : public miniray::ps::SyncStrategy {
 public:
  absl::StatusOr<miniray::NamedTensors> Aggregate(
      absl::Span<const miniray::ps::Contribution> contributions) override {
    miniray::NamedTensors result;
    for (size_t i = 0; i < contributions[0].tensors.size(); ++i) {
      const auto tensors = miniray::ps::TensorsAt(contributions, i);
      at::Tensor value = miniray::ps::IsFloat(tensors[0])
                             ? std::get<0>(at::median(at::stack(tensors), 0))
                             : miniray::ps::Maximum(tensors);
      result.emplace_back(contributions[0].tensors[i].first, value);
    }
    return result;
  }
};
MINIRAY_SYNC_STRATEGY("lower_median", LowerMedian);
// README ends.

#endif  // MINIRAY_TESTS_PS_MEDIAN_STRATEGY_H_
