// A small image classifier and its training step.
//
// Shape letters: N images, B batch, C channels, H height, W width.

#ifndef MINIRAY_ML_CLASSIFY_CLASSIFIER_H_
#define MINIRAY_ML_CLASSIFY_CLASSIFIER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/data/image_dataset.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"

namespace miniray::ml {

struct ClassifierOptions {
  int64_t inputs = 28 * 28;  // C * H * W.
  int64_t hidden = 64;
  int64_t classes = 10;
  std::string optimizer = "sgd";  // Plain SGD; or "adamw", with its defaults.
  // FedProx (train/fedprox.h): how strongly steps are drawn to the weights that
  // SetWeights brought last; 0: not at all.
  double fedprox_mu = 0;
  uint64_t seed = 1;  // Of the first weights.
};

struct Evaluation {
  double accuracy = 0;  // Share of images whose class has the largest logit.
  double loss = 0;      // Mean cross-entropy.
};

//   logits = output(relu(hidden(x))),  x in [-1, 1]
//
// with two linear layers. Not thread-safe. Methods may throw what LibTorch
// throws.
class Classifier {
 public:
  // Errors: INVALID_ARGUMENT, a size below 1, an unknown optimizer, or a
  // fedprox_mu that is negative or not finite.
  static absl::StatusOr<std::unique_ptr<Classifier>> Create(
      const ClassifierOptions& options);
  ~Classifier();

  // One step of the optimizer on a batch of B images, with this learning rate.
  // Returns the mean cross-entropy before it.
  absl::StatusOr<double> TrainStep(const ImageBatch& batch, double lr);

  // The first half of a step: returns the loss, and the gradients stay with the
  // model until the next call.
  double ComputeGradients(const ImageBatch& batch);
  // They are valid until then; of FedProx there is nothing in them.
  ReadOnly<NamedTensors> Gradients() const;

  Evaluation Evaluate(const ImageDataset& dataset) const;

  // "hidden.weight" and so on; copies.
  NamedTensors Weights() const;
  // The model's own memory, shared with other processes of the machine.
  ReadOnly<NamedTensors> LendWeights() const;
  // The optimizer goes on with what it remembers.
  // Errors: INVALID_ARGUMENT, with the first tensor that does not fit.
  absl::Status SetWeights(const NamedTensors& weights);

 private:
  struct Model;
  explicit Classifier(std::unique_ptr<Model> model);

  const std::unique_ptr<Model> model_;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLASSIFY_CLASSIFIER_H_
