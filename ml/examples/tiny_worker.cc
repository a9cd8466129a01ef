#include "ml/examples/tiny_worker.h"

#include <cstddef>
#include <utility>

#include "ATen/ops/tensor.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {

TinyWorker::TinyWorker(const std::vector<float>& start, double step,
                       int64_t samples)
    : weights_(at::tensor(start)), step_(step), samples_(samples) {}

absl::StatusOr<std::vector<ActorHandle<TinyWorker>>> StartTinyWorkers(
    const Cluster& cluster) {
  const std::vector<std::vector<float>> starts = {{1, 2}, {2, 4}, {6, 9}};
  const std::vector<int64_t> samples = {100, 100, 200};
  std::vector<ActorHandle<TinyWorker>> workers;
  for (size_t i = 0; i < starts.size(); ++i) {
    MR_ASSIGN_OR_RETURN(ActorHandle<TinyWorker> worker,
                        cluster.CreateActor<TinyWorker>(
                            {.resources = {.cpu = 0.1}}, starts[i],
                            /*step=*/static_cast<double>(i) + 1, samples[i]));
    workers.push_back(std::move(worker));
  }
  return workers;
}

absl::Status TrainAll(const std::vector<ActorHandle<TinyWorker>>& workers) {
  std::vector<ObjectRef<void>> steps;
  for (const ActorHandle<TinyWorker>& worker : workers) {
    steps.push_back(worker.Call<&TinyWorker::Train>());
  }
  return GetAll(steps);
}

}  // namespace miniray::ml
