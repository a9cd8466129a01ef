// Features of images, by which data sets are compared.
//
// Shape letters: N images, C channels, H height, W width, F features.

#ifndef MINIRAY_ML_METRICS_FEATURE_EXTRACTOR_H_
#define MINIRAY_ML_METRICS_FEATURE_EXTRACTOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/wire/codec.h"

namespace miniray::ml {

// What an extractor is made of; travels to workers.
struct ExtractorFile {
  // "classifier": one that `classification` saved (classifier_file.h), whose
  //   features are what its last layer sees. It takes images of its own shape.
  // "torchscript": a TorchScript module that maps float32 [N, 3, size, size] to
  //   [N, F], such as Inception. Images are brought to that size, without
  //   regard to their proportions, by linear interpolation; a grey one has
  //   three equal channels.
  std::string kind;
  std::string name;  // Of the file, for people.
  std::string bytes;
  // Of a "torchscript":
  int64_t size = 299;
  std::string range = "0..1";  // Of its input; or "-1..1", "0..255".
};
MINIRAY_STRUCT(ExtractorFile, kind, name, bytes, size, range);

// Reads a file. Errors: the system's; FAILED_PRECONDITION, it is no regular
// file, or has more than 1 GiB.
absl::StatusOr<ExtractorFile> ReadExtractorFile(const std::string& kind,
                                                const std::string& path);

// All that features depend on, in words; not the file's name.
std::string ExtractorIdentity(const ExtractorFile& file);

// Not thread-safe.
class FeatureExtractor {
 public:
  // On the CPU. A TorchScript module is run once, on two black images.
  //
  // Errors: INVALID_ARGUMENT, with the file's name: an unknown kind, size or
  // range; no such file; a module that takes or returns something else, with
  // what. DATA_LOSS, the file is damaged. A TorchScript file is a program: use
  // only one from a source you trust.
  static absl::StatusOr<std::unique_ptr<FeatureExtractor>> Create(
      const ExtractorFile& file);

  virtual ~FeatureExtractor() = default;
  FeatureExtractor(const FeatureExtractor&) = delete;
  FeatureExtractor& operator=(const FeatureExtractor&) = delete;

  // Returns float32 [N, F] on the CPU.
  //
  // images: uint8 [N, C, H, W] on the CPU, C = 1 or 3.
  // Errors: INVALID_ARGUMENT, another type or shape than it takes. INTERNAL,
  // what LibTorch says.
  virtual absl::StatusOr<at::Tensor> Extract(const at::Tensor& images) = 0;

  // What a distance by these features is called: "FID (inception file X)".
  // Numbers of different names cannot be compared.
  virtual std::string DistanceName() const = 0;

 protected:
  FeatureExtractor() = default;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_METRICS_FEATURE_EXTRACTOR_H_
