// The weights of a server that takes gradients: stepped by an optimizer, read
// by anybody at any time, saved and restored.

#ifndef MINIRAY_PS_GRADIENT_MODEL_H_
#define MINIRAY_PS_GRADIENT_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "ps/check_weights.h"
#include "ps/gradient_strategy.h"
#include "ps/server_options.h"
#include "ps/server_state.h"
#include "ps/staleness.h"
#include "ps/sync_strategy.h"
#include "ps/weight_message.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// One version of the model; immutable. Each version is memory of its own, from
// a pool that uses it again once nobody reads it (runtime/shm), so nobody ever
// sees half a step.
struct ModelSnapshot {
  int64_t version = 0;
  NamedTensors weights;  // Empty: there are none yet.
  ModelLayout layout;
  std::shared_ptr<const std::vector<TensorInfo>> info;
  // Of a shard: where its tensors lie in the whole model. Else empty.
  std::vector<TensorPart> places;

  bool empty() const { return weights.empty(); }
};

// What is saved with a version.
struct GradientProgress {
  std::string last_sync;  // As SyncOnce has it.
  int64_t num_syncs = 0;
  std::vector<WorkerClock> clocks;
};

// Snapshot and num_saves: thread-safe. All else: one call at a time.
class GradientModel {
 public:
  // strategy: outlives this, and is what `id` says.
  GradientModel(GradientStrategy* strategy, StrategyId id,
                const ServerOptions& options);

  // Never null.
  std::shared_ptr<const ModelSnapshot> Snapshot() const
      ABSL_LOCKS_EXCLUDED(mu_);
  int64_t num_saves() const ABSL_LOCKS_EXCLUDED(mu_);

  // Goes on from what is saved in state_dir; the default if there is nothing.
  // Errors: as of LoadServerState. INVALID_ARGUMENT and FAILED_PRECONDITION,
  // the state is another server's, or should be there and is not.
  absl::StatusOr<GradientProgress> Restore(int64_t num_restarts);

  // These are the weights from now on; the optimizer starts anew. The first
  // ones fix the model.
  // buffers: names of tensors that are no parameters; null: the names tell, or
  //   what was said before stays. Those of other shards may be among them.
  // places: as of ModelSnapshot.
  // version: that they have, or the next if the model is further. 1: they are
  //   the first, also where a start that was broken off has left some.
  // Errors: INVALID_ARGUMENT, they do not fit the model or are not finite.
  // FAILED_PRECONDITION, they are not the first. Of saving: they are the
  // weights all the same.
  absl::Status Start(NamedTensors weights,
                     std::optional<std::vector<std::string>> buffers,
                     const GradientProgress& progress,
                     std::vector<TensorPart> places = {}, int64_t version = 0);

  // Checks gradients as they come from a worker, except whether they are
  // finite, and completes them: buffers that are not among them are the
  // server's.
  // Errors: INVALID_ARGUMENT, with the worker and the tensor.
  static absl::Status CheckAndComplete(const ModelSnapshot& model,
                                       absl::string_view who,
                                       NamedTensors* gradients);

  // Gradients were completed from the one snapshot, and the model is the other
  // by now: what was not among them is that one's, or a step would set it back.
  static void CompleteAnew(const ModelSnapshot& from, const ModelSnapshot& now,
                           NamedTensors* gradients);

  // Undoes the compression of gradients as they come from a worker.
  // Errors: INVALID_ARGUMENT, with the worker, they are malformed.
  static absl::Status Decode(const ModelSnapshot& model, absl::string_view who,
                             const CompressionOptions& compression,
                             NamedTensors* gradients);

  // Returns the weights after one step; nobody sees them yet.
  // Errors: as of RunStrategy; then there was no step.
  absl::StatusOr<NamedTensors> Step(
      absl::Span<const Contribution> contributions, double lr_scale,
      absl::FunctionRef<std::string(int)> worker_name);

  // Makes what Step returned the next version, after it is saved (as the
  // options say). Errors: of saving; it is the next version all the same.
  absl::Status Publish(NamedTensors weights, const GradientProgress& progress);

  // Saves again what could not be saved; does nothing if all was.
  absl::Status SaveIfFailed();

  // Saves what is not saved yet, though it may not be its time.
  absl::Status SaveUnsaved();

 private:
  absl::Status SaveIfDue(const ModelSnapshot& model);
  absl::Status Save(const ModelSnapshot& model);

  GradientStrategy* const strategy_;
  const StrategyId id_;
  const ServerOptions options_;
  std::optional<std::vector<std::string>> buffer_names_;
  GradientProgress progress_;  // Of the current version.
  int64_t unsaved_ = 0;        // Versions since the last save.
  mutable absl::Mutex mu_;
  std::shared_ptr<const ModelSnapshot> current_ ABSL_GUARDED_BY(mu_);
  int64_t num_saves_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_GRADIENT_MODEL_H_
