// What decoders of pictures begin with.

#ifndef MINIRAY_ML_IMAGE_IMAGE_FILE_H_
#define MINIRAY_ML_IMAGE_IMAGE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace miniray::ml {

// Returns the bytes of a file.
//
// Errors: the system's, with the path; FailedPrecondition if it is not a
//   regular file (a pipe could block for ever); ResourceExhausted for more than
//   max_bytes.
absl::StatusOr<std::string> ReadImageFile(const std::string& path,
                                          int64_t max_bytes);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_IMAGE_IMAGE_FILE_H_
