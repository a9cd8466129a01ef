#include "runtime/dashboard/log_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/utf8.h"

namespace miniray {
namespace {

// How many bytes at the end may be the beginning of a character.
size_t BegunBytes(absl::string_view bytes) {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); ++back) {
    const auto c = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((c & 0xc0) == 0x80) continue;  // In the midst of one.
    const size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

LogText::LogText(absl::string_view filter)
    : filter_(absl::AsciiStrToLower(filter)) {}

std::string LogText::Add(absl::string_view bytes) {
  absl::StrAppend(&held_, bytes);
  if (filter_.empty()) {
    const size_t ready = held_.size() - BegunBytes(held_);
    const std::string text = ToUtf8(held_.substr(0, ready));
    held_.erase(0, ready);
    return text;
  }
  std::string text;
  size_t begin = 0;
  while (true) {
    size_t end = held_.find('\n', begin);
    if (end == std::string::npos) {
      if (held_.size() - begin <= kMaxLine) break;
      end = begin + kMaxLine - 1;
    }
    const auto line = absl::string_view(held_).substr(begin, end + 1 - begin);
    if (Passes(line)) absl::StrAppend(&text, ToUtf8(line));
    begin = end + 1;
  }
  held_.erase(0, begin);
  return text;
}

std::string LogText::Flush() {
  const std::string rest = std::exchange(held_, {});
  return Passes(rest) ? ToUtf8(rest) : "";
}

bool LogText::Passes(absl::string_view line) const {
  return filter_.empty() ||
         absl::StrContains(absl::AsciiStrToLower(line), filter_);
}

}  // namespace miniray
