// Makes what a loop will need, by threads ahead of it: batches of pictures that
// are read and decoded while the step before computes.
//
//   Prefetcher<ImageBatch> ahead(
//       batches.size(),
//       [&](int64_t b) { return folder.ReadBatch(batches[b]); },
//       {.threads = 2, .ahead = 4});
//   for (int64_t b = 0; b < batches.size(); ++b) {
//     MR_ASSIGN_OR_RETURN(ImageBatch batch, ahead.Next());
//     ...

#ifndef MINIRAY_ML_DATA_PREFETCHER_H_
#define MINIRAY_ML_DATA_PREFETCHER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "ml/data/exception_text.h"

namespace miniray::ml {

struct PrefetchOptions {
  int threads = 2;    // At least 1; fewer where the system makes no more.
  int64_t ahead = 4;  // Items that are ready or being made at a time; >= 1.
};

// Items 0 to count - 1 come in that order, each made once, whatever the number
// of threads. Memory is bounded: no item is begun that is `ahead` or more
// behind the one that is taken next.
//
// Next is for one thread at a time.
template <class T>
class Prefetcher {
 public:
  // make: returns item i. Called from several threads at once, in no order.
  // What it refers to has to outlive this object.
  using Make = std::function<absl::StatusOr<T>(int64_t i)>;

  // Throws std::system_error if the system makes not even one thread.
  //
  // count: of items; below 1, there are none.
  Prefetcher(int64_t count, Make make, const PrefetchOptions& options = {})
      : count_(count),
        make_(std::move(make)),
        ahead_(std::max<int64_t>(options.ahead, 1)) {
    const int threads = std::max(options.threads, 1);
    threads_.reserve(static_cast<size_t>(threads));
    try {
      for (int i = 0; i < threads; ++i) {
        threads_.emplace_back([this] { Work(); });
      }
    } catch (const std::system_error&) {
      // The system makes no more threads: fewer do the same.
      if (threads_.empty()) throw;
    }
  }

  // Waits for the items that are being made.
  ~Prefetcher() {
    {
      absl::MutexLock lock(&mu_);
      stopped_ = true;
    }
    for (std::thread& thread : threads_) thread.join();
  }

  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Waits for the next item and returns it. An item's error comes in its place,
  // and the next ones after it. Errors: those of make; INTERNAL, it has thrown;
  // OUT_OF_RANGE, there are no more.
  absl::StatusOr<T> Next() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (next_ >= count_) {
      return absl::OutOfRangeError(
          absl::StrCat("all of ", count_, " items were taken"));
    }
    mu_.Await(absl::Condition(this, &Prefetcher::NextIsReady));
    const auto found = ready_.find(next_);
    absl::StatusOr<T> item = std::move(found->second);
    ready_.erase(found);
    ++next_;
    return item;
  }

 private:
  bool NextIsReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ready_.contains(next_);
  }

  // Whether a thread has something to do.
  bool MayGoOn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopped_ || begun_ >= count_ || begun_ < next_ + ahead_;
  }

  void Work() ABSL_LOCKS_EXCLUDED(mu_) {
    while (true) {
      int64_t i = 0;
      {
        absl::MutexLock lock(&mu_);
        mu_.Await(absl::Condition(this, &Prefetcher::MayGoOn));
        if (stopped_ || begun_ >= count_) return;
        i = begun_++;
      }
      absl::StatusOr<T> item = MakeItem(i);
      absl::MutexLock lock(&mu_);
      ready_.emplace(i, std::move(item));
    }
  }

  absl::StatusOr<T> MakeItem(int64_t i) const {
    try {
      return make_(i);
    } catch (const std::exception& error) {
      return absl::InternalError(
          absl::StrCat("item ", i, ": ", FirstLine(error)));
    }
  }

  const int64_t count_;
  const Make make_;
  const int64_t ahead_;
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  int64_t begun_ ABSL_GUARDED_BY(mu_) = 0;  // The next one to be made.
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;   // The next one to be taken.
  std::map<int64_t, absl::StatusOr<T>> ready_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;  // Last: they use the others.
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_PREFETCHER_H_
