// Random identifiers.

#ifndef MINIRAY_RUNTIME_BASE_IDS_H_
#define MINIRAY_RUNTIME_BASE_IDS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace miniray {

// Returns "<prefix>-" and 16 random hex digits from the kernel's generator:
// unique without coordination. Thread-safe.
std::string NewId(absl::string_view prefix);

// Returns 64 random hex digits (256 bits), fit for a secret. Thread-safe.
std::string NewToken();

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_IDS_H_
