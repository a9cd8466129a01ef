// TrainLoop: what a worker does around each batch: gradient accumulation, mixed
// precision, clipping, the learning-rate schedule, and the means of an epoch.
// The model, the data and the loss stay the worker's own.
//
//   MR_ASSIGN_OR_RETURN(loop_, train::TrainLoop::Create(
//       optimizer_, {.accumulate = 4,
//                    .precision = train::Precision::kBfloat16,
//                    .clip_norm = 1,
//                    .schedule = {.kind = train::LrSchedule::Kind::kCosine,
//                                 .total_steps = 10000}}));
//   ...
//   absl::StatusOr<train::Metrics> TrainEpoch(int epoch) {
//     loop_->BeginEpoch(epoch, num_samples);
//     for (const Batch& batch : ...) {
//       MR_RETURN_IF_ERROR(loop_->Step(batch.size, [&] {
//         return torch::mse_loss(model_->forward(batch.x), batch.y);
//       }).status());
//     }
//     return loop_->EndEpoch();
//   }
//
// Needs LibTorch's optimizers, which are slow to compile: include it in the
// sources of workers, not in headers.

#ifndef MINIRAY_TRAIN_TRAIN_LOOP_H_
#define MINIRAY_TRAIN_TRAIN_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "torch/optim/optimizer.h"
#include "train/epoch_meter.h"
#include "train/loss_scaler.h"
#include "train/metrics.h"
#include "train/train_loop_options.h"

namespace miniray::train {

struct StepResult {
  double loss = 0;  // As the function returned it; may be non-finite (kSkip).
  bool stepped = false;  // The optimizer took a step.
  bool skipped = false;  // It was time for one, and something was not finite.
  // Before clipping by it; absent without clip_norm, and between steps.
  std::optional<double> gradient_norm;
};

// Not thread-safe but for Now. Functions may throw what LibTorch throws.
class TrainLoop {
 public:
  // optimizer: not LBFGS, whose step wants a closure. Outlives the loop; its
  //   parameters are all on one device and have dense gradients.
  //
  // Errors: those of Validate and CheckPrecision; INVALID_ARGUMENT, an
  // optimizer that cannot be.
  static absl::StatusOr<std::unique_ptr<TrainLoop>> Create(
      torch::optim::Optimizer& optimizer, TrainLoopOptions options);
  TrainLoop(const TrainLoop&) = delete;
  TrainLoop& operator=(const TrainLoop&) = delete;

  // samples: that the epoch will have, if known.
  void BeginEpoch(int epoch, int64_t samples = 0);

  // Computes a loss, adds its gradients to those that wait, and after every
  // `accumulate` calls takes a step of the optimizer. Gradients are dropped
  // after it.
  //
  // samples: in this batch, >= 1.
  // loss: returns a scalar, the mean over the batch; called once, under
  //   autocast.
  //
  // Errors: FAILED_PRECONDITION, no BeginEpoch. INVALID_ARGUMENT, samples below
  // 1, or a loss that is no scalar. ABORTED, not finite (see OnNonFinite); the
  // weights are those of the last step, and the gradients that waited are lost.
  // Those of set_adjust_gradients.
  absl::StatusOr<StepResult> Step(int64_t samples,
                                  absl::FunctionRef<at::Tensor()> loss);

  // Means over so many samples that are not the loss: {{"accuracy", 0.5}}.
  void Average(int64_t samples, const Metrics& metrics) {
    meter_.Average(samples, metrics);
  }

  // Takes a step with the gradients that wait, fewer than `accumulate` batches.
  //
  // Returns the means over the epoch's samples: "loss" and those of Average;
  // "samples"; "lr", the first group's in the last step; "gradient_norm", the
  // mean of StepResult's; "skipped_steps", where there were any. A loss that is
  // not finite is in no mean.
  // Errors: as of Step.
  absl::StatusOr<Metrics> EndEpoch();

  // How far the epoch is. From any thread.
  Progress Now() const { return meter_.Now(); }

  // Called before each step with the gradients complete and not yet clipped;
  // may change them: FedProx's term (fedprox.h).
  void set_adjust_gradients(std::function<absl::Status()> adjust) {
    adjust_gradients_ = std::move(adjust);
  }

  int64_t steps() const { return steps_; }  // Taken so far, over all epochs.
  // Goes on in the schedule as if so many had been taken: for the successor of
  // a lost worker, and where epochs have equally many steps. Between epochs.
  void set_steps(int64_t steps) { steps_ = steps; }
  double lr() const;           // The first group's, now.
  double loss_scale() const {  // 1 without a scaler.
    return scaler_.has_value() ? scaler_->scale() : 1;
  }
  const TrainLoopOptions& options() const { return options_; }

  // Steps, schedule and scaler as bytes, for a checkpoint; beside those of the
  // model and the optimizer. Between epochs.
  //
  // Errors: FAILED_PRECONDITION, gradients wait for a step.
  absl::StatusOr<std::string> SaveState() const;

  // Errors: INVALID_ARGUMENT, bytes that are not of SaveState, or of an
  // optimizer with other groups; then nothing has changed.
  absl::Status RestoreState(const std::string& bytes);

 private:
  TrainLoop(torch::optim::Optimizer& optimizer, TrainLoopOptions options,
            const c10::Device& device);

  std::vector<at::Tensor> Gradients() const;
  void DropGradients();
  void ApplySchedule();
  // Makes complete, and clips, the gradients that wait. Returns whether they
  // are finite.
  absl::StatusOr<bool> PrepareGradients(StepResult* result);
  absl::Status TakeStep(StepResult* result);

  torch::optim::Optimizer& optimizer_;
  const TrainLoopOptions options_;
  const c10::Device device_;
  const bool scheduled_;
  std::vector<double> base_lrs_;  // By group.
  std::optional<LossScaler> scaler_;
  std::function<absl::Status()> adjust_gradients_;
  EpochMeter meter_;

  int64_t steps_ = 0;
  int epoch_ = -1;
  bool in_epoch_ = false;
  int64_t skipped_ = 0;  // In this epoch.
  double last_lr_ = 0;   // In the last step.

  // Of the gradients that wait:
  int64_t waiting_calls_ = 0;
  int64_t waiting_samples_ = 0;
  int64_t unit_ = 1;     // Samples of the first batch, whose loss has weight 1.
  double bad_loss_ = 0;  // One that is not finite, if there is one.
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_TRAIN_LOOP_H_
