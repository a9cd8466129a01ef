// A TCP socket that has an address of this machine, and no connection yet.

#ifndef MINIRAY_RUNTIME_BASE_TCP_BIND_H_
#define MINIRAY_RUNTIME_BASE_TCP_BIND_H_

#include <string>

#include "runtime/base/files.h"

namespace miniray {

struct BoundSocket {
  // Of bind(2), or of what leads to it; 0: there is none. EADDRNOTAVAIL also
  // where the host is no IP address.
  int error = 0;
  ScopedFd fd;
  int port = 0;
};

// Binds a socket to the IP address `host` and to `port`, where what a
// connection that has ended leaves for a while is not in the way. 0: to any
// that nobody uses. At "::" IPv4 comes through as well.
BoundSocket BindTcp(const std::string& host, int port);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_TCP_BIND_H_
