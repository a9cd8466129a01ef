// How much memory this process may use: a container or a service may have less
// than its machine.

#ifndef MINIRAY_RUNTIME_BASE_MEMORY_LIMIT_H_
#define MINIRAY_RUNTIME_BASE_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace miniray {

// The folders of the control group (v2) that this process is in and of those
// above it, whose limits hold as well. root: stands before /proc and /sys.
std::vector<std::string> ControlGroupFolders(const std::string& root = "");

// Bytes: the machine's memory, or the least limit of those groups. 0: the
// system does not say.
int64_t UsableMemoryBytes(const std::string& root = "");

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_MEMORY_LIMIT_H_
