// The worker of the benchmark of synchronisations.

#ifndef MINIRAY_TOOLS_BENCH_SYNC_WORKER_H_
#define MINIRAY_TOOLS_BENCH_SYNC_WORKER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/weight_exchange.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::bench {

// An actor that holds a module and trains nothing: what is measured is the way
// of the weights from all modules into all modules.
class SyncWorker {
 public:
  // bytes: of the module's parameters, float32.
  explicit SyncWorker(int64_t bytes);
  ~SyncWorker();

  NamedTensors GetWeights();
  ReadOnly<NamedTensors> LendWeights();
  absl::Status SetWeights(const ReadOnly<NamedTensors>& weights);
  // For weights in pieces.
  absl::StatusOr<ReadOnly<ps::WeightMessage>> SendWeights(
      const ps::WeightRequest& request);
  absl::Status ReceiveWeights(const ReadOnly<ps::WeightMessage>& message);

  // Gives the parameters new values, of this worker and round.
  void Fill(int worker, int round);
  // Errors: INTERNAL, the module does not hold the mean of what `workers`
  // workers, from 0, were filled with in this round.
  absl::Status Check(int workers, int round);

 private:
  struct Model;
  const std::unique_ptr<Model> model_;
  ps::WeightExchange exchange_;
};
MINIRAY_ACTOR(SyncWorker, Constructor<int64_t>, &SyncWorker::GetWeights,
              &SyncWorker::LendWeights, &SyncWorker::SetWeights,
              &SyncWorker::SendWeights, &SyncWorker::ReceiveWeights,
              &SyncWorker::Fill, &SyncWorker::Check);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_SYNC_WORKER_H_
