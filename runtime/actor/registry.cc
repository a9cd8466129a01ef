#include "runtime/actor/registry.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace miniray {
namespace internal {

ActorRegistry& ActorRegistry::Get() {
  static auto* const registry = new ActorRegistry;  // Outlives static objects.
  return *registry;
}

void ActorRegistry::Register(ActorClass actor_class) {
  absl::MutexLock lock(&mu_);
  std::string name = actor_class.name;
  classes_.emplace(std::move(name), std::move(actor_class));
}

absl::StatusOr<const ActorClass*> ActorRegistry::Find(
    absl::string_view name) const {
  absl::MutexLock lock(&mu_);
  auto it = classes_.find(name);
  if (it != classes_.end()) return &it->second;  // Map nodes do not move.
  std::vector<std::string> known;
  for (const auto& [key, unused] : classes_) known.push_back(key);
  return absl::NotFoundError(
      absl::StrCat("this program has no actor class '", name,
                   "'; is its MINIRAY_ACTOR linked in? It has: ",
                   known.empty() ? "none" : absl::StrJoin(known, ", ")));
}

std::string DemangledName(const std::type_info& type) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : type.name();
  std::free(demangled);
  return name;
}

absl::string_view ShortClassName(absl::string_view name) {
  int depth = 0;
  for (size_t i = name.size(); i > 1; --i) {
    const char c = name[i - 1];
    if (c == '>' || c == ')') ++depth;
    if (c == '<' || c == '(') --depth;
    if (depth == 0 && c == ':') return name.substr(i);
  }
  return name;
}

std::vector<std::string> MethodNames(absl::string_view macro_arguments) {
  std::vector<absl::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= macro_arguments.size(); ++i) {
    const char c = i < macro_arguments.size() ? macro_arguments[i] : ',';
    if (c == '<' || c == '(') ++depth;
    if (c == '>' || c == ')') --depth;
    if (c == ',' && (depth == 0 || i == macro_arguments.size())) {
      parts.push_back(macro_arguments.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  std::vector<std::string> names;
  for (size_t i = 1; i < parts.size(); ++i) {  // The first is the constructor.
    absl::string_view text = parts[i];
    while (!text.empty() && !absl::ascii_isalnum(text.back()) &&
           text.back() != '_') {
      text.remove_suffix(1);
    }
    std::string name(ShortClassName(text));
    const auto same = std::count(names.begin(), names.end(), name);
    if (same > 0) absl::StrAppend(&name, "#", same + 1);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace internal
}  // namespace miniray
