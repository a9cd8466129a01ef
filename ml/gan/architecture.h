// The two networks of the GAN in numbers: sizes, names and shapes of all that
// has to be stored or sent. No LibTorch here.
//
// Shape letters: B batch, Z latent dimension, C channels, H height, W width,
// D = C * H * W.

#ifndef MINIRAY_ML_GAN_ARCHITECTURE_H_
#define MINIRAY_ML_GAN_ARCHITECTURE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace miniray::ml {

struct ImageShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;

  int64_t size() const { return channels * height * width; }
  std::string ToString() const;  // "3x32x32"

  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

// Widths of the hidden layers, from the input on.
inline constexpr std::array<int64_t, 3> kGeneratorWidths = {256, 512, 1024};
inline constexpr std::array<int64_t, 3> kDiscriminatorWidths = {1024, 512, 256};

inline constexpr double kLeakyReluSlope = 0.2;
inline constexpr double kDropoutProbability = 0.3;

// Limits on what a flag or a file may ask for: far above any sensible model,
// and low enough that no size computed from them overflows.
inline constexpr int64_t kMaxLatentDim = int64_t{1} << 16;
inline constexpr int64_t kMaxImageSize = int64_t{1} << 20;  // Of C * H * W.

enum class GanNetwork { kGenerator, kDiscriminator };

inline constexpr std::array<GanNetwork, 2> kGanNetworks = {
    GanNetwork::kGenerator, GanNetwork::kDiscriminator};

// Returns "generator" or "discriminator".
absl::string_view GanNetworkName(GanNetwork network);

// Errors: InvalidArgument for latent_dim outside [1, kMaxLatentDim], a size
// below 1, C other than 1 or 3 (a picture is grey or RGB), or D above
// kMaxImageSize.
absl::Status ValidateGanSizes(int64_t latent_dim, const ImageShape& shape);

// Returns the number of layers in a network, those without tensors included:
// they are named layers.0, layers.1, and so on.
int GanLayerCount(GanNetwork network);

// A parameter or buffer of a network.
struct TensorSpec {
  std::string name;            // As torch::nn gives it: "layers.0.weight".
  std::vector<int64_t> sizes;  // Empty for a scalar.
  bool is_buffer = false;      // BatchNorm's statistics.
  bool is_integer = false;     // int64, else float32.
};

// Returns the tensors of a network in the order in which they are sent and
// stored: layer by layer, a BatchNorm's parameters before its buffers.
//
// REQUIRES: ValidateGanSizes(latent_dim, shape).ok().
std::vector<TensorSpec> GanTensors(GanNetwork network, int64_t latent_dim,
                                   const ImageShape& shape);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_ARCHITECTURE_H_
