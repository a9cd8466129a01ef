#include "runtime/base/memory_limit.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"

namespace miniray {

std::vector<std::string> ControlGroupFolders(const std::string& root) {
  std::vector<std::string> folders;
  const std::string own = ReadFile(root + "/proc/self/cgroup").value_or("");
  for (absl::string_view line : absl::StrSplit(own, '\n')) {
    if (!absl::ConsumePrefix(&line, "0::/")) continue;
    std::string path(line);
    while (true) {
      folders.push_back(absl::StrCat(root, "/sys/fs/cgroup/", path));
      if (path.empty()) break;
      const size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return folders;
}

int64_t UsableMemoryBytes(const std::string& root) {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  int64_t bytes = std::max<int64_t>(pages, 0) * sysconf(_SC_PAGESIZE);
  for (const std::string& folder : ControlGroupFolders(root)) {
    int64_t limit = 0;
    // "max" where it has none.
    if (absl::SimpleAtoi(ReadFile(folder + "/memory.max").value_or(""),
                         &limit) &&
        limit > 0) {
      bytes = std::min(bytes, limit);
    }
  }
  return bytes;
}

}  // namespace miniray
