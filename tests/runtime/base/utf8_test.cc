#include "runtime/base/utf8.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

#define BYTES(text) absl::string_view(text, sizeof(text) - 1)

TEST(IsUtf8Test, WellFormed) {
  for (absl::string_view text :
       {BYTES(""), BYTES("ascii\0\x7f"), BYTES("\xc2\x80"), BYTES("\xdf\xbf"),
        BYTES("\xe0\xa0\x80"), BYTES("\xed\x9f\xbf"), BYTES("\xee\x80\x80"),
        BYTES("\xef\xbf\xbf"), BYTES("\xf0\x90\x80\x80"),
        BYTES("\xf4\x8f\xbf\xbf"), BYTES("gr\xc3\xbc\xc3\x9f")}) {
    EXPECT_TRUE(IsUtf8(text)) << testing::PrintToString(text);
  }
}

TEST(IsUtf8Test, Malformed) {
  for (absl::string_view text :
       {BYTES("\x80"), BYTES("\xbf"), BYTES("\xc2"), BYTES("\xc2x"),
        BYTES("\xc0\x80"), BYTES("\xc1\xbf"), BYTES("\xe0\x9f\xbf"),
        BYTES("\xe0\xa0"), BYTES("\xed\xa0\x80"), BYTES("\xed\xbf\xbf"),
        BYTES("\xf0\x8f\xbf\xbf"), BYTES("\xf0\x90\x80"),
        BYTES("\xf4\x90\x80\x80"), BYTES("\xf5\x80\x80\x80"),
        BYTES("\xf8\x88\x80\x80\x80"), BYTES("\xfe"), BYTES("\xff"),
        BYTES("ok\xff"), BYTES("\xc3\xbc\xc3")}) {
    EXPECT_FALSE(IsUtf8(text)) << testing::PrintToString(text);
  }
}

TEST(ToUtf8Test, WellFormedTextStays) {
  for (absl::string_view text :
       {BYTES(""), BYTES("ascii\0\x7f"), BYTES("gr\xc3\xbc\xc3\x9f"),
        BYTES("\xf0\x9f\x90\xa2")}) {
    EXPECT_EQ(ToUtf8(text), text);
  }
}

TEST(ToUtf8Test, EachStrayByteIsReplaced) {
  EXPECT_EQ(ToUtf8("caf\xe9!"), "caf\xef\xbf\xbd!");
  EXPECT_EQ(ToUtf8("\xff\xfe"), "\xef\xbf\xbd\xef\xbf\xbd");
  // A character that was cut in two, at either end.
  EXPECT_EQ(ToUtf8("\x82\xac and \xe2\x82"),
            "\xef\xbf\xbd\xef\xbf\xbd and \xef\xbf\xbd\xef\xbf\xbd");
}

TEST(ToUtf8Test, ResultIsAlwaysWellFormed) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string text = {static_cast<char>(a), static_cast<char>(b)};
      EXPECT_TRUE(IsUtf8(ToUtf8(text)));
      EXPECT_EQ(IsUtf8(text), ToUtf8(text) == text);
    }
  }
}

TEST(ShortenTest, SaysHowMuchIsLeftOut) {
  EXPECT_EQ(Shorten("", 0), "");
  EXPECT_EQ(Shorten("abc", 3), "abc");
  EXPECT_EQ(Shorten("abcde", 3), "abc... (2 bytes more)");
}

TEST(ShortenTest, CutsNoCharacterInTwo) {
  const std::string text = "a\xf0\x9f\x90\xa2z";
  for (size_t max_bytes = 1; max_bytes < 5; ++max_bytes) {
    EXPECT_EQ(Shorten(text, max_bytes), "a... (5 bytes more)");
  }
  EXPECT_EQ(Shorten(text, 5), "a\xf0\x9f\x90\xa2... (1 bytes more)");
  // Whatever it is.
  EXPECT_EQ(Shorten(std::string(9, '\x80'), 8),
            "\x80\x80\x80\x80\x80... (4 bytes more)");
}

}  // namespace
}  // namespace miniray
