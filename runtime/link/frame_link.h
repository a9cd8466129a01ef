// A connection between two processes that carries frames, over a unix socket or
// TCP. What takes gRPC a dozen system calls and several threads takes this one
// call to send and one thread to receive: a frame leaves in the thread that has
// it, and arrives in that of the socket's LinkLoop.
//
// On the wire a frame is its size and its kind, 32 bits each with the lowest
// byte first, then its bytes.

#ifndef MINIRAY_RUNTIME_LINK_FRAME_LINK_H_
#define MINIRAY_RUNTIME_LINK_FRAME_LINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/files.h"
#include "runtime/link/link_loop.h"

namespace miniray {
namespace internal {

// Called without locks, in the loop's thread: must not block.
class FrameLinkUser {
 public:
  virtual ~FrameLinkUser() = default;
  virtual void OnLinkFrame(uint32_t kind, const absl::Cord& bytes) = 0;
  // All is written. Follows a Write that returned false, unless the link ends.
  virtual void OnLinkWritten() = 0;
  // The link is over. Follows once, after which nothing does.
  virtual void OnLinkEnded(const absl::Status& status) = 0;
};

// Thread-safe. Keeps its user, and the loop keeps it, until it has ended.
class FrameLink : public LinkLoopUser,
                  public std::enable_shared_from_this<FrameLink> {
 public:
  // The user's kinds. Who sends another speaks something else.
  static constexpr uint32_t kFirstKind = 16;
  static constexpr uint32_t kLastKind = 255;

  enum class Side {
    // Ends the link when nothing came for SilenceTimeout: the peer stands
    // still.
    kCaller,
    // Says that it lives when it has nothing else to say.
    kServer,
  };

  // fd: may still be connecting. Nothing is read before Read. max_bytes: of a
  // frame. preface: goes before all frames.
  FrameLink(ScopedFd fd, Side side, uint64_t max_bytes,
            absl::string_view preface = "");
  ~FrameLink() override;

  // False: the process has no room for it, and the user hears nothing.
  bool Start(std::shared_ptr<FrameLinkUser> user);

  // Sends a frame behind those before it. at_once: it may leave in this thread,
  // and then true is returned; else the loop sends it with what else there is
  // by then, and OnLinkWritten follows.
  bool Write(uint32_t kind, const absl::Cord& bytes, bool at_once)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The user takes one more frame.
  void Read();

  void set_max_bytes(uint64_t max_bytes) { max_bytes_ = max_bytes; }

  // Anything came, if only a part of a frame.
  bool heard_ever() const { return heard_ever_; }

  // Ends the link once all is written; nothing more is taken in. Over TCP a
  // server's ends once the caller has ended it too, or some 10 s later.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends it at once.
  void Cancel(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // LinkLoopUser.
  void OnEvents(uint32_t events) override;
  void OnTick() override;
  void OnLater() override;

 private:
  struct Header {
    uint32_t size = 0;
    uint32_t kind = 0;
  };

  // The loop's thread only.
  void Receive();
  // Hands out what has arrived in full; false: the user takes no more now, or
  // the link is over.
  bool Deliver();
  // Reads what is not wanted any more, until the peer has closed.
  void Discard();
  // Reads once; false: there is nothing, or the end.
  bool Fill();
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends it because the socket is at its end, or has this errno.
  void EndBroken(int error) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether such a frame may come. It ends the link if not.
  bool Check(const Header& header) ABSL_LOCKS_EXCLUDED(mu_);

  void Append(const Header& header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Side side_;
  // Over TCP a socket that is closed before all that the peer sends is read
  // takes along what it has sent and the peer has not got yet. So a server that
  // is done says so, and closes once its caller has.
  const bool lingers_;
  LinkLoop& loop_;
  std::atomic<uint64_t> max_bytes_;
  std::atomic<bool> wanted_ = false;  // The user takes a frame.
  std::atomic<bool> heard_ever_ = false;

  // Of the loop's thread.
  std::shared_ptr<FrameLinkUser> user_;
  bool readable_ = false;  // As far as is known.
  bool hung_up_ = false;
  bool ended_ = false;
  bool in_events_ = false;
  bool lingering_ = false;
  int lingering_ticks_ = 0;
  bool heard_ = false;  // Since the last tick.
  int silent_ticks_ = 0;
  std::vector<char> buffer_;  // What was read is in [begin_, end_).
  size_t begin_ = 0;
  size_t end_ = 0;
  // A frame that the buffer cannot hold.
  std::shared_ptr<char> large_;
  Header large_header_;
  size_t large_filled_ = 0;

  absl::Mutex mu_;
  ScopedFd fd_ ABSL_GUARDED_BY(mu_);
  const int socket_;  // The same, for the loop's thread, which closes it.
  absl::Cord outgoing_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // The loop is to write.
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;  // For room in the socket.
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  bool said_ ABSL_GUARDED_BY(mu_) = false;    // Something, since the last tick.
  bool broken_ ABSL_GUARDED_BY(mu_) = false;  // The peer is gone.
  int broken_error_ ABSL_GUARDED_BY(mu_) = 0;  // What told of it.
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status cancel_status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_LINK_FRAME_LINK_H_
