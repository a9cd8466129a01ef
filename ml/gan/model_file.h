// Trained networks as files, in LibTorch's archive format.
//
// A file holds, beside the tensors, all that is needed to use it:
//   format       "miniray.gan.generator" or "miniray.gan.discriminator"
//   version      1 for an mlp without classes, else 2
//   latent_dim   Z
//   image_shape  [C, H, W]
//   generator    the module as torch::nn saves it; or `discriminator`
// and with version 2
//   architecture "mlp" or "dcgan"
//   classes      K, or 0
//   class_names  the names of labels 0 to K - 1, of at most
//                kMaxClassNameBytes; or []
// so that torch::serialize::InputArchive, torch::jit::load and Python's
// torch.jit.load can read it too.

#ifndef MINIRAY_ML_GAN_MODEL_FILE_H_
#define MINIRAY_ML_GAN_MODEL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ml/gan/architecture.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ml {

inline constexpr size_t kMaxClassNameBytes = 4096;

struct GanModel {
  GanNetwork network = GanNetwork::kGenerator;
  int64_t latent_dim = 0;
  ImageShape shape;
  GanArchitecture architecture = GanArchitecture::kMlp;
  int64_t classes = 0;  // See GanSizes.
  // Label k means class_names[k]; empty where classes have no names.
  std::vector<std::string> class_names;
  NamedTensors weights;  // Those of GanTensors, in that order.

  GanSizes sizes() const {
    return {.latent_dim = latent_dim,
            .shape = shape,
            .architecture = architecture,
            .classes = classes};
  }
};

// Returns the label that `name` means: of the class of that name or, where
// there is none, the number that it is.
//
// Errors: FailedPrecondition, the model has no classes. InvalidArgument, with
// the first of its classes.
absl::StatusOr<int64_t> FindClass(const GanModel& model,
                                  absl::string_view name);

// Errors of the two below: InvalidArgument for sizes out of range, or weights
// or class names that do not fit them.

// Returns the bytes of a file.
absl::StatusOr<std::string> SerializeGanModel(const GanModel& model);

// Writes a temporary file beside `path` and renames it: there is never half a
// model at `path`. Further errors: the system's, with the path.
absl::Status SaveGanModel(const std::string& path, const GanModel& model);

// Reads the bytes of a file. `name` begins the messages.
//
// Errors: InvalidArgument for bytes that are no archive, an archive of
//   something else, or the other network; DataLoss for one that is truncated or
//   damaged (the tensors carry a checksum) or whose tensors do not fit its
//   sizes; Unimplemented for a version that is newer than this program.
//
// Sizes are checked before memory is taken for them. Still, as with any
// LibTorch archive, load only files from a source you trust: a TorchScript
// archive can hold code that LibTorch runs as it loads it.
absl::StatusOr<GanModel> ParseGanModel(const std::string& bytes,
                                       GanNetwork network,
                                       absl::string_view name);

// Returns the bytes of a model file after checking that it is a regular file of
// at most kMaxModelFileBytes. Errors: the system's; FailedPrecondition.
absl::StatusOr<std::string> ReadModelFile(const std::string& path);

inline constexpr int64_t kMaxModelFileBytes = int64_t{1} << 32;

// ReadModelFile and ParseGanModel.
absl::StatusOr<GanModel> LoadGanModel(const std::string& path,
                                      GanNetwork network);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_MODEL_FILE_H_
