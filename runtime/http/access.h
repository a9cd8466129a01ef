// Who may ask the dashboard what.
//
// A page on any web site can make its visitor's browser send requests to
// loopback, and can point a host name of its own there (DNS rebinding) to read
// the answers. The browser tells in the headers Host and Origin; it is believed
// because it is the visitor's, not the site's.

#ifndef MINIRAY_RUNTIME_HTTP_ACCESS_H_
#define MINIRAY_RUNTIME_HTTP_ACCESS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace miniray {

// True if `host_header` ("NAME" or "NAME:PORT") is loopback or `listen_host`.
// Any port: it may be another one behind a tunnel.
bool IsOwnHost(absl::string_view host_header, absl::string_view listen_host);

// True if a page from `origin` (the header Origin) came from `host_header`
// itself. tls: the dashboard speaks HTTPS, and so the page must; if not, a
// tunnel or a proxy in front of it may.
bool IsOwnOrigin(absl::string_view origin, absl::string_view host_header,
                 bool tls);

// True if `authorization` is "Bearer <token>": the header as cpp-httplib gives
// it, which has decoded what looks like "%2f" in it.
bool BearsToken(absl::string_view authorization, absl::string_view token);

// What a request that changes something shows, beside a token.
struct WriteRequest {
  absl::string_view host;    // The header Host; it is the dashboard's.
  absl::string_view origin;  // The header Origin; empty: there is none.
  absl::string_view content_type;
  bool tls = false;  // As above.
};

// Where the cluster has no token, any program on this machine may change
// something, but no page of another site: its form can send no JSON, and its
// script may not say where it is from. Returns why the request is refused, with
// what to do; empty: it is not.
std::string WhyNoWriteWithoutToken(const WriteRequest& request);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HTTP_ACCESS_H_
