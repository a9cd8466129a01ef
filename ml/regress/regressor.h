// A small network that predicts a number from numbers, and its training step.
//
// Shape letters: N rows, B batch, F features.

#ifndef MINIRAY_ML_REGRESS_REGRESSOR_H_
#define MINIRAY_ML_REGRESS_REGRESSOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/checkpoint.h"
#include "train/epoch_meter.h"
#include "train/metrics.h"
#include "train/train_loop_options.h"

namespace miniray::ml {

struct RegressorOptions {
  int64_t inputs = 1;  // F.
  int64_t hidden = 64;
  double lr = 0.001;  // Of Adam.
  train::TrainLoopOptions loop;
  std::string device = "auto";  // See train::ChooseDevice.
  uint64_t seed = 1;            // Of the first weights.
};

// Errors over rows.
struct RegressionErrors {
  double squared = 0;   // Mean of (prediction - target)^2.
  double absolute = 0;  // Mean of |prediction - target|.
};

//   prediction = output(relu(hidden2(relu(hidden1(x)))))
//
// with linear layers; the loss is the mean of the squared errors. Inputs and
// targets are best of mean 0 and variance 1. Not thread-safe but for Now.
// Methods may throw what LibTorch throws.
class Regressor {
 public:
  // Errors: INVALID_ARGUMENT, a size below 1, or an lr that is not above 0.
  // Those of train::ChooseDevice and TrainLoop.
  static absl::StatusOr<std::unique_ptr<Regressor>> Create(
      const RegressorOptions& options);
  ~Regressor();

  // Steps are taken between BeginEpoch and EndEpoch; see TrainLoop.
  // rows: that the epoch will have, if known.
  void BeginEpoch(int epoch, int64_t rows = 0);
  // Trains on a batch. features: float32 [B, F], CPU; targets: float32 [B].
  // Returns the loss before the step. Errors: ABORTED, it is not finite, and
  // others of TrainLoop::Step.
  absl::StatusOr<double> TrainStep(const at::Tensor& features,
                                   const at::Tensor& targets);
  absl::StatusOr<train::Metrics> EndEpoch();
  // How far the epoch is. From any thread.
  train::Progress Now() const;

  // features: float32 [N, F], CPU. Returns float32 [N], CPU.
  at::Tensor Predict(const at::Tensor& features) const;
  // Over N >= 1 rows, as TrainStep has them.
  RegressionErrors Evaluate(const at::Tensor& features,
                            const at::Tensor& targets) const;

  // "hidden1.weight" and so on; copies.
  NamedTensors Weights() const;
  // On the CPU: the model's own memory, shared with other processes of the
  // machine.
  ReadOnly<NamedTensors> LendWeights() const;
  // The optimizer goes on with what it remembers.
  // Errors: INVALID_ARGUMENT, with the first tensor that does not fit.
  absl::Status SetWeights(const NamedTensors& weights);

  // All that training goes on from, as files of a checkpoint. Between epochs.
  // Errors: those of train::SaveTraining and TrainLoop::SaveState.
  absl::StatusOr<train::CheckpointFiles> SaveState();
  // Errors: INVALID_ARGUMENT, a file lacks or does not fit.
  absl::Status LoadState(const train::CheckpointFiles& files);

 private:
  struct Model;
  explicit Regressor(std::unique_ptr<Model> model);

  const std::unique_ptr<Model> model_;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_REGRESS_REGRESSOR_H_
