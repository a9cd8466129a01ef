#include "tests/tools/fake_terminal.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace miniray {
namespace {

// Bytes of a character that begins so.
size_t LengthOf(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

void FakeTerminal::Feed(absl::string_view bytes) {
  for (const char c : bytes) {
    pending_.push_back(c);
    const bool is_sequence = pending_[0] == '\x1b';
    if (!is_sequence) {
      if (pending_.size() < LengthOf(pending_[0])) continue;
      const std::string character = std::exchange(pending_, "");
      if (absl::ascii_iscntrl(static_cast<unsigned char>(character[0]))) {
        Control(character[0]);
      } else {
        Put(character);
      }
      continue;
    }
    if (pending_.size() == 1 || (pending_.size() == 2 && c == '[')) continue;
    // Parameters, then one letter.
    if (pending_.size() > 2 && !absl::ascii_isalpha(c)) continue;
    const std::string sequence = std::exchange(pending_, "");
    if (sequence.size() == 2) {
      absl::StrAppend(&unknown_, "ESC ", sequence.substr(1), "; ");
    } else {
      Obey(absl::string_view(sequence).substr(2, sequence.size() - 3), c);
    }
  }
}

void FakeTerminal::Resize(int rows, int columns) {
  rows_ = rows;
  columns_ = columns;
  for (Grid* grid : {&grid_, &main_}) {
    grid->resize(rows);
    for (auto& line : *grid) line.resize(columns);
  }
  row_ = std::min(row_, rows - 1);
  column_ = std::min(column_, columns - 1);
  main_row_ = std::min(main_row_, rows - 1);
  main_column_ = std::min(main_column_, columns - 1);
}

std::string FakeTerminal::Line(int row) const {
  std::string text;
  for (const Cell& cell : grid_[row]) text += cell.text;
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

std::string FakeTerminal::Text() const {
  std::vector<std::string> lines;
  for (int row = 0; row < rows_; ++row) lines.push_back(Line(row));
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return absl::StrJoin(lines, "\n");
}

bool FakeTerminal::IsInverse(int row) const { return grid_[row][0].inverse; }

void FakeTerminal::Obey(absl::string_view parameters, char command) {
  if (command == 'H' && parameters.empty()) {
    row_ = column_ = 0;
  } else if (command == 'K' && parameters.empty()) {
    EraseToEndOfLine();
  } else if (command == 'J' && parameters.empty()) {
    EraseToEndOfLine();
    for (int row = row_ + 1; row < rows_; ++row) {
      grid_[row].assign(columns_, Cell());
    }
  } else if (command == 'm' && (parameters.empty() || parameters == "0")) {
    inverse_ = false;
  } else if (command == 'm' && parameters == "7") {
    inverse_ = true;
  } else if ((command == 'h' || command == 'l') && parameters == "?25") {
    shows_cursor_ = command == 'h';
  } else if ((command == 'h' || command == 'l') && parameters == "?7") {
    wraps_ = command == 'h';
  } else if (command == 'h' && parameters == "?1049") {
    if (on_other_) return;
    on_other_ = true;
    main_ = grid_;
    main_row_ = row_;
    main_column_ = column_;
    for (auto& line : grid_) line.assign(columns_, Cell());
  } else if (command == 'l' && parameters == "?1049") {
    if (!on_other_) return;
    on_other_ = false;
    grid_ = main_;
    row_ = main_row_;
    column_ = main_column_;
  } else {
    absl::StrAppend(&unknown_, "ESC [ ", parameters, std::string(1, command),
                    "; ");
  }
}

void FakeTerminal::Control(char c) {
  if (c == '\r') {
    column_ = 0;
  } else if (c == '\n') {
    LineFeed();
  } else if (c == '\b') {
    column_ = std::max(std::min(column_, columns_ - 1) - 1, 0);
  } else {
    absl::StrAppend(&unknown_, "control ", static_cast<int>(c), "; ");
  }
}

void FakeTerminal::Put(const std::string& character) {
  if (column_ == columns_) {
    if (wraps_) {
      column_ = 0;
      LineFeed();
    } else {
      column_ = columns_ - 1;
    }
  }
  grid_[row_][column_] = {character, inverse_};
  ++column_;
}

void FakeTerminal::LineFeed() {
  if (row_ + 1 < rows_) {
    ++row_;
    return;
  }
  grid_.erase(grid_.begin());
  grid_.emplace_back(columns_);
}

// As terminals do: a cursor behind the last column counts as on it.
void FakeTerminal::EraseToEndOfLine() {
  for (int column = std::min(column_, columns_ - 1); column < columns_;
       ++column) {
    grid_[row_][column] = Cell();
  }
}

}  // namespace miniray
