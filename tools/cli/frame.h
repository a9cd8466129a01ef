// What is on a terminal's screen, and how it gets there.

#ifndef MINIRAY_TOOLS_CLI_FRAME_H_
#define MINIRAY_TOOLS_CLI_FRAME_H_

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace miniray::cli {

struct ScreenSize {
  int rows = 24;
  int columns = 80;
};

struct Frame {
  std::vector<std::string> lines;  // UTF-8, of any length.
  std::set<size_t> inverse;        // Those that stand out, by index.
};

// Returns what to write to a terminal so that it shows the frame and nothing
// else, from its first column and row on. Lines are cut to its columns, and
// where there is no room for all of them the last row says how many are
// missing. Characters that would act on the terminal are left out.
std::string Paint(const Frame& frame, const ScreenSize& size);

// Splits text at its line breaks; one at the end begins no line.
std::vector<std::string> SplitLines(absl::string_view text);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_FRAME_H_
