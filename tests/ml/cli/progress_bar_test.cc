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

TEST_F(ProgressBarTest, AFileIsNoTerminal) {
  ProgressBar bar({.out = bar_file_, .text = text_file_});
  EXPECT_FALSE(bar.draws());
}

}  // namespace
}  // namespace miniray::ml
