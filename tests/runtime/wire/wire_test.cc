// WireReader and WireWriter against protobuf's own classes.

#include "runtime/wire/wire.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/wire_format_lite.h"
#include "gtest/gtest.h"
#include "proto/value.pb.h"
#include "runtime/base/utf8.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

#define BYTES(text) absl::string_view(text, sizeof(text) - 1)

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

const std::vector<uint64_t>& Numbers() {
  static const auto* const numbers = [] {
    auto* all =
        new std::vector<uint64_t>{0, 1, std::numeric_limits<uint64_t>::max()};
    for (int bit = 0; bit < 64; ++bit) {
      const uint64_t power = uint64_t{1} << bit;
      all->insert(all->end(), {power - 1, power, power + 1});
    }
    return all;
  }();
  return *numbers;
}

// A cord of pieces of `piece` bytes that are not in one block of memory.
absl::Cord Fragmented(absl::string_view bytes, size_t piece) {
  absl::Cord cord;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    auto* part = new std::string(bytes.substr(at, piece));
    cord.Append(absl::MakeCordFromExternal(
        *part, [part](absl::string_view) { delete part; }));
  }
  return cord;
}

TEST(WireWriterTest, UnsignedNumbersAreReadByProtobuf) {
  for (uint64_t number : Numbers()) {
    WireWriter writer;
    writer.Varint(v1::Value::kUintValueFieldNumber, number);
    const std::string bytes(std::move(writer).Take());
    v1::Value value;
    ASSERT_TRUE(value.ParseFromString(bytes));
    EXPECT_EQ(value.uint_value(), number);
    EXPECT_EQ(value.SerializeAsString(), bytes);
  }
}

TEST(WireWriterTest, SignedNumbersAreReadByProtobuf) {
  for (uint64_t bits : Numbers()) {
    for (const auto number :
         {static_cast<int64_t>(bits), static_cast<int64_t>(~bits)}) {
      WireWriter writer;
      writer.SignedVarint(v1::Value::kIntValueFieldNumber, number);
      const std::string bytes(std::move(writer).Take());
      v1::Value value;
      ASSERT_TRUE(value.ParseFromString(bytes));
      EXPECT_EQ(value.int_value(), number);
      EXPECT_EQ(value.SerializeAsString(), bytes);
    }
  }
}

TEST(WireWriterTest, DoublesAreReadByProtobuf) {
  using Limits = std::numeric_limits<double>;
  for (double number : {0.0, -0.0, 1.5, -1e300, Limits::denorm_min(),
                        Limits::infinity(), Limits::quiet_NaN()}) {
    WireWriter writer;
    writer.Double(v1::Value::kDoubleValueFieldNumber, number);
    const std::string bytes(std::move(writer).Take());
    v1::Value value;
    ASSERT_TRUE(value.ParseFromString(bytes));
    EXPECT_EQ(value.SerializeAsString(), bytes);
    const absl::Cord cord(bytes);
    WireReader reader(cord);
    WireField field;
    ASSERT_THAT(reader.Next(&field), IsOk());
    EXPECT_EQ(field.type, WireField::Type::kFixed64);
    EXPECT_EQ(std::signbit(field.as_double()), std::signbit(number));
    EXPECT_TRUE(field.as_double() == number || number != number);
  }
}

TEST(WireWriterTest, BytesOfEverySizeAroundTheSharingThreshold) {
  for (size_t size : {0u, 1u, 127u, 128u, 511u, 512u, 513u, 20000u}) {
    const std::string text(size, 'q');
    for (const bool as_cord : {false, true}) {
      WireWriter writer;
      writer.Varint(3, 7);  // Of a oneof: the last one counts.
      if (as_cord) {
        writer.Bytes(6, absl::Cord(text));
      } else {
        writer.Bytes(6, absl::string_view(text));
      }
      const uint64_t announced = writer.size();
      const std::string bytes(std::move(writer).Take());
      EXPECT_EQ(bytes.size(), announced);
      v1::Value value;
      ASSERT_TRUE(value.ParseFromString(bytes));
      EXPECT_EQ(value.bytes_value(), text);
    }
  }
}

TEST(WireWriterTest, LargeBytesAreNotCopied) {
  const std::string memory(100000, 'm');
  WireWriter inner;
  inner.Varint(1, 5);
  inner.Bytes(15, absl::MakeCordFromExternal(memory, [](absl::string_view) {}));
  WireWriter outer;
  outer.Bytes(5, absl::string_view("before"));
  outer.Message(7, std::move(inner));
  outer.Varint(3, 1);
  const absl::Cord bytes = std::move(outer).Take();
  bool found = false;
  for (absl::string_view chunk : bytes.Chunks()) {
    found = found || chunk.data() == memory.data();
  }
  EXPECT_TRUE(found);

  // Nor when they are cut out again.
  WireReader reader(bytes);
  WireField field;
  ASSERT_THAT(reader.Next(&field), IsOk());
  EXPECT_EQ(field.bytes, "before");
  ASSERT_THAT(reader.Next(&field), IsOk());
  EXPECT_EQ(field.number, 7);
  WireReader nested(field.bytes);
  ASSERT_THAT(nested.Next(&field), IsOk());
  ASSERT_THAT(nested.Next(&field), IsOk());
  EXPECT_TRUE(nested.done());
  ASSERT_TRUE(field.bytes.TryFlat().has_value());
  EXPECT_EQ(field.bytes.TryFlat()->data(), memory.data());
}

TEST(WireWriterTest, NestedMessagesAndRawFields) {
  v1::Value expected;
  v1::Value* first = expected.mutable_list()->add_items();
  first->set_string_value("small");
  expected.mutable_list()->add_items()->set_bytes_value(
      std::string(3000, '\xff'));
  expected.mutable_list()->add_items();  // Nothing.

  WireWriter items, small, large;
  small.Bytes(5, absl::string_view("small"));
  large.Bytes(6, absl::Cord(std::string(3000, '\xff')));
  items.Message(1, std::move(small));
  items.Message(1, std::move(large));
  items.Message(1, WireWriter());
  WireWriter value;
  WireWriter list;
  list.Raw(std::move(items).Take());
  value.Message(8, std::move(list));
  EXPECT_EQ(std::string(std::move(value).Take()), expected.SerializeAsString());
}

// Where each item's bytes begin in the message.
std::vector<uint64_t> BytesIn(const absl::Cord& message) {
  const std::string flat(message);
  v1::Value value;
  EXPECT_TRUE(value.ParseFromString(flat));
  std::vector<uint64_t> places;
  for (const v1::Value& item : value.list().items()) {
    places.push_back(flat.find(item.bytes_value()));
  }
  return places;
}

TEST(WireWriterTest, LargePartsBeginAtCacheLines) {
  constexpr int kPadding = v1::Value::kPaddingFieldNumber;
  constexpr int kItems = v1::ListValue::kItemsFieldNumber;
  // Around the sizes at which a length takes one byte more, each after every
  // offset from a cache line.
  for (const size_t size : {4096, 16250, 16384, 2097020, 2097152}) {
    for (size_t odd = 0; odd<134; odd += size> 100000 ? 19 : 1) {
      WireWriter items;
      std::vector<size_t> sizes = {size + odd, 5000, 3, size - odd / 2 + 67};
      for (size_t i = 0; i < sizes.size(); ++i) {
        WireWriter item;
        item.Bytes(
            v1::Value::kBytesValueFieldNumber,
            absl::Cord(std::string(sizes[i], static_cast<char>('a' + i))));
        items.AlignedMessage(kItems, std::move(item), kPadding);
      }
      WireWriter list;
      list.Message(v1::Value::kListFieldNumber, std::move(items));
      const std::vector<uint64_t> places =
          BytesIn(std::move(list).TakeAligned(kPadding));
      ASSERT_EQ(places.size(), sizes.size());
      for (const size_t i : {0, 1, 3}) {
        ASSERT_EQ(places[i] % 64, 0u) << size << " + " << odd << ", item " << i;
      }
    }
  }
}

TEST(WireWriterTest, WhatHasNoLargePartIsNotPadded) {
  WireWriter item;
  item.Bytes(v1::Value::kBytesValueFieldNumber,
             absl::Cord(std::string(4095, 'x')));
  WireWriter items;
  items.AlignedMessage(1, std::move(item), v1::Value::kPaddingFieldNumber);
  const uint64_t size = items.size();
  EXPECT_EQ(size, 4095u + 3 + 3);
  EXPECT_EQ(std::move(items).TakeAligned(v1::Value::kPaddingFieldNumber).size(),
            size);
}

TEST(WireWriterTest, EmptyMessage) {
  WireWriter writer;
  EXPECT_EQ(writer.size(), 0u);
  EXPECT_TRUE(std::move(writer).Take().empty());
}

TEST(WireReaderTest, FieldsOfAnyFragmentation) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DTYPE_FLOAT32);
  tensor.add_shape(300);
  tensor.set_data(std::string(1200, 'd'));
  const std::string bytes = tensor.SerializeAsString();
  for (size_t piece : {1u, 2u, 3u, 7u, 100u, 5000u}) {
    const absl::Cord cord = Fragmented(bytes, piece);
    WireReader reader(cord);
    WireField field;
    ASSERT_THAT(reader.Next(&field), IsOk());
    EXPECT_EQ(field.number, 1);
    EXPECT_EQ(field.type, WireField::Type::kVarint);
    EXPECT_EQ(field.scalar, 9u);
    ASSERT_THAT(reader.Next(&field), IsOk());
    EXPECT_EQ(field.number, 2);
    EXPECT_EQ(field.type, WireField::Type::kBytes);
    WireReader packed(field.bytes);
    EXPECT_EQ(packed.RawVarint().value(), 300u);
    EXPECT_TRUE(packed.done());
    ASSERT_THAT(reader.Next(&field), IsOk());
    EXPECT_EQ(field.number, 15);
    EXPECT_EQ(field.bytes, tensor.data());
    EXPECT_TRUE(reader.done());
  }
}

TEST(WireReaderTest, FixedNumbers) {
  const absl::Cord cord(
      BYTES("\x0d\x01\x02\x03\x04"
            "\x11\x01\x02\x03\x04\x05\x06\x07\x08"));
  WireReader reader(cord);
  WireField field;
  ASSERT_THAT(reader.Next(&field), IsOk());
  EXPECT_EQ(field.number, 1);
  EXPECT_EQ(field.type, WireField::Type::kFixed32);
  EXPECT_EQ(field.scalar, 0x04030201u);
  ASSERT_THAT(reader.Next(&field), IsOk());
  EXPECT_EQ(field.number, 2);
  EXPECT_EQ(field.type, WireField::Type::kFixed64);
  EXPECT_EQ(field.scalar, 0x0807060504030201u);
  EXPECT_TRUE(reader.done());
}

TEST(WireReaderTest, TheGreatestFieldNumber) {
  WireWriter writer;
  writer.Varint(0x1fffffff, 1);
  const absl::Cord cord = std::move(writer).Take();
  WireReader reader(cord);
  WireField field;
  ASSERT_THAT(reader.Next(&field), IsOk());
  EXPECT_EQ(field.number, 0x1fffffff);
}

TEST(WireReaderTest, NumbersLongerThanNeededAreTaken) {
  const absl::Cord cord(BYTES("\x08\x81\x80\x80\x00"));
  WireReader reader(cord);
  WireField field;
  ASSERT_THAT(reader.Next(&field), IsOk());
  EXPECT_EQ(field.scalar, 1u);
}

struct MalformedCase {
  const char* name;
  absl::string_view bytes;
  const char* message;
};

class MalformedTest : public ::testing::TestWithParam<MalformedCase> {};

TEST_P(MalformedTest, IsAStatus) {
  for (size_t piece : {1u, 100u}) {
    const absl::Cord cord = Fragmented(GetParam().bytes, piece);
    WireReader reader(cord);
    WireField field;
    ASSERT_FALSE(reader.done());
    EXPECT_THAT(reader.Next(&field),
                StatusIs(kInvalid, AllOf(HasSubstr("malformed"),
                                         HasSubstr(GetParam().message))));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MalformedTest,
    ::testing::Values(
        MalformedCase{"TagCutOff", BYTES("\x80"), "cut off"},
        MalformedCase{"NumberMissing", BYTES("\x08"), "cut off"},
        MalformedCase{"NumberCutOff", BYTES("\x08\xff\xff"), "cut off"},
        MalformedCase{"NumberOfElevenBytes",
                      BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
                      "more than 64 bits"},
        MalformedCase{"NumberOf65Bits",
                      BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
                      "more than 64 bits"},
        MalformedCase{"FieldZero", BYTES("\x00\x01"), "out of range"},
        MalformedCase{"FieldTooLarge", BYTES("\x80\x80\x80\x80\x10\x01"),
                      "out of range"},
        MalformedCase{"Fixed64CutOff", BYTES("\x09\x01\x02\x03"), "cut off"},
        MalformedCase{"Fixed32CutOff", BYTES("\x0d\x01\x02\x03"), "cut off"},
        MalformedCase{"BytesWithoutLength", BYTES("\x0a"), "cut off"},
        MalformedCase{"BytesCutOff", BYTES("\x0a\x05hell"),
                      "says it has 5 bytes, but 4 are left"},
        MalformedCase{"BytesOf2To64",
                      BYTES("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
                      "18446744073709551615 bytes"},
        MalformedCase{"StartGroup", BYTES("\x0b\x0c"), "wire type 3"},
        MalformedCase{"EndGroup", BYTES("\x0c"), "wire type 4"},
        MalformedCase{"WireType6", BYTES("\x0e"), "wire type 6"},
        MalformedCase{"WireType7", BYTES("\x0f"), "wire type 7"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ZigzagTest, IsProtobufs) {
  using google::protobuf::internal::WireFormatLite;
  for (uint64_t bits : Numbers()) {
    WireField field;
    field.scalar = bits;
    EXPECT_EQ(field.zigzag(), WireFormatLite::ZigZagDecode64(bits));
  }
}

// Every string of up to three bytes out of the interesting ones: the same
// verdict as protobuf's, which refuses a `string` that is not UTF-8.
TEST(IsUtf8Test, AgreesWithProtobuf) {
  google::protobuf::SetLogHandler(nullptr);  // Would tell of each refusal.
  const std::string interesting(
      BYTES("\x00z\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed"
            "\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"));
  auto check = [](const std::string& text) {
    v1::Value value;
    WireWriter writer;
    writer.Bytes(v1::Value::kStringValueFieldNumber, absl::string_view(text));
    EXPECT_EQ(value.ParseFromString(std::string(std::move(writer).Take())),
              IsUtf8(text))
        << testing::PrintToString(text);
  };
  for (char a : interesting) {
    check({a});
    for (char b : interesting) {
      check({a, b});
      for (char c : interesting) {
        check({a, b, c});
        check({a, b, c, '\x80'});
      }
    }
  }
}

}  // namespace
}  // namespace miniray
