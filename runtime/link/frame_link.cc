#include "runtime/link/frame_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/background.h"

namespace miniray {
namespace internal {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
// So much of one link, and the others have their turn.
constexpr size_t kTurnBytes = 4 << 20;
constexpr int kMaxSilentTicks = 4;
constexpr uint32_t kAlive = 0;
constexpr uint32_t kReading = EPOLLIN | EPOLLRDHUP;

}  // namespace

FrameLink::FrameLink(ScopedFd fd, Side side, uint64_t max_bytes)
    : side_(side),
      loop_(LinkLoop::Next()),
      max_bytes_(max_bytes),
      buffer_(kBufferBytes),
      fd_(std::move(fd)),
      socket_(fd_.get()) {}

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
  outgoing_.Append(absl::string_view(reinterpret_cast<const char*>(&header),
                                     sizeof(header)));
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
    } else if (errno == EPIPE || errno == ECONNRESET) {
      // The loop finds the end; what came before it is still read.
      outgoing_.Clear();
      broken_ = true;
    } else if (errno != EINTR) {
      cancel_status_ = ErrnoStatus(errno, "send to a process of this machine");
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
  }
  if (over) {
    End(status);
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

bool FrameLink::Fill() {
  if (large_ == nullptr && begin_ == end_) begin_ = end_ = 0;
  char* const to =
      large_ != nullptr ? large_.get() + large_filled_ : buffer_.data() + end_;
  const size_t room = large_ != nullptr ? large_header_.size - large_filled_
                                        : buffer_.size() - end_;
  const ssize_t got = recv(socket_, to, room, MSG_DONTWAIT);
  if (got > 0) {
    heard_ = true;
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
  End(absl::UnavailableError("the other process closed the connection"));
  return false;
}

bool FrameLink::Deliver() {
  while (!ended_) {
    if (!wanted_) return false;
    if (large_ != nullptr) {
      if (large_filled_ < large_header_.size) return true;
      char* const memory = large_.release();
      const absl::Cord bytes = absl::MakeCordFromExternal(
          absl::string_view(memory, large_header_.size),
          [memory] { delete[] memory; });
      wanted_ = false;
      user_->OnLinkFrame(large_header_.kind, bytes);
      continue;
    }
    Header header;
    const size_t have = end_ - begin_;
    if (have >= sizeof(header)) {
      std::memcpy(&header, buffer_.data() + begin_, sizeof(header));
    }
    if (have < sizeof(header) || have < sizeof(header) + header.size) {
      if (have >= sizeof(header)) {
        if (header.size > max_bytes_) {
          End(absl::InvalidArgumentError(
              absl::StrCat("a frame of ", header.size, " bytes")));
          return false;
        }
        if (sizeof(header) + header.size > buffer_.size()) {
          large_.reset(new char[header.size]);
          large_header_ = header;
          large_filled_ = have - sizeof(header);
          std::memcpy(large_.get(), buffer_.data() + begin_ + sizeof(header),
                      large_filled_);
          begin_ = end_ = 0;
          return true;
        }
      }
      // The rest of it needs room.
      if (begin_ > 0) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, have);
        begin_ = 0;
        end_ = have;
      }
      return true;
    }
    const absl::string_view bytes(buffer_.data() + begin_ + sizeof(header),
                                  header.size);
    begin_ += sizeof(header) + header.size;
    if (header.kind == kAlive) continue;
    if (header.size > max_bytes_) {
      End(absl::InvalidArgumentError(
          absl::StrCat("a frame of ", header.size, " bytes")));
      return false;
    }
    wanted_ = false;
    user_->OnLinkFrame(header.kind, absl::Cord(bytes));
  }
  return false;
}

void FrameLink::OnTick() {
  if (ended_) return;
  if (side_ == Side::kServer) {
    absl::MutexLock lock(&mu_);
    if (!std::exchange(said_, false) && outgoing_.empty() && !finishing_) {
      const Header alive = {0, kAlive};
      outgoing_.Append(absl::string_view(reinterpret_cast<const char*>(&alive),
                                         sizeof(alive)));
      Flush();
      if (!outgoing_.empty()) writing_ = true;
    }
    return;
  }
  if (std::exchange(heard_, false)) {
    silent_ticks_ = 0;
  } else if (++silent_ticks_ >= kMaxSilentTicks) {
    End(absl::UnavailableError(
        "the other process has given no sign of life for 20 s"));
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
