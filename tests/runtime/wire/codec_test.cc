// Every type of codec.h there and back, its bytes as proto/value.proto says,
// and what does not fit refused.

#include "runtime/wire/codec.h"

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/cluster.pb.h"
#include "proto/value.pb.h"
#include "tests/runtime/base/status_matchers.h"

namespace shop {

enum class Colour { kRed, kGreen = 7, kNone = -1 };
enum class Small : uint8_t { kLast = 255 };
enum class Large : uint64_t { kTop = 0x8000000000000001 };
enum class Switch : bool { kOff, kOn };
enum Plain { kPlainA = 3 };

struct Item {
  std::string name;
  double price = 0;
  bool operator==(const Item&) const = default;
};
MINIRAY_STRUCT(Item, name, price);

struct Order {
  int64_t id = 0;
  Colour colour = Colour::kRed;
  std::vector<Item> items;
  std::map<std::string, std::vector<int>> notes;
  std::optional<Item> gift;
  std::pair<int, std::array<float, 2>> place;
  bool operator==(const Order&) const = default;
};
MINIRAY_STRUCT(Order, id, colour, items, notes, gift, place);

// A type that contains itself: bytes decide how deep it goes.
struct Tree {
  int value = 0;
  std::vector<Tree> children;
};
MINIRAY_STRUCT(Tree, value, children);

}  // namespace shop

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

template <class T>
v1::Value Encoded(const T& value) {
  v1::Value result;
  const auto bytes = EncodeValue(value);
  EXPECT_THAT(bytes, IsOk());
  if (!bytes.ok()) return result;
  EXPECT_TRUE(result.ParseFromString(std::string(*bytes)));
  // Ours are the bytes that protobuf's own serializer writes, which has padding
  // last.
  v1::Value plain = result;
  plain.clear_padding();
  EXPECT_TRUE(absl::EndsWith(std::string(*bytes), plain.SerializeAsString()));
  EXPECT_EQ(result.ByteSizeLong(), bytes->size());
  return result;
}

template <class T>
absl::StatusOr<T> Decoded(const v1::Value& value) {
  T result{};
  MR_RETURN_IF_ERROR(
      DecodeValue(absl::Cord(value.SerializeAsString()), &result));
  return result;
}

template <class T>
void ExpectRoundTrip(const T& value) {
  const absl::StatusOr<T> back = Decoded<T>(Encoded(value));
  ASSERT_THAT(back, IsOk());
  EXPECT_TRUE(*back == value) << testing::PrintToString(value);
}

v1::Value IntValue(int64_t number) {
  v1::Value value;
  value.set_int_value(number);
  return value;
}

v1::Value UintValue(uint64_t number) {
  v1::Value value;
  value.set_uint_value(number);
  return value;
}

// --- Numbers.

template <class T>
class IntegerTest : public ::testing::Test {};

using Integers =
    ::testing::Types<char, signed char, unsigned char, short, unsigned short,
                     int, unsigned, long, unsigned long, long long,
                     unsigned long long, wchar_t, char8_t, char16_t, char32_t>;
TYPED_TEST_SUITE(IntegerTest, Integers);

TYPED_TEST(IntegerTest, LimitsPassAndWhatIsBeyondIsRefused) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const TypeParam value :
       {Limits::min(), TypeParam{0}, TypeParam{1}, Limits::max()}) {
    ExpectRoundTrip(value);
  }
  // Signed and unsigned senders are both understood while the value fits.
  const auto max = static_cast<uint64_t>(Limits::max());
  EXPECT_EQ(Decoded<TypeParam>(UintValue(max)).value(), Limits::max());
  if (max <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    EXPECT_EQ(Decoded<TypeParam>(IntValue(static_cast<int64_t>(max))).value(),
              Limits::max());
  }
  if (max < std::numeric_limits<uint64_t>::max()) {
    EXPECT_THAT(Decoded<TypeParam>(UintValue(max + 1)),
                StatusIs(kInvalid, AllOf(HasSubstr(absl::StrCat(max + 1)),
                                         HasSubstr("does not fit"))));
  }
  const auto min = static_cast<int64_t>(Limits::min());
  EXPECT_EQ(Decoded<TypeParam>(IntValue(min)).value(), Limits::min());
  if (min > std::numeric_limits<int64_t>::min()) {
    EXPECT_THAT(Decoded<TypeParam>(IntValue(min - 1)),
                StatusIs(kInvalid, HasSubstr(absl::StrCat(min - 1))));
  }
  EXPECT_THAT(
      Decoded<TypeParam>(IntValue(std::numeric_limits<int64_t>::min())).ok(),
      min == std::numeric_limits<int64_t>::min());
}

TYPED_TEST(IntegerTest, OtherKindsAreRefused) {
  v1::Value value;
  EXPECT_THAT(Decoded<TypeParam>(value),
              StatusIs(kInvalid, "expected an integer, got nothing"));
  value.set_double_value(1);
  EXPECT_THAT(
      Decoded<TypeParam>(value),
      StatusIs(kInvalid, "expected an integer, got a floating-point number"));
  value.set_bool_value(true);
  EXPECT_THAT(Decoded<TypeParam>(value),
              StatusIs(kInvalid, "expected an integer, got a bool"));
}

TEST(CodecTest, IntegersTravelAsTheirSignSays) {
  EXPECT_EQ(Encoded(-3).int_value(), -3);
  EXPECT_EQ(Encoded(3u).uint_value(), 3u);
  EXPECT_EQ(Encoded(int64_t{3}).kind_case(), v1::Value::kIntValue);
  EXPECT_EQ(Encoded(uint8_t{3}).kind_case(), v1::Value::kUintValue);
}

TEST(CodecTest, Bool) {
  ExpectRoundTrip(true);
  ExpectRoundTrip(false);
  EXPECT_EQ(Encoded(false).kind_case(), v1::Value::kBoolValue);
  EXPECT_THAT(Decoded<bool>(IntValue(1)),
              StatusIs(kInvalid, "expected a bool, got an integer"));
}

TEST(CodecTest, Enums) {
  ExpectRoundTrip(shop::Colour::kGreen);
  ExpectRoundTrip(shop::Colour::kNone);
  ExpectRoundTrip(shop::Small::kLast);
  ExpectRoundTrip(shop::Large::kTop);
  ExpectRoundTrip(shop::Switch::kOn);
  ExpectRoundTrip(shop::kPlainA);
  EXPECT_THAT(Decoded<shop::Small>(IntValue(256)),
              StatusIs(kInvalid, HasSubstr("256")));
  EXPECT_THAT(Decoded<shop::Small>(IntValue(-1)), StatusIs(kInvalid));
}

TEST(CodecTest, FloatingPoint) {
  for (double number : {0.0, -0.0, 0.1, 1e308, -1e-308}) {
    ExpectRoundTrip(number);
  }
  for (float number : {0.0f, 0.1f, 3e38f, -1e-45f}) ExpectRoundTrip(number);
  ExpectRoundTrip(std::numeric_limits<double>::infinity());
  const double nan =
      Decoded<double>(Encoded(std::numeric_limits<double>::quiet_NaN()))
          .value();
  EXPECT_NE(nan, nan);
  EXPECT_EQ(Encoded(0.5f).double_value(), 0.5);
}

TEST(CodecTest, AnIntegerPassesForAFloatingPointNumber) {
  EXPECT_EQ(Decoded<double>(IntValue(-7)).value(), -7.0);
  EXPECT_EQ(Decoded<float>(UintValue(1u << 20)).value(), 1048576.0f);
  EXPECT_EQ(Decoded<double>(UintValue(~uint64_t{0})).value(), 0x1p64);
  v1::Value text;
  text.set_string_value("1.5");
  EXPECT_THAT(Decoded<double>(text),
              StatusIs(kInvalid, "expected a number, got a string"));
}

// --- Strings and bytes.

TEST(CodecTest, Strings) {
  for (const std::string& text :
       {std::string(), std::string("plain"), std::string("\0\n", 2),
        std::string("gr\xc3\xbc\xc3\x9f"), std::string(100000, 's')}) {
    ExpectRoundTrip(text);
    EXPECT_EQ(Encoded(text).string_value(), text);
  }
}

TEST(CodecTest, StringsThatAreNotUtf8TravelAsBytes) {
  const std::string text = "caf\xe9\xff";
  EXPECT_EQ(Encoded(text).bytes_value(), text);
  ExpectRoundTrip(text);
}

TEST(CodecTest, Cords) {
  const std::string text(5000, '\xfe');
  EXPECT_EQ(Encoded(absl::Cord(text)).bytes_value(), text);
  ExpectRoundTrip(absl::Cord(text));
  ExpectRoundTrip(absl::Cord());
  v1::Value value;
  value.set_string_value("text");
  EXPECT_EQ(Decoded<absl::Cord>(value).value(), "text");
  value.set_bytes_value("bytes");
  EXPECT_EQ(Decoded<std::string>(value).value(), "bytes");
  EXPECT_THAT(Decoded<absl::Cord>(IntValue(1)),
              StatusIs(kInvalid, "expected bytes, got an integer"));
  EXPECT_THAT(Decoded<std::string>(IntValue(1)),
              StatusIs(kInvalid, "expected a string, got an integer"));
}

// --- Containers.

TEST(CodecTest, Lists) {
  ExpectRoundTrip(std::vector<int>{});
  ExpectRoundTrip(std::vector<int>{1, -2, 3});
  ExpectRoundTrip(std::vector<bool>{true, false, true});
  ExpectRoundTrip(std::vector<std::vector<std::string>>{{}, {"a", ""}, {"b"}});
  ExpectRoundTrip(std::array<double, 3>{1, 2, 3});
  ExpectRoundTrip(std::array<int, 0>{});
  const v1::Value list = Encoded(std::vector<int>{1, 2});
  ASSERT_EQ(list.list().items_size(), 2);
  EXPECT_EQ(list.list().items(1).int_value(), 2);
}

TEST(CodecTest, TuplesAndPairs) {
  ExpectRoundTrip(std::pair<int, std::string>{4, "four"});
  ExpectRoundTrip(std::tuple<bool, std::string, double>{true, "x", 0.5});
  ExpectRoundTrip(std::tuple<int>{1});
  ExpectRoundTrip(std::tuple<>{});
  EXPECT_EQ(Encoded(std::pair<int, int>{1, 2}).list().items_size(), 2);
}

TEST(CodecTest, TheNumberOfMembersIsChecked) {
  const v1::Value two = Encoded(std::vector<int>{1, 2});
  EXPECT_THAT((Decoded<std::array<int, 3>>(two)),
              StatusIs(kInvalid, "expected 3 members, got 2"));
  EXPECT_THAT((Decoded<std::tuple<int>>(two)),
              StatusIs(kInvalid, "expected 1 members, got 2"));
  EXPECT_THAT((Decoded<shop::Item>(Encoded(std::vector<int>{}))),
              StatusIs(kInvalid, "expected 2 members, got 0"));
}

TEST(CodecTest, AWrongMemberIsRefused) {
  EXPECT_THAT((Decoded<std::pair<int, bool>>(Encoded(std::vector<int>{1, 2}))),
              StatusIs(kInvalid, "expected a bool, got an integer"));
  EXPECT_THAT((Decoded<std::vector<int>>(Encoded(std::string("list")))),
              StatusIs(kInvalid, "expected a list, got a string"));
  EXPECT_THAT((Decoded<std::vector<int8_t>>(Encoded(std::vector<int>{1, 200}))),
              StatusIs(kInvalid, HasSubstr("200")));
}

TEST(CodecTest, Maps) {
  ExpectRoundTrip(std::map<std::string, int>{});
  ExpectRoundTrip(std::map<std::string, int>{{"a", 1}, {"b", 2}, {"", 0}});
  ExpectRoundTrip(std::map<int, std::map<bool, std::string>>{
      {1, {{true, "yes"}}}, {2, {}}});
  ExpectRoundTrip(std::unordered_map<std::string, std::vector<int>>{
      {"a", {1, 2}}, {"b", {}}});
  ExpectRoundTrip(std::map<std::pair<int, int>, double>{{{1, 2}, 3}});
  const v1::Value map = Encoded(std::map<std::string, int>{{"k", 5}});
  ASSERT_EQ(map.map().entries_size(), 1);
  EXPECT_EQ(map.map().entries(0).key().string_value(), "k");
  EXPECT_EQ(map.map().entries(0).value().int_value(), 5);
}

TEST(CodecTest, MapsFromOutside) {
  using Map = std::map<std::string, int>;
  v1::Value value;
  for (int number : {1, 2}) {  // A key that comes twice: the last one counts.
    v1::MapEntry* entry = value.mutable_map()->add_entries();
    entry->mutable_key()->set_string_value("k");
    entry->mutable_value()->set_int_value(number);
  }
  EXPECT_EQ(Decoded<Map>(value).value(), (Map{{"k", 2}}));
  value.mutable_map()->mutable_entries(1)->mutable_key()->set_bool_value(true);
  EXPECT_THAT(Decoded<Map>(value),
              StatusIs(kInvalid, "expected a string, got a bool"));
  EXPECT_THAT(Decoded<Map>(IntValue(1)),
              StatusIs(kInvalid, "expected a map, got an integer"));
}

TEST(CodecTest, AMapEntryWithoutKeyOrValueIsRefused) {
  using Map = std::map<std::string, int>;
  v1::Value value;
  value.mutable_map()->add_entries()->mutable_key()->set_string_value("k");
  EXPECT_THAT(Decoded<Map>(value), StatusIs(kInvalid));
  value.Clear();
  value.mutable_map()->add_entries()->mutable_value()->set_int_value(1);
  EXPECT_THAT(Decoded<Map>(value), StatusIs(kInvalid));
  // "Nothing" is a value of an optional, though, and may be left out.
  using Optionals = std::map<std::string, std::optional<int>>;
  value.Clear();
  value.mutable_map()->add_entries()->mutable_key()->set_string_value("k");
  EXPECT_EQ(Decoded<Optionals>(value).value(),
            (Optionals{{"k", std::nullopt}}));
}

TEST(CodecTest, Optionals) {
  ExpectRoundTrip(std::optional<int>());
  ExpectRoundTrip(std::optional<int>(5));
  ExpectRoundTrip(std::optional<std::string>(""));
  ExpectRoundTrip(std::vector<std::optional<double>>{1.0, {}, 2.0});
  ExpectRoundTrip(std::optional<std::vector<int>>(std::vector<int>{}));
  EXPECT_EQ(Encoded(std::optional<int>()).kind_case(), v1::Value::KIND_NOT_SET);
  EXPECT_THAT(Decoded<std::optional<bool>>(IntValue(1)), StatusIs(kInvalid));
}

// --- Structs and messages.

TEST(CodecTest, NestedStructs) {
  ExpectRoundTrip(shop::Item{"pear", 0.25});
  ExpectRoundTrip(shop::Order{});
  ExpectRoundTrip(shop::Order{7,
                              shop::Colour::kGreen,
                              {{"pear", 0.25}, {"\xff", -1}},
                              {{"today", {1, 2}}, {"", {}}},
                              shop::Item{"bow", 0},
                              {3, {0.5f, -0.5f}}});
  const v1::Value item = Encoded(shop::Item{"pear", 0.25});
  ASSERT_EQ(item.list().items_size(), 2);
  EXPECT_EQ(item.list().items(0).string_value(), "pear");
  EXPECT_EQ(item.list().items(1).double_value(), 0.25);
}

TEST(CodecTest, Messages) {
  v1::JobInfo job;
  job.set_job_id("job-1");
  job.set_pid(12);
  const v1::Value value = Encoded(job);
  EXPECT_EQ(value.message().full_name(), "miniray.v1.JobInfo");
  EXPECT_EQ(value.message().serialized(), job.SerializeAsString());
  EXPECT_EQ(Decoded<v1::JobInfo>(value).value().SerializeAsString(),
            job.SerializeAsString());
  EXPECT_EQ(Decoded<v1::JobInfo>(Encoded(v1::JobInfo())).value().pid(), 0);
}

TEST(CodecTest, MessagesOfAnotherTypeOrDamagedAreRefused) {
  v1::Value value = Encoded(v1::JobInfo());
  EXPECT_THAT(Decoded<v1::NodeInfo>(value),
              StatusIs(kInvalid,
                       "expected miniray.v1.NodeInfo, got miniray.v1.JobInfo"));
  value.mutable_message()->set_serialized("\xff\xff");
  EXPECT_THAT(Decoded<v1::JobInfo>(value),
              StatusIs(kInvalid, "malformed miniray.v1.JobInfo"));
  EXPECT_THAT(
      Decoded<v1::JobInfo>(IntValue(1)),
      StatusIs(kInvalid, "expected miniray.v1.JobInfo, got an integer"));
}

// --- Bytes that no encoder of ours writes.

TEST(CodecTest, TheLastOfSeveralKindsCounts) {
  WireWriter writer;
  writer.SignedVarint(2, 1);
  writer.Bytes(5, absl::string_view("text"));
  writer.Varint(200, 1);  // Of a later version: skipped.
  std::string text;
  EXPECT_THAT(DecodeValue(std::move(writer).Take(), &text), IsOk());
  EXPECT_EQ(text, "text");
}

TEST(CodecTest, AKindWithTheWrongWireTypeIsRefused) {
  for (int field = 1; field <= 11; ++field) {
    WireWriter writer;
    if (field <= 4) {
      writer.Bytes(field, absl::string_view("x"));
    } else {
      writer.Varint(field, 1);
    }
    std::optional<int> out;
    EXPECT_THAT(DecodeValue(std::move(writer).Take(), &out),
                StatusIs(kInvalid, HasSubstr("wire type")))
        << field;
  }
}

TEST(CodecTest, AListWithForeignFieldsKeepsItsItems) {
  WireWriter item, list, value;
  item.SignedVarint(2, 4);
  list.Varint(1, 9);
  list.Message(1, std::move(item));
  list.Bytes(3, absl::string_view("later"));
  value.Message(8, std::move(list));
  std::vector<int> out;
  EXPECT_THAT(DecodeValue(std::move(value).Take(), &out), IsOk());
  EXPECT_EQ(out, std::vector<int>{4});
}

shop::Tree DeepTree(int depth) {
  shop::Tree tree;
  for (int i = 1; i < depth; ++i) {
    shop::Tree parent;
    parent.children.push_back(std::move(tree));
    tree = std::move(parent);
  }
  return tree;
}

TEST(CodecTest, DepthIsBounded) {
  // A tree's node takes two levels: a struct and its list.
  shop::Tree out;
  EXPECT_THAT(DecodeValue(EncodeValue(DeepTree(40)).value(), &out), IsOk());
  // Otherwise bytes of a peer could use up the stack.
  EXPECT_THAT(DecodeValue(EncodeValue(DeepTree(2000)).value(), &out),
              StatusIs(kInvalid, HasSubstr("nested")));
  // The count starts anew with each value.
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(DecodeValue(EncodeValue(DeepTree(40)).value(), &out), IsOk());
  }
}

}  // namespace
}  // namespace miniray
