#include "runtime/wire/codec.h"

#include "runtime/base/utf8.h"

namespace miniray {
namespace internal {
namespace {

// What protobuf's own parsers allow by default.
constexpr int kMaxNesting = 100;

}  // namespace

constinit thread_local int ReadOnlyScope::depth_ = 0;

constinit thread_local int Nesting::depth_ = 0;

absl::Status Nesting::Check() {
  if (depth_ <= kMaxNesting) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a value is nested more than ", kMaxNesting, " deep"));
}

absl::Status DecodeInteger(const ValueView& view, bool* is_negative,
                           uint64_t* magnitude_bits) {
  switch (view.kind) {
    case ValueKind::kInt:
      *is_negative = view.field.zigzag() < 0;
      *magnitude_bits = static_cast<uint64_t>(view.field.zigzag());
      return absl::OkStatus();
    case ValueKind::kUint:
      *is_negative = false;
      *magnitude_bits = view.field.scalar;
      return absl::OkStatus();
    default:
      return view.Mismatch("an integer");
  }
}

absl::Status DecodeDouble(const ValueView& view, double* out) {
  switch (view.kind) {
    case ValueKind::kDouble:
      *out = view.field.as_double();
      return absl::OkStatus();
    case ValueKind::kInt:
      *out = static_cast<double>(view.field.zigzag());
      return absl::OkStatus();
    case ValueKind::kUint:
      *out = static_cast<double>(view.field.scalar);
      return absl::OkStatus();
    default:
      return view.Mismatch("a number");
  }
}

absl::Status DecodeString(const ValueView& view, std::string* out) {
  if (view.kind != ValueKind::kString && view.kind != ValueKind::kBytes) {
    return view.Mismatch("a string");
  }
  absl::CopyCordToString(view.field.bytes, out);
  return absl::OkStatus();
}

absl::Status EncodeMessage(const google::protobuf::MessageLite& message,
                           WireWriter* out) {
  std::string bytes;
  if (!message.SerializePartialToString(&bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        message.GetTypeName(), " is too large for a protobuf message (2 GB)"));
  }
  WireWriter nested;
  nested.Bytes(1, message.GetTypeName());
  if (!bytes.empty()) nested.Bytes(2, absl::Cord(std::move(bytes)));
  out->Message(static_cast<int>(ValueKind::kMessage), std::move(nested));
  return absl::OkStatus();
}

absl::Status DecodeMessage(const ValueView& view,
                           google::protobuf::MessageLite* out) {
  if (view.kind != ValueKind::kMessage)
    return view.Mismatch(out->GetTypeName());
  std::string name, bytes;
  WireReader reader(view.field.bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.type != WireField::Type::kBytes) continue;
    if (field.number == 1) absl::CopyCordToString(field.bytes, &name);
    if (field.number == 2) absl::CopyCordToString(field.bytes, &bytes);
  }
  if (name != out->GetTypeName()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", out->GetTypeName(), ", got ", name));
  }
  if (!out->ParsePartialFromString(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("malformed ", out->GetTypeName()));
  }
  return absl::OkStatus();
}

absl::Status OutOfRange(const ValueView& view) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the integer ",
      view.kind == ValueKind::kInt ? absl::StrCat(view.field.zigzag())
                                   : absl::StrCat(view.field.scalar),
      " does not fit into the receiver's type"));
}

}  // namespace internal

absl::Status Codec<std::string>::Encode(const std::string& value,
                                        WireWriter* out) {
  // A protobuf `string` must be UTF-8; other bytes travel as `bytes`.
  out->Bytes(
      static_cast<int>(IsUtf8(value) ? ValueKind::kString : ValueKind::kBytes),
      absl::string_view(value));
  return absl::OkStatus();
}

absl::Status Codec<absl::Cord>::Encode(const absl::Cord& value,
                                       WireWriter* out) {
  out->Bytes(static_cast<int>(ValueKind::kBytes), value);
  return absl::OkStatus();
}

absl::Status Codec<absl::Cord>::Decode(const ValueView& view, absl::Cord* out) {
  if (view.kind != ValueKind::kString && view.kind != ValueKind::kBytes) {
    return view.Mismatch("bytes");
  }
  *out = view.field.bytes;
  return absl::OkStatus();
}

}  // namespace miniray
