#include "runtime/actor/link_call_server.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/background.h"
#include "runtime/link/frame_link.h"
#include "runtime/link/link_call.h"
#include "runtime/link/link_loop.h"
#include "runtime/link/unix_socket.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace internal {
namespace {

constexpr absl::Duration kHelloTimeout = absl::Seconds(10);

// So many streams leave enough files for what else the process does; callers
// beyond use TCP, where all of a process share one connection.
size_t MaxStreams() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 128;
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur / 4, 4096));
}

// One caller's link, and once it has said hello, its session's stream.
class LinkCallStream : public SessionStream,
                       public FrameLinkUser,
                       public std::enable_shared_from_this<LinkCallStream> {
 public:
  LinkCallStream(std::shared_ptr<const LinkCallServer::Options> options,
                 ScopedFd fd)
      : options_(std::move(options)),
        link_(std::make_shared<FrameLink>(
            std::move(fd), FrameLink::Side::kServer, kMaxLinkHelloBytes)) {}

  void Start() {
    if (!link_->Start(shared_from_this())) return;
    link_->Read();
    RunInBackground(
        [weak = weak_from_this()] {
          const auto self = weak.lock();
          if (self != nullptr && !self->greeted_) self->Cancel();
        },
        kHelloTimeout);
  }

  // SessionStream.
  bool Write(const absl::Cord& frame, bool at_once) override {
    if (finished_) return false;
    return link_->Write(kLinkFrame, frame, at_once);
  }
  void Read() override {
    if (!finished_) link_->Read();
  }
  void Finish(const absl::Status& status) override {
    if (finished_.exchange(true)) return;
    link_->Write(kLinkEnd, absl::Cord(ToProto(status).SerializeAsString()),
                 /*at_once=*/false);
    link_->Finish();
  }
  void Cancel() override { link_->Cancel(absl::CancelledError("cancelled")); }

  // FrameLinkUser.
  void OnLinkFrame(uint32_t kind, const absl::Cord& bytes) override {
    if (session_ != nullptr) {
      if (kind == kLinkFrame) return session_->OnFrame(this, bytes);
    } else if (kind == kLinkHello) {
      greeted_ = true;
      if (absl::Status status = Greet(bytes); !status.ok()) Finish(status);
      return;
    }
    Finish(absl::InvalidArgumentError("a malformed message"));
  }
  void OnLinkWritten() override {
    if (session_ != nullptr) session_->OnWritten(this, /*ok=*/true);
  }
  void OnLinkEnded(const absl::Status&) override {
    finished_ = true;
    if (session_ != nullptr) actor_->OnStreamEnded(session_.get(), this);
  }

 private:
  absl::Status Greet(const absl::Cord& bytes) {
    absl::StatusOr<LinkHello> hello = DecodeLinkHello(bytes);
    if (!hello.ok()) return hello.status();
    const auto find = [&](const char* key) {
      const auto it = hello->find(key);
      return it == hello->end() ? nullptr : &it->second;
    };
    if (absl::Status status =
            CheckToken({.token = find(kTokenKey), .version = find(kVersionKey)},
                       options_->token, UnixName(options_->address), "Channel");
        !status.ok()) {
      return status;
    }
    link_->set_max_bytes(kMaxMessageBytes);
    return options_->attach(
        [&](const char* key) {
          const std::string* const value = find(key);
          return value == nullptr ? std::string() : *value;
        },
        [&](std::shared_ptr<HostedActor> actor,
            std::shared_ptr<CallSession> session) {
          actor_ = std::move(actor);
          session_ = std::move(session);
          return shared_from_this();
        });
  }

  const std::shared_ptr<const LinkCallServer::Options> options_;
  const std::shared_ptr<FrameLink> link_;
  std::atomic<bool> greeted_ = false;
  std::atomic<bool> finished_ = false;
  // Set in the loop's thread, before the session knows the stream.
  std::shared_ptr<HostedActor> actor_;
  std::shared_ptr<CallSession> session_;
};

class Listener : public LinkLoopUser,
                 public std::enable_shared_from_this<Listener> {
 public:
  Listener(LinkCallServer::Options options, ScopedFd fd)
      : options_(std::make_shared<const LinkCallServer::Options>(
            std::move(options))),
        loop_(LinkLoop::Next()),
        max_streams_(MaxStreams()),
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
      return;
    }
    while (true) {
      ScopedFd fd(
          accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
      // Where files have run out, OnTick tries again; a caller gives up before.
      if (!fd.valid()) return;
      std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
      if (streams_.size() >= max_streams_) continue;
      auto stream = std::make_shared<LinkCallStream>(options_, std::move(fd));
      streams_.push_back(stream);
      stream->Start();
    }
  }
  void OnTick() override { OnEvents(0); }

 private:
  const std::shared_ptr<const LinkCallServer::Options> options_;
  LinkLoop& loop_;
  const size_t max_streams_;

  absl::Mutex mu_;
  ScopedFd fd_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::weak_ptr<LinkCallStream>> streams_ ABSL_GUARDED_BY(mu_);
};

class ServerImpl : public LinkCallServer {
 public:
  explicit ServerImpl(std::shared_ptr<Listener> listener)
      : listener_(std::move(listener)) {}
  ~ServerImpl() override { listener_->Stop(); }

 private:
  const std::shared_ptr<Listener> listener_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinkCallServer>> LinkCallServer::Start(
    Options options) {
  absl::StatusOr<ScopedFd> fd = ListenUnix(options.address);
  if (!fd.ok()) return fd.status();
  auto listener =
      std::make_shared<Listener>(std::move(options), *std::move(fd));
  if (absl::Status status = listener->Start(); !status.ok()) return status;
  return std::make_unique<ServerImpl>(std::move(listener));
}

}  // namespace internal
}  // namespace miniray
