// Output that may end before the program does.

#ifndef MINIRAY_TOOLS_CLI_WRITE_OUT_H_
#define MINIRAY_TOOLS_CLI_WRITE_OUT_H_

#include <unistd.h>

#include <cerrno>

#include "absl/strings/string_view.h"

namespace miniray::cli {

// Writes to stdout at once, past std::cout. Returns 0, or what went wrong:
// EPIPE where nobody reads any more.
inline int WriteOut(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_WRITE_OUT_H_
