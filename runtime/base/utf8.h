// UTF-8, which every `string` of a protobuf message must be: a parser refuses
// the whole message otherwise.

#ifndef MINIRAY_RUNTIME_BASE_UTF8_H_
#define MINIRAY_RUNTIME_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace miniray {

// True if `text` is well-formed UTF-8.
bool IsUtf8(absl::string_view text);

// Returns `text` with U+FFFD in place of each byte that is no part of a
// well-formed character. For text from outside (exceptions, output of
// processes, paths) on its way into a message.
std::string ToUtf8(absl::string_view text);

// Returns `text`, of more than `max_bytes` only its beginning and how much is
// left out. No character is cut in two. For text from outside that is kept.
std::string Shorten(absl::string_view text, size_t max_bytes);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_UTF8_H_
