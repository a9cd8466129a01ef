#include "runtime/dashboard/log_text.h"

#include <string>

#include "gtest/gtest.h"
#include "runtime/base/utf8.h"

namespace miniray {
namespace {

TEST(LogTextTest, TextIsShownAtOnce) {
  LogText text("");
  EXPECT_EQ(text.Add("one\ntw"), "one\ntw");
  EXPECT_EQ(text.held(), 0u);
  EXPECT_EQ(text.Add("o\n"), "o\n");
  EXPECT_EQ(text.Flush(), "");
}

TEST(LogTextTest, NoCharacterIsCut) {
  const std::string all = "a\u00e9\u20ac\U0001f600z";  // Of 1 to 4 bytes.
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    LogText text("");
    const std::string first = text.Add(all.substr(0, cut));
    EXPECT_TRUE(IsUtf8(first));
    EXPECT_EQ(first.size() + text.held(), cut);
    EXPECT_LE(text.held(), 3u);
    EXPECT_EQ(first + text.Add(all.substr(cut)), all) << cut;
  }
}

TEST(LogTextTest, BytesThatAreNoTextAreShownAsSuch) {
  LogText text("");
  EXPECT_EQ(text.Add("a\xff\xfe z"), "a\ufffd\ufffd z");
  // A character that never ends.
  EXPECT_EQ(text.Add("\xe2\x82"), "");
  EXPECT_EQ(text.Add("x"), "\ufffd\ufffdx");
  EXPECT_EQ(text.Add("\xf0\x9f"), "");
  EXPECT_EQ(text.Flush(), "\ufffd\ufffd");
  EXPECT_EQ(text.Flush(), "");
  // Only the middle of one.
  EXPECT_EQ(text.Add("\x80\x80\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");
}

TEST(LogTextTest, OnlyLinesThatContainTheFilter) {
  LogText text("LoSs");
  EXPECT_EQ(text.Add("loss 1\nother\nthe LOSS of"), "loss 1\n");
  EXPECT_EQ(text.held(), 11u);
  EXPECT_EQ(text.Add(" it\nlo"), "the LOSS of it\n");
  EXPECT_EQ(text.Add("s"), "");
  EXPECT_EQ(text.Add("s"), "");
  EXPECT_EQ(text.Flush(), "loss");
  EXPECT_EQ(text.Add("no\n"), "");
  EXPECT_EQ(text.Flush(), "");
}

TEST(LogTextTest, ALineWithoutAnEndIsNotKept) {
  LogText text("x");
  size_t shown = 0;
  for (int i = 0; i < 100; ++i) {
    shown += text.Add(std::string(10'000, 'x')).size();
    EXPECT_LE(text.held(), LogText::kMaxLine);
  }
  EXPECT_EQ(shown + text.Flush().size(), 1'000'000u);
}

}  // namespace
}  // namespace miniray
