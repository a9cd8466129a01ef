// The part of a parameter server that takes gradients: decides when they become
// a step of the optimizer, and who waits.
//
// In rounds (kSynchronous, and kAsynchronous that waits with max_staleness = 0)
// the gradients of all active workers are averaged, in the order of the
// workers, and make one step; every push returns with its round. Otherwise each
// gradient is a step of its own, in the order of arrival, and a worker that is
// max_staleness ahead of the slowest waits after it, or nobody does and old
// gradients are damped (staleness.h).
//
// A push that waits longer than ServerOptions::sync_timeout_seconds (0: 300)
// goes on without those who are late, if min_workers allows that: they are
// dropped, and waited for again from their next push on. Else it fails, and the
// same push may be sent again.

#ifndef MINIRAY_PS_GRADIENT_SERVER_H_
#define MINIRAY_PS_GRADIENT_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ps/gradient_messages.h"
#include "ps/gradient_model.h"
#include "ps/gradient_strategy.h"
#include "ps/server_options.h"
#include "ps/server_state.h"
#include "ps/staleness.h"
#include "ps/sync_strategy.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// Thread-safe. While a step is computed or saved, others only wait for what
// changes the model: weights and statistics can be read at any time.
class GradientServer {
 public:
  // strategy, id: as for GradientModel.  options: valid.
  GradientServer(GradientStrategy* strategy, StrategyId id,
                 const ServerOptions& options);

  // Goes on from what is saved. Errors: as of GradientModel::Restore.
  absl::Status Restore(int64_t num_restarts) ABSL_LOCKS_EXCLUDED(mu_);

  // See ParameterServer for these four.
  absl::StatusOr<JoinReply> Join(int worker, NamedTensors start,
                                 std::vector<std::string> buffers)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<PushReply> Push(GradientPush push) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<PushReply> Push(NamedTensors gradients, int64_t version,
                                 const PushId& id) ABSL_LOCKS_EXCLUDED(mu_) {
    return Push(GradientPush{
        .id = id, .version = version, .gradients = std::move(gradients)});
  }
  absl::Status Leave(int worker) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<PullReply> Pull() const;

  // Sets the weights from outside; gradients that wait for their round are left
  // out. Returns their version. All else: as of GradientModel::Start.
  absl::StatusOr<int64_t> Start(NamedTensors weights,
                                std::optional<std::vector<std::string>> buffers,
                                std::vector<TensorPart> places = {},
                                int64_t version = 0) ABSL_LOCKS_EXCLUDED(mu_);

  // One step with gradients that the server pulled itself, saved with the id
  // of the synchronisation (empty: it has none) and the number of those so far.
  // Gradients that wait for their round are left out.
  //
  // contributions: checked, and completed from this snapshot; their info is set
  //   here.
  // Errors: as of GradientModel::Step and Publish.
  absl::Status StepTogether(std::vector<Contribution> contributions,
                            const ModelSnapshot& completed_from,
                            const std::string& sync_id, int64_t num_syncs,
                            absl::FunctionRef<std::string(int)> worker_name)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Saves again what StepTogether could not.
  absl::Status SaveIfFailed() ABSL_LOCKS_EXCLUDED(mu_);

  // Saves what is not saved yet (save_every).
  absl::Status SaveUnsaved() ABSL_LOCKS_EXCLUDED(mu_);

  std::shared_ptr<const ModelSnapshot> Snapshot() const {
    return model_.Snapshot();
  }
  int64_t num_saves() const { return model_.num_saves(); }
  std::string last_sync() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t num_syncs() const ABSL_LOCKS_EXCLUDED(mu_);
  GradientStats GetStats() const ABSL_LOCKS_EXCLUDED(mu_);
  // Who was dropped, and why; the last few.
  std::vector<std::string> Warnings() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Gradients that wait for each other.
  struct Round {
    struct Part {
      PushId id;
      std::optional<NamedTensors> gradients;  // None: left out.
      int64_t call = 0;  // The push that brought it, and still waits.
    };
    std::map<int, Part> parts;  // By worker.
    bool done = false;
    bool stepped = false;  // The model is a version further for it.
    absl::Status status;
  };

  static std::string NameOf(int worker);
  absl::Status CheckWorker(int worker) const;
  PushTerms TermsOf(const ModelSnapshot& model) const;
  struct Checked {
    bool finite = false;
    int64_t bytes = 0;  // That travelled.
    int64_t bytes_saved = 0;
  };
  // Checks, decodes and completes the gradients. That they are not finite may
  // be no error.
  absl::StatusOr<Checked> Check(const ModelSnapshot& model,
                                GradientPush* push) const;
  // Waits until no step is computed.
  void AwaitIdle() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Runs `change`, which may change the model, without the lock; nobody else
  // changes the model meanwhile. REQUIRES: no step is computed.
  absl::Status RunAlone(absl::FunctionRef<absl::Status()> change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes one step, and takes the gradients of these ids. *stepped is false if
  // there was none; then nothing has changed.
  absl::Status Step(std::vector<Contribution> contributions, double lr_scale,
                    absl::Span<const PushId> ids, bool* stepped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status StepAlone(NamedTensors gradients, int64_t version,
                         const PushId& id, PushReply* reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status StepInRound(std::optional<NamedTensors> gradients,
                           const PushId& id, PushReply* reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Active workers that the round still waits for.
  std::vector<int> MissingInRound() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void FinishRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishRoundIfComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The model was changed by others: the round's gradients are for an old one.
  void DissolveRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Blocks until `done`; drops who is late, or fails.
  //
  // holding_up: whom it waits for now.  num_there: how many go on without them.
  // dropped: called after some were dropped.
  absl::Status AwaitOthers(int worker, absl::FunctionRef<bool()> done,
                           absl::FunctionRef<std::vector<int>()> holding_up,
                           absl::FunctionRef<int64_t()> num_there,
                           absl::FunctionRef<void()> dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Describe(absl::Span<const int> workers) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void Warn(std::string warning) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ServerOptions options_;
  const bool in_rounds_;
  const absl::Duration timeout_;
  GradientModel model_;  // Changed under busy_.
  mutable absl::Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  WorkerClocks clocks_ ABSL_GUARDED_BY(mu_);
  int64_t num_calls_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<Round> round_ ABSL_GUARDED_BY(mu_);  // Null: none is open.
  std::string last_sync_ ABSL_GUARDED_BY(mu_);
  int64_t num_syncs_ ABSL_GUARDED_BY(mu_) = 0;
  GradientStats stats_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> warnings_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_GRADIENT_SERVER_H_
