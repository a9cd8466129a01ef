// Which handler answers which path.

#ifndef MINIRAY_RUNTIME_DASHBOARD_ROUTES_H_
#define MINIRAY_RUNTIME_DASHBOARD_ROUTES_H_

#include <httplib.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace miniray {

// Who may ask.
enum class Access {
  kOpen,   // Everybody whose Host and Origin are right: it holds no data.
  kData,   // With the token.
  kWrite,  // With the token in a header: it changes something.
};

// Paths are compared part by part: cpp-httplib's regular expressions recurse
// for each byte of what a stranger sends. Not changed while it is used.
class Routes {
 public:
  // What stood in the place of each "{}".
  using Args = std::vector<std::string>;
  using Handler = std::function<void(const httplib::Request&, const Args&,
                                     httplib::Response&)>;
  struct Route {
    std::string method;  // "GET", which HEAD uses too, or "POST".
    std::vector<std::string> parts;
    Access access;
    Handler handler;
  };
  struct Found {
    const Route* route = nullptr;  // Null: there is none.
    Args args;
    // The methods that the path has, as in the header Allow; empty: nobody
    // knows the path.
    std::string allow;
  };

  // pattern: "/api/v1/runs/{}/stop"; a "{}" is one part that is not empty.
  void Add(std::string method, absl::string_view pattern, Access access,
           Handler handler);

  // path: decoded, without parameters.
  Found Find(absl::string_view method, absl::string_view path) const;

 private:
  std::vector<Route> routes_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_ROUTES_H_
