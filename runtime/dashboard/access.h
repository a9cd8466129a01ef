// Who may ask the dashboard what.
//
// A page on any web site can make its visitor's browser send requests to
// loopback, and can point a host name of its own there (DNS rebinding) to read
// the answers. The browser tells in the headers Host and Origin; it is believed
// because it is the visitor's, not the site's.

#ifndef MINIRAY_RUNTIME_DASHBOARD_ACCESS_H_
#define MINIRAY_RUNTIME_DASHBOARD_ACCESS_H_

#include "absl/strings/string_view.h"

namespace miniray {

// True if `host_header` ("NAME" or "NAME:PORT") is loopback or `listen_host`.
// Any port: it may be another one behind a tunnel.
bool IsOwnHost(absl::string_view host_header, absl::string_view listen_host);

// True if a page from `origin` (the header Origin) came from `host_header`
// itself.
bool IsOwnOrigin(absl::string_view origin, absl::string_view host_header);

// True if `given` is `token`; in a time that does not tell how much of it is
// right.
bool TokensMatch(absl::string_view given, absl::string_view token);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_ACCESS_H_
