// Options by name: what a strategy, a trainer or a worker is configured with.
//
//   OptionMap options = {{"momentum", 0.9}, {"warmup", 5}, {"nesterov", true}};
//   MR_ASSIGN_OR_RETURN(double momentum, options.GetDouble("momentum", 0.9));
//
// An option map travels as an argument of an actor's method.

#ifndef MINIRAY_PS_OPTION_MAP_H_
#define MINIRAY_PS_OPTION_MAP_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

using OptionValue = std::variant<bool, int64_t, double, std::string>;

// "bool", "integer", "number" or "string".
absl::string_view OptionTypeName(const OptionValue& value);

// As a user would write it: true, 5, 0.9, "text".
std::string OptionText(const OptionValue& value);

// A value; not thread-safe.
class OptionMap {
 public:
  using Map = std::map<std::string, OptionValue, std::less<>>;

  OptionMap() = default;
  OptionMap(std::initializer_list<Map::value_type> values) : values_(values) {}
  explicit OptionMap(Map values) : values_(std::move(values)) {}

  void Set(absl::string_view name, OptionValue value);
  bool Has(absl::string_view name) const;

  // Returns the option, or `otherwise` if it is not set.
  //
  // Errors: INVALID_ARGUMENT, it is of another type. An integer serves as a
  // number; nothing else is converted.
  absl::StatusOr<bool> GetBool(absl::string_view name, bool otherwise) const;
  absl::StatusOr<int64_t> GetInt(absl::string_view name,
                                 int64_t otherwise) const;
  absl::StatusOr<double> GetDouble(absl::string_view name,
                                   double otherwise) const;
  absl::StatusOr<std::string> GetString(absl::string_view name,
                                        absl::string_view otherwise) const;

  const Map& values() const { return values_; }

  // "momentum=0.9, warmup=5".
  std::string ToString() const;

 private:
  Map values_;
};

}  // namespace miniray::ps

namespace miniray {

template <>
struct Codec<ps::OptionValue> {
  static absl::Status Encode(const ps::OptionValue& value, WireWriter* out);
  static absl::Status Decode(const ValueView& view, ps::OptionValue* out);
};

template <>
struct Codec<ps::OptionMap> {
  static absl::Status Encode(const ps::OptionMap& value, WireWriter* out);
  static absl::Status Decode(const ValueView& view, ps::OptionMap* out);
};

}  // namespace miniray

#endif  // MINIRAY_PS_OPTION_MAP_H_
