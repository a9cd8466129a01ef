#include "runtime/base/background.h"

#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace miniray {
namespace {

class Background {
 public:
  // Outlives static objects; its thread starts with the first task, since a
  // template process must not have threads.
  static Background& Get() {
    static auto* const background = new Background;
    return *background;
  }

  void Add(std::function<void()> task, absl::Duration delay) {
    const absl::Time due = absl::Now() + delay;
    absl::MutexLock lock(&mu_);
    const bool first = tasks_.empty() || due < tasks_.begin()->first;
    tasks_.emplace(due, std::move(task));
    if (first) news_.Signal();
    if (!started_) {
      started_ = true;
      std::thread([this] { Loop(); }).detach();
    }
  }

 private:
  void Loop() {
    while (true) Next()();  // What a task holds dies here as well, unlocked.
  }

  std::function<void()> Next() {
    absl::MutexLock lock(&mu_);
    while (tasks_.empty() || tasks_.begin()->first > absl::Now()) {
      news_.WaitWithDeadline(&mu_, tasks_.empty() ? absl::InfiniteFuture()
                                                  : tasks_.begin()->first);
    }
    return std::move(tasks_.extract(tasks_.begin()).mapped());
  }

  absl::Mutex mu_;
  absl::CondVar news_;
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  std::multimap<absl::Time, std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

void RunInBackground(std::function<void()> task, absl::Duration delay) {
  Background::Get().Add(std::move(task), delay);
}

}  // namespace miniray
