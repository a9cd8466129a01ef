#include "ps/strategy_registry.h"

#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/actor/registry.h"

namespace miniray::ps {
namespace {

bool IsBounded(const OptionSpec& spec) {
  return std::isfinite(spec.min) || std::isfinite(spec.max);
}

// "in [0, 1)", "of at least 0", "above 0", "of at most 1", "below 1".
std::string RangeText(const OptionSpec& spec) {
  if (!std::isfinite(spec.max)) {
    return absl::StrCat(spec.min_allowed ? "of at least " : "above ", spec.min);
  }
  if (!std::isfinite(spec.min)) {
    return absl::StrCat(spec.max_allowed ? "of at most " : "below ", spec.max);
  }
  return absl::StrCat("in ", spec.min_allowed ? "[" : "(", spec.min, ", ",
                      spec.max, spec.max_allowed ? "]" : ")");
}

std::string AllowedText(absl::string_view strategy,
                        const std::vector<OptionSpec>& specs) {
  if (specs.empty()) {
    return absl::StrCat("strategy '", strategy, "' takes no options");
  }
  return absl::StrCat(
      "strategy '", strategy, "' takes: ",
      absl::StrJoin(specs, "; ", [](std::string* out, const OptionSpec& spec) {
        absl::StrAppend(out, spec.ToString());
      }));
}

bool IsPrefix(const OptionSpec& spec) { return absl::EndsWith(spec.name, "."); }

// Returns `value` as the spec's type.
absl::StatusOr<OptionValue> CheckOption(const OptionSpec& spec,
                                        OptionValue value) {
  if (IsPrefix(spec)) return value;
  if (std::holds_alternative<double>(spec.default_value)) {
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      value = static_cast<double>(*integer);
    }
  }
  if (value.index() != spec.default_value.index()) {
    return absl::InvalidArgumentError(
        absl::StrCat("option '", spec.name, "' must be of type ",
                     OptionTypeName(spec.default_value), ", got the ",
                     OptionTypeName(value), " ", OptionText(value)));
  }
  double number = 0;
  if (const double* held = std::get_if<double>(&value)) {
    number = *held;
    if (!std::isfinite(number)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "option '", spec.name, "' must be finite, got ", number));
    }
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    number = static_cast<double>(*integer);
  } else {
    return value;
  }
  const bool low = spec.min_allowed ? number < spec.min : number <= spec.min;
  const bool high = spec.max_allowed ? number > spec.max : number >= spec.max;
  if (low || high) {
    return absl::InvalidArgumentError(
        absl::StrCat("option '", spec.name, "' must be ", RangeText(spec),
                     ", got ", OptionText(value)));
  }
  return value;
}

}  // namespace

std::string OptionSpec::ToString() const {
  if (IsPrefix(*this)) return absl::StrCat(name, "NAME: ", help);
  return absl::StrCat(
      name, " (", OptionTypeName(default_value),
      IsBounded(*this) ? absl::StrCat(" ", RangeText(*this)) : "", ", default ",
      OptionText(default_value), "): ", help);
}

StrategyRegistry& StrategyRegistry::Get() {
  static auto* const registry = new StrategyRegistry;  // Outlives statics.
  return *registry;
}

void StrategyRegistry::Register(absl::string_view name, Entry entry) {
  absl::MutexLock lock(&mu_);
  auto [it, inserted] = entries_.try_emplace(std::string(name));
  if (inserted) {
    it->second = std::move(entry);
  } else if (it->second.class_name != entry.class_name) {
    conflicts_.emplace(name, entry.class_name);
  }
}

std::vector<std::string> StrategyRegistry::Names() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

std::vector<std::string> StrategyRegistry::NamesTaking(bool gradients) const {
  absl::MutexLock lock(&mu_);
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.takes_gradients == gradients) names.push_back(name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<SyncStrategy>> StrategyRegistry::Create(
    absl::string_view name, const StrategyOptions& options) const {
  Entry entry;
  {
    absl::MutexLock lock(&mu_);
    auto it = entries_.find(name);
    if (it == entries_.end()) {
      std::vector<absl::string_view> names;
      for (const auto& [known, unused] : entries_) names.push_back(known);
      return absl::InvalidArgumentError(absl::StrCat(
          "no synchronisation strategy '", name, "' in this program; it has: ",
          names.empty() ? "none" : absl::StrJoin(names, ", ")));
    }
    auto conflict = conflicts_.find(name);
    if (conflict != conflicts_.end()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "both ", it->second.class_name, " and ", conflict->second,
          " are registered as the strategy '", name, "'; rename one"));
    }
    entry = it->second;
  }
  OptionMap complete;
  for (const OptionSpec& spec : entry.options) {
    if (!IsPrefix(spec)) complete.Set(spec.name, spec.default_value);
  }
  for (const auto& [option, value] : options.values()) {
    const OptionSpec* spec = nullptr;
    for (const OptionSpec& candidate : entry.options) {
      if (candidate.name == option ||
          (IsPrefix(candidate) && absl::StartsWith(option, candidate.name))) {
        spec = &candidate;
      }
    }
    absl::StatusOr<OptionValue> checked =
        spec != nullptr ? CheckOption(*spec, value)
                        : absl::InvalidArgumentError(
                              absl::StrCat("unknown option '", option, "'"));
    if (!checked.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          checked.status().message(), "; ", AllowedText(name, entry.options)));
    }
    complete.Set(option, *std::move(checked));
  }
  MR_RETURN_IF_ERROR(entry.check(complete));
  return entry.make(complete);
}

namespace internal {

std::string StrategyClassName(const std::type_info& type) {
  return miniray::internal::DemangledName(type);
}

}  // namespace internal
}  // namespace miniray::ps
