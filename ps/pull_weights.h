// The first half of a synchronisation: the weights of all workers, checked.

#ifndef MINIRAY_PS_PULL_WEIGHTS_H_
#define MINIRAY_PS_PULL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "ps/check_weights.h"
#include "ps/server_options.h"
#include "ps/sync_strategy.h"
#include "ps/taken_weights.h"
#include "ps/weight_view.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

struct ModelSnapshot;

struct PullRequest {
  std::vector<AnyActorHandle> workers;  // At least one; none is empty.
  bool wants_samples = false;           // NumSamples, of workers that have it.
  bool wants_buffers = false;  // BufferNames, of worker 0 if it has it.
  bool check_finite = true;
  bool drop_non_finite = false;
  int64_t min_workers = 0;  // 0: all.
  absl::Time deadline = absl::InfiniteFuture();
  const ModelLayout* layout = nullptr;  // What all must have; null: any.
  // Not empty: gradients are pulled, with LendGradients or GetGradients, and
  // checked and completed by this. The first argument names the worker.
  std::function<absl::Status(absl::string_view, NamedTensors*)> gradients;
  // Not null: workers are asked with SendWeights, as the view says; the server
  // has these weights.
  const WeightView* view = nullptr;
  const NamedTensors* weights = nullptr;
  // Not null: workers that do not have the weights that they were sent last
  // fail; those that failed to take them only where min_workers is set.
  const TakenWeights* taken = nullptr;
  // Not null: once it is done, the pull ends with CANCELLED.
  std::shared_ptr<miniray::internal::CallState> stop;
};

// A worker without a contribution.
struct LeftOut {
  size_t worker = 0;
  absl::Status status;  // Names the worker.
  // Its weights came and are not finite; else it failed, died or is late.
  bool refused = false;
};

struct PulledWeights {
  // In the order of the workers; weight and info are left to the server.
  std::vector<Contribution> contributions;
  std::vector<LeftOut> left_out;
  std::optional<std::vector<std::string>> buffer_names;
  int64_t bytes = 0;        // Of tensors, as they came.
  int64_t bytes_saved = 0;  // By compression.
  // With a view: workers, by index, that can be sent a difference to it, and
  // where the tensors of the part lie.
  std::vector<bool> holds_view;
  std::vector<TensorPart> places;
  // Of gradients, set by the server: what has the buffers that did not come.
  std::shared_ptr<const ModelSnapshot> completed_from;
};

// FAILED_PRECONDITION unless all workers have the methods SendWeights and
// ReceiveWeights (weight_exchange.h). why: ends the message.
absl::Status CheckExchange(const std::vector<AnyActorHandle>& workers,
                           absl::string_view why);

// FAILED_PRECONDITION unless all workers have the method NumSamples, by which
// this strategy weighs them where nobody has set their weights.
absl::Status CheckSamples(const std::vector<AnyActorHandle>& workers,
                          absl::string_view strategy);

// Asks all workers at once and checks each answer as it comes. Logs every 30 s
// for whom it waits.
//
// Errors: of a worker, beginning with "worker 2 (GanWorker 'w2')", unless
// min_workers allows to go on without it. DEADLINE_EXCEEDED, too few have
// answered. INVALID_ARGUMENT, weights do not fit together or are not finite;
// also where those who are not are left out (drop_non_finite), and fewer than
// min_workers remain.
absl::StatusOr<PulledWeights> PullWeightsOf(const PullRequest& request);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_PULL_WEIGHTS_H_
