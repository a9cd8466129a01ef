// Checks the container of a LibTorch archive, a ZIP file.
//
// LibTorch 1.13 reads members without looking at their checksums, so that a
// flipped bit goes unnoticed into a weight, and a damaged directory can crash
// it. Whatever comes from a disk passes this check first.

#ifndef MINIRAY_ML_GAN_ZIP_CHECK_H_
#define MINIRAY_ML_GAN_ZIP_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace miniray::ml {

// Checks that `bytes` are a whole ZIP file, with or without the 64-bit
// extension, whose members (stored or deflated) lie within it, with matching
// headers and right CRC-32 sums. Safe on any bytes; inflates at most
// kMaxInflatedBytes a member and keeps none of them.
//
// Errors: InvalidArgument if it does not begin like a ZIP file; DataLoss, with
// the byte offset, if it is truncated or damaged; Unimplemented for members
// that are encrypted, compressed in another way or larger when inflated.
//
// Source: PKWARE, "APPNOTE.TXT - .ZIP file format specification", 6.3.10.
absl::Status CheckZipArchive(absl::string_view bytes);

// LibTorch deflates only the source text in an archive.
inline constexpr int64_t kMaxInflatedBytes = int64_t{16} << 20;

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_ZIP_CHECK_H_
