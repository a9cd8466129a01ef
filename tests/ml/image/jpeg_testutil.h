// JPEG files for tests.

#ifndef MINIRAY_TESTS_ML_IMAGE_JPEG_TESTUTIL_H_
#define MINIRAY_TESTS_ML_IMAGE_JPEG_TESTUTIL_H_

#include <turbojpeg.h>

#include <string>

#include "ATen/core/Tensor.h"
#include "gtest/gtest.h"

namespace miniray::ml {

// Returns an image as a JPEG of the best quality. image: uint8 [C, H, W], C =
// 1, 3, or 4: ink, as Adobe's programs store it.
inline std::string EncodeJpeg(const at::Tensor& image) {
  const at::Tensor pixels = image.permute({1, 2, 0}).contiguous();
  const bool grey = image.size(0) == 1;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const tjhandle encoder = tjInitCompress();
  EXPECT_EQ(tjCompress2(encoder, pixels.data_ptr<uint8_t>(),
                        static_cast<int>(image.size(2)), 0,
                        static_cast<int>(image.size(1)),
                        grey                 ? TJPF_GRAY
                        : image.size(0) == 4 ? TJPF_CMYK
                                             : TJPF_RGB,
                        &bytes, &size, grey ? TJSAMP_GRAY : TJSAMP_444, 100, 0),
            0)
      << tjGetErrorStr2(encoder);
  const std::string jpeg(reinterpret_cast<char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(encoder);
  return jpeg;
}

}  // namespace miniray::ml

#endif  // MINIRAY_TESTS_ML_IMAGE_JPEG_TESTUTIL_H_
