// The worker of ps/README.md that sends and receives compressed weights.

#ifndef MINIRAY_TESTS_PS_EXCHANGE_WORKER_H_
#define MINIRAY_TESTS_PS_EXCHANGE_WORKER_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/weight_exchange.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

using miniray::NamedTensors;
using miniray::ReadOnly;
namespace ps = miniray::ps;

// README begins.
class Worker {
 public:
  explicit Worker(NamedTensors weights) : weights_(std::move(weights)) {}
  NamedTensors GetWeights() { return weights_; }
  void SetWeights(const NamedTensors& weights) {
    for (size_t i = 0; i < weights.size(); ++i) {
      weights_[i].second.copy_(weights[i].second);
    }
  }
  // With these two, what travels may be compressed.
  absl::StatusOr<ReadOnly<ps::WeightMessage>> SendWeights(
      const ps::WeightRequest& request) {
    return exchange_.Send(request, weights_);
  }
  absl::Status ReceiveWeights(const ReadOnly<ps::WeightMessage>& message) {
    return exchange_.Receive(message.value,
                             [this](const NamedTensors& weights) {
                               SetWeights(weights);
                               return absl::OkStatus();
                             });
  }
  // Training, such as it is.
  void Add(const NamedTensors& update) {
    for (size_t i = 0; i < update.size(); ++i) {
      weights_[i].second.add_(update[i].second);
    }
  }

 private:
  NamedTensors weights_;
  ps::WeightExchange exchange_;
};
MINIRAY_ACTOR(Worker, Constructor<NamedTensors>, &Worker::GetWeights,
              &Worker::SetWeights, &Worker::SendWeights,
              &Worker::ReceiveWeights, &Worker::Add);
// README ends.

#endif  // MINIRAY_TESTS_PS_EXCHANGE_WORKER_H_
