#include "runtime/link/link_call.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace miniray {
namespace internal {

absl::Cord EncodeLinkHello(const LinkHello& hello) {
  std::string text;
  for (const auto& [key, value] : hello) {
    text += key;
    text += '\0';
    text += value;
    text += '\0';
  }
  return absl::Cord(text);
}

absl::StatusOr<LinkHello> DecodeLinkHello(const absl::Cord& bytes) {
  const std::string text(bytes);
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '\0');
  // Behind the last zero there is one more, which is empty.
  if (parts.size() % 2 == 0 || !parts.back().empty()) {
    return absl::InvalidArgumentError("a malformed hello");
  }
  LinkHello hello;
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    hello.emplace(parts[i], parts[i + 1]);
  }
  return hello;
}

}  // namespace internal
}  // namespace miniray
