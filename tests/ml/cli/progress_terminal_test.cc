// A progress bar on a terminal, and elsewhere.

#include <signal.h>
#include <termios.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/pty_program.h"

namespace miniray::ml {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ProgramPath() {
  return absl::StrCat(std::getenv("TEST_SRCDIR"), "/",
                      std::getenv("TEST_WORKSPACE"),
                      "/tests/ml/cli/progress_program");
}

std::unique_ptr<PtyProgram> Start(const std::string& what, int columns = 80,
                                  const std::string& term = "xterm") {
  return std::make_unique<PtyProgram>(ProgramPath(),
                                      std::vector<std::string>{what},
                                      /*rows=*/20, columns, term);
}

std::vector<std::string> Lines(const PtyProgram& program) {
  return absl::StrSplit(program.terminal().Text(), '\n');
}

TEST(ProgressTerminalTest, WhatOthersWriteStandsAboveTheBar) {
  const auto program = Start("lines");
  ASSERT_TRUE(program->AwaitText(" 75% last"));
  // 79 columns: 9 of the text, 4 each of the percents and the right one, and 5
  // of brackets and spaces leave room for the widest bar, of 30.
  EXPECT_THAT(
      Lines(*program),
      ElementsAre("before", "draws", EndsWith("] a warning"), "from cerr 7",
                  "half a line", "and another", "one that stays",
                  "epoch 2/2 [======================>       ]  75% last"));
  EXPECT_TRUE(program->terminal().shows_cursor());
  EXPECT_FALSE(program->terminal().on_other_screen());
  EXPECT_EQ(program->terminal().unknown(), "");
}

TEST(ProgressTerminalTest, CtrlCTakesTheBarAway) {
  const auto program = Start("lines");
  const struct termios before = program->Settings();
  ASSERT_TRUE(program->AwaitText(" 75% last"));
  program->Type("\x03");
  ASSERT_TRUE(program->AwaitText(absl::StrCat("code ", 128 + SIGINT)));
  EXPECT_THAT(program->terminal().Text(), HasSubstr("one that stays"));
  EXPECT_THAT(program->terminal().Text(), Not(HasSubstr("epoch")));
  EXPECT_TRUE(program->terminal().shows_cursor());
  EXPECT_EQ(program->Settings().c_lflag, before.c_lflag);
}

TEST(ProgressTerminalTest, TheEndTakesTheBarAway) {
  const auto program = Start("end");
  ASSERT_TRUE(program->AwaitText("code 0"));
  EXPECT_THAT(program->bytes(), HasSubstr("epoch 1/2 ["));
  EXPECT_THAT(program->terminal().Text(), Not(HasSubstr("epoch")));
  // A line that nobody ended is not lost.
  EXPECT_THAT(program->terminal().Text(), HasSubstr("unfinished"));
}

TEST(ProgressTerminalTest, FollowsTheWidthOfTheTerminal) {
  const auto program = Start("loop", /*columns=*/100);
  const std::string text = "1234 images/s  loss 0.5  eta 1:23";
  ASSERT_TRUE(program->AwaitText(absl::StrCat("]  25% ", text)));
  program->Resize(20, 60);
  // 59 columns: 9 + 33 + 4 + 5 leave 8 for the bar.
  EXPECT_TRUE(
      program->AwaitText(absl::StrCat("epoch 1/4 [==>     ]  25% ", text)));
  program->Resize(20, 30);
  // What was on its way when the size changed fills further lines.
  EXPECT_TRUE(program->Await([](const FakeTerminal& terminal) {
    return absl::EndsWith(terminal.Text(), "\nepoch 1/4  25% 1234 images/s");
  })) << program->terminal().Text();
}

TEST(ProgressTerminalTest, ATerminalThatCannotBeDrawnOnGetsLines) {
  const auto program = Start("loop", 80, "dumb");
  const std::string line =
      "epoch 1/4  25%  1234 images/s  loss 0.5  eta 1:23\r\n";
  EXPECT_TRUE(program->Await([&](const FakeTerminal&) {
    return absl::StrContains(program->bytes(), "prints\r\n" + line + line);
  })) << program->bytes();
  EXPECT_THAT(program->bytes(), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace miniray::ml
