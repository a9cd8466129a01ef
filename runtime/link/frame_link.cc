#include "runtime/link/frame_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/background.h"
#include "runtime/base/silence.h"
#include "runtime/shm/warm_memory.h"

namespace miniray {
namespace internal {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
// So much of one link, and the others have their turn.
constexpr size_t kTurnBytes = 4 << 20;
constexpr int kMaxLingeringTicks = 2;
constexpr uint32_t kAlive = 0;
constexpr uint32_t kReading = EPOLLIN | EPOLLRDHUP;
constexpr size_t kHeaderBytes = 8;
// What is read into fresh pages costs several times more. Calls that go
// together make no such frame, so malloc serves them.
constexpr size_t kMinWarmBytes = 2 << 20;

int MaxSilentTicks() {
  static const auto ticks = static_cast<int>(
      std::ceil(absl::FDivDuration(SilenceTimeout(), SignOfLifePeriod())));
  return ticks;
}

// Lowest byte first, whatever this machine's order is.
void Store(uint32_t value, char* to) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<char>(value >> (8 * i));
}
uint32_t Load(const char* from) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(from[i])) << (8 * i);
  }
  return value;
}

// Null: there is none.
std::shared_ptr<char> MemoryFor(size_t size) {
  if (size >= kMinWarmBytes) return PrivateMemory::Get().Allocate(size);
  return {new (std::nothrow) char[size], std::default_delete<char[]>()};
}

// Whether the connection is no more, and not this end at fault.
bool IsBreak(int error) {
  switch (error) {
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
      return true;
    default:
      return false;
  }
}

bool IsTcp(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         domain != AF_UNIX;
}

}  // namespace

FrameLink::FrameLink(ScopedFd fd, Side side, uint64_t max_bytes,
                     absl::string_view preface)
    : side_(side),
      lingers_(side == Side::kServer && IsTcp(fd.get())),
      loop_(LinkLoop::Next()),
      max_bytes_(max_bytes),
      buffer_(kBufferBytes),
      fd_(std::move(fd)),
      socket_(fd_.get()),
      outgoing_(preface) {}

FrameLink::~FrameLink() = default;

bool FrameLink::Start(std::shared_ptr<FrameLinkUser> user) {
  user_ = std::move(user);
  if (loop_.Add(socket_, shared_from_this(), kReading)) return true;
  user_.reset();
  return false;
}

bool FrameLink::Write(uint32_t kind, const absl::Cord& bytes, bool at_once) {
  const Header header = {static_cast<uint32_t>(bytes.size()), kind};
  absl::MutexLock lock(&mu_);
  if (!fd_.valid() || cancelled_ || finishing_ || broken_) return false;
  Append(header);
  outgoing_.Append(bytes);
  if (writing_) return false;
  if (at_once) {
    Flush();
    if (outgoing_.empty()) return true;
  }
  writing_ = true;
  if (!waiting_) loop_.Kick(this);
  return false;
}

void FrameLink::Append(const Header& header) {
  char bytes[kHeaderBytes];
  Store(header.size, bytes);
  Store(header.kind, bytes + 4);
  outgoing_.Append(absl::string_view(bytes, kHeaderBytes));
}

void FrameLink::Flush() {
  constexpr size_t kMaxPieces = 64;
  while (!outgoing_.empty() && !cancelled_) {
    iovec pieces[kMaxPieces];
    msghdr message = {};
    message.msg_iov = pieces;
    for (const absl::string_view piece : outgoing_.Chunks()) {
      pieces[message.msg_iovlen++] = {const_cast<char*>(piece.data()),
                                      piece.size()};
      if (message.msg_iovlen == kMaxPieces) break;
    }
    const ssize_t sent =
        sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      outgoing_.RemovePrefix(static_cast<size_t>(sent));
      said_ = true;
    } else if (errno == EAGAIN) {
      if (!std::exchange(waiting_, true)) {
        loop_.Watch(socket_, this, kReading | EPOLLOUT);
      }
      return;
    } else if (IsBreak(errno)) {
      // The loop finds the end; what came before it is still read.
      broken_error_ = errno;
      outgoing_.Clear();
      broken_ = true;
    } else if (errno != EINTR) {
      cancel_status_ = ErrnoStatus(errno, "send to another process");
      outgoing_.Clear();
      cancelled_ = true;
      loop_.Kick(this);
    }
  }
}

void FrameLink::Read() {
  wanted_.store(true);
  if (!loop_.InThread() || !in_events_) loop_.Kick(this);
}

void FrameLink::Finish() {
  absl::MutexLock lock(&mu_);
  if (!fd_.valid() || std::exchange(finishing_, true)) return;
  loop_.Kick(this);
}

void FrameLink::Cancel(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (!fd_.valid() || std::exchange(cancelled_, true)) return;
  cancel_status_ = status;
  outgoing_.Clear();
  loop_.Kick(this);
}

void FrameLink::OnEvents(uint32_t events) {
  if (ended_) return;
  in_events_ = true;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    readable_ = true;
  }
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hung_up_ = true;
  bool written = false, over = false;
  absl::Status status;
  {
    absl::MutexLock lock(&mu_);
    if ((events & EPOLLOUT) != 0 && std::exchange(waiting_, false)) {
      loop_.Watch(socket_, this, kReading);
    }
    if (!waiting_) Flush();
    if (outgoing_.empty()) written = std::exchange(writing_, false);
    over = cancelled_ || (finishing_ && outgoing_.empty());
    status = cancel_status_;
    if (over && !cancelled_ && !broken_ && lingers_) {
      over = false;
      if (!std::exchange(lingering_, true)) shutdown(socket_, SHUT_WR);
    }
  }
  if (over) {
    End(status);
  } else if (lingering_) {
    Discard();
  } else {
    // Whoever writes so much that it takes the loop to do it has more soon, and
    // that is to go together.
    if (written) loop_.Later(this);
    Receive();
  }
  in_events_ = false;
}

void FrameLink::OnLater() {
  if (ended_) return;
  if (lingering_) return;
  // The user may take a frame: Read kicks.
  user_->OnLinkWritten();
}

void FrameLink::Receive() {
  for (size_t turn = 0; Deliver(); ++turn) {
    if (!readable_) return;
    if (turn >= kTurnBytes / kBufferBytes) return loop_.Kick(this);
    if (!Fill() && (ended_ || !readable_)) return;
  }
  // A server that takes nothing, perhaps for long, is to know that its caller
  // is gone. A caller is about to take what came before the end: what an actor
  // replied and why it refused something are not lost.
  if (!ended_ && hung_up_ && !wanted_ && side_ == Side::kServer) {
    End(absl::UnavailableError("the other process closed the connection"));
  }
}

void FrameLink::Discard() {
  for (size_t turn = 0; readable_; ++turn) {
    if (turn >= kTurnBytes / kBufferBytes) return loop_.Kick(this);
    const ssize_t got =
        recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      readable_ = false;
    } else if (got <= 0) {
      return End(absl::OkStatus());
    }
  }
}

bool FrameLink::Fill() {
  if (large_ == nullptr && begin_ == end_) begin_ = end_ = 0;
  char* const to =
      large_ != nullptr ? large_.get() + large_filled_ : buffer_.data() + end_;
  const size_t room = large_ != nullptr ? large_header_.size - large_filled_
                                        : buffer_.size() - end_;
  const ssize_t got = recv(socket_, to, room, MSG_DONTWAIT);
  if (got > 0) {
    heard_ = true;
    if (!heard_ever_.load(std::memory_order_relaxed)) heard_ever_ = true;
    (large_ != nullptr ? large_filled_ : end_) += static_cast<size_t>(got);
    // What comes later is told of.
    if (static_cast<size_t>(got) < room && !hung_up_) readable_ = false;
    return true;
  }
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN) {
    readable_ = false;
    return false;
  }
  EndBroken(got < 0 ? errno : 0);
  return false;
}

void FrameLink::EndBroken(int error) {
  {
    absl::MutexLock lock(&mu_);
    // Whoever hears of an error first is the only one.
    if (error == 0) error = broken_error_;
  }
  if (error == 0 || error == EPIPE || error == ENOTCONN) {
    End(absl::UnavailableError("the other process closed the connection"));
  } else {
    End(absl::UnavailableError(
        absl::StrCat("the connection broke: ", std::strerror(error))));
  }
}

bool FrameLink::Check(const Header& header) {
  const bool known = header.kind == kAlive ? header.size == 0
                                           : header.kind >= kFirstKind &&
                                                 header.kind <= kLastKind;
  if (!known) {
    End(absl::InvalidArgumentError("what comes is not of a Mini-Ray link"));
  } else if (header.size > max_bytes_) {
    End(absl::InvalidArgumentError(
        absl::StrCat("a frame of ", header.size, " bytes")));
  }
  return !ended_;
}

bool FrameLink::Deliver() {
  while (!ended_) {
    if (!wanted_) return false;
    if (large_ != nullptr) {
      if (large_filled_ < large_header_.size) return true;
      const absl::string_view whole(large_.get(), large_header_.size);
      const absl::Cord bytes =
          absl::MakeCordFromExternal(whole, [memory = std::move(large_)] {});
      wanted_ = false;
      user_->OnLinkFrame(large_header_.kind, bytes);
      continue;
    }
    Header header;
    const size_t have = end_ - begin_;
    const char* const next = buffer_.data() + begin_;
    if (have >= kHeaderBytes) {
      header = {Load(next), Load(next + 4)};
      if (!Check(header)) return false;
      if (kHeaderBytes + header.size > buffer_.size()) {
        large_ = MemoryFor(header.size);
        if (large_ == nullptr) {
          End(absl::ResourceExhaustedError(absl::StrCat(
              "no memory for a frame of ", header.size, " bytes")));
          return false;
        }
        large_header_ = header;
        large_filled_ = have - kHeaderBytes;
        std::memcpy(large_.get(), next + kHeaderBytes, large_filled_);
        begin_ = end_ = 0;
        return true;
      }
    }
    if (have < kHeaderBytes || have < kHeaderBytes + header.size) {
      // The rest of it needs room.
      if (begin_ > 0) {
        std::memmove(buffer_.data(), next, have);
        begin_ = 0;
        end_ = have;
      }
      return true;
    }
    begin_ += kHeaderBytes + header.size;
    if (header.kind == kAlive) continue;
    wanted_ = false;
    user_->OnLinkFrame(header.kind, absl::Cord(absl::string_view(
                                        next + kHeaderBytes, header.size)));
  }
  return false;
}

void FrameLink::OnTick() {
  if (ended_) return;
  if (lingering_ && ++lingering_ticks_ > kMaxLingeringTicks) {
    return End(absl::OkStatus());
  }
  if (side_ == Side::kServer) {
    absl::MutexLock lock(&mu_);
    if (!std::exchange(said_, false) && outgoing_.empty() && !finishing_) {
      Append({0, kAlive});
      Flush();
      if (!outgoing_.empty()) writing_ = true;
    }
    return;
  }
  if (std::exchange(heard_, false)) {
    silent_ticks_ = 0;
  } else if (++silent_ticks_ >= MaxSilentTicks()) {
    End(absl::UnavailableError(
        absl::StrCat("the other process has given no sign of life for ",
                     absl::FormatDuration(SilenceTimeout()))));
  }
}

void FrameLink::End(const absl::Status& status) {
  if (std::exchange(ended_, true)) return;
  const std::shared_ptr<FrameLink> self = shared_from_this();
  absl::Status why = status;
  {
    absl::MutexLock lock(&mu_);
    loop_.Remove(socket_, this);
    fd_.reset();
    outgoing_.Clear();
    // Who has cancelled it knows better: perhaps the peer's last frame, behind
    // which it closed the connection, told the reason.
    if (cancelled_) why = cancel_status_;
  }
  user_->OnLinkEnded(why);
  // Much may die with it.
  RunInBackground([user = std::move(user_)]() mutable { user.reset(); });
}

}  // namespace internal
}  // namespace miniray
