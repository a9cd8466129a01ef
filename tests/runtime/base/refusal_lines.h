// What this process logs about refusals (runtime/base/refusal_log.h).

#ifndef MINIRAY_TESTS_RUNTIME_BASE_REFUSAL_LINES_H_
#define MINIRAY_TESTS_RUNTIME_BASE_REFUSAL_LINES_H_

#include <glog/logging.h>

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace miniray {

// The lines since it was made. Thread-safe.
class RefusalLines : public google::LogSink {
 public:
  RefusalLines() { google::AddLogSink(this); }
  ~RefusalLines() override { google::RemoveLogSink(this); }

  void send(google::LogSeverity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message,
            size_t size) override {
    const absl::string_view line(message, size);
    if (!absl::StartsWith(line, "refused ")) return;
    absl::MutexLock lock(&mu_);
    lines_.emplace_back(line);
  }

  std::vector<std::string> lines() {
    absl::MutexLock lock(&mu_);
    return lines_;
  }

  // Waits until `count` lines contain `text`, at most 30 s; returns how many
  // do.
  int Await(absl::string_view text, int count) {
    int found = 0;
    const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
      found = 0;
      for (const std::string& line : lines_) {
        found += absl::StrContains(line, text) ? 1 : 0;
      }
      return found >= count;
    };
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(30));
    return found;
  }

 private:
  absl::Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_BASE_REFUSAL_LINES_H_
