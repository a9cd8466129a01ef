// Images from a trained generator.

#ifndef MINIRAY_ML_GAN_IMAGE_GENERATOR_H_
#define MINIRAY_ML_GAN_IMAGE_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "ml/gan/architecture.h"
#include "ml/gan/model_file.h"

namespace miniray::ml {

// Returns standard normal noise for images [first, first + count) of the
// endless sequence that `seed` names: float32 [count, latent_dim]. Row i
// depends on seed, first + i and latent_dim only.
//
// Each row comes from its own std::mt19937_64 by the Box-Muller transform.
// Source: Box, Muller, "A note on the generation of random normal deviates",
// 1958.
at::Tensor GeneratorNoise(uint64_t seed, int64_t first, int64_t count,
                          int64_t latent_dim);

// Not thread-safe.
class ImageGenerator {
 public:
  // Leaves LibTorch's default random numbers as they were: a training may be
  // drawing from them.
  //
  // model: a generator's.
  // label: of all images, in [0, K) of a model with classes; without one, image
  //   i is of class i mod K.
  //
  // Errors: InvalidArgument if it is another network's, if the weights do not
  // fit its sizes, or for a label that it does not have.
  static absl::StatusOr<std::unique_ptr<ImageGenerator>> Create(
      const GanModel& model, std::optional<int64_t> label = std::nullopt);

  virtual ~ImageGenerator() = default;
  ImageGenerator(const ImageGenerator&) = delete;
  ImageGenerator& operator=(const ImageGenerator&) = delete;

  // Returns images [first, first + count) of the sequence that `seed` names:
  // float32 [count, C, H, W] in [-1, 1].
  //
  // An image is the same, bit by bit, whatever part of the sequence it is
  // computed with: matrix products round differently for different numbers of
  // rows, so the network always runs on whole blocks of BlockSize images that
  // begin at a multiple of it. For the same reason callers keep to one number
  // of threads. REQUIRES: first >= 0, count >= 0.
  virtual at::Tensor Generate(uint64_t seed, int64_t first, int64_t count) = 0;

  static constexpr int64_t kBlock = 64;

  // Returns kBlock; of a dcgan's images above 128 x 128, whose maps take memory
  // by the pixel, as many as have the pixels of 64 of those, and at least one.
  // REQUIRES: ValidateGanSizes(sizes).ok().
  static int64_t BlockSize(const GanSizes& sizes);

 protected:
  ImageGenerator() = default;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_IMAGE_GENERATOR_H_
