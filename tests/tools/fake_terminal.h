// What a terminal shows that was sent some bytes: as much of an xterm as our
// programs use.

#ifndef MINIRAY_TESTS_TOOLS_FAKE_TERMINAL_H_
#define MINIRAY_TESTS_TOOLS_FAKE_TERMINAL_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace miniray {

// A character that is more than one byte long takes one column.
class FakeTerminal {
 public:
  FakeTerminal(int rows, int columns) { Resize(rows, columns); }

  void Feed(absl::string_view bytes);
  // Keeps what is within the new size.
  void Resize(int rows, int columns);

  // The screen, line by line, without spaces and empty lines at the ends.
  std::string Text() const;
  // Without spaces at its end.
  std::string Line(int row) const;
  bool IsInverse(int row) const;  // Its first character.

  bool on_other_screen() const { return on_other_; }
  bool shows_cursor() const { return shows_cursor_; }
  bool wraps() const { return wraps_; }
  int cursor_row() const { return row_; }
  int cursor_column() const { return column_; }
  // Sequences that it does not know.
  const std::string& unknown() const { return unknown_; }

 private:
  struct Cell {
    std::string text = " ";
    bool inverse = false;
  };
  using Grid = std::vector<std::vector<Cell>>;

  void Obey(absl::string_view parameters, char command);
  void Control(char c);
  void Put(const std::string& character);
  void LineFeed();
  void EraseToEndOfLine();

  int rows_ = 0;
  int columns_ = 0;
  Grid grid_;
  Grid main_;  // While the other screen is shown.
  int row_ = 0;
  int column_ = 0;  // columns_: the next character wraps.
  int main_row_ = 0;
  int main_column_ = 0;
  bool inverse_ = false;
  bool on_other_ = false;
  bool shows_cursor_ = true;
  bool wraps_ = true;
  std::string pending_;  // Of a sequence, or a character.
  std::string unknown_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_TOOLS_FAKE_TERMINAL_H_
