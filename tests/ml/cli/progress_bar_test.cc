#include "ml/cli/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

TEST(RenderProgressBarTest, ShowsTheFraction) {
  EXPECT_EQ(RenderProgressBar(0, "epoch 1", "fast", 60),
            "epoch 1 [>                             ]   0% fast");
  EXPECT_EQ(RenderProgressBar(0.5, "epoch 1", "fast", 60),
            "epoch 1 [===============>              ]  50% fast");
  EXPECT_EQ(RenderProgressBar(1, "epoch 1", "fast", 60),
            "epoch 1 [==============================] 100% fast");
}

TEST(RenderProgressBarTest, TakesAnyNumber) {
  for (const double fraction : {-1.0, std::nan(""), -0.0}) {
    EXPECT_EQ(RenderProgressBar(fraction, "", "", 20),
              RenderProgressBar(0, "", "", 20));
  }
  EXPECT_EQ(
      RenderProgressBar(std::numeric_limits<double>::infinity(), "", "", 40),
      RenderProgressBar(1, "", "", 40));
}

TEST(RenderProgressBarTest, NeverExceedsTheWidth) {
  for (int width = -5; width < 120; ++width) {
    for (const double fraction : {0.0, 0.3, 1.0}) {
      const std::string line =
          RenderProgressBar(fraction, "epoch 12/100", "loss 0.5", width);
      EXPECT_LE(static_cast<int>(line.size()), std::max(width, 0));
    }
  }
  // Text comes before the bar when there is little room.
  EXPECT_EQ(RenderProgressBar(0.3, "epoch 12/100", "loss 0.5", 26),
            "epoch 12/100  30% loss 0.5");
}

class ProgressBarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(bar_file_, nullptr);
    ASSERT_NE(text_file_, nullptr);
  }
  void TearDown() override {
    std::fclose(bar_file_);
    std::fclose(text_file_);
  }

  ProgressBar::Options Options(bool draw) {
    return {.out = bar_file_,
            .text = text_file_,
            .draw = draw,
            .min_interval = absl::Milliseconds(100),
            .clock = [this] { return now_; }};
  }

  static std::string Contents(std::FILE* file) {
    std::rewind(file);
    std::string text;
    for (int c; (c = std::fgetc(file)) != EOF;) {
      text.push_back(static_cast<char>(c));
    }
    return text;
  }

  std::FILE* const bar_file_ = std::tmpfile();
  std::FILE* const text_file_ = std::tmpfile();
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(ProgressBarTest, DrawsAtMostOncePerInterval) {
  ProgressBar bar(Options(true));
  bar.Update(0.1, "a", "");
  now_ += absl::Milliseconds(99);
  bar.Update(0.2, "b", "");
  now_ += absl::Milliseconds(1);
  bar.Update(0.3, "c", "");
  const std::string drawn = Contents(bar_file_);
  EXPECT_NE(drawn.find("a ["), std::string::npos);
  EXPECT_EQ(drawn.find("b ["), std::string::npos);
  EXPECT_NE(drawn.find("c ["), std::string::npos);
  EXPECT_EQ(drawn.find('\n'), std::string::npos);
}

TEST_F(ProgressBarTest, PrintClearsTheBarFirst) {
  {
    ProgressBar bar(Options(true));
    bar.Update(0.1, "a", "");
    bar.Print("a line");
    bar.Update(0.2, "b", "");  // Drawn at once.
  }
  const std::string drawn = Contents(bar_file_);
  const std::string erase = "\r\x1b[K";
  EXPECT_EQ(drawn, erase + RenderProgressBar(0.1, "a", "", 79) + erase + erase +
                       RenderProgressBar(0.2, "b", "", 79) + erase);
  EXPECT_EQ(Contents(text_file_), "a line\n");
}

TEST_F(ProgressBarTest, OffATerminalOnlyLinesAreLeft) {
  {
    ProgressBar bar(Options(false));
    EXPECT_FALSE(bar.draws());
    bar.Update(0.1, "a", "");
    bar.Print("a line");
  }
  EXPECT_EQ(Contents(bar_file_), "");
  EXPECT_EQ(Contents(text_file_), "a line\n");
}

TEST_F(ProgressBarTest, OffATerminalALineNowAndThen) {
  ProgressBar bar(Options(false));
  const auto update = [&](double fraction, absl::Duration later) {
    now_ += later;
    bar.Update(fraction, "epoch 1/2", "fast");
  };
  update(0.1, absl::Milliseconds(9900));  // Since the bar was made.
  update(0.25, absl::Milliseconds(100));
  update(0.3, absl::Milliseconds(9900));
  bar.Print("a line");  // After it, there is quiet as well.
  update(0.5, absl::Milliseconds(9900));
  update(2, absl::Milliseconds(100));
  now_ += absl::Seconds(10);
  bar.Update(0.75, "", "");
  EXPECT_EQ(Contents(text_file_),
            "epoch 1/2  25%  fast\n"
            "a line\n"
            "epoch 1/2  100%  fast\n"
            "75%\n");
  EXPECT_EQ(Contents(bar_file_), "");
}

TEST_F(ProgressBarTest, WhoSeesNothingNeedNotBeAskedOften) {
  EXPECT_EQ(ProgressBar(Options(true)).poll_interval(),
            absl::Milliseconds(500));
  EXPECT_EQ(ProgressBar(Options(false)).poll_interval(), absl::Seconds(5));
}

TEST(TimeLeftTest, ByHowFastItWentSinceTheFirstCall) {
  const absl::Time start = absl::UnixEpoch();
  TimeLeft left;
  EXPECT_EQ(left.Text(0.25, start), "");
  EXPECT_EQ(left.Text(0.25, start + absl::Seconds(5)), "");
  // A quarter in 10 s: half takes 20 s more.
  EXPECT_EQ(left.Text(0.5, start + absl::Seconds(10)), "eta 0:20");
  // A 128th in 100 s: 95 of them take 9500 s.
  EXPECT_EQ(left.Text(33.0 / 128, start + absl::Seconds(100)), "eta 2:38:20");
  EXPECT_EQ(left.Text(1, start + absl::Seconds(100)), "eta 0:00");
  EXPECT_EQ(left.Text(2, start + absl::Seconds(100)), "eta 0:00");
}

TEST(TimeLeftTest, BeginsAnewWhereItWentBack) {
  const absl::Time start = absl::UnixEpoch();
  TimeLeft left;
  left.Text(0.5, start);
  EXPECT_EQ(left.Text(0.25, start + absl::Seconds(10)), "");
  // A quarter in 30 s: half takes 60 s.
  EXPECT_EQ(left.Text(0.5, start + absl::Seconds(40)), "eta 1:00");
}

TEST(TimeLeftTest, TakesAnyNumber) {
  const absl::Time start = absl::UnixEpoch();
  TimeLeft left;
  left.Text(0, start);
  EXPECT_EQ(left.Text(std::nan(""), start + absl::Seconds(10)), "");
  // 10^9 s are 277777 h, 46 min, 40 s.
  EXPECT_EQ(left.Text(1e-300, start + absl::Seconds(10)), "eta 277777:46:40");
}

TEST_F(ProgressBarTest, AFileIsNoTerminal) {
  ProgressBar bar({.out = bar_file_, .text = text_file_});
  EXPECT_FALSE(bar.draws());
}

}  // namespace
}  // namespace miniray::ml
