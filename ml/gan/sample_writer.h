// Pictures of what a generator makes, while it trains and at the end.

#ifndef MINIRAY_ML_GAN_SAMPLE_WRITER_H_
#define MINIRAY_ML_GAN_SAMPLE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace miniray::ml {

// The same noise for all pictures, those of other runs included: they show the
// same points of the latent space.
inline constexpr uint64_t kSampleSeed = 1;

// What a picture of samples shows: eight rows, of eight images or, with up to
// 16 classes, of one image of each class.
struct SampleGrid {
  int64_t images = 0;
  int columns = 0;
};
SampleGrid SampleGridFor(int64_t classes);

// A picture of samples, to be shown.
struct SamplePicture {
  std::string png;
  int width = 0;  // Pixels.
  int height = 0;
};

// Returns what SampleWriter writes, in at most so many bytes: where it would be
// more, with every second pixel of the images, every fourth, ...
//
// images: uint8 [N, C, H, W]. Throws c10::Error for another shape. Errors:
// RESOURCE_EXHAUSTED, there are so many images that nothing is small enough.
absl::StatusOr<SamplePicture> EncodeSamples(const at::Tensor& images,
                                            int columns, size_t max_bytes);

// Writes FOLDER/epoch-0003.png after the third epoch.
class SampleWriter {
 public:
  // folder: made when the first picture is written.
  // every: epochs from one picture to the next; 0: none are written.
  SampleWriter(std::string folder, int every);

  // Whether there is one after `epoch`, counted from 0.
  bool IsDue(int epoch) const {
    return every_ > 0 && (epoch + 1) % every_ == 0;
  }

  // images: uint8 [N, C, H, W]. A picture that is there already is replaced.
  // Errors: of the file system, with the path.
  absl::Status Write(int epoch, const at::Tensor& images, int columns) const;

 private:
  const std::string folder_;
  const int every_;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_SAMPLE_WRITER_H_
