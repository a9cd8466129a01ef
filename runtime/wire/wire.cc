#include "runtime/wire/wire.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Protobuf wire types.
constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kLengthDelimited = 2;
constexpr int kFixed32 = 5;

// A piece up to this size is copied rather than shared: a shared piece costs
// more in bookkeeping.
constexpr size_t kShareThreshold = 512;

// Of a part that is worth aligning.
constexpr size_t kLargePart = 4096;
constexpr uint64_t kCacheLine = 64;

// Tag and length take a byte each, so a byte of padding is none.
constexpr uint64_t kMinPadding = 2;
constexpr uint64_t kMaxPadding = 129;

uint64_t VarintSize(uint64_t value) {
  return (static_cast<uint64_t>(std::bit_width(value | 1)) + 6) / 7;
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed protobuf message: ", what));
}

uint64_t LittleEndian(const char* bytes, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

void WireWriter::RawVarint(uint64_t value) {
  while (value >= 0x80) {
    tail_.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  tail_.push_back(static_cast<char>(value));
}

void WireWriter::Tag(int field, int wire_type) {
  RawVarint(static_cast<uint64_t>(field) << 3 |
            static_cast<uint64_t>(wire_type));
}

void WireWriter::Varint(int field, uint64_t value) {
  Tag(field, kVarint);
  RawVarint(value);
}

void WireWriter::SignedVarint(int field, int64_t value) {
  Varint(field, static_cast<uint64_t>(value) << 1 ^
                    static_cast<uint64_t>(value >> 63));
}

void WireWriter::Double(int field, double value) {
  Tag(field, kFixed64);
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  for (int i = 0; i < 8; ++i) {
    tail_.push_back(static_cast<char>(bits >> (8 * i)));
  }
}

void WireWriter::PackedVarints(int field, const std::vector<uint64_t>& values) {
  if (values.empty()) return;
  WireWriter packed;
  for (const uint64_t value : values) packed.RawVarint(value);
  Message(field, std::move(packed));
}

void WireWriter::Bytes(int field, absl::string_view bytes) {
  Tag(field, kLengthDelimited);
  RawVarint(bytes.size());
  tail_.append(bytes.data(), bytes.size());
}

void WireWriter::Bytes(int field, absl::Cord bytes) {
  Tag(field, kLengthDelimited);
  RawVarint(bytes.size());
  if (bytes.size() >= kLargePart && !large_at_.has_value()) {
    large_at_ = size() % kCacheLine;
  }
  Append(std::move(bytes));
}

void WireWriter::Message(int field, WireWriter nested) {
  Tag(field, kLengthDelimited);
  RawVarint(nested.size());
  if (nested.large_at_.has_value() && !large_at_.has_value()) {
    large_at_ = (size() + *nested.large_at_) % kCacheLine;
  }
  if (!nested.cord_.empty()) Append(std::move(nested.cord_));
  tail_.append(nested.tail_);
}

void WireWriter::AlignedMessage(int field, WireWriter nested, int padding) {
  if (large_at_.has_value() && nested.large_at_.has_value()) {
    const uint64_t tag_at = size() + VarintSize(uint64_t{8} * field);
    const auto fits = [&](uint64_t bytes) {
      return (tag_at + VarintSize(nested.size() + bytes) + bytes +
              *nested.large_at_) %
                 kCacheLine ==
             *large_at_;
    };
    uint64_t bytes = 0;
    while (!fits(bytes) && bytes < kMaxPadding) {
      bytes = std::max(bytes + 1, kMinPadding);
    }
    if (bytes > 0) nested.PrependPadding(padding, bytes);
  }
  Message(field, std::move(nested));
}

void WireWriter::PrependPadding(int padding, uint64_t bytes) {
  WireWriter field;
  field.Tag(padding, kLengthDelimited);
  field.RawVarint(bytes - kMinPadding);
  field.tail_.resize(bytes);
  cord_.Prepend(field.tail_);
  if (large_at_.has_value()) large_at_ = (*large_at_ + bytes) % kCacheLine;
}

void WireWriter::Raw(absl::Cord fields) { Append(std::move(fields)); }

void WireWriter::Append(absl::Cord cord) {
  if (cord.size() <= kShareThreshold) {
    for (absl::string_view chunk : cord.Chunks()) {
      tail_.append(chunk.data(), chunk.size());
    }
    return;
  }
  if (!tail_.empty()) cord_.Append(std::exchange(tail_, {}));
  cord_.Append(std::move(cord));
}

absl::Cord WireWriter::Take() && {
  if (cord_.empty()) return absl::Cord(std::move(tail_));
  cord_.Append(std::move(tail_));
  return std::move(cord_);
}

absl::Cord WireWriter::TakeAligned(int padding) && {
  if (large_at_.value_or(0) != 0) {
    uint64_t bytes = kCacheLine - *large_at_;
    if (bytes < kMinPadding) bytes += kCacheLine;
    PrependPadding(padding, bytes);
  }
  return std::move(*this).Take();
}

double WireField::as_double() const { return std::bit_cast<double>(scalar); }

absl::StatusOr<uint64_t> WireReader::RawVarint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (left_ == 0) return Malformed("a number is cut off");
    const auto byte = static_cast<unsigned char>(*position_);
    ++position_;
    --left_;
    if (shift == 63 && byte > 1) break;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return Malformed("a number has more than 64 bits");
}

absl::Status WireReader::Next(WireField* field) {
  MR_ASSIGN_OR_RETURN(const uint64_t tag, RawVarint());
  if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff) {
    return Malformed("a field number is out of range");
  }
  field->number = static_cast<int>(tag >> 3);
  switch (tag & 7) {
    case kVarint: {
      field->type = WireField::Type::kVarint;
      MR_ASSIGN_OR_RETURN(field->scalar, RawVarint());
      return absl::OkStatus();
    }
    case kFixed64:
    case kFixed32: {
      const bool wide = (tag & 7) == kFixed64;
      const uint64_t size = wide ? 8 : 4;
      field->type =
          wide ? WireField::Type::kFixed64 : WireField::Type::kFixed32;
      if (left_ < size) return Malformed("a number is cut off");
      char bytes[8];
      for (uint64_t i = 0; i < size; ++i, ++position_) bytes[i] = *position_;
      left_ -= size;
      field->scalar = LittleEndian(bytes, static_cast<int>(size));
      return absl::OkStatus();
    }
    case kLengthDelimited: {
      field->type = WireField::Type::kBytes;
      MR_ASSIGN_OR_RETURN(const uint64_t size, RawVarint());
      if (size > left_) {
        return Malformed(absl::StrCat("field ", field->number, " says it has ",
                                      size, " bytes, but ", left_,
                                      " are left"));
      }
      field->bytes = absl::Cord::AdvanceAndRead(&position_, size);
      left_ -= size;
      return absl::OkStatus();
    }
    default:
      return Malformed(absl::StrCat("field ", field->number,
                                    " has the unknown wire type ", tag & 7));
  }
}

}  // namespace miniray
