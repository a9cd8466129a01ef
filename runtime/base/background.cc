#include "runtime/base/background.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/steady_time.h"

namespace miniray {
namespace {

// A wait that is longer is made of several.
constexpr absl::Duration kLongestWait = absl::Hours(1);

class Background {
 public:
  // Outlives static objects; its thread starts with the first task, since a
  // template process must not have threads.
  static Background& Get() {
    static auto* const background = new Background;
    return *background;
  }

  void Add(std::function<void()> task, absl::Duration delay) {
    const absl::Time due = SteadyNow() + delay;
    const std::lock_guard<std::mutex> lock(mu_);
    const bool first = tasks_.empty() || due < tasks_.begin()->first;
    tasks_.emplace(due, std::move(task));
    if (first) news_.notify_one();
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
    std::unique_lock<std::mutex> lock(mu_);
    while (true) {
      const absl::Duration left =
          tasks_.empty() ? kLongestWait : tasks_.begin()->first - SteadyNow();
      if (left <= absl::ZeroDuration()) break;
      news_.wait_for(lock,
                     absl::ToChronoNanoseconds(std::min(left, kLongestWait)));
    }
    return std::move(tasks_.extract(tasks_.begin()).mapped());
  }

  // Not Abseil's: see steady_time.h. Guards all that follows.
  std::mutex mu_;
  std::condition_variable news_;
  bool started_ = false;
  std::multimap<absl::Time, std::function<void()>> tasks_;
};

}  // namespace

void RunInBackground(std::function<void()> task, absl::Duration delay) {
  Background::Get().Add(std::move(task), delay);
}

}  // namespace miniray
