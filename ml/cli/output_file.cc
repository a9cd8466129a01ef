#include "ml/cli/output_file.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace miniray::ml {

namespace fs = std::filesystem;

absl::Status CheckOutputFile(absl::string_view flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return absl::FailedPreconditionError(
        absl::StrCat(flag, ": ", path, " is a folder; expected a file"));
  }
  const fs::path folder = fs::absolute(path).parent_path();
  if (fs::is_directory(folder, ignored)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(flag, ": there is no folder ",
                                          folder.string(), "; make it first"));
}

}  // namespace miniray::ml
