#include "runtime/http/access.h"

#include <httplib.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/net.h"
#include "runtime/base/token.h"

namespace miniray {
namespace {

// Returns the host of "HOST", "HOST:PORT" or "[IPV6]:PORT"; empty if it is none
// of them.
absl::string_view HostOf(absl::string_view header) {
  if (absl::ConsumePrefix(&header, "[")) {
    const size_t end = header.find(']');
    if (end == absl::string_view::npos) return "";
    const absl::string_view rest = header.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') return "";
    return header.substr(0, end);
  }
  return header.substr(0, header.find(':'));
}

}  // namespace

bool IsOwnHost(absl::string_view host_header, absl::string_view listen_host) {
  const absl::string_view host = HostOf(host_header);
  if (host.empty()) return false;
  return IsLoopback(absl::AsciiStrToLower(host)) ||
         absl::EqualsIgnoreCase(host, listen_host);
}

bool IsOwnOrigin(absl::string_view origin, absl::string_view host_header,
                 bool tls) {
  if (!absl::ConsumePrefix(&origin, "https://") &&
      (tls || !absl::ConsumePrefix(&origin, "http://"))) {
    return false;
  }
  return absl::EqualsIgnoreCase(origin, host_header);
}

bool BearsToken(absl::string_view authorization, absl::string_view token) {
  return absl::ConsumePrefix(&authorization, "Bearer ") &&
         TokensMatch(authorization,
                     httplib::detail::decode_url(std::string(token), false));
}

std::string WhyNoWriteWithoutToken(const WriteRequest& request) {
  if (!IsLoopback(absl::AsciiStrToLower(HostOf(request.host)))) {
    return "this cluster has no token: only from 127.0.0.1 or localhost can it "
           "be told to change something";
  }
  if (!IsOwnOrigin(request.origin, request.host, request.tls)) {
    return absl::StrCat("this cluster has no token: send the header 'Origin: ",
                        request.tls ? "https" : "http", "://", request.host,
                        "'");
  }
  const absl::string_view media_type = absl::StripAsciiWhitespace(
      request.content_type.substr(0, request.content_type.find(';')));
  if (!absl::EqualsIgnoreCase(media_type, "application/json")) {
    return "this cluster has no token: send the header 'Content-Type: "
           "application/json'";
  }
  return "";
}

}  // namespace miniray
