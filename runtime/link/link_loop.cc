#include "runtime/link/link_loop.h"

#include <glog/logging.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "absl/time/time.h"
#include "runtime/base/silence.h"

namespace miniray {
namespace internal {

LinkLoop& LinkLoop::Next() {
  // They outlive static objects.
  static auto* const loops = [] {
    const unsigned count =
        std::clamp(std::thread::hardware_concurrency() / 2, 1u, 8u);
    auto* const made = new std::vector<LinkLoop*>;
    for (unsigned i = 0; i < count; ++i) made->push_back(new LinkLoop);
    return made;
  }();
  static std::atomic<size_t> next = 0;
  return *(*loops)[next.fetch_add(1) % loops->size()];
}

LinkLoop::LinkLoop()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wakeup_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Without them nothing can be added, and nobody has links.
  if (!epoll_.valid() || !wakeup_.valid()) return;
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wakeup_.get(), &event) != 0) {
    epoll_ = ScopedFd();
    return;
  }
  std::thread([this] { Run(); }).detach();
}

bool LinkLoop::Add(int fd, std::shared_ptr<LinkLoopUser> user,
                   uint32_t events) {
  LinkLoopUser* const key = user.get();
  bool first = false;
  {
    absl::MutexLock lock(&mu_);
    first = users_.empty();
    users_.emplace(key, std::move(user));
  }
  epoll_event event = {};
  event.events = events | EPOLLET;
  event.data.ptr = key;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    absl::MutexLock lock(&mu_);
    users_.erase(key);
    return false;
  }
  // Its ticks begin.
  if (first) Kick(nullptr);
  return true;
}

void LinkLoop::Watch(int fd, LinkLoopUser* user, uint32_t events) {
  epoll_event event = {};
  event.events = events | EPOLLET;
  event.data.ptr = user;
  PCHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0);
}

void LinkLoop::Remove(int fd, LinkLoopUser* user) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  std::shared_ptr<LinkLoopUser> removed;  // Dies unlocked.
  absl::MutexLock lock(&mu_);
  auto it = users_.find(user);
  if (it == users_.end()) return;
  removed = std::move(it->second);
  users_.erase(it);
}

void LinkLoop::Kick(LinkLoopUser* user) {
  {
    absl::MutexLock lock(&mu_);
    kicked_.push_back(user);
    if (kicked_.size() > 1) return;  // It is awake, or will be.
  }
  const uint64_t one = 1;
  // Fails only where it is about to wake up anyhow.
  if (write(wakeup_.get(), &one, sizeof(one)) < 0) return;
}

void LinkLoop::Later(LinkLoopUser* user) {
  if (later_.empty()) later_at_ = Clock::now() + kLater;
  later_.push_back(user);
}

void LinkLoop::Run() {
  thread_ = std::this_thread::get_id();
  pthread_setname_np(pthread_self(), "miniray-link");
  // Timers are late by 50 us otherwise.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  const auto between_ticks = absl::ToChronoNanoseconds(SignOfLifePeriod());
  constexpr int kEvents = 64;
  epoll_event ready[kEvents];
  bool ticking = false;
  Clock::time_point tick;
  while (true) {
    // Without users, nothing wakes it.
    const bool timed = ticking || !later_.empty();
    timespec timeout = {};
    if (timed) {
      const auto until = later_.empty() ? tick : later_at_;
      const int64_t left = std::max<int64_t>(
          0, std::chrono::nanoseconds(until - Clock::now()).count());
      timeout.tv_sec = left / 1000000000;
      timeout.tv_nsec = left % 1000000000;
    }
    const int count = epoll_pwait2(epoll_.get(), ready, kEvents,
                                   timed ? &timeout : nullptr, nullptr);
    PCHECK(count >= 0 || errno == EINTR);
    std::vector<std::pair<LinkLoopUser*, uint32_t>> events;
    for (int i = 0; i < count; ++i) {
      if (ready[i].data.ptr == nullptr) continue;  // A kick.
      // The kernel's struct is packed.
      const uint32_t bits = ready[i].events;
      events.emplace_back(static_cast<LinkLoopUser*>(ready[i].data.ptr), bits);
    }
    Turn(events);
    if (!later_.empty() && Clock::now() >= later_at_) RunLater();
    if (ticking && Clock::now() < tick) continue;
    ticking = Tick(/*due=*/ticking);
    tick = Clock::now() + between_ticks;
  }
}

bool LinkLoop::Tick(bool due) {
  std::vector<std::shared_ptr<LinkLoopUser>> users;
  bool any = false;
  {
    absl::MutexLock lock(&mu_);
    any = !users_.empty();
    if (due) {
      for (const auto& [key, user] : users_) users.push_back(user);
    }
  }
  for (const auto& user : users) user->OnTick();
  return any;
}

void LinkLoop::RunLater() {
  std::vector<std::shared_ptr<LinkLoopUser>> found;
  {
    absl::MutexLock lock(&mu_);
    for (LinkLoopUser* const user : std::exchange(later_, {})) {
      const auto it = users_.find(user);
      if (it != users_.end()) found.push_back(it->second);
    }
  }
  for (const auto& user : found) user->OnLater();
}

void LinkLoop::Turn(
    const std::vector<std::pair<LinkLoopUser*, uint32_t>>& events) {
  // Held: one may remove another. Those that were removed meanwhile are left
  // out.
  std::vector<std::pair<std::shared_ptr<LinkLoopUser>, uint32_t>> found;
  {
    absl::MutexLock lock(&mu_);
    auto add = [&](LinkLoopUser* user, uint32_t bits)
                   ABSL_NO_THREAD_SAFETY_ANALYSIS {
                     const auto it = users_.find(user);
                     if (it != users_.end())
                       found.emplace_back(it->second, bits);
                   };
    for (const auto& [user, bits] : events) add(user, bits);
    for (LinkLoopUser* const user : kicked_) add(user, 0);
    kicked_.clear();
  }
  for (const auto& [user, bits] : found) user->OnEvents(bits);
}

}  // namespace internal
}  // namespace miniray
