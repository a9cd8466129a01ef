#include "tools/cli/frame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/utf8.h"

namespace miniray::cli {
namespace {

constexpr char kHome[] = "\x1b[H";
constexpr char kInverse[] = "\x1b[7m";
constexpr char kPlain[] = "\x1b[m";
constexpr char kEraseToEndOfLine[] = "\x1b[K";
constexpr char kEraseToEndOfScreen[] = "\x1b[J";

bool Continues(char c) { return (c & 0xC0) == 0x80; }

// The first `columns` characters, each of which is taken to fill one column.
std::string Cut(absl::string_view line, int columns) {
  const std::string text = ToUtf8(line);
  std::string cut;
  int used = 0;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = begin + 1;
    while (end < text.size() && Continues(text[end])) ++end;
    const absl::string_view character =
        absl::string_view(text).substr(begin, end - begin);
    const auto first = static_cast<unsigned char>(character[0]);
    // U+0080 to U+009F are control characters, too.
    const bool acts =
        first < 0x20 || first == 0x7F ||
        (first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0);
    if (acts) continue;
    if (used == columns) break;
    ++used;
    absl::StrAppend(&cut, character);
  }
  return cut;
}

}  // namespace

std::string Paint(const Frame& frame, const ScreenSize& size) {
  const size_t rows = static_cast<size_t>(std::max(size.rows, 1));
  const int columns = std::max(size.columns, 1);
  std::vector<std::string> lines = frame.lines;
  const bool cut = lines.size() > rows;
  if (cut) {
    const size_t missing = lines.size() - (rows - 1);
    lines.resize(rows - 1);
    lines.push_back(absl::StrCat("... and ", missing, " more lines"));
  }
  if (lines.empty()) lines.emplace_back();
  std::string text = kHome;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool last = i + 1 == lines.size();
    const bool inverse = frame.inverse.count(i) > 0 && !(last && cut);
    if (i > 0) text += "\r\n";
    // Before the line: behind one that fills its row they would take a
    // character of it.
    text += last ? kEraseToEndOfScreen : kEraseToEndOfLine;
    if (inverse) text += kInverse;
    text += Cut(lines[i], columns);
    if (inverse) text += kPlain;
  }
  return text;
}

std::vector<std::string> SplitLines(absl::string_view text) {
  absl::ConsumeSuffix(&text, "\n");
  return absl::StrSplit(text, '\n');
}

}  // namespace miniray::cli
