#include "train/train_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "torch/optim/lbfgs.h"
#include "train/gradient_clipping.h"

namespace miniray::train {
namespace {

// What SaveState writes.
struct SavedState {
  int64_t version = 1;
  int64_t steps = 0;
  int64_t epoch = -1;
  std::vector<double> base_lrs;
  std::optional<LossScaler::State> scaler;
};
MINIRAY_STRUCT(SavedState, version, steps, epoch, base_lrs, scaler);

bool IsScheduled(const LrSchedule& schedule) {
  return schedule.kind != LrSchedule::Kind::kConstant ||
         schedule.warmup_steps > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainLoop>> TrainLoop::Create(
    torch::optim::Optimizer& optimizer, TrainLoopOptions options) {
  MR_RETURN_IF_ERROR(Validate(options));
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr) {
    return absl::InvalidArgumentError(
        "a TrainLoop cannot drive LBFGS, which computes losses by itself; use "
        "SGD, Adam, AdamW, Adagrad or RMSprop");
  }
  std::optional<c10::Device> device;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!device.has_value()) device = parameter.device();
      if (parameter.device() == *device) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "the optimizer has parameters on ", device->str(), " and on ",
          parameter.device().str(), "; a TrainLoop needs all on one device"));
    }
  }
  if (!device.has_value()) {
    return absl::InvalidArgumentError("the optimizer has no parameters");
  }
  MR_RETURN_IF_ERROR(CheckPrecision(options.precision, *device));
  return absl::WrapUnique(
      new TrainLoop(optimizer, std::move(options), *device));
}

TrainLoop::TrainLoop(torch::optim::Optimizer& optimizer,
                     TrainLoopOptions options, const c10::Device& device)
    : optimizer_(optimizer),
      options_(std::move(options)),
      device_(device),
      scheduled_(IsScheduled(options_.schedule)) {
  for (const auto& group : optimizer_.param_groups()) {
    base_lrs_.push_back(group.options().get_lr());
  }
  if (options_.loss_scaler.has_value()) {
    scaler_.emplace(*options_.loss_scaler);
  } else if (options_.precision == Precision::kFloat16) {
    scaler_.emplace(LossScalerOptions());
  }
}

void TrainLoop::BeginEpoch(int epoch, int64_t samples) {
  DropGradients();
  epoch_ = epoch;
  in_epoch_ = true;
  skipped_ = 0;
  ApplySchedule();
  last_lr_ = lr();
  meter_.Begin(epoch, samples);
}

absl::StatusOr<StepResult> TrainLoop::Step(
    int64_t samples, absl::FunctionRef<at::Tensor()> loss) {
  if (!in_epoch_) {
    return absl::FailedPreconditionError(
        "TrainLoop: Step outside an epoch; call BeginEpoch first");
  }
  if (samples < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "TrainLoop: a batch of ", samples, " samples; expected at least 1"));
  }
  if (waiting_calls_ == 0) {
    DropGradients();  // Someone else's, if there are any.
    unit_ = samples;
    ApplySchedule();
  }
  at::Tensor value;
  {
    const Autocast autocast(options_.precision, device_);
    value = loss();
  }
  if (!value.defined() || value.numel() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "TrainLoop: the loss must be a scalar, the mean over the batch; got ",
        value.defined() ? absl::StrCat(value.numel(), " elements")
                        : "no tensor"));
  }
  StepResult result = {.loss = value.item<double>()};
  ++waiting_calls_;
  waiting_samples_ += samples;
  if (std::isfinite(result.loss)) {
    const double weight = loss_scale() * static_cast<double>(samples) /
                          static_cast<double>(unit_);
    if (weight != 1) value = value * weight;
    value.backward();
    meter_.Average(samples, {{"loss", result.loss}});
  } else {
    bad_loss_ = result.loss;
  }
  meter_.Advance(samples);
  if (waiting_calls_ == options_.accumulate) {
    MR_RETURN_IF_ERROR(TakeStep(&result));
  }
  return result;
}

absl::StatusOr<bool> TrainLoop::PrepareGradients(StepResult* result) {
  const std::vector<at::Tensor> gradients = Gradients();
  const double divisor =
      static_cast<double>(waiting_samples_) / static_cast<double>(unit_);
  if (scaler_.has_value()) {
    if (!scaler_->Unscale(gradients, divisor)) return false;
  } else if (divisor != 1) {
    ScaleGradients(gradients, 1 / divisor);
  }
  if (adjust_gradients_ != nullptr) MR_RETURN_IF_ERROR(adjust_gradients_());
  if (options_.clip_value > 0) {
    if (!AllFinite(gradients)) return false;
    ClipByValue(gradients, options_.clip_value);
  }
  if (options_.clip_norm > 0) {
    const double norm = ClipByNorm(gradients, options_.clip_norm);
    if (!std::isfinite(norm)) return false;
    result->gradient_norm = norm;
    meter_.Average(waiting_samples_, {{"gradient_norm", norm}});
  }
  return true;
}

absl::Status TrainLoop::TakeStep(StepResult* result) {
  absl::StatusOr<bool> finite = std::isfinite(bad_loss_)
                                    ? PrepareGradients(result)
                                    : absl::StatusOr<bool>(false);
  const double bad_loss = bad_loss_;
  if (!finite.ok()) {
    DropGradients();
    return finite.status();
  }
  // Overflow is what a scaler is for, unless it cannot go lower.
  const bool may_skip = options_.on_non_finite == OnNonFinite::kSkip ||
                        (scaler_.has_value() && !scaler_->AtMinimum());
  if (scaler_.has_value()) scaler_->Update(*finite);
  if (*finite) {
    last_lr_ = lr();
    optimizer_.step();
    ++steps_;
    result->stepped = true;
  }
  DropGradients();
  if (*finite) return absl::OkStatus();
  ++skipped_;
  result->skipped = true;
  if (may_skip) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      "epoch ", epoch_ + 1, ", after ", steps_, " steps: ",
      std::isfinite(bad_loss) ? std::string("a gradient is not finite")
                              : absl::StrCat("the loss is ", bad_loss),
      "; train with a learning rate below ", last_lr_,
      " or clip_norm, or skip such steps (on_non_finite)"));
}

absl::StatusOr<Metrics> TrainLoop::EndEpoch() {
  if (!in_epoch_) {
    return absl::FailedPreconditionError(
        "TrainLoop: EndEpoch without BeginEpoch");
  }
  if (waiting_calls_ > 0) {
    StepResult result;
    MR_RETURN_IF_ERROR(TakeStep(&result));
  }
  in_epoch_ = false;
  Metrics metrics = meter_.Finish();
  metrics["lr"] = last_lr_;
  if (skipped_ > 0) {
    metrics[kSkippedStepsMetric] = static_cast<double>(skipped_);
  }
  return metrics;
}

std::vector<at::Tensor> TrainLoop::Gradients() const {
  std::vector<at::Tensor> gradients;
  for (const auto& group : optimizer_.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    }
  }
  return gradients;
}

// Dropped, not filled with zeros: the next backward pass then stores its
// gradients instead of adding them.
void TrainLoop::DropGradients() {
  for (auto& group : optimizer_.param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) parameter.mutable_grad().reset();
    }
  }
  waiting_calls_ = 0;
  waiting_samples_ = 0;
  bad_loss_ = 0;
}

void TrainLoop::ApplySchedule() {
  if (!scheduled_) return;
  const double factor =
      LrFactor(options_.schedule, options_.schedule_unit == ScheduleUnit::kEpoch
                                      ? std::max(epoch_, 0)
                                      : steps_);
  auto& groups = optimizer_.param_groups();
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].options().set_lr(base_lrs_[i] * factor);
  }
}

double TrainLoop::lr() const {
  return optimizer_.param_groups()[0].options().get_lr();
}

absl::StatusOr<std::string> TrainLoop::SaveState() const {
  if (waiting_calls_ > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "TrainLoop: ", waiting_calls_,
        " batches wait for a step, and their gradients are not saved; save "
        "after EndEpoch"));
  }
  SavedState state = {.steps = steps_, .epoch = epoch_, .base_lrs = base_lrs_};
  if (scaler_.has_value()) state.scaler = scaler_->state();
  MR_ASSIGN_OR_RETURN(const absl::Cord bytes, EncodeValue(state));
  return std::string(bytes);
}

absl::Status TrainLoop::RestoreState(const std::string& bytes) {
  SavedState state;
  MR_RETURN_IF_ERROR(Annotate(DecodeValue(absl::Cord(bytes), &state),
                              "TrainLoop: not the bytes of a SaveState"));
  if (state.version != 1 || state.steps < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "TrainLoop: a saved state of version ", state.version, " and ",
        state.steps, " steps; this release reads version 1"));
  }
  if (state.base_lrs.size() != optimizer_.param_groups().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TrainLoop: the saved state is of an optimizer with ",
                     state.base_lrs.size(), " parameter groups; this one has ",
                     optimizer_.param_groups().size()));
  }
  if (state.scaler.has_value() != scaler_.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TrainLoop: the saved state is of a run ",
                     state.scaler.has_value() ? "with" : "without",
                     " a loss scaler; give this one the same options"));
  }
  DropGradients();
  steps_ = state.steps;
  epoch_ = static_cast<int>(state.epoch);
  base_lrs_ = std::move(state.base_lrs);
  if (scaler_.has_value()) scaler_->set_state(*state.scaler);
  in_epoch_ = false;
  ApplySchedule();
  return absl::OkStatus();
}

}  // namespace miniray::train
