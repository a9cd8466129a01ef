#include "ps/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <system_error>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace miniray::ps {
namespace {

// Memory's bandwidth is used up by then.
constexpr int64_t kMaxThreads = 8;

// Threads that stay: to start one costs as much as a synchronisation of a small
// model. They live as long as the process. Thread-safe.
class Helpers {
 public:
  static Helpers& Get() {
    static Helpers* const helpers = new Helpers;
    return *helpers;
  }

  // Calls `run` in this thread, and in so many others at most, those that come
  // before this one is done.
  void Run(int64_t others, absl::FunctionRef<void()> run) {
    Job job{run, others};
    {
      absl::MutexLock lock(&mu_);
      Start(others);
      if (num_threads_ > 0) jobs_.push_back(&job);
    }
    run();
    absl::MutexLock lock(&mu_);
    // Who has not come by now is not needed.
    const auto it = std::find(jobs_.begin(), jobs_.end(), &job);
    if (it != jobs_.end()) jobs_.erase(it);
    const auto done = [&job] { return job.running == 0; };
    mu_.Await(absl::Condition(&done));
  }

 private:
  struct Job {
    absl::FunctionRef<void()> run;
    int64_t wanted;       // So many may still come to it; above 0 in jobs_.
    int64_t running = 0;  // So many have come and are not done.
  };

  void Start(int64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (num_threads_ < count) {
      try {
        std::thread([this] { Serve(); }).detach();
      } catch (const std::system_error&) {
        return;  // No more threads: the others do it.
      }
      ++num_threads_;
    }
  }

  [[noreturn]] void Serve() {
    absl::MutexLock lock(&mu_);
    const auto has_job = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !jobs_.empty();
    };
    while (true) {
      mu_.Await(absl::Condition(&has_job));
      Job* const job = jobs_.front();
      if (--job->wanted == 0) jobs_.pop_front();
      ++job->running;
      mu_.Unlock();
      job->run();
      mu_.Lock();
      --job->running;
    }
  }

  absl::Mutex mu_;
  std::deque<Job*> jobs_ ABSL_GUARDED_BY(mu_);
  int64_t num_threads_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> work) {
  std::atomic<int64_t> next = 0;
  const auto run = [&] {
    for (int64_t i = next++; i < count; i = next++) work(i);
  };
  const int64_t threads =
      std::min({count, kMaxThreads,
                static_cast<int64_t>(std::thread::hardware_concurrency())});
  if (threads <= 1) return run();
  Helpers::Get().Run(threads - 1, run);
}

}  // namespace miniray::ps
