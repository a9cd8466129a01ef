#include "runtime/actor/newcomer.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/refusal_log.h"
#include "runtime/base/silence.h"
#include "runtime/link/tcp_socket.h"

namespace miniray {
namespace internal {
namespace {

// 10 to 15 s by default.
int MaxTicks() {
  static const auto ticks = static_cast<int>(
      std::ceil(absl::FDivDuration(absl::Seconds(15), SignOfLifePeriod())));
  return ticks;
}

// How every connection of gRPC begins (HTTP/2 without TLS).
constexpr absl::string_view kGrpcPreface = "PRI * HTTP/2.0\r\n\r\n";
static_assert(kGrpcPreface.size() >= kLinkPreface.size());

}  // namespace

Newcomer::Newcomer(ScopedFd fd, LinkLoop* loop, OnKnown on_known)
    : on_known_(std::move(on_known)), loop_(*loop), fd_(std::move(fd)) {}

void Newcomer::Start() {
  if (!loop_.Add(fd_.get(), shared_from_this(), EPOLLIN | EPOLLRDHUP)) {
    fd_.reset();
  }
}

void Newcomer::Refuse(absl::string_view why) const {
  LogRefusal(PeerName(fd_.get()), "a connection", why);
}

void Newcomer::TurnAway() {
  if (!fd_.valid()) return;
  loop_.Remove(fd_.get(), this);
  fd_.reset();
}

void Newcomer::OnEvents(uint32_t events) {
  if (!fd_.valid()) return;
  char first[kLinkPreface.size()];
  ssize_t got = -1;
  do {
    got = recv(fd_.get(), first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  const bool over = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (got < 0 && errno == EAGAIN && !over) return;
  if (got <= 0) return TurnAway();
  const absl::string_view bytes(first, static_cast<size_t>(got));
  const bool link = absl::StartsWith(kLinkPreface, bytes);
  if (link && bytes.size() < kLinkPreface.size()) {
    if (over) TurnAway();
    return;  // More comes.
  }
  const bool grpc = absl::StartsWith(kGrpcPreface, bytes);
  if (!link && !grpc) {
    Refuse("it speaks neither gRPC nor what links speak");
    return TurnAway();
  }
  // They are there: they were seen.
  if (link && recv(fd_.get(), first, sizeof(first), MSG_DONTWAIT) !=
                  static_cast<ssize_t>(sizeof(first))) {
    return TurnAway();
  }
  loop_.Remove(fd_.get(), this);
  on_known_(std::move(fd_), link ? Speaks::kLink : Speaks::kGrpc);
}

void Newcomer::OnTick() {
  if (++ticks_ < MaxTicks() || !fd_.valid()) return;
  Refuse("it says too little");
  TurnAway();
}

}  // namespace internal
}  // namespace miniray
