#include "tests/runtime/tcp_proxy.h"

#include <arpa/inet.h>
#include <glog/logging.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/net.h"

namespace miniray {
namespace {

int PortOf(const std::string& address) {
  auto parsed = ParseHostPort(address);
  CHECK(parsed.ok()) << parsed.status();
  return parsed->port;
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

struct TcpProxy::Link {
  ScopedFd client, server;
  std::atomic<int64_t> left = 0;  // Bytes until it breaks; 0 at first: never.
  bool limited = false;
  std::atomic<bool> answered = false;

  // Both ends learn of it as of a broken link, and what is under way is lost.
  void Break() {
    for (int fd : {client.get(), server.get()}) {
      const linger hard = {1, 0};
      setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
      shutdown(fd, SHUT_RDWR);
    }
  }
};

TcpProxy::TcpProxy(const std::string& target) : target_port_(PortOf(target)) {
  listener_ = ScopedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  CHECK_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size),
           0);
  CHECK_EQ(listen(listener_.get(), 64), 0);
  CHECK_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address),
                       &size),
           0);
  address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  acceptor_ = std::thread([this] { Accept(); });
}

TcpProxy::~TcpProxy() {
  ending_ = true;
  Hold(false);
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  Cut();
  for (std::thread& thread : threads_) thread.join();
}

void TcpProxy::SetTarget(const std::string& target) {
  absl::MutexLock lock(&mu_);
  target_port_ = PortOf(target);
}

void TcpProxy::CutAfter(int64_t min_bytes, int64_t max_bytes) {
  absl::MutexLock lock(&mu_);
  min_bytes_ = min_bytes;
  max_bytes_ = max_bytes;
}

void TcpProxy::Swallow(const std::string& first) {
  absl::MutexLock lock(&mu_);
  swallowed_ = first;
}

void TcpProxy::BreakOnceAnswered(const std::string& first) {
  absl::MutexLock lock(&mu_);
  broken_ = first;
}

void TcpProxy::Hold(bool hold) {
  absl::MutexLock lock(&mu_);
  hold_ = hold;
}

void TcpProxy::Cut() {
  absl::MutexLock lock(&mu_);
  for (const auto& link : links_) link->Break();
  links_.clear();
}

void TcpProxy::Accept() {
  std::mt19937_64 random(20260801);
  while (!ending_) {
    auto link = std::make_shared<Link>();
    link->client =
        ScopedFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!link->client.valid()) continue;
    if (refuse_) {
      ++refused_;
      continue;
    }
    ++connections_;
    link->server = ScopedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address;
    {
      absl::MutexLock lock(&mu_);
      address = Loopback(target_port_);
      if (max_bytes_ > 0) {
        link->limited = true;
        link->left = std::uniform_int_distribution<int64_t>(min_bytes_,
                                                            max_bytes_)(random);
      }
    }
    if (connect(link->server.get(), reinterpret_cast<sockaddr*>(&address),
                sizeof(address)) != 0) {
      continue;
    }
    const int on = 1;
    for (int fd : {link->client.get(), link->server.get()}) {
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    {
      absl::MutexLock lock(&mu_);
      links_.push_back(link);
    }
    threads_.emplace_back(
        [this, link] { Carry(link, link->client.get(), link->server.get()); });
    threads_.emplace_back(
        [this, link] { Carry(link, link->server.get(), link->client.get()); });
  }
}

void TcpProxy::Carry(const std::shared_ptr<Link>& link, int from, int to) {
  std::vector<char> buffer(16384);
  bool first = true;
  bool swallow = false;
  bool breaks = false;
  const bool from_caller = from == link->client.get();
  while (true) {
    const ssize_t n = read(from, buffer.data(), buffer.size());
    if (n <= 0) break;
    if (std::exchange(first, false) && from_caller) {
      const absl::string_view said(buffer.data(), static_cast<size_t>(n));
      absl::MutexLock lock(&mu_);
      swallow = !swallowed_.empty() && absl::StartsWith(said, swallowed_);
      breaks = !broken_.empty() && absl::StartsWith(said, broken_);
    }
    if (swallow) continue;
    if (breaks && link->answered) break;
    {
      absl::MutexLock lock(&mu_);
      auto carries = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !hold_; };
      mu_.Await(absl::Condition(&carries));
    }
    ssize_t part = n;
    if (link->limited) {
      const int64_t left = link->left.fetch_sub(n);
      part = std::min<int64_t>(n, std::max<int64_t>(left, 0));
    }
    // Before: the caller may go on as soon as it has the answer.
    if (!from_caller) link->answered = true;
    for (ssize_t done = 0; done < part;) {
      const ssize_t written =
          send(to, buffer.data() + done, part - done, MSG_NOSIGNAL);
      if (written <= 0) break;
      done += written;
    }
    bytes_ += part;
    if (part < n) break;
  }
  link->Break();
}

}  // namespace miniray
