// What the kernel tells of a process in /proc/PID/stat (proc(5)).

#ifndef MINIRAY_RUNTIME_BASE_PROC_STAT_H_
#define MINIRAY_RUNTIME_BASE_PROC_STAT_H_

#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace miniray {

// Returns the fields of such a text from the third on: [0] is the state, [1]
// the parent. (The second, the program's name in brackets, may hold spaces and
// brackets itself.) Empty: the text is none. They lie in `text`.
inline std::vector<absl::string_view> ProcStatFields(absl::string_view text) {
  const size_t end = text.rfind(')');
  if (end == absl::string_view::npos) return {};
  return absl::StrSplit(text.substr(end + 1), absl::ByAnyChar(" \n"),
                        absl::SkipEmpty());
}

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_PROC_STAT_H_
