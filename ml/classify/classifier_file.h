// Trained classifiers as files, in LibTorch's archive format.
//
// A file holds, beside the tensors, all that is needed to use it:
//   format       "miniray.classifier"
//   version      1
//   network      a name of networks.h
//   image_shape  [C, H, W]
//   hidden, classes
//   dataset      what it was trained on, in words
//   names        of the weights
//   weights      the tensors

#ifndef MINIRAY_ML_CLASSIFY_CLASSIFIER_FILE_H_
#define MINIRAY_ML_CLASSIFY_CLASSIFIER_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ml/classify/classifier.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ml {

struct SavedClassifier {
  // See ClassifierOptions.
  std::string network;
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t hidden = 0;
  int64_t classes = 0;
  std::string dataset;   // "fashion-mnist"
  NamedTensors weights;  // Classifier::Weights.
};

// Returns the bytes of a file. Errors: INTERNAL, what LibTorch says.
absl::StatusOr<std::string> SerializeClassifier(const SavedClassifier& saved);

// Reads the bytes of a file. `name` begins the messages.
//
// Errors: INVALID_ARGUMENT for bytes that are no archive, or one of something
// else; DATA_LOSS for one that is truncated or damaged, or has more weights
// than bytes for them; UNIMPLEMENTED for a version that is newer than this
// program. As with any LibTorch archive, load only files from a source you
// trust: they can hold code.
absl::StatusOr<SavedClassifier> ParseClassifier(const std::string& bytes,
                                                absl::string_view name);

// Returns the classifier that was saved. device: as ClassifierOptions'.
// Errors: those of Classifier::Create, and of SetWeights for weights that do
// not fit the sizes; INVALID_ARGUMENT, before memory is taken, for too few of
// them. REQUIRES: sizes as ParseClassifier lets pass.
absl::StatusOr<std::unique_ptr<Classifier>> MakeClassifier(
    const SavedClassifier& saved, const std::string& device = "auto");

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLASSIFY_CLASSIFIER_FILE_H_
