// What a cluster's token may be, and whether another is the same.

#ifndef MINIRAY_RUNTIME_BASE_TOKEN_H_
#define MINIRAY_RUNTIME_BASE_TOKEN_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace miniray {

// It travels as metadata of each call, of which gRPC takes 8 KiB in all.
inline constexpr size_t kMaxTokenBytes = 1024;

// OK if `token` can travel, or is empty. `source`: where it is from, for the
// message ("$MINIRAY_TOKEN"); the token itself is never in it. Errors:
// INVALID_ARGUMENT. Metadata that is not ASCII would abort the process.
absl::Status CheckTokenText(absl::string_view token, absl::string_view source);

// Whether `given` is `token`, in a time that does not tell how much of it is
// right. Every comparison of tokens is this one.
bool TokensMatch(absl::string_view given, absl::string_view token);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_TOKEN_H_
