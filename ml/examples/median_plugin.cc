// A strategy of one's own, in a plug-in: the elementwise median, which a worker
// that sends garbage does not move. Any program takes it, by name:
//
//   bazel-bin/ml/train --plugin=bazel-bin/ml/examples/libmedian_plugin.so
//       --mode=distributed --workers=3 --sync-strategy=example_median
//
// See README.md, and ps/sync_strategy.h for what a strategy has to keep to.

#include <tuple>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/sort.h"
#include "ATen/ops/stack.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"
#include "ps/tensor_math.h"

namespace {

using miniray::NamedTensors;
using miniray::ps::Contribution;

// The value in the middle of all workers'; of an even number of them, the mean
// of the two in the middle. tensors: of the same shape.
at::Tensor Median(const std::vector<at::Tensor>& tensors) {
  const auto n = static_cast<int64_t>(tensors.size());
  const at::Tensor sorted = std::get<0>(at::sort(at::stack(tensors), 0));
  return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

class ExampleMedian : public miniray::ps::SyncStrategy {
 public:
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override {
    NamedTensors result;
    for (size_t i = 0; i < contributions[0].tensors.size(); ++i) {
      const auto tensors = miniray::ps::TensorsAt(contributions, i);
      // Counters, such as BatchNorm's of batches, become the largest.
      at::Tensor value = miniray::ps::IsFloat(tensors[0])
                             ? Median(tensors)
                             : miniray::ps::Maximum(tensors);
      result.emplace_back(contributions[0].tensors[i].first, std::move(value));
    }
    return result;
  }
};

MINIRAY_SYNC_STRATEGY("example_median", ExampleMedian);

}  // namespace
