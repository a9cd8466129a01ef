#include "runtime/base/token.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TokenTest, WhatCanTravel) {
  EXPECT_THAT(CheckTokenText("", "x"), IsOk());
  EXPECT_THAT(CheckTokenText("a-Z09_/+=!~", "x"), IsOk());
  EXPECT_THAT(CheckTokenText(std::string(kMaxTokenBytes, 'a'), "x"), IsOk());
}

TEST(TokenTest, WhatCannotIsNamedByItsSourceAndNeverShown) {
  for (const std::string& token :
       {std::string("secret\xc3\xa4"), std::string("secret\xff"),
        std::string("secret secret"), std::string("secret\n"),
        std::string("secret\0", 7), std::string(20000, 's')}) {
    EXPECT_THAT(
        CheckTokenText(token, "$MINIRAY_TOKEN"),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("$MINIRAY_TOKEN"), Not(HasSubstr("secret")),
                       Not(HasSubstr("ssss")))));
  }
}

TEST(TokenTest, OnlyTheSameMatches) {
  EXPECT_TRUE(TokensMatch("abc", "abc"));
  EXPECT_FALSE(TokensMatch("abd", "abc"));
  EXPECT_FALSE(TokensMatch("bbc", "abc"));
  EXPECT_FALSE(TokensMatch("ABC", "abc"));
  // Of another length.
  EXPECT_FALSE(TokensMatch("", "abc"));
  EXPECT_FALSE(TokensMatch("ab", "abc"));
  EXPECT_FALSE(TokensMatch("abcd", "abc"));
  EXPECT_FALSE(TokensMatch(absl::string_view("abc\0", 4), "abc"));
  // Beyond a zero byte, too.
  EXPECT_FALSE(
      TokensMatch(absl::string_view("a\0b", 3), absl::string_view("a\0c", 3)));
}

}  // namespace
}  // namespace miniray
