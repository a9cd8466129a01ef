// An image classifier and its training step.
//
// Shape letters: N images, B batch, C channels, H height, W width.

#ifndef MINIRAY_ML_CLASSIFY_CLASSIFIER_H_
#define MINIRAY_ML_CLASSIFY_CLASSIFIER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/data/image_dataset.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/checkpoint.h"
#include "train/epoch_meter.h"
#include "train/metrics.h"
#include "train/train_loop_options.h"

namespace miniray::ml {

struct ClassifierOptions {
  std::string network = "mlp";  // See networks.h.
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
  int64_t hidden = 64;
  int64_t classes = 10;
  // "sgd" or "adamw", which has its defaults.
  std::string optimizer = "sgd";
  double momentum = 0;      // Of SGD, as the next.
  double weight_decay = 0;  // Added to the gradient, times the weight.
  // FedProx (train/fedprox.h): how strongly steps are drawn to the weights that
  // SetWeights brought last; 0: not at all.
  double fedprox_mu = 0;
  double lr = 0.1;
  train::TrainLoopOptions loop;
  std::string device = "auto";  // See train::ChooseDevice.
  uint64_t seed = 1;            // Of the first weights.
};

struct Evaluation {
  double accuracy = 0;  // Share of images whose class has the largest logit.
  double loss = 0;      // Mean cross-entropy.
};

//   logits = network(x),  x in [-1, 1]
//
// Not thread-safe but for Now. Methods may throw what LibTorch throws.
class Classifier {
 public:
  // Errors: INVALID_ARGUMENT, an unknown optimizer, a fedprox_mu, momentum or
  // weight_decay that is negative or not finite, or an lr that is not above 0.
  // Those of MakeClassifierNetwork, train::ChooseDevice and TrainLoop.
  static absl::StatusOr<std::unique_ptr<Classifier>> Create(
      const ClassifierOptions& options);
  ~Classifier();

  // Steps are taken between BeginEpoch and EndEpoch; see TrainLoop.
  // images: that the epoch will have, if known.
  void BeginEpoch(int epoch, int64_t images = 0);
  // Trains on a batch of B images. Returns the mean cross-entropy before it.
  // Errors: ABORTED, it is not finite, and others of TrainLoop::Step.
  absl::StatusOr<double> TrainStep(const ImageBatch& batch);
  absl::StatusOr<train::Metrics> EndEpoch();
  // How far the epoch is. From any thread.
  train::Progress Now() const;
  // See TrainLoop.
  void set_steps(int64_t steps);

  // What a step does first, for a server that does the rest: returns the loss,
  // and the gradients stay with the model until the next call.
  double ComputeGradients(const ImageBatch& batch);
  // They are valid until then; of FedProx there is nothing in them.
  ReadOnly<NamedTensors> Gradients() const;

  Evaluation Evaluate(const ImageDataset& dataset) const;

  // What the network's last layer sees of images, as in Evaluate: float32
  // [B, F] on the CPU (networks.h says F).
  //
  // images: uint8 [B, C, H, W]. Errors: INVALID_ARGUMENT, another shape than
  // the classifier's.
  absl::StatusOr<at::Tensor> Features(const at::Tensor& images) const;

  // "hidden.weight" and so on; copies. Of networks with BatchNorm with its
  // running statistics.
  NamedTensors Weights() const;
  // Which of them are no parameters.
  std::vector<std::string> BufferNames() const;
  // On the CPU: the model's own memory, shared with other processes of the
  // machine.
  ReadOnly<NamedTensors> LendWeights() const;
  // The optimizer goes on with what it remembers.
  // Errors: INVALID_ARGUMENT, with the first tensor that does not fit.
  absl::Status SetWeights(const NamedTensors& weights);

  // All that training goes on from, as files of a checkpoint. Between epochs.
  // Errors: as Gan's (ml/gan/gan.h).
  absl::StatusOr<train::CheckpointFiles> SaveState();
  absl::Status LoadState(const train::CheckpointFiles& files);

 private:
  struct Model;
  explicit Classifier(std::unique_ptr<Model> model);

  const std::unique_ptr<Model> model_;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLASSIFY_CLASSIFIER_H_
