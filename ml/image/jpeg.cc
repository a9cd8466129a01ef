#include "ml/image/jpeg.h"

#include <turbojpeg.h>

#include <cstddef>
#include <memory>

#include "ATen/ops/empty.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ml/image/image_file.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

struct DestroyDecoder {
  void operator()(void* decoder) const { tjDestroy(decoder); }
};

// Returns the byte from which on a damaged file is no JPEG: its first, that of
// a segment that cannot be, or that where the compressed pixels begin, in which
// nothing says more.
size_t DamageIn(const std::string& bytes) {
  const auto byte = [&bytes](size_t at) {
    return static_cast<unsigned char>(bytes[at]);
  };
  if (bytes.size() < 2 || byte(0) != 0xff || byte(1) != 0xd8) return 0;
  size_t at = 2;
  // A segment: 0xff, its type, and the length of what follows the type.
  while (bytes.size() - at >= 4 && byte(at) == 0xff && byte(at + 1) != 0xda) {
    if (byte(at + 1) == 0xff) {  // One may stand before the other.
      ++at;
      continue;
    }
    const size_t length = size_t{byte(at + 2)} << 8 | byte(at + 3);
    if (length < 2 || length > bytes.size() - at - 2) break;
    at += 2 + length;
  }
  return at;
}

// TurboJPEG's interface returns errors as values; libjpeg's own would longjmp
// over C++ destructors.
absl::Status Damaged(const std::string& bytes, tjhandle decoder) {
  return absl::DataLossError(absl::StrCat(
      "from byte ", DamageIn(bytes),
      " on: damaged, or no JPEG; libjpeg-turbo: ", tjGetErrorStr2(decoder)));
}

// Whether that is what the decoder complains of: the end's marker is 0xd9.
bool OnlyStrayBytesAtTheEnd(tjhandle decoder) {
  return tjGetErrorCode(decoder) == TJERR_WARNING &&
         absl::StrContains(tjGetErrorStr2(decoder),
                           "extraneous bytes before marker 0xd9");
}

// Returns light, [3, H, W], of ink on white paper, [4, H, W]: cyan, magenta,
// yellow and black, stored as Adobe's programs do it, from which nearly all
// such files come: 255 is none.
at::Tensor LightOf(const at::Tensor& ink) {
  const at::Tensor values = ink.to(at::kFloat);
  return values.slice(/*dim=*/0, 0, 3)
      .mul(values.slice(/*dim=*/0, 3, 4))
      .div_(255)
      .round_()
      .to(at::kByte);
}

// The smallest of the decoder's scales that leaves both sides long enough.
tjscalingfactor ChooseScale(int height, int width, int64_t at_least) {
  tjscalingfactor best = {1, 1};
  if (at_least < 1) return best;
  int count = 0;
  const tjscalingfactor* const scales = tjGetScalingFactors(&count);
  for (int i = 0; i < count; ++i) {
    const tjscalingfactor scale = scales[i];
    if (scale.num * best.denom < best.num * scale.denom &&
        TJSCALED(height, scale) >= at_least &&
        TJSCALED(width, scale) >= at_least) {
      best = scale;
    }
  }
  return best;
}

absl::StatusOr<at::Tensor> Decode(const std::string& bytes, int64_t at_least) {
  const std::unique_ptr<void, DestroyDecoder> decoder(tjInitDecompress());
  if (decoder == nullptr) {
    return absl::ResourceExhaustedError("no memory for a JPEG decoder");
  }
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0, height = 0, subsampling = 0, colors = 0;
  if (tjDecompressHeader3(decoder.get(), data, bytes.size(), &width, &height,
                          &subsampling, &colors) != 0) {
    return Damaged(bytes, decoder.get());
  }
  if (width < 1 || height < 1) return Damaged(bytes, decoder.get());
  if (height > kMaxJpegPixels / width) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the header announces ", width, " x ", height,
                     " pixels; the limit is ", kMaxJpegPixels));
  }
  const tjscalingfactor scale = ChooseScale(height, width, at_least);
  const int64_t scaled_height = TJSCALED(height, scale);
  const int64_t scaled_width = TJSCALED(width, scale);
  const bool is_ink = colors == TJCS_CMYK || colors == TJCS_YCCK;
  const int64_t channels = colors == TJCS_GRAY ? 1 : is_ink ? 4 : 3;
  const at::Tensor pixels =
      at::empty({scaled_height, scaled_width, channels}, at::kByte);
  const auto decode = [&](int flags) {
    return tjDecompress2(decoder.get(), data, bytes.size(),
                         pixels.data_ptr<uint8_t>(),
                         static_cast<int>(scaled_width), /*pitch=*/0,
                         static_cast<int>(scaled_height),
                         channels == 1 ? TJPF_GRAY
                         : is_ink      ? TJPF_CMYK
                                       : TJPF_RGB,
                         flags) == 0;
  };
  // What is only a warning to the library, as an early end, is an error here.
  // Stray bytes behind the last pixel are not: public data sets have such
  // files.
  if (!decode(TJFLAG_STOPONWARNING) &&
      (!OnlyStrayBytesAtTheEnd(decoder.get()) ||
       (!decode(0) && !OnlyStrayBytesAtTheEnd(decoder.get())))) {
    return Damaged(bytes, decoder.get());
  }
  const at::Tensor planes = pixels.permute({2, 0, 1}).contiguous();
  return is_ink ? LightOf(planes) : planes;
}

}  // namespace

absl::StatusOr<at::Tensor> ReadJpeg(const std::string& path, int64_t at_least) {
  MR_ASSIGN_OR_RETURN(const std::string bytes,
                      ReadImageFile(path, kMaxJpegFileBytes));
  absl::StatusOr<at::Tensor> image = Decode(bytes, at_least);
  if (!image.ok()) return Annotate(image.status(), path);
  return image;
}

}  // namespace miniray::ml
