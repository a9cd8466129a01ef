// A log's bytes, which come in pieces, as text that can be shown.

#ifndef MINIRAY_RUNTIME_DASHBOARD_LOG_TEXT_H_
#define MINIRAY_RUNTIME_DASHBOARD_LOG_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace miniray {

// Cuts no character in two, and with a filter no line. Not thread-safe.
class LogText {
 public:
  // A line that is longer is cut.
  static constexpr size_t kMaxLine = 64 << 10;

  // filter: not empty: only lines that contain it, upper case or lower.
  explicit LogText(absl::string_view filter);

  // Returns what can be shown now, in UTF-8 (U+FFFD in place of what is none).
  std::string Add(absl::string_view bytes);
  // Of another process, or at the end: returns the rest.
  std::string Flush();
  // Bytes that were added and are not shown yet.
  size_t held() const { return held_.size(); }

 private:
  bool Passes(absl::string_view line) const;

  const std::string filter_;  // In lower case.
  std::string held_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_LOG_TEXT_H_
