// SyncStrategy: how the weights of several workers become one set of weights.
// The plug-in point of the parameter server; see README.md for an example.

#ifndef MINIRAY_PS_SYNC_STRATEGY_H_
#define MINIRAY_PS_SYNC_STRATEGY_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// What one worker contributes to a synchronisation.
struct Contribution {
  int worker_id = 0;  // Index among the workers.
  double weight = 1;  // As set with SetWorkerWeight; finite, >= 0.
  NamedTensors tensors;
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
  //   PassesOnNonFinite). Dense, on the CPU, contiguous. They may lie in the
  //   workers' own memory: they are read only, and valid until this returns.
  //
  // The result must depend on the contributions and on earlier calls alone, and
  // does not change afterwards: workers may still read it at the next
  // synchronisation.
  //
  // The rule for tensors that are not floating-point numbers, BatchNorm's
  // num_batches_tracked say: the elementwise maximum (tensor_math.h has it).
  virtual absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) = 0;

  // The server's weights were replaced from outside (PushWeights): a strategy
  // that remembers starts anew from these.
  virtual void Reset(const NamedTensors& weights) {}

  // True if a value that is infinite or NaN in a contribution always makes one
  // in the result, and the strategy remembers nothing. The server then checks
  // the result alone, which spares it reading all contributions once more.
  virtual bool PassesOnNonFinite() const { return false; }

  // True if Contribution::weight matters. SetWorkerWeight is an error where it
  // does not, rather than without effect.
  virtual bool UsesWorkerWeights() const { return false; }
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SYNC_STRATEGY_H_
