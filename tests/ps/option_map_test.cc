#include "ps/option_map.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ps {
namespace {

using ::testing::HasSubstr;

OptionMap Example() {
  return {{"momentum", 0.9}, {"warmup", 5}, {"nesterov", true}, {"kind", "a"}};
}

TEST(OptionMapTest, LiteralsHaveTheTypeTheyLookLike) {
  const OptionMap options = Example();
  EXPECT_EQ(*options.GetDouble("momentum", 0), 0.9);
  EXPECT_EQ(*options.GetInt("warmup", 0), 5);
  EXPECT_EQ(*options.GetBool("nesterov", false), true);
  EXPECT_EQ(*options.GetString("kind", ""), "a");
  EXPECT_EQ(options.ToString(),
            "kind=\"a\", momentum=0.9, nesterov=true, warmup=5");
}

TEST(OptionMapTest, ReturnsTheDefaultOfAnOptionThatIsNotSet) {
  const OptionMap options;
  EXPECT_EQ(*options.GetDouble("lr", 0.01), 0.01);
  EXPECT_EQ(*options.GetInt("epochs", 3), 3);
  EXPECT_EQ(*options.GetBool("flag", true), true);
  EXPECT_EQ(*options.GetString("name", "x"), "x");
  EXPECT_FALSE(options.Has("lr"));
}

TEST(OptionMapTest, AnIntegerServesAsNumber) {
  EXPECT_EQ(*Example().GetDouble("warmup", 0), 5.0);
}

TEST(OptionMapTest, AnotherTypeIsAnErrorThatNamesOptionAndValue) {
  const OptionMap options = Example();
  EXPECT_EQ(options.GetInt("momentum", 0).status().message(),
            "option 'momentum' must be of type integer, got the number 0.9");
  EXPECT_FALSE(options.GetDouble("nesterov", 0).ok());
  EXPECT_FALSE(options.GetBool("warmup", false).ok());
  EXPECT_THAT(std::string(options.GetDouble("kind", 0).status().message()),
              HasSubstr("got the string \"a\""));
  EXPECT_FALSE(options.GetString("warmup", "").ok());
}

TEST(OptionMapTest, SetReplaces) {
  OptionMap options = Example();
  options.Set("momentum", 0.5);
  EXPECT_EQ(*options.GetDouble("momentum", 0), 0.5);
  EXPECT_EQ(options.values().size(), 4);
}

TEST(OptionMapTest, Travels) {
  OptionMap options = Example();
  options.Set("low", std::numeric_limits<int64_t>::min());
  options.Set("empty", std::string());
  absl::StatusOr<absl::Cord> encoded = EncodeValue(options);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  OptionMap decoded;
  ASSERT_TRUE(DecodeValue(*encoded, &decoded).ok());
  EXPECT_EQ(decoded.values(), options.values());
}

TEST(OptionMapTest, OtherValuesAreRefused) {
  absl::StatusOr<absl::Cord> encoded =
      EncodeValue(std::map<std::string, std::vector<int>>{{"a", {1}}});
  OptionMap decoded;
  const absl::Status status = DecodeValue(*encoded, &decoded);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a bool, integer, number or string"));
}

}  // namespace
}  // namespace miniray::ps
