// How weights may be compressed on their way between workers and server.

#ifndef MINIRAY_PS_COMPRESSION_COMPRESSION_H_
#define MINIRAY_PS_COMPRESSION_COMPRESSION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

// A form of float32 values that takes fewer bytes; block_codec.h has each in
// detail.
enum class Compression {
  kNone,
  kFp16,  // IEEE half precision: 2 bytes a value.
  kBf16,  // The upper half of a float: 2 bytes a value, with float's range.
  kInt8,  // 1 byte a value, and a scale for every 256.
  kTopK,  // The values that are largest by magnitude: 6 bytes each.
};

struct CompressionOptions {
  Compression method = Compression::kNone;
  // Of kTopK: the share of the values that is sent.
  double top_k_fraction = 0.01;
};
MINIRAY_STRUCT(CompressionOptions, method, top_k_fraction);

// INVALID_ARGUMENT: no such method, or a top_k_fraction outside (0, 0.5]; with
// more there is nothing to save. who: begins the message, "from_workers".
absl::Status Validate(const CompressionOptions& options, absl::string_view who);

// "int8", "top_k(0.01)".
std::string ToString(const CompressionOptions& options);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_COMPRESSION_COMPRESSION_H_
