#include "runtime/head/state_query.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::google::protobuf::RepeatedPtrField;

constexpr v1::Table kTables[] = {v1::TABLE_NODES, v1::TABLE_ACTORS,
                                 v1::TABLE_JOBS, v1::TABLE_PLACEMENT_GROUPS,
                                 v1::TABLE_PACKAGES};

const Descriptor* RecordOf(v1::Table table) {
  switch (table) {
    case v1::TABLE_NODES:
      return v1::NodeInfo::descriptor();
    case v1::TABLE_ACTORS:
      return v1::ActorInfo::descriptor();
    case v1::TABLE_JOBS:
      return v1::JobInfo::descriptor();
    case v1::TABLE_PLACEMENT_GROUPS:
      return v1::PlacementGroupInfo::descriptor();
    default:
      return v1::PackageInfo::descriptor();
  }
}

// Null where the record has no such field, or none that has one value.
const FieldDescriptor* FieldOf(const Descriptor* record,
                               const std::string& name) {
  const FieldDescriptor* field = record->FindFieldByName(name);
  return field == nullptr || field->is_repeated() ||
                 field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
             ? nullptr
             : field;
}

// "ACTOR_STATE_" of ACTOR_STATE_UNSPECIFIED.
std::string PrefixOf(const EnumDescriptor* type) {
  const std::string& first = type->value(0)->name();
  return first.substr(0, first.size() - std::string("UNSPECIFIED").size());
}

// The number of "alive", "ALIVE" or "ACTOR_STATE_ALIVE".
std::optional<int> EnumNumber(const EnumDescriptor* type,
                              const std::string& text) {
  const std::string name = absl::AsciiStrToUpper(text);
  const auto* value = type->FindValueByName(name);
  if (value == nullptr) value = type->FindValueByName(PrefixOf(type) + name);
  if (value == nullptr) return std::nullopt;
  return value->number();
}

// What the field may be compared with; an error's text where it is wrong.
std::string CheckValue(const FieldDescriptor* field, const std::string& value) {
  int64_t number;
  double real;
  bool flag;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM: {
      if (EnumNumber(field->enum_type(), value).has_value()) return "";
      std::vector<std::string> names;
      const std::string prefix = PrefixOf(field->enum_type());
      for (int i = 1; i < field->enum_type()->value_count(); ++i) {
        names.push_back(absl::AsciiStrToLower(
            field->enum_type()->value(i)->name().substr(prefix.size())));
      }
      return absl::StrCat("one of ", absl::StrJoin(names, ", "));
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return absl::SimpleAtob(value, &flag) ? "" : "true or false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::SimpleAtod(value, &real) ? "" : "a number";
    case FieldDescriptor::CPPTYPE_STRING:
      return "";
    default:
      return absl::SimpleAtoi(value, &number) ? "" : "a whole number";
  }
}

bool Matches(const Message& record, const FieldDescriptor* field,
             const std::string& value) {
  const Reflection* reflection = record.GetReflection();
  int64_t number = 0;
  double real = 0;
  bool flag = false;
  std::string scratch;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->GetEnumValue(record, field) ==
             EnumNumber(field->enum_type(), value);
    case FieldDescriptor::CPPTYPE_BOOL:
      return absl::SimpleAtob(value, &flag) &&
             reflection->GetBool(record, field) == flag;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::SimpleAtod(value, &real) &&
             reflection->GetDouble(record, field) == real;
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->GetStringReference(record, field, &scratch) == value;
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::SimpleAtoi(value, &number) &&
             reflection->GetInt32(record, field) == number;
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::SimpleAtoi(value, &number) &&
             reflection->GetInt64(record, field) == number;
    default:
      return false;  // The records have no others.
  }
}

template <class Filters>
bool PassesAll(const Filters& filters, const Message& record) {
  return std::all_of(
      filters.begin(), filters.end(), [&](const v1::Filter& filter) {
        const FieldDescriptor* field =
            FieldOf(record.GetDescriptor(), filter.field());
        return field == nullptr || Matches(record, field, filter.value());
      });
}

// OK if one of the records has the field, and each that has it can have the
// value.
absl::Status CheckFilter(const std::vector<const Descriptor*>& records,
                         const v1::Filter& filter) {
  bool known = false;
  std::vector<std::string> names;
  for (const Descriptor* record : records) {
    const FieldDescriptor* field = FieldOf(record, filter.field());
    if (field != nullptr) {
      known = true;
      const std::string expected = CheckValue(field, filter.value());
      if (!expected.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("filter ", filter.field(), "=", filter.value(),
                         ": expected ", expected));
      }
    }
    for (int i = 0; i < record->field_count(); ++i) {
      const std::string& name = record->field(i)->name();
      if (FieldOf(record, name) != nullptr) names.push_back(name);
    }
  }
  if (known) return absl::OkStatus();
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return absl::InvalidArgumentError(
      absl::StrCat("a filter cannot name '", filter.field(),
                   "'; fields: ", absl::StrJoin(names, ", ")));
}

template <class Record>
void Filter(const v1::GetClusterStateRequest& request, v1::Table table,
            RepeatedPtrField<Record>* records) {
  if (!Wants(request, table)) return records->Clear();
  records->erase(std::remove_if(records->begin(), records->end(),
                                [&](const Record& record) {
                                  return !PassesAll(request.filters(), record);
                                }),
                 records->end());
}

}  // namespace

bool Wants(const v1::GetClusterStateRequest& request, v1::Table table) {
  if (request.tables().empty()) return table != v1::TABLE_PACKAGES;
  return std::find(request.tables().begin(), request.tables().end(), table) !=
         request.tables().end();
}

absl::Status CheckQuery(const v1::GetClusterStateRequest& request) {
  for (const int table : request.tables()) {
    if (table != v1::TABLE_UNSPECIFIED && v1::Table_IsValid(table)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("there is no table ", table));
  }
  std::vector<const Descriptor*> records;
  for (const v1::Table table : kTables) {
    if (Wants(request, table)) records.push_back(RecordOf(table));
  }
  for (const v1::Filter& filter : request.filters()) {
    MR_RETURN_IF_ERROR(CheckFilter(records, filter));
  }
  return absl::OkStatus();
}

bool Passes(const v1::GetClusterStateRequest& request,
            const v1::ActorInfo& actor) {
  return PassesAll(request.filters(), actor);
}

void ApplyQuery(const v1::GetClusterStateRequest& request,
                v1::GetClusterStateResponse* state) {
  Filter(request, v1::TABLE_NODES, state->mutable_nodes());
  Filter(request, v1::TABLE_ACTORS, state->mutable_actors());
  Filter(request, v1::TABLE_JOBS, state->mutable_jobs());
  Filter(request, v1::TABLE_PLACEMENT_GROUPS,
         state->mutable_placement_groups());
  Filter(request, v1::TABLE_PACKAGES, state->mutable_packages());
}

absl::Status CheckFilters(const Descriptor& record,
                          const std::vector<v1::Filter>& filters) {
  for (const v1::Filter& filter : filters) {
    MR_RETURN_IF_ERROR(CheckFilter({&record}, filter));
  }
  return absl::OkStatus();
}

bool PassesFilters(const std::vector<v1::Filter>& filters,
                   const Message& record) {
  return PassesAll(filters, record);
}

}  // namespace miniray
