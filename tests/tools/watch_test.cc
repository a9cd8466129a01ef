// `miniray status --watch` and `miniray top`, on a terminal and elsewhere.

#include <signal.h>
#include <termios.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/miniray_command.h"
#include "tests/tools/pty_program.h"

namespace miniray {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kCtrlC[] = "\x03";

class WatchTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    address_ = StartHead();
  }

  std::unique_ptr<PtyProgram> OnTerminal(std::vector<std::string> args,
                                         int rows = 30, int columns = 120,
                                         const std::string& term = "xterm") {
    args.push_back("--address=" + address_);
    return std::make_unique<PtyProgram>(RunfilePath("tools/miniray"), args,
                                        rows, columns, term);
  }

  std::unique_ptr<Program> Elsewhere(std::vector<std::string> args) {
    args.push_back("--address=" + address_);
    return Start(args);
  }

  // Waits until the program has ended with `code`, and looks at the terminal
  // that it leaves.
  static void ExpectGivenBack(PtyProgram* program, int code,
                              const struct termios& before) {
    ASSERT_TRUE(program->AwaitText("code " + std::to_string(code)));
    const FakeTerminal& terminal = program->terminal();
    EXPECT_THAT(terminal.Text(), StartsWith("before"));
    EXPECT_FALSE(terminal.on_other_screen());
    EXPECT_TRUE(terminal.shows_cursor());
    EXPECT_TRUE(terminal.wraps());
    EXPECT_EQ(terminal.unknown(), "");
    const struct termios after = program->Settings();
    EXPECT_EQ(after.c_lflag, before.c_lflag);
    EXPECT_EQ(after.c_iflag, before.c_iflag);
    EXPECT_EQ(after.c_oflag, before.c_oflag);
    EXPECT_TRUE(IsCooked(after));
  }

  // The next line that holds `text`; empty: there is none.
  static std::string LineWith(Program* program, const std::string& text) {
    while (const std::optional<std::string> line = program->ReadLine()) {
      if (absl::StrContains(*line, text)) return *line;
    }
    ADD_FAILURE() << "no line with '" << text << "'";
    return "";
  }

  std::string address_;
};

// --- status --watch, on a terminal.

TEST_F(WatchTest, StatusIsDrawnInPlace) {
  const auto status = OnTerminal({"status", "--watch", "--interval=0.2"});
  const struct termios before = status->Settings();
  EXPECT_TRUE(IsCooked(before));
  ASSERT_TRUE(status->AwaitText("Nodes: 0"));
  EXPECT_TRUE(status->terminal().on_other_screen());
  EXPECT_FALSE(status->terminal().shows_cursor());
  EXPECT_TRUE(status->terminal().IsInverse(0));
  EXPECT_THAT(status->terminal().Text(), HasSubstr("Head: " + address_));
  EXPECT_FALSE(IsCooked(status->Settings()));
  StartDaemon(address_, {"--num_cpus=2"});
  ASSERT_TRUE(status->AwaitText("Nodes: 1"));
  // In place: not below what was there.
  EXPECT_THAT(status->terminal().Text(), Not(HasSubstr("Nodes: 0")));
  status->Type(kCtrlC);
  ExpectGivenBack(status.get(), 130, before);
}

TEST_F(WatchTest, QQuits) {
  const auto status = OnTerminal({"status", "--watch"});
  const struct termios before = status->Settings();
  ASSERT_TRUE(status->AwaitText("Nodes: 0"));
  status->Type("q");
  ExpectGivenBack(status.get(), 0, before);
}

TEST_F(WatchTest, StatusFollowsTheSizeOfTheTerminal) {
  // A long interval: what is drawn is drawn because of the size.
  const auto status = OnTerminal({"status", "--watch", "--interval=3600"});
  ASSERT_TRUE(status->AwaitText("Jobs: 0"));
  status->Resize(5, 20);
  ASSERT_TRUE(status->AwaitText("... and"));
  for (int row = 0; row < 5; ++row) {
    EXPECT_LE(status->terminal().Line(row).size(), 20u);
  }
  status->Resize(30, 120);
  ASSERT_TRUE(status->AwaitText("Jobs: 0"));
  EXPECT_THAT(status->terminal().Text(), Not(HasSubstr("... and")));
}

TEST_F(WatchTest, ATimeLimitGivesTheTerminalBack) {
  const auto status = OnTerminal({"status", "--watch", "--timeout=3"});
  const struct termios before = status->Settings();
  ExpectGivenBack(status.get(), 124, before);
  EXPECT_THAT(status->terminal().Text(), HasSubstr("the time limit of 3s"));
}

TEST_F(WatchTest, AHeadThatGoesAwayIsToldAboveWhatThereWas) {
  const auto status = OnTerminal({"status", "--watch", "--interval=0.2"});
  const struct termios before = status->Settings();
  ASSERT_TRUE(status->AwaitText("Nodes: 0"));
  ASSERT_EQ(kill(HeadPid(), SIGKILL), 0);
  ASSERT_TRUE(status->AwaitText("old: no head answers at " + address_));
  EXPECT_TRUE(status->terminal().IsInverse(0));
  EXPECT_THAT(status->terminal().Text(), HasSubstr("Nodes: 0"));
  status->Type("q");
  ExpectGivenBack(status.get(), 0, before);
}

TEST_F(WatchTest, WithoutAHeadTheTerminalIsNotTouched) {
  address_ = "127.0.0.1:1";
  const auto status = OnTerminal({"status", "--watch"});
  const struct termios before = status->Settings();
  ExpectGivenBack(status.get(), 1, before);
  EXPECT_THAT(status->terminal().Text(), HasSubstr("no head answers"));
  EXPECT_THAT(status->bytes(), Not(HasSubstr("\x1b")));
}

TEST_F(WatchTest, ATerminalThatCannotBeDrawnOnGetsLines) {
  const auto status = OnTerminal({"status", "--watch"}, 30, 120, "dumb");
  const struct termios before = status->Settings();
  ASSERT_TRUE(status->AwaitText("Jobs: 0"));
  EXPECT_THAT(status->bytes(), Not(HasSubstr("\x1b")));
  status->Type(kCtrlC);
  ExpectGivenBack(status.get(), 130, before);
}

// --- status --watch, elsewhere.

TEST_F(WatchTest, TheTablesComeAgainWhenTheyHaveChanged) {
  const auto status = Elsewhere({"status", "--watch", "--interval=0.1"});
  EXPECT_THAT(status->ReadLine().value_or(""), StartsWith("== 20"));
  EXPECT_THAT(status->ReadLine().value_or(""), StartsWith("Head: "));
  EXPECT_EQ(LineWith(status.get(), "Nodes: "), "Nodes: 0");
  StartDaemon(address_, {"--num_cpus=2"});
  // Nothing came between: there was no change but this one.
  EXPECT_EQ(LineWith(status.get(), "Nodes: "), "Nodes: 1");
  status->Signal(SIGINT);
  const CommandResult result = status->Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(WatchTest, ForProgramsALineOfJson) {
  const auto status =
      Elsewhere({"status", "--watch", "--interval=0.1", "--format=json"});
  auto state = nlohmann::json::parse(status->ReadLine().value_or(""), nullptr,
                                     /*allow_exceptions=*/false);
  ASSERT_TRUE(state.is_object());
  EXPECT_TRUE(state["nodes"].empty());
  StartDaemon(address_, {"--num_cpus=2"});
  state = nlohmann::json::parse(status->ReadLine().value_or(""), nullptr,
                                /*allow_exceptions=*/false);
  ASSERT_TRUE(state.is_object());
  EXPECT_EQ(state["nodes"].size(), 1);
}

TEST_F(WatchTest, AHeadThatGoesAwayIsToldOnce) {
  const auto status =
      Elsewhere({"status", "--watch", "--interval=0.1", "--timeout=3"});
  ASSERT_EQ(LineWith(status.get(), "Jobs: "), "Jobs: 0");
  ASSERT_EQ(kill(HeadPid(), SIGKILL), 0);
  const CommandResult result = status->Wait();
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_THAT(result.err, StartsWith("miniray: no head answers"));
  EXPECT_THAT(result.err, HasSubstr("; waiting for it\n"));
  EXPECT_THAT(result.err, HasSubstr("the time limit of 3s is over\n"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 2)
      << result.err;
}

// --- top.

class TopTest : public WatchTest {
 protected:
  void SetUp() override {
    WatchTest::SetUp();
    StartDaemon(address_, {"--num_cpus=2"});
    driver_ = std::make_unique<Program>(
        RunfilePath("tests/tools/actor_program"),
        std::vector<std::string>{"--address=" + address_});
    ASSERT_EQ(driver_->ReadLine().value_or("nothing"), "ready")
        << driver_->Wait().err;
  }

  void TearDown() override {
    driver_.reset();
    WatchTest::TearDown();
  }

  std::unique_ptr<Program> driver_;
};

TEST_F(TopTest, OnATerminal) {
  const auto top = OnTerminal({"top", "--interval=0.2"}, 30, 160);
  const struct termios before = top->Settings();
  ASSERT_TRUE(top->AwaitText("sorted by cpu  (s: sort, q: quit)"));
  EXPECT_TRUE(top->terminal().IsInverse(0));
  EXPECT_THAT(top->terminal().Text(),
              HasSubstr("Nodes: 1 alive; actors: 1 pending, 1 alive"));
  // What the daemon tells every two seconds, and the actor's own process.
  EXPECT_TRUE(top->Await([](const FakeTerminal& terminal) {
    return ::testing::Matches(
        ContainsRegex("runs +[^\n]*Sleeper +alive +node-[0-9a-f]+ +[0-9]+ +"
                      "[0-9]+ % +[0-9.]+[MG]iB +0\\.0 +0 +0"))(terminal.Text());
  })) << top->terminal().Text();
  EXPECT_THAT(top->terminal().Text(),
              ContainsRegex("waits +[^\n]*Sleeper +pending"));
  EXPECT_THAT(top->terminal().Text(), ContainsRegex("alive +[0-9]+ % +[0-9]+ "
                                                    "CPUs +[0-9.]+GiB/"));
  top->Type("s");
  EXPECT_TRUE(top->AwaitText("sorted by memory"));
  top->Type("s");
  EXPECT_TRUE(top->AwaitText("sorted by name"));
  top->Resize(8, 40);
  EXPECT_TRUE(top->AwaitText("more"));
  top->Type(kCtrlC);
  ExpectGivenBack(top.get(), 130, before);
}

TEST_F(TopTest, AKeyNeedNotWaitForTheNextLook) {
  const auto top =
      OnTerminal({"top", "--interval=3600", "--sort=memory"}, 30, 160);
  const struct termios before = top->Settings();
  ASSERT_TRUE(top->AwaitText("sorted by memory"));
  top->Type("s");
  EXPECT_TRUE(top->AwaitText("sorted by name"));
  top->Type("q");
  ExpectGivenBack(top.get(), 0, before);
}

TEST_F(TopTest, ElsewhereItIsOneLook) {
  const CommandResult result =
      Run({"top", "--interval=0.3", "--address=" + address_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(result.out, Not(HasSubstr("q: quit")));
  EXPECT_THAT(result.out,
              HasSubstr("Nodes: 1 alive; actors: 1 pending, 1 alive\n"));
  // Two looks: the rate of calls is known. What the daemon tells may not be
  // there yet.
  EXPECT_THAT(result.out,
              ContainsRegex("runs +[^\n]*Sleeper +alive [^\n]* 0\\.0 +0 +0\n"));
  EXPECT_THAT(result.out, ContainsRegex("waits +[^\n]*Sleeper +pending"));
}

}  // namespace
}  // namespace miniray
