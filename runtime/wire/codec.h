// Codec<T>: how a C++ type travels as a proto/value.proto Value.
//
// Supported here: bool, integers, enums, float and double, std::string,
// absl::Cord, std::vector, std::array, std::pair, std::tuple, std::map,
// std::unordered_map, std::optional, ReadOnly, protobuf messages, and
// aggregates named with MINIRAY_STRUCT. runtime/tensor/tensor_codec.h adds
// at::Tensor, and runtime/api/actor_handle.h adds actor handles.
//
//   struct Options { int rank; double lr; };
//   MINIRAY_STRUCT(Options, rank, lr);   // every member, in order
//
// A specialization has
//   static absl::Status Encode(const T& value, WireWriter* out);
//   static absl::Status Decode(const ValueView& view, T* out);
// Encode appends the one field of Value that holds `value`. Decode leaves *out
// unspecified when it fails, and is safe on any bytes.

#ifndef MINIRAY_RUNTIME_WIRE_CODEC_H_
#define MINIRAY_RUNTIME_WIRE_CODEC_H_

#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "google/protobuf/message_lite.h"
#include "runtime/base/status_macros.h"
#include "runtime/wire/value.h"
#include "runtime/wire/wire.h"

// Lets values of the aggregate `Type` travel. List every member in the order of
// declaration. Stands in the namespace of `Type`.
#define MINIRAY_STRUCT(Type, ...)                          \
  inline auto MinirayMembers(Type& miniray_struct) {       \
    auto& [__VA_ARGS__] = miniray_struct;                  \
    return ::std::tie(__VA_ARGS__);                        \
  }                                                        \
  inline auto MinirayMembers(const Type& miniray_struct) { \
    const auto& [__VA_ARGS__] = miniray_struct;            \
    return ::std::tie(__VA_ARGS__);                        \
  }                                                        \
  static_assert(true)

namespace miniray {

template <class T>
struct Codec;

// A T whose large parts travel without being copied where the machine allows
// it. It is T on the wire, so either side may use it alone.
//
// Who sends one sees to it that what it refers to does not change before the
// receiver is done with it: a result, before its caller is; an argument, before
// the call is. Who receives one does not write to it: the memory may be the
// sender's own, and writing to it ends the process.
template <class T>
struct ReadOnly {
  T value;
};

namespace internal {

// Whether this thread encodes or decodes a ReadOnly.
class ReadOnlyScope {
 public:
  ReadOnlyScope() { ++depth_; }
  ~ReadOnlyScope() { --depth_; }
  ReadOnlyScope(const ReadOnlyScope&) = delete;
  ReadOnlyScope& operator=(const ReadOnlyScope&) = delete;
  static bool Active() { return depth_ > 0; }

 private:
  static constinit thread_local int depth_;
};

template <class T>
concept HasMembers = requires(T& value) {
  MinirayMembers(value);
};

template <class T>
struct IsMap : std::false_type {};
template <class K, class V, class... Rest>
struct IsMap<std::map<K, V, Rest...>> : std::true_type {};
template <class K, class V, class... Rest>
struct IsMap<std::unordered_map<K, V, Rest...>> : std::true_type {};

absl::Status DecodeInteger(const ValueView& view, bool* is_negative,
                           uint64_t* magnitude_bits);
absl::Status DecodeDouble(const ValueView& view, double* out);
absl::Status DecodeString(const ValueView& view, std::string* out);
absl::Status DecodeMessage(const ValueView& view,
                           google::protobuf::MessageLite* out);
absl::Status EncodeMessage(const google::protobuf::MessageLite& message,
                           WireWriter* out);
absl::Status OutOfRange(const ValueView& view);

// Counts how deep the value stands that this thread is decoding. A user's type
// may contain itself, and then the bytes say how much stack is needed.
class Nesting {
 public:
  Nesting() { ++depth_; }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  // Errors: INVALID_ARGUMENT, too deep.
  static absl::Status Check();

 private:
  static constinit thread_local int depth_;
};

}  // namespace internal

// Returns `value` as a serialized Value message. Its large parts begin at cache
// lines, if it does.
template <class T>
absl::StatusOr<absl::Cord> EncodeValue(const T& value) {
  WireWriter out;
  MR_RETURN_IF_ERROR(Codec<T>::Encode(value, &out));
  return std::move(out).TakeAligned(kPaddingField);
}

template <class T>
absl::Status DecodeValue(const absl::Cord& value, T* out) {
  const internal::Nesting nesting;
  MR_RETURN_IF_ERROR(internal::Nesting::Check());
  MR_ASSIGN_OR_RETURN(const ValueView view, ValueView::Parse(value));
  return Codec<T>::Decode(view, out);
}

namespace internal {

template <class T>
absl::Status AppendItem(const T& value, WireWriter* list) {
  WireWriter item;
  MR_RETURN_IF_ERROR(Codec<T>::Encode(value, &item));
  list->AlignedMessage(1, std::move(item), kPaddingField);
  return absl::OkStatus();
}

inline void FinishList(WireWriter items, WireWriter* out) {
  out->Message(static_cast<int>(ValueKind::kList), std::move(items));
}

template <class Tuple>
absl::Status EncodeTuple(const Tuple& tuple, WireWriter* out) {
  WireWriter items;
  absl::Status status;
  std::apply(
      [&](const auto&... item) {
        ((status.ok() ? status.Update(AppendItem(item, &items)) : void()), ...);
      },
      tuple);
  MR_RETURN_IF_ERROR(status);
  FinishList(std::move(items), out);
  return absl::OkStatus();
}

template <class Tuple>
absl::Status DecodeTuple(const ValueView& view, Tuple&& tuple) {
  MR_ASSIGN_OR_RETURN(const std::vector<absl::Cord> items, view.Items());
  constexpr size_t kSize = std::tuple_size_v<std::remove_cvref_t<Tuple>>;
  if (items.size() != kSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", kSize, " members, got ", items.size()));
  }
  absl::Status status;
  size_t i = 0;
  std::apply(
      [&](auto&... member) {
        ((status.ok() ? status.Update(DecodeValue(items[i++], &member))
                      : void()),
         ...);
      },
      tuple);
  return status;
}

}  // namespace internal

// The general case: what the type itself tells about how it travels.
template <class T>
struct Codec {
  static constexpr bool kIsMessage =
      std::is_base_of_v<google::protobuf::MessageLite, T>;
  static constexpr bool kSupported = std::is_arithmetic_v<T> ||
                                     std::is_enum_v<T> || kIsMessage ||
                                     internal::HasMembers<T>;
  static_assert(
      kSupported,
      "This type cannot travel between actors. For a plain struct, add "
      "MINIRAY_STRUCT(Type, member, ...) beside it; for tensors, include "
      "runtime/tensor/tensor_codec.h; for another type, specialize "
      "miniray::Codec.");

  static absl::Status Encode(const T& value, WireWriter* out) {
    if constexpr (std::is_same_v<T, bool>) {
      out->Varint(static_cast<int>(ValueKind::kBool), value ? 1 : 0);
    } else if constexpr (std::is_enum_v<T>) {
      using Number = std::underlying_type_t<T>;
      return Codec<Number>::Encode(static_cast<Number>(value), out);
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      out->SignedVarint(static_cast<int>(ValueKind::kInt), value);
    } else if constexpr (std::is_integral_v<T>) {
      out->Varint(static_cast<int>(ValueKind::kUint), value);
    } else if constexpr (std::is_floating_point_v<T>) {
      out->Double(static_cast<int>(ValueKind::kDouble), value);
    } else if constexpr (kIsMessage) {
      return internal::EncodeMessage(value, out);
    } else if constexpr (internal::HasMembers<T>) {
      return internal::EncodeTuple(MinirayMembers(value), out);
    }
    return absl::OkStatus();
  }

  static absl::Status Decode(const ValueView& view, T* out) {
    if constexpr (std::is_same_v<T, bool>) {
      if (view.kind != ValueKind::kBool) return view.Mismatch("a bool");
      *out = view.field.scalar != 0;
      return absl::OkStatus();
    } else if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      MR_RETURN_IF_ERROR(
          Codec<std::underlying_type_t<T>>::Decode(view, &number));
      *out = static_cast<T>(number);
      return absl::OkStatus();
    } else if constexpr (std::is_integral_v<T>) {
      bool negative = false;
      uint64_t bits = 0;
      MR_RETURN_IF_ERROR(internal::DecodeInteger(view, &negative, &bits));
      constexpr auto kMin = static_cast<int64_t>(std::numeric_limits<T>::min());
      constexpr auto kMax =
          static_cast<uint64_t>(std::numeric_limits<T>::max());
      const bool fits =
          negative ? static_cast<int64_t>(bits) >= kMin : bits <= kMax;
      if (!fits) return internal::OutOfRange(view);
      *out = static_cast<T>(bits);
      return absl::OkStatus();
    } else if constexpr (std::is_floating_point_v<T>) {
      double number = 0;
      MR_RETURN_IF_ERROR(internal::DecodeDouble(view, &number));
      *out = static_cast<T>(number);
      return absl::OkStatus();
    } else if constexpr (kIsMessage) {
      return internal::DecodeMessage(view, out);
    } else {
      return internal::DecodeTuple(view, MinirayMembers(*out));
    }
  }
};

template <>
struct Codec<std::string> {
  static absl::Status Encode(const std::string& value, WireWriter* out);
  static absl::Status Decode(const ValueView& view, std::string* out) {
    return internal::DecodeString(view, out);
  }
};

// Bytes that are shared, not copied, on both sides.
template <>
struct Codec<absl::Cord> {
  static absl::Status Encode(const absl::Cord& value, WireWriter* out);
  static absl::Status Decode(const ValueView& view, absl::Cord* out);
};

template <class T>
struct Codec<ReadOnly<T>> {
  static absl::Status Encode(const ReadOnly<T>& value, WireWriter* out) {
    const internal::ReadOnlyScope scope;
    return Codec<T>::Encode(value.value, out);
  }
  static absl::Status Decode(const ValueView& view, ReadOnly<T>* out) {
    const internal::ReadOnlyScope scope;
    return Codec<T>::Decode(view, &out->value);
  }
};

template <class T>
struct Codec<std::optional<T>> {
  static absl::Status Encode(const std::optional<T>& value, WireWriter* out) {
    return value ? Codec<T>::Encode(*value, out) : absl::OkStatus();
  }
  static absl::Status Decode(const ValueView& view, std::optional<T>* out) {
    if (view.kind == ValueKind::kNothing) {
      out->reset();
      return absl::OkStatus();
    }
    return Codec<T>::Decode(view, &out->emplace());
  }
};

template <class T>
struct Codec<std::vector<T>> {
  static absl::Status Encode(const std::vector<T>& value, WireWriter* out) {
    WireWriter items;
    for (const auto& item : value) {
      MR_RETURN_IF_ERROR(internal::AppendItem<T>(item, &items));
    }
    internal::FinishList(std::move(items), out);
    return absl::OkStatus();
  }
  static absl::Status Decode(const ValueView& view, std::vector<T>* out) {
    MR_ASSIGN_OR_RETURN(const std::vector<absl::Cord> items, view.Items());
    out->clear();
    out->reserve(items.size());
    for (const absl::Cord& item : items) {
      T value{};
      MR_RETURN_IF_ERROR(DecodeValue(item, &value));
      out->push_back(std::move(value));
    }
    return absl::OkStatus();
  }
};

template <class T, size_t N>
struct Codec<std::array<T, N>> {
  static absl::Status Encode(const std::array<T, N>& value, WireWriter* out) {
    return internal::EncodeTuple(value, out);
  }
  static absl::Status Decode(const ValueView& view, std::array<T, N>* out) {
    return internal::DecodeTuple(view, *out);
  }
};

template <class A, class B>
struct Codec<std::pair<A, B>> {
  static absl::Status Encode(const std::pair<A, B>& value, WireWriter* out) {
    return internal::EncodeTuple(value, out);
  }
  static absl::Status Decode(const ValueView& view, std::pair<A, B>* out) {
    return internal::DecodeTuple(view, *out);
  }
};

template <class... Ts>
struct Codec<std::tuple<Ts...>> {
  static absl::Status Encode(const std::tuple<Ts...>& value, WireWriter* out) {
    return internal::EncodeTuple(value, out);
  }
  static absl::Status Decode(const ValueView& view, std::tuple<Ts...>* out) {
    return internal::DecodeTuple(view, *out);
  }
};

template <class Map>
requires(internal::IsMap<Map>::value) struct Codec<Map> {
  using Key = typename Map::key_type;
  using Mapped = typename Map::mapped_type;

  static absl::Status Encode(const Map& value, WireWriter* out) {
    WireWriter entries;
    for (const auto& [key, mapped] : value) {
      WireWriter entry, key_value, mapped_value;
      MR_RETURN_IF_ERROR(Codec<Key>::Encode(key, &key_value));
      MR_RETURN_IF_ERROR(Codec<Mapped>::Encode(mapped, &mapped_value));
      entry.Message(1, std::move(key_value));
      entry.Message(2, std::move(mapped_value));
      entries.AlignedMessage(1, std::move(entry), kPaddingField);
    }
    out->Message(static_cast<int>(ValueKind::kMap), std::move(entries));
    return absl::OkStatus();
  }

  static absl::Status Decode(const ValueView& view, Map* out) {
    if (view.kind != ValueKind::kMap) return view.Mismatch("a map");
    out->clear();
    WireReader reader(view.field.bytes);
    WireField entry;
    while (!reader.done()) {
      MR_RETURN_IF_ERROR(reader.Next(&entry));
      if (entry.number != 1 || entry.type != WireField::Type::kBytes) continue;
      absl::Cord key_bytes, mapped_bytes;  // Left out: "nothing".
      WireReader parts(entry.bytes);
      WireField part;
      while (!parts.done()) {
        MR_RETURN_IF_ERROR(parts.Next(&part));
        if (part.type != WireField::Type::kBytes) continue;
        if (part.number == 1) key_bytes = std::move(part.bytes);
        if (part.number == 2) mapped_bytes = std::move(part.bytes);
      }
      Key key{};
      Mapped mapped{};
      MR_RETURN_IF_ERROR(DecodeValue(key_bytes, &key));
      MR_RETURN_IF_ERROR(DecodeValue(mapped_bytes, &mapped));
      out->insert_or_assign(std::move(key), std::move(mapped));
    }
    return absl::OkStatus();
  }
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WIRE_CODEC_H_
