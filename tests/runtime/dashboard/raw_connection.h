// A connection to the dashboard that says what it likes.

#ifndef MINIRAY_TESTS_RUNTIME_DASHBOARD_RAW_CONNECTION_H_
#define MINIRAY_TESTS_RUNTIME_DASHBOARD_RAW_CONNECTION_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace miniray {

class RawConnection {
 public:
  // To 127.0.0.1.
  explicit RawConnection(int port)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
              0);
    const timeval limit = {30, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  // False: the other end has closed it.
  bool Say(absl::string_view bytes) {
    return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  }
  // What comes until the other end closes it; "(open)": it does not.
  std::string ReadToEnd() {
    std::string all;
    char buffer[4096];
    while (true) {
      const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), 0);
      if (got < 0 && errno == EAGAIN) return "(open)";
      if (got <= 0) return all;
      all.append(buffer, static_cast<size_t>(got));
    }
  }

 private:
  ScopedFd fd_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_DASHBOARD_RAW_CONNECTION_H_
