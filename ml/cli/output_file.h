// Files that a flag names, to be written when all is done.

#ifndef MINIRAY_ML_CLI_OUTPUT_FILE_H_
#define MINIRAY_ML_CLI_OUTPUT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace miniray::ml {

// A file that cannot be written is to be known before hours of training. Empty:
// none is to be written.
//
// flag: as a user spells it, "--save".
// Errors, which begin with the flag: FAILED_PRECONDITION for a folder,
// NOT_FOUND where there is no folder for the file.
absl::Status CheckOutputFile(absl::string_view flag, const std::string& path);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLI_OUTPUT_FILE_H_
