#include "runtime/dashboard/routes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace miniray {
namespace {

constexpr absl::string_view kAny = "{}";

bool Matches(const std::vector<std::string>& pattern,
             const std::vector<absl::string_view>& path, Routes::Args* args) {
  if (pattern.size() != path.size()) return false;
  args->clear();
  for (size_t i = 0; i < path.size(); ++i) {
    if (pattern[i] != kAny) {
      if (pattern[i] != path[i]) return false;
    } else if (path[i].empty()) {
      return false;
    } else {
      args->emplace_back(path[i]);
    }
  }
  return true;
}

}  // namespace

void Routes::Add(std::string method, absl::string_view pattern, Access access,
                 Handler handler) {
  routes_.push_back({std::move(method), absl::StrSplit(pattern, '/'), access,
                     std::move(handler)});
}

Routes::Found Routes::Find(absl::string_view method,
                           absl::string_view path) const {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  Found found;
  Args args;
  for (const Route& route : routes_) {
    if (!Matches(route.parts, parts, &args)) continue;
    absl::StrAppend(&found.allow, found.allow.empty() ? "" : ", ",
                    route.method == "GET" ? "GET, HEAD" : route.method);
    if (route.method == method || (route.method == "GET" && method == "HEAD")) {
      found.route = &route;
      found.args = args;
    }
  }
  return found;
}

}  // namespace miniray
