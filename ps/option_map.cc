#include "ps/option_map.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace miniray::ps {
namespace {

template <class T>
absl::StatusOr<T> Get(const OptionMap::Map& values, absl::string_view name,
                      T otherwise) {
  auto it = values.find(name);
  if (it == values.end()) return otherwise;
  if (const T* value = std::get_if<T>(&it->second)) return *value;
  return absl::InvalidArgumentError(
      absl::StrCat("option '", name, "' must be of type ",
                   OptionTypeName(OptionValue(otherwise)), ", got the ",
                   OptionTypeName(it->second), " ", OptionText(it->second)));
}

}  // namespace

absl::string_view OptionTypeName(const OptionValue& value) {
  constexpr absl::string_view kNames[] = {"bool", "integer", "number",
                                          "string"};
  return kNames[value.index()];
}

std::string OptionText(const OptionValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) {
    return *flag ? "true" : "false";
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return absl::StrCat(*integer);
  }
  if (const double* number = std::get_if<double>(&value)) {
    return absl::StrCat(*number);
  }
  return absl::StrCat("\"", absl::CHexEscape(std::get<std::string>(value)),
                      "\"");
}

void OptionMap::Set(absl::string_view name, OptionValue value) {
  values_.insert_or_assign(std::string(name), std::move(value));
}

bool OptionMap::Has(absl::string_view name) const {
  return values_.find(name) != values_.end();
}

absl::StatusOr<bool> OptionMap::GetBool(absl::string_view name,
                                        bool otherwise) const {
  return Get<bool>(values_, name, otherwise);
}

absl::StatusOr<int64_t> OptionMap::GetInt(absl::string_view name,
                                          int64_t otherwise) const {
  return Get<int64_t>(values_, name, otherwise);
}

absl::StatusOr<double> OptionMap::GetDouble(absl::string_view name,
                                            double otherwise) const {
  auto it = values_.find(name);
  if (it != values_.end()) {
    if (const auto* integer = std::get_if<int64_t>(&it->second)) {
      return static_cast<double>(*integer);
    }
  }
  return Get<double>(values_, name, otherwise);
}

absl::StatusOr<std::string> OptionMap::GetString(
    absl::string_view name, absl::string_view otherwise) const {
  return Get<std::string>(values_, name, std::string(otherwise));
}

std::string OptionMap::ToString() const {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values_) {
    parts.push_back(absl::StrCat(name, "=", OptionText(value)));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace miniray::ps

namespace miniray {

absl::Status Codec<ps::OptionValue>::Encode(const ps::OptionValue& value,
                                            WireWriter* out) {
  return std::visit(
      [out](const auto& held) {
        return Codec<std::decay_t<decltype(held)>>::Encode(held, out);
      },
      value);
}

absl::Status Codec<ps::OptionValue>::Decode(const ValueView& view,
                                            ps::OptionValue* out) {
  switch (view.kind) {
    case ValueKind::kBool:
      return Codec<bool>::Decode(view, &out->emplace<bool>());
    case ValueKind::kInt:
    case ValueKind::kUint:
      return Codec<int64_t>::Decode(view, &out->emplace<int64_t>());
    case ValueKind::kDouble:
      return Codec<double>::Decode(view, &out->emplace<double>());
    case ValueKind::kString:
    case ValueKind::kBytes:
      return Codec<std::string>::Decode(view, &out->emplace<std::string>());
    default:
      return view.Mismatch("a bool, integer, number or string");
  }
}

absl::Status Codec<ps::OptionMap>::Encode(const ps::OptionMap& value,
                                          WireWriter* out) {
  return Codec<ps::OptionMap::Map>::Encode(value.values(), out);
}

absl::Status Codec<ps::OptionMap>::Decode(const ValueView& view,
                                          ps::OptionMap* out) {
  ps::OptionMap::Map values;
  MR_RETURN_IF_ERROR(Codec<ps::OptionMap::Map>::Decode(view, &values));
  *out = ps::OptionMap(std::move(values));
  return absl::OkStatus();
}

}  // namespace miniray
