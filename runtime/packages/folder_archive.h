// A folder as one file (proto/archive.proto), so that it travels as a package:
// the same folder gives the same bytes, hence the same hash.

#ifndef MINIRAY_RUNTIME_PACKAGES_FOLDER_ARCHIVE_H_
#define MINIRAY_RUNTIME_PACKAGES_FOLDER_ARCHIVE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace miniray {

struct ArchiveLimits {
  int64_t max_bytes = int64_t{500} << 20;  // Of all files together.
  int64_t max_entries = 100000;
};

struct ArchiveSummary {
  int64_t bytes = 0;    // Of all files together.
  int64_t entries = 0;  // Files, folders and symbolic links.
};

// Writes `folder` to the empty file `archive`, without what is called ".git".
// Symbolic links are kept as such; sockets, pipes and devices are left out.
// Errors: RESOURCE_EXHAUSTED, beyond the limits (names the largest files).
// NOT_FOUND, no such folder. ABORTED, a file changed meanwhile.
absl::StatusOr<ArchiveSummary> PackFolder(const std::string& folder,
                                          int archive,
                                          const ArchiveLimits& limits = {});
// The same for a new file; on failure nothing of it is left.
absl::StatusOr<ArchiveSummary> PackFolder(const std::string& folder,
                                          const std::string& archive,
                                          const ArchiveLimits& limits = {});

// Unpacks `archive` into `folder`, which must not exist; on failure nothing of
// it is left. Whatever the bytes are, nothing is written outside `folder` or
// through a symbolic link, and no more than the limits. Errors: DATA_LOSS, the
// bytes are no archive. RESOURCE_EXHAUSTED, beyond the limits.
absl::StatusOr<ArchiveSummary> UnpackFolder(const std::string& archive,
                                            const std::string& folder,
                                            const ArchiveLimits& limits = {});

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_PACKAGES_FOLDER_ARCHIVE_H_
