// The two networks of the GAN in numbers: sizes, names and shapes of all that
// has to be stored or sent. No LibTorch here.
//
// Shape letters: B batch, Z latent dimension, C channels, H height, W width,
// D = C * H * W, K classes, F features before a discriminator's last layer.

#ifndef MINIRAY_ML_GAN_ARCHITECTURE_H_
#define MINIRAY_ML_GAN_ARCHITECTURE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/wire/codec.h"

namespace miniray::ml {

struct ImageShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;

  int64_t size() const { return channels * height * width; }
  std::string ToString() const;  // "3x32x32"

  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};
MINIRAY_STRUCT(ImageShape, channels, height, width);

enum class GanArchitecture {
  kMlp,    // Linear layers.
  kDcgan,  // Strided convolutions, and transposed ones; see DcganStages.
};

// Returns "mlp" or "dcgan".
absl::string_view GanArchitectureName(GanArchitecture architecture);

// The inverse. Errors: InvalidArgument, with the names.
absl::StatusOr<GanArchitecture> ParseGanArchitecture(absl::string_view name);

// All that decides which tensors a GAN has.
struct GanSizes {
  int64_t latent_dim = 0;
  ImageShape shape;
  GanArchitecture architecture = GanArchitecture::kMlp;
  // K, where images are made and judged by their labels; else 0.
  int64_t classes = 0;

  friend bool operator==(const GanSizes&, const GanSizes&) = default;
};
MINIRAY_STRUCT(GanSizes, latent_dim, shape, architecture, classes);

// Widths of the MLPs' hidden layers, from the input on.
inline constexpr std::array<int64_t, 3> kGeneratorWidths = {256, 512, 1024};
inline constexpr std::array<int64_t, 3> kDiscriminatorWidths = {1024, 512, 256};

// Numbers that stand for a label at the generator's input, behind the noise.
inline constexpr int64_t kLabelSize = 32;

inline constexpr double kLeakyReluSlope = 0.2;
inline constexpr double kDropoutProbability = 0.3;

// Limits on what a flag or a file may ask for: far above any sensible model,
// and low enough that no size computed from them overflows.
inline constexpr int64_t kMaxLatentDim = int64_t{1} << 16;
inline constexpr int64_t kMaxImageSize = int64_t{1} << 20;  // Of C * H * W.
inline constexpr int64_t kMaxClasses = int64_t{1} << 14;

// A DCGAN halves the side of images until 4 to 7 pixels are left, and doubles
// it on the way back. So 64 is 4 after four halvings, as in the paper; 32 is 4
// after three, and 28 is 7 after two.
struct DcganStages {
  int64_t smallest = 0;  // 4 to 7.
  // Channels after each halving: 64, and twice as many each time, up to 512.
  std::vector<int64_t> widths;

  // F: values of the last maps.
  int64_t features() const { return widths.back() * smallest * smallest; }
};

// Errors: InvalidArgument, with sizes that would fit, for images that are not
// square, or whose side is not 4, 5, 6 or 7 doubled at least once.
// REQUIRES: sides of at most kMaxImageSize.
absl::StatusOr<DcganStages> DcganStagesFor(const ImageShape& shape);

// A convolution that halves or doubles: kernel, stride and padding.
inline constexpr int64_t kDcganKernel = 4;
inline constexpr int64_t kDcganStride = 2;
inline constexpr int64_t kDcganPadding = 1;

enum class GanNetwork { kGenerator, kDiscriminator };

inline constexpr std::array<GanNetwork, 2> kGanNetworks = {
    GanNetwork::kGenerator, GanNetwork::kDiscriminator};

// Returns "generator" or "discriminator".
absl::string_view GanNetworkName(GanNetwork network);

// Errors: InvalidArgument for latent_dim outside [1, kMaxLatentDim], a size
// below 1, C other than 1 or 3 (a picture is grey or RGB), D above
// kMaxImageSize, classes outside [0, kMaxClasses], or an architecture that
// there is not; those of DcganStagesFor.
absl::Status ValidateGanSizes(const GanSizes& sizes);

// Returns the number of layers in a network, those without tensors included:
// they are named layers.0, layers.1, and so on.
//
// REQUIRES, here and below: ValidateGanSizes(sizes).ok().
int GanLayerCount(GanNetwork network, const GanSizes& sizes);

// A parameter or buffer of a network.
struct TensorSpec {
  std::string name;            // As torch::nn gives it: "layers.0.weight".
  std::vector<int64_t> sizes;  // Empty for a scalar.
  bool is_buffer = false;      // BatchNorm's statistics.
  bool is_integer = false;     // int64, else float32.
};

// Returns the tensors of a network in the order in which they are sent and
// stored: the labels' embedding, where there are classes, and then layer by
// layer, a BatchNorm's parameters before its buffers.
std::vector<TensorSpec> GanTensors(GanNetwork network, const GanSizes& sizes);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_ARCHITECTURE_H_
