#include "runtime/actor/link_call_server.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "runtime/actor/link_call_stream.h"
#include "runtime/actor/link_places.h"
#include "runtime/actor/newcomer.h"
#include "runtime/link/link_loop.h"
#include "runtime/link/tcp_socket.h"
#include "runtime/link/unix_socket.h"

namespace miniray {
namespace internal {
namespace {

// Then those that are here have their turn, and may show who they are.
constexpr int kAcceptsPerTurn = 64;

size_t FileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<size_t>(limit.rlim_cur);
}

// One listening socket, of either kind, and the links that came through it.
class Listener : public LinkLoopUser,
                 public std::enable_shared_from_this<Listener> {
 public:
  // pass_on: empty for a unix socket.
  Listener(LinkCallServer::Options options, ScopedFd fd,
           LinkCallServer::PassOn pass_on)
      : options_(std::make_shared<const LinkCallServer::Options>(
            std::move(options))),
        pass_on_(std::move(pass_on)),
        loop_(LinkLoop::Next()),
        // So many links of both kinds leave enough files for what else the
        // process does; callers beyond use gRPC, where all of a process share
        // one connection.
        places_(std::make_shared<LinkPlaces>(
            std::min<size_t>(FileLimit() / (pass_on_ ? 8 : 4), 4096))),
        max_strangers_(std::min<size_t>(FileLimit() / 8, 256)),
        fd_(std::move(fd)) {}

  absl::Status Start() {
    absl::MutexLock lock(&mu_);
    if (!loop_.Add(fd_.get(), shared_from_this(), EPOLLIN)) {
      return absl::ResourceExhaustedError("no room to wait for connections");
    }
    return absl::OkStatus();
  }

  void Stop() {
    std::vector<std::weak_ptr<LinkCallStream>> streams;
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
      streams.swap(streams_);
      // Nobody gets through from now on, though the loop closes it.
      shutdown(fd_.get(), SHUT_RDWR);
    }
    loop_.Kick(this);
    for (const auto& weak : streams) {
      if (const auto stream = weak.lock()) stream->Cancel();
    }
  }

  void OnEvents(uint32_t) override {
    absl::MutexLock lock(&mu_);
    if (stopped_) {
      if (fd_.valid()) loop_.Remove(fd_.get(), this);
      fd_.reset();
      while (!strangers_.empty()) TurnAwayOldest();
      return;
    }
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      ScopedFd fd(
          accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
      // Where files have run out, OnTick tries again; a caller gives up before.
      if (!fd.valid()) return;
      if (pass_on_) {
        Welcome(std::move(fd));
      } else {
        Open(std::move(fd), UnixName(options_->address));
      }
    }
    loop_.Kick(this);
  }
  void OnTick() override { OnEvents(0); }

 private:
  // Who has not shown the token yet: one of the two.
  struct Stranger {
    std::weak_ptr<Newcomer> newcomer;
    std::weak_ptr<LinkCallStream> stream;
  };

  void Welcome(ScopedFd fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    auto newcomer = std::make_shared<Newcomer>(
        std::move(fd), &loop_,
        [weak = weak_from_this()](ScopedFd known, Newcomer::Speaks speaks) {
          if (const auto self = weak.lock()) {
            self->OnKnown(std::move(known), speaks);
          }
        });
    newcomer->Start();
    Add({newcomer, {}});
  }

  void OnKnown(ScopedFd fd, Newcomer::Speaks speaks) {
    absl::MutexLock lock(&mu_);
    if (stopped_) return;
    PrepareAccepted(fd.get());
    if (speaks == Newcomer::Speaks::kGrpc) return pass_on_(std::move(fd));
    std::string peer = PeerName(fd.get());
    Open(std::move(fd), std::move(peer));
  }

  void Open(ScopedFd fd, std::string peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
    if (places_->full()) return;
    auto stream = std::make_shared<LinkCallStream>(
        options_, places_, std::move(fd),
        pass_on_ ? CallPath::kTcp : CallPath::kUnixSocket, std::move(peer));
    streams_.push_back(stream);
    stream->Start();
    Add({{}, stream});
  }

  void Add(Stranger stranger) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::erase_if(strangers_, [](const Stranger& other) {
      const auto newcomer = other.newcomer.lock();
      const auto stream = other.stream.lock();
      return (newcomer == nullptr || !newcomer->waiting()) &&
             (stream == nullptr || stream->admitted());
    });
    // The oldest had the most time.
    if (strangers_.size() >= max_strangers_) TurnAwayOldest();
    strangers_.push_back(std::move(stranger));
  }

  void TurnAwayOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto newcomer = strangers_.front().newcomer.lock();
    if (newcomer != nullptr && newcomer->waiting()) {
      if (!stopped_) newcomer->Refuse("it says nothing, and others wait");
      newcomer->TurnAway();
    }
    const auto stream = strangers_.front().stream.lock();
    if (stream != nullptr && !stream->admitted()) stream->Cancel();
    strangers_.pop_front();
  }

  const std::shared_ptr<const LinkCallServer::Options> options_;
  const LinkCallServer::PassOn pass_on_;
  LinkLoop& loop_;
  const std::shared_ptr<LinkPlaces> places_;
  const size_t max_strangers_;

  absl::Mutex mu_;
  ScopedFd fd_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<LinkCallStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::deque<Stranger> strangers_ ABSL_GUARDED_BY(mu_);
};

class ServerImpl : public LinkCallServer {
 public:
  explicit ServerImpl(std::shared_ptr<Listener> listener)
      : listener_(std::move(listener)) {}
  ~ServerImpl() override { listener_->Stop(); }

 private:
  const std::shared_ptr<Listener> listener_;
};

absl::StatusOr<std::unique_ptr<LinkCallServer>> Serve(
    LinkCallServer::Options options, ScopedFd fd,
    LinkCallServer::PassOn pass_on) {
  auto listener = std::make_shared<Listener>(std::move(options), std::move(fd),
                                             std::move(pass_on));
  if (absl::Status status = listener->Start(); !status.ok()) return status;
  return std::make_unique<ServerImpl>(std::move(listener));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkCallServer>> LinkCallServer::StartUnix(
    Options options) {
  absl::StatusOr<ScopedFd> fd = ListenUnix(options.address);
  if (!fd.ok()) return fd.status();
  return Serve(std::move(options), *std::move(fd), nullptr);
}

absl::StatusOr<std::unique_ptr<LinkCallServer>> LinkCallServer::StartTcp(
    Options options, ScopedFd listener, PassOn pass_on) {
  return Serve(std::move(options), std::move(listener), std::move(pass_on));
}

}  // namespace internal
}  // namespace miniray
