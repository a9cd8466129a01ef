#include "tools/cli/frame.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/fake_terminal.h"

namespace miniray::cli {
namespace {

using ::testing::ElementsAre;

// The screen after it showed the frames one after the other.
FakeTerminal Shown(const std::vector<Frame>& frames, int rows, int columns) {
  FakeTerminal terminal(rows, columns);
  terminal.Feed("\x1b[?7l");  // Lines do not wrap, as under Screen.
  for (const Frame& frame : frames)
    terminal.Feed(Paint(frame, {rows, columns}));
  EXPECT_EQ(terminal.unknown(), "");
  return terminal;
}

TEST(FrameTest, ShowsTheLines) {
  const FakeTerminal terminal =
      Shown({{.lines = {"first", "", "third"}, .inverse = {0}}}, 5, 20);
  EXPECT_EQ(terminal.Text(), "first\n\nthird");
  EXPECT_TRUE(terminal.IsInverse(0));
  EXPECT_FALSE(terminal.IsInverse(2));
}

TEST(FrameTest, NothingOfThePreviousOneIsLeft) {
  const Frame before = {.lines = {"a long line", "another one", "a third"},
                        .inverse = {1}};
  EXPECT_EQ(Shown({before, {.lines = {"short"}}}, 5, 20).Text(), "short");
  EXPECT_EQ(Shown({before, {}}, 5, 20).Text(), "");
  const FakeTerminal terminal =
      Shown({before, {.lines = {"x", "y", "z"}}}, 5, 20);
  EXPECT_EQ(terminal.Text(), "x\ny\nz");
  EXPECT_FALSE(terminal.IsInverse(1));
}

TEST(FrameTest, LinesAreCutToTheColumns) {
  EXPECT_EQ(Shown({{.lines = {"0123456789", "abcdefghijk"}}}, 2, 10).Text(),
            "0123456789\nabcdefghij");
  EXPECT_EQ(Shown({{.lines = {"zählerzähler"}}}, 2, 4).Text(), "zähl");
}

TEST(FrameTest, ALastRowThatIsFullKeepsItsLastCharacter) {
  EXPECT_EQ(Shown({{.lines = {"01234", "abcde"}}}, 2, 5).Text(),
            "01234\nabcde");
}

TEST(FrameTest, SaysHowManyLinesAreMissing) {
  Frame frame;
  for (int i = 0; i < 10; ++i) frame.lines.push_back("line");
  frame.inverse = {0, 3};
  const FakeTerminal terminal = Shown({frame}, 4, 20);
  EXPECT_EQ(terminal.Text(), "line\nline\nline\n... and 7 more lines");
  EXPECT_TRUE(terminal.IsInverse(0));
  EXPECT_FALSE(terminal.IsInverse(3));  // Its line is not there.
  EXPECT_EQ(Shown({frame}, 10, 20).Text().find("more"), std::string::npos);
  EXPECT_EQ(Shown({frame}, 1, 30).Text(), "... and 10 more lines");
}

TEST(FrameTest, TakesAnySize) {
  const Frame frame = {.lines = {"ab", "cd"}};
  EXPECT_EQ(Paint(frame, {0, 0}), Paint(frame, {1, 1}));
  EXPECT_EQ(Paint(frame, {-3, -3}), Paint(frame, {1, 1}));
}

TEST(FrameTest, WhatWouldActOnTheTerminalIsLeftOut) {
  // ESC, BEL, DEL, CSI as one character, and bytes that are no UTF-8.
  const FakeTerminal terminal = Shown({{.lines = {"a\x1b[31mb\ac\x7f"
                                                  "d\xc2\x9b"
                                                  "e\tf\r\n",
                                                  "g\xffh"}}},
                                      4, 40);
  EXPECT_EQ(terminal.Text(), "a[31mbcdef\ng\xef\xbf\xbdh");
}

TEST(SplitLinesTest, EachLineOnce) {
  EXPECT_THAT(SplitLines("a\n\nb\n"), ElementsAre("a", "", "b"));
  EXPECT_THAT(SplitLines("a"), ElementsAre("a"));
  EXPECT_THAT(SplitLines(""), ElementsAre(""));
}

// What the tests of this folder rely on.
TEST(FakeTerminalTest, DoesAsTerminalsDo) {
  FakeTerminal terminal(3, 4);
  terminal.Feed("abcd");
  EXPECT_EQ(terminal.cursor_row(), 0);
  terminal.Feed("e\r\nf\r\n");
  // It has scrolled.
  EXPECT_EQ(terminal.Text(), "e\nf");
  terminal.Feed("\x1b[?1049h");
  EXPECT_EQ(terminal.Text(), "");
  terminal.Feed("\x1b[Hxyz\r\x1b[K1\x1b[?25l");
  EXPECT_EQ(terminal.Text(), "1");
  EXPECT_TRUE(terminal.on_other_screen());
  EXPECT_FALSE(terminal.shows_cursor());
  terminal.Feed("\x1b[?25h\x1b[?1049l");
  EXPECT_EQ(terminal.Text(), "e\nf");
  EXPECT_EQ(terminal.cursor_row(), 2);
  // Behind the last column, an erasing takes the character there with it.
  terminal.Feed("\x1b[?7lwxyz\x1b[K");
  EXPECT_EQ(terminal.Line(2), "wxy");
  EXPECT_EQ(terminal.unknown(), "");
  terminal.Feed("\x1b[5A\a");
  EXPECT_EQ(terminal.unknown(), "ESC [ 5A; control 7; ");
}

}  // namespace
}  // namespace miniray::cli
