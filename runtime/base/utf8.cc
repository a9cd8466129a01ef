#include "runtime/base/utf8.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace miniray {
namespace {

// Returns the size of the well-formed character at the start of `text`, or 0.
// REQUIRES: !text.empty().
size_t CharacterSize(absl::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t size = 0;
  uint32_t rune = 0, least = 0;
  if (byte(0) < 0x80) {
    return 1;
  } else if ((byte(0) & 0xe0) == 0xc0) {
    size = 2, rune = byte(0) & 0x1f, least = 0x80;
  } else if ((byte(0) & 0xf0) == 0xe0) {
    size = 3, rune = byte(0) & 0x0f, least = 0x800;
  } else if ((byte(0) & 0xf8) == 0xf0) {
    size = 4, rune = byte(0) & 0x07, least = 0x10000;
  } else {
    return 0;
  }
  if (text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    rune = rune << 6 | (byte(i) & 0x3f);
  }
  const bool surrogate = rune >= 0xd800 && rune < 0xe000;
  return rune < least || rune > 0x10ffff || surrogate ? 0 : size;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string ToUtf8(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    if (size > 0) {
      result.append(text.data(), size);
    } else {
      result.append("\xef\xbf\xbd");
    }
    text.remove_prefix(size > 0 ? size : 1);
  }
  return result;
}

std::string Shorten(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  for (int i = 0; i < 3 && end > 0 && (text[end] & 0xc0) == 0x80; ++i) --end;
  return absl::StrCat(text.substr(0, end), "... (", text.size() - end,
                      " bytes more)");
}

}  // namespace miniray
