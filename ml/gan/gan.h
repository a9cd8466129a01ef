// A GAN in training: generator, discriminator, their optimizers and their
// random numbers. Light to include: LibTorch's modules stay in gan.cc.
//
// Shape letters: as in architecture.h.

#ifndef MINIRAY_ML_GAN_GAN_H_
#define MINIRAY_ML_GAN_GAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/gan/architecture.h"
#include "ml/gan/gan_loss.h"
#include "ml/gan/sync_moments.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/checkpoint.h"
#include "train/epoch_meter.h"
#include "train/metrics.h"
#include "train/train_loop_options.h"

namespace miniray::ml {

struct GanOptions {
  ImageShape shape;
  int64_t latent_dim = 100;
  GanArchitecture architecture = GanArchitecture::kMlp;
  int64_t classes = 0;  // See GanSizes.
  double lr = 2e-4;     // Adam's, for both networks; betas are 0.5 and 0.999.

  GanLoss loss = GanLoss::kNonSaturating;

  // One-sided label smoothing: real images count as real to 1 minus this. 0 is
  // plain binary cross-entropy. Not with the hinge loss, which has no targets.
  // Source: Salimans et al., "Improved techniques for training GANs", 2016.
  double label_smoothing = 0;

  // Above 0, an exponential moving average of the generator's weights is kept:
  // after each step of the generator, average = ema_decay * average +
  // (1 - ema_decay) * weights. It begins with the initial weights, of which
  // there is ema_decay^n left after n steps. Images of it are those of some
  // 1 / (1 - ema_decay) generators.
  // Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
  double ema_decay = 0;

  // What SetWeights does about Adam's moments, and whether Weights has them.
  SyncMoments sync_moments = SyncMoments::kKeep;

  // Of both networks, each in a TrainLoop of its own.
  train::TrainLoopOptions loop;
  std::string device = "auto";  // See train::ChooseDevice.

  uint64_t weights_seed = 0;  // Gives the initial weights.
  uint64_t noise_seed = 0;    // Gives noise and dropout masks.

  GanSizes sizes() const {
    return {.latent_dim = latent_dim,
            .shape = shape,
            .architecture = architecture,
            .classes = classes};
  }
};

// Not thread-safe. With the same options, calls and number of threads the
// weights are the same bit by bit; nothing else in the process plays a part.
class Gan {
 public:
  // Errors: those of ValidateGanSizes, train::ChooseDevice and TrainLoop;
  // InvalidArgument for an lr that is not above 0 and finite, a loss that there
  // is not, or a label_smoothing outside [0, 1), or above 0 with the hinge
  // loss, or an ema_decay outside [0, 1), or sync_moments that there are not.
  static absl::StatusOr<std::unique_ptr<Gan>> Create(const GanOptions& options);

  virtual ~Gan() = default;
  Gan(const Gan&) = delete;
  Gan& operator=(const Gan&) = delete;

  // Steps are taken between the two. BeginEpoch forgets the losses of the epoch
  // before, and gradients that wait.
  //
  // images: that the epoch will have, if known.
  virtual void BeginEpoch(int epoch, int64_t images = 0) = 0;

  // The two halves of a training step. The first generates as many images as it
  // gets and updates the discriminator's weights; the second updates the
  // generator's by what the new discriminator says about the same images. It
  // goes through the discriminator's weights without computing their gradients,
  // and leaves the statistics of its BatchNorms alone.
  //
  // With loop.accumulate, each network's weights change in every so many-th
  // step; in those between, the generator's gradients are by what the
  // discriminator of the last change says.
  //
  // real: float32 [B, C, H, W] in [-1, 1], B >= 2, on any device.
  // labels: int64 [B] in [0, K), of the real images and, so that the classes
  //   are as frequent, of those to be generated; undefined without classes.
  // Errors: of TrainLoop::Step, with the network; ABORTED, a loss or gradient
  // that is not finite. A discriminator's step whose loss is not finite leaves
  // BatchNorm's statistics of both networks as they were, error or not.
  // Throws c10::Error for another shape or dtype, or a GeneratorStep that does
  // not follow a DiscriminatorStep.
  virtual absl::Status DiscriminatorStep(const at::Tensor& real,
                                         const at::Tensor& labels) = 0;
  virtual absl::Status GeneratorStep() = 0;
  absl::Status TrainStep(const at::Tensor& real,
                         const at::Tensor& labels = at::Tensor());

  // Takes the steps that wait for more batches. Returns g_loss and d_loss, the
  // means over the epoch's images; samples, their number; lr, of the last
  // step; g_gradient_norm and d_gradient_norm, where they are clipped by;
  // skipped_steps of both networks, where there were any.
  // Errors: as of a step.
  virtual absl::StatusOr<train::Metrics> EndEpoch() = 0;

  // How far the epoch is, with g_loss and d_loss. From any thread.
  virtual train::Progress Now() const = 0;

  // Parameters and buffers of one network in the order of GanTensors, on the
  // CPU. Those of a model on the CPU share its memory: training goes on in
  // them.
  virtual NamedTensors NetworkWeights(GanNetwork network) const = 0;
  // The same of the generator's average, with the buffers that the generator
  // had at its last step; empty without ema_decay.
  virtual NamedTensors EmaWeights() const = 0;
  // Adam's moments of both networks, as MomentSpecs lists them; the numbers of
  // steps are copies. Empty but with SyncMoments::kAverage.
  virtual NamedTensors Moments() const = 0;
  // All of these, with "generator.", "discriminator." and "generator_ema."
  // before the names of the first ones, as GanWeightSpecs lists them.
  NamedTensors Weights() const;

  // Copies `weights`, named and ordered as Weights returns them, into the
  // model; what becomes of the optimizers' moments, sync_moments says.
  //
  // Errors: InvalidArgument that names the tensor that is missing, unknown or
  // of another shape or type; the model is then unchanged.
  virtual absl::Status SetWeights(const NamedTensors& weights) = 0;

  // All that training goes on from: networks, optimizers, schedules and random
  // numbers, as files of a checkpoint; not the losses. Between epochs. A GAN of
  // the same sizes that has loaded them goes on bit by bit like the one that
  // saved them, with the learning rate of that one.
  //
  // Errors: FAILED_PRECONDITION, a GeneratorStep is due, or gradients wait.
  // INTERNAL, what LibTorch says.
  virtual absl::StatusOr<train::CheckpointFiles> SaveState() = 0;
  // Errors: INVALID_ARGUMENT, with the file that lacks or does not fit; the GAN
  // may be half of the one and half of the other then.
  virtual absl::Status LoadState(const train::CheckpointFiles& files) = 0;

  virtual const GanOptions& options() const = 0;

 protected:
  Gan() = default;
};

// What Weights returns for such a GAN; see gan_tensors.h.
std::vector<TensorSpec> GanWeightSpecs(const GanOptions& options);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_GAN_H_
