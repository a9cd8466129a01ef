#include "runtime/wire/value.h"

#include <string>
#include <utility>

#include "runtime/base/status_macros.h"

namespace miniray {

absl::string_view ValueKindName(ValueKind kind) {
  switch (kind) {
    case ValueKind::kNothing:
      return "nothing";
    case ValueKind::kBool:
      return "a bool";
    case ValueKind::kInt:
    case ValueKind::kUint:
      return "an integer";
    case ValueKind::kDouble:
      return "a floating-point number";
    case ValueKind::kString:
      return "a string";
    case ValueKind::kBytes:
      return "bytes";
    case ValueKind::kTensor:
      return "a tensor";
    case ValueKind::kList:
      return "a list";
    case ValueKind::kMap:
      return "a map";
    case ValueKind::kActor:
      return "an actor handle";
    case ValueKind::kMessage:
      return "a protobuf message";
    case ValueKind::kObject:
      return "a reference to an object";
  }
  return "a value of an unknown kind";
}

absl::StatusOr<ValueView> ValueView::Parse(const absl::Cord& value) {
  ValueView view;
  WireReader reader(value);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.number > static_cast<int>(ValueKind::kObject)) continue;
    const auto kind = static_cast<ValueKind>(field.number);
    WireField::Type expected = WireField::Type::kBytes;
    if (kind <= ValueKind::kUint) {
      expected = WireField::Type::kVarint;
    } else if (kind == ValueKind::kDouble) {
      expected = WireField::Type::kFixed64;
    }
    if (field.type != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "malformed value: field ", field.number,
          " does not have the wire type of ", ValueKindName(kind)));
    }
    view.kind = kind;
    view.field = std::move(field);
  }
  return view;
}

absl::StatusOr<std::vector<absl::Cord>> ValueView::Items() const {
  if (kind != ValueKind::kList) return Mismatch("a list");
  std::vector<absl::Cord> items;
  WireReader reader(field.bytes);
  WireField item;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&item));
    if (item.number == 1 && item.type == WireField::Type::kBytes) {
      items.push_back(std::move(item.bytes));
    }
  }
  return items;
}

absl::Status ValueView::Mismatch(absl::string_view expected) const {
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", expected, ", got ", ValueKindName(kind)));
}

}  // namespace miniray
