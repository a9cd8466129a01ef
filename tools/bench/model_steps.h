// The models whose training step `models` measures, alike in ours and in what
// is written straight on LibTorch.

#ifndef MINIRAY_TOOLS_BENCH_MODEL_STEPS_H_
#define MINIRAY_TOOLS_BENCH_MODEL_STEPS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace miniray::bench {

// The GANs' images and noise, and what labels there are.
inline constexpr int64_t kModelChannels = 3;
inline constexpr int64_t kModelSide = 32;
inline constexpr int64_t kModelClasses = 10;
inline constexpr int64_t kModelLatent = 100;
inline constexpr uint64_t kModelNoiseSeed = 7;
// The units of the classifiers' and the regression's hidden layers, and its
// inputs.
inline constexpr int64_t kModelHidden = 64;
inline constexpr int64_t kModelInputs = 10;

inline constexpr std::array<const char*, 7> kModelNames = {
    "mlp_gan", "dcgan",    "conditional_gan", "mlp",
    "cnn",     "resnet20", "regression"};

// What models are trained on, again and again; the same in every process.
class ModelBatches {
 public:
  struct Batch {
    at::Tensor images;    // uint8 [B, C, H, W]
    at::Tensor labels;    // int64 [B]
    at::Tensor features;  // float32 [B, kModelInputs]
    at::Tensor targets;   // float32 [B]
  };

  explicit ModelBatches(int64_t batch_size);

  // The batch of that step, from 0.
  const Batch& Of(int64_t step) const;

 private:
  std::vector<Batch> batches_;
};

// A model in training. Not thread-safe.
class SteppedModel {
 public:
  virtual ~SteppedModel() = default;

  // Takes the next training step, and reads its loss.
  virtual absl::Status Step() = 0;

  // All that is trained: the model's own memory, in the order of its layers. Of
  // a GAN the generator's, and behind them the discriminator's.
  virtual std::vector<at::Tensor> Parameters() const = 0;
};

using MakeSteppedModel =
    std::function<absl::StatusOr<std::unique_ptr<SteppedModel>>(
        const std::string& name, int64_t batch_size)>;

// Ours: the models of ml/ as their workers have them, on the CPU.
// Errors: INVALID_ARGUMENT, no such name.
absl::StatusOr<std::unique_ptr<SteppedModel>> MakeOurModel(
    const std::string& name, int64_t batch_size);

// What a process of `models` runs, on one compute thread; returns the exit
// code. Its commands:
//   open NAME BATCH     makes a model, and takes two steps, which do not count;
//                       answers with the number of its parameters
//   train NAME STEPS    answers with the milliseconds of a step
int ServeModels(const MakeSteppedModel& make);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_MODEL_STEPS_H_
