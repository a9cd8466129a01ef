// The thread that waits for the link sockets of this process, all of them, and
// runs what they bring. See FrameLink.

#ifndef MINIRAY_RUNTIME_LINK_LINK_LOOP_H_
#define MINIRAY_RUNTIME_LINK_LINK_LOOP_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/files.h"

namespace miniray {
namespace internal {

// What has a socket in a loop. Its methods run in the loop's thread.
class LinkLoopUser {
 public:
  virtual ~LinkLoopUser() = default;
  // events: of epoll, edge-triggered; 0 after a Kick.
  virtual void OnEvents(uint32_t events) = 0;
  // Every SignOfLifePeriod (runtime/base/silence.h), 5 s.
  virtual void OnTick() {}
  // After a Later.
  virtual void OnLater() {}
};

// Thread-safe.
class LinkLoop {
 public:
  // Long enough for a few dozen calls to come together, short beside the
  // wake-ups that each of them would cost alone.
  static constexpr std::chrono::microseconds kLater{20};

  // One of the loops of this process, in turn: one for two cores, at most 8.
  // Its thread starts with the first call, and never ends.
  static LinkLoop& Next();

  // Keeps `user`, and watches its socket, until Remove. Returns whether it
  // does: false, the kernel has no room for it.
  bool Add(int fd, std::shared_ptr<LinkLoopUser> user, uint32_t events)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Watch(int fd, LinkLoopUser* user, uint32_t events);
  // To be called in the loop's thread. The socket is closed after this.
  void Remove(int fd, LinkLoopUser* user) ABSL_LOCKS_EXCLUDED(mu_);
  // OnEvents(0) follows, if `user` is still in the loop.
  void Kick(LinkLoopUser* user) ABSL_LOCKS_EXCLUDED(mu_);

  // OnLater follows after kLater, if `user` is still in the loop. To be called
  // in the loop's thread.
  void Later(LinkLoopUser* user);

  bool InThread() const { return std::this_thread::get_id() == thread_; }

 private:
  LinkLoop();
  void Run();
  using Clock = std::chrono::steady_clock;
  void Turn(const std::vector<std::pair<LinkLoopUser*, uint32_t>>& events)
      ABSL_LOCKS_EXCLUDED(mu_);
  void RunLater() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether there is anybody.
  bool Tick(bool due) ABSL_LOCKS_EXCLUDED(mu_);

  ScopedFd epoll_;
  ScopedFd wakeup_;
  std::atomic<std::thread::id> thread_;
  // Of the loop's thread.
  std::vector<LinkLoopUser*> later_;
  Clock::time_point later_at_;

  absl::Mutex mu_;
  absl::flat_hash_map<LinkLoopUser*, std::shared_ptr<LinkLoopUser>> users_
      ABSL_GUARDED_BY(mu_);
  std::vector<LinkLoopUser*> kicked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_LINK_LINK_LOOP_H_
