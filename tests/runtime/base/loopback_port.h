// A port of 127.0.0.1 that somebody has.

#ifndef MINIRAY_TESTS_RUNTIME_BASE_LOOPBACK_PORT_H_
#define MINIRAY_TESTS_RUNTIME_BASE_LOOPBACK_PORT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace miniray {

// Fails the test where there is none.
class LoopbackPort {
 public:
  enum Kind {
    kListens,  // The kernel takes connections; nobody says anything on them.
    kRefuses,  // Connections are refused, and nobody else gets the port.
  };

  explicit LoopbackPort(Kind kind = kListens)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    socklen_t size = sizeof(own);
    EXPECT_EQ(bind(fd_.get(), address, size), 0);
    EXPECT_EQ(getsockname(fd_.get(), address, &size), 0);
    if (kind == kListens) {
      EXPECT_EQ(listen(fd_.get(), 1024), 0);
    }
    number_ = ntohs(own.sin_port);
  }

  int fd() const { return fd_.get(); }
  int number() const { return number_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", number_); }

 private:
  ScopedFd fd_;
  int number_ = 0;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_BASE_LOOPBACK_PORT_H_
