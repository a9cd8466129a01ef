#include "ps/strategy_registry.h"

#include <dlfcn.h>

#include <cmath>
#include <exception>
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

// Null if there is none.
const OptionSpec* SpecOf(absl::string_view option,
                         const std::vector<OptionSpec>& specs) {
  const OptionSpec* found = nullptr;
  for (const OptionSpec& spec : specs) {
    if (spec.name == option ||
        (IsPrefix(spec) && absl::StartsWith(option, spec.name))) {
      found = &spec;
    }
  }
  return found;
}

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

absl::StatusOr<StrategyRegistry::Entry> StrategyRegistry::Find(
    absl::string_view name) const {
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
  return it->second;
}

absl::StatusOr<std::unique_ptr<SyncStrategy>> StrategyRegistry::Create(
    absl::string_view name, const StrategyOptions& options) const {
  MR_ASSIGN_OR_RETURN(const Entry entry, Find(name));
  MR_ASSIGN_OR_RETURN(const OptionMap complete, Complete(name, options));
  std::unique_ptr<SyncStrategy> strategy;
  bool takes_gradients = false;
  try {
    MR_RETURN_IF_ERROR(entry.check(complete));
    strategy = entry.make(complete);
    takes_gradients = strategy->TakesGradients();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(
        "strategy '", name, "' threw as it was made: ", error.what()));
  } catch (...) {
    return absl::InternalError(
        absl::StrCat("strategy '", name,
                     "' threw something that is no std::exception as it was "
                     "made"));
  }
  if (takes_gradients != entry.takes_gradients) {
    return absl::InvalidArgumentError(absl::StrCat(
        "strategy '", name, "': TakesGradients() is true, but ",
        entry.class_name, " does not derive from ", "ps::GradientStrategy"));
  }
  return strategy;
}

absl::StatusOr<StrategyOptions> StrategyRegistry::Complete(
    absl::string_view name, const StrategyOptions& options) const {
  MR_ASSIGN_OR_RETURN(const Entry entry, Find(name));
  OptionMap complete;
  for (const OptionSpec& spec : entry.options) {
    if (!IsPrefix(spec)) complete.Set(spec.name, spec.default_value);
  }
  for (const auto& [option, value] : options.values()) {
    const OptionSpec* const spec = SpecOf(option, entry.options);
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
  return complete;
}

std::string StrategyRegistry::Describe(absl::string_view name,
                                       const StrategyOptions& options) const {
  const absl::StatusOr<Entry> entry = Find(name);
  OptionMap shown;
  for (const auto& [option, value] : options.values()) {
    const OptionSpec* const spec =
        entry.ok() ? SpecOf(option, entry->options) : nullptr;
    if (spec != nullptr && !spec->secret) shown.Set(option, value);
  }
  return shown.values().empty()
             ? std::string(name)
             : absl::StrCat(name, " (", shown.ToString(), ")");
}

namespace internal {

std::string StrategyClassName(const std::type_info& type, const void* code) {
  std::string name = miniray::internal::DemangledName(type);
  Dl_info file;
  if (absl::StrContains(name, "(anonymous namespace)") &&
      dladdr(code, &file) != 0) {
    absl::StrAppend(&name, " in ", file.dli_fname);
  }
  return name;
}

}  // namespace internal
}  // namespace miniray::ps
