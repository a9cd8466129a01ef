// The workers of parameter_server_demo: GetWeights and SetWeights make any
// class one.

#ifndef MINIRAY_ML_EXAMPLES_TINY_WORKER_H_
#define MINIRAY_ML_EXAMPLES_TINY_WORKER_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ml {

// The "model" is one tensor of two numbers; a step of "training" adds the same
// to both.
class TinyWorker {
 public:
  TinyWorker(const std::vector<float>& start, double step, int64_t samples);

  void Train() { weights_ += step_; }
  NamedTensors GetWeights() const { return {{"w", weights_}}; }
  void SetWeights(const NamedTensors& weights) {
    weights_.copy_(weights[0].second);
  }
  // Optional: the worker's weight in the strategy "weighted".
  int64_t NumSamples() const { return samples_; }

 private:
  at::Tensor weights_;
  const double step_;
  const int64_t samples_;
};
MINIRAY_ACTOR(TinyWorker, Constructor<std::vector<float>, double, int64_t>,
              &TinyWorker::Train, &TinyWorker::GetWeights,
              &TinyWorker::SetWeights, &TinyWorker::NumSamples);

// Starts three, each in a process of its own, wherever the cluster has room:
// they begin with [1, 2], [2, 4] and [6, 9], have 100, 100 and 200 samples, and
// a step adds 1, 2 and 3.
absl::StatusOr<std::vector<ActorHandle<TinyWorker>>> StartTinyWorkers(
    const Cluster& cluster);

// A step of training of each, at once.
absl::Status TrainAll(const std::vector<ActorHandle<TinyWorker>>& workers);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_TINY_WORKER_H_
