// A received proto/value.proto Value, looked at without copying it.

#ifndef MINIRAY_RUNTIME_WIRE_VALUE_H_
#define MINIRAY_RUNTIME_WIRE_VALUE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "runtime/wire/wire.h"

namespace miniray {

// Field numbers of Value.kind.
enum class ValueKind : int {
  kNothing = 0,
  kBool = 1,
  kInt = 2,
  kUint = 3,
  kDouble = 4,
  kString = 5,
  kBytes = 6,
  kTensor = 7,
  kList = 8,
  kMap = 9,
  kActor = 10,
  kMessage = 11,
  kObject = 12,
};

absl::string_view ValueKindName(ValueKind kind);

struct ValueView {
  ValueKind kind = ValueKind::kNothing;
  WireField field;  // The field of `kind`.

  // Errors: INVALID_ARGUMENT.
  static absl::StatusOr<ValueView> Parse(const absl::Cord& value);

  // The serialized items of a list. Errors: INVALID_ARGUMENT, not a list.
  absl::StatusOr<std::vector<absl::Cord>> Items() const;

  // INVALID_ARGUMENT "expected <what>, got <kind>".
  absl::Status Mismatch(absl::string_view expected) const;
};

// Of Value and MapEntry: a field that means nothing (see wire.h). Its tag takes
// one byte.
inline constexpr int kPaddingField = 15;

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WIRE_VALUE_H_
