// SyncStrategy: how the weights of several workers become one set of weights.
// The plug-in point of the parameter server; see README.md for an example.

#ifndef MINIRAY_PS_SYNC_STRATEGY_H_
#define MINIRAY_PS_SYNC_STRATEGY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/option_map.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

// What is known of a tensor beside its name and values.
struct TensorInfo {
  // No parameter, which gradients move, but a running statistic, a counter or a
  // mask.
  bool is_buffer = false;
  // Where a server of several shards has a part of a tensor only: the part's
  // first element.
  int64_t offset = 0;
};

// What one worker contributes to a synchronisation.
struct Contribution {
  int worker_id = 0;  // Index among the workers.
  // Of the worker in a weighted mean; finite, >= 0. As set with SetWorkerWeight
  // (1 where not); if that was never called, num_samples where all workers
  // tell it; else 1.
  double weight = 1;
  // What the worker's NumSamples returned; absent if its class has none, or the
  // strategy has no use for weights.
  std::optional<double> num_samples;
  NamedTensors tensors;
  // For each tensor, the same for all workers. Use InfoOf (tensor_info.h),
  // which knows what to assume where this is null.
  std::shared_ptr<const std::vector<TensorInfo>> info;
};

// What a strategy remembers, to be stored with the server's weights.
struct StrategyState {
  // Each is of one tensor of the model: named "WHAT/NAME", with NAME's shape,
  // so that a server cuts it into shards as it cuts NAME.
  NamedTensors tensors;
  OptionMap scalars;
};

// One parameter server owns one strategy, and calls it from one thread at a
// time. Exceptions (c10::Error) become errors of the synchronisation.
class SyncStrategy {
 public:
  virtual ~SyncStrategy() = default;

  // Returns the weights that all workers receive: the same names, shapes and
  // element types, in the same order, as each contribution.
  //
  // contributions: at least one, in the order of worker_id, and checked: all
  //   have the same names, shapes and element types, in the same order as at
  //   the earlier synchronisations, and hold finite values only (but see
  //   PassesOnNonFinite and NonFinitePolicy of the server). Dense, on the CPU,
  //   contiguous. They may lie in the workers' own memory: they are read only,
  //   and valid until this returns.
  //
  // The result must depend on the contributions and on earlier calls alone, and
  // does not change afterwards: workers may still read it at the next
  // synchronisation. A strategy may keep it: unless Reset follows, these are
  // the server's weights from now on.
  //
  // The rule for tensors that are not floating-point numbers, BatchNorm's
  // num_batches_tracked say: the elementwise maximum (tensor_math.h has it).
  virtual absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) = 0;

  // As Aggregate({contribution}), to the bit. No one else has its tensors, so
  // that the result may lie where they do, which spares memory for one more
  // model: for strategies that hand a model on to another one.
  virtual absl::StatusOr<NamedTensors> AggregateOwn(Contribution contribution) {
    return Aggregate({&contribution, 1});
  }

  // The server's weights are not what Aggregate returned last: a strategy that
  // remembers forgets all and starts anew from these. They were set from
  // outside (PushWeights), or a result failed its check. Empty: the server has
  // none. They do not change afterwards, so a strategy may keep them.
  virtual void Reset(const NamedTensors& weights) {}

  // INVALID_ARGUMENT if the strategy cannot work with so many workers, before
  // anything is pulled. Aggregate may get fewer contributions than that.
  virtual absl::Status CheckWorkers(int64_t num_workers) const {
    return absl::OkStatus();
  }

  // Returns all that the strategy remembers but the server's weights. Tensors
  // may be the strategy's own: use them before the next call of anything.
  virtual absl::StatusOr<StrategyState> SaveState() const {
    return StrategyState();
  }

  // Goes on from what SaveState returned, to the bit.
  //
  // weights: those of the server when the state was saved; as for Reset.
  // Errors: INVALID_ARGUMENT, the state is not of such a strategy or model;
  // then nothing has changed.
  virtual absl::Status RestoreState(const StrategyState& state,
                                    const NamedTensors& weights) {
    Reset(weights);
    return absl::OkStatus();
  }

  // True if a value that is infinite or NaN in a contribution always makes one
  // in the result, and the strategy remembers nothing. The server then checks
  // the result alone, which spares it reading all contributions once more.
  virtual bool PassesOnNonFinite() const { return false; }

  // True if it matters which weights the workers start from: a trainer then
  // gives them to the server first (ParameterServer::StartFromWorkers), and
  // Reset is called with them before the first Aggregate.
  virtual bool UsesStart() const { return false; }

  // False if Aggregate works with the contributions alone: the strategy neither
  // remembers anything nor keeps its results. The server then need not have its
  // weights meanwhile (ServerOptions::keep_weights).
  virtual bool UsesServerWeights() const { return true; }

  // True if the contributions are gradients: see GradientStrategy, which such a
  // strategy derives from.
  virtual bool TakesGradients() const { return false; }

  // True if Contribution::weight matters. SetWorkerWeight is an error where it
  // does not, rather than without effect, and workers are not asked for
  // NumSamples.
  virtual bool UsesWorkerWeights() const { return false; }
};

// A sum that hardly depends on the order of its parts: of two doubles, the
// second what rounding took from the first. Sums of the same numbers in any
// order, or of sums of some of them, have equal values unless their exact value
// lies within about 2^-80 of it from where double rounds the other way.
//
// Knuth, The Art of Computer Programming 2, 4.2.2 (TwoSum); Neumaier 1974.
struct WideSum {
  double high = 0;
  double low = 0;

  void Add(double x) {
    const double sum = high + x;
    const double rounded = sum - high;
    low += (high - (sum - rounded)) + (x - rounded);
    high = sum;
  }
  void Add(const WideSum& other) {
    Add(other.high);
    Add(other.low);
  }
  // Infinite or NaN where a part is.
  double value() const { return high + low; }
};
MINIRAY_STRUCT(WideSum, high, low);

inline std::vector<double> ValuesOf(absl::Span<const WideSum> sums) {
  std::vector<double> values;
  for (const WideSum& sum : sums) values.push_back(sum.value());
  return values;
}

// A strategy whose rule for one element depends on the whole model: distances
// between workers, norms of their updates. It works in two steps, so that a
// server of several shards can add up the sums of all in between:
//
//   sums = Sums(contributions);              // on each shard
//   AggregateWith(contributions, all sums);  // likewise
class WholeModelStrategy : public SyncStrategy {
 public:
  // Returns sums over the elements of these tensors, as many for the same
  // number of contributions. Changes nothing.
  virtual absl::StatusOr<std::vector<WideSum>> Sums(
      absl::Span<const Contribution> contributions) = 0;

  // As Aggregate. sums: what Sums returned for the same contributions, each
  // added up over all shards.
  virtual absl::StatusOr<NamedTensors> AggregateWith(
      absl::Span<const Contribution> contributions,
      absl::Span<const double> sums) = 0;

  // Of one shard.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) final {
    const absl::StatusOr<std::vector<WideSum>> sums = Sums(contributions);
    if (!sums.ok()) return sums.status();
    return AggregateWith(contributions, ValuesOf(*sums));
  }
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SYNC_STRATEGY_H_
