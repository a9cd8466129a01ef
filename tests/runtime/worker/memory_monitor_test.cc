#include "runtime/worker/memory_monitor.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/objects/memory_file.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kPageBytes = 4096;

// Unseen by ThreadSanitizer, whose notes on what is read would take more memory
// than that has.
[[gnu::noinline, gnu::no_sanitize("thread")]] void ReadPages(
    absl::string_view memory) {
  for (size_t i = 0; i < memory.size(); i += kPageBytes) {
    (void)*static_cast<const volatile char*>(&memory.data()[i]);
  }
}

// A process group of its own that has taken memory.
class Hog {
 public:
  // Has touched so much of its own.
  explicit Hog(size_t bytes)
      : Hog([bytes] {
          void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          memset(memory, 1, bytes);
        }) {}
  // Has read all of what others have too.
  explicit Hog(absl::string_view shared)
      : Hog([shared] { ReadPages(shared); }) {}
  ~Hog() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  explicit Hog(const std::function<void()>& take) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      take();
      if (write(ready[1], "y", 1) != 1) _exit(1);
      while (true) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }

  pid_t pid_ = 0;
};

class MemoryMonitorTest : public testing::Test {
 protected:
  MemoryMonitor::Options Options() {
    MemoryMonitor::Options options;
    options.limit = 0.9;
    options.period = absl::Milliseconds(5);
    options.report_period = absl::Milliseconds(5);
    options.read = [this]() -> absl::StatusOr<MemoryReading> {
      absl::MutexLock lock(&mu_);
      return reading_;
    };
    return options;
  }
  MemoryMonitor::Callbacks Callbacks(std::vector<MemoryMonitor::Victim> list) {
    return {.list = [list] { return list; },
            .kill =
                [this](const MemoryMonitor::Victim& victim,
                       const std::string& cause) {
                  absl::MutexLock lock(&mu_);
                  killed_.push_back(victim.key);
                  causes_.push_back(cause);
                  times_.push_back(absl::Now());
                },
            .report =
                [this](const MemoryReading& reading) {
                  absl::MutexLock lock(&mu_);
                  reported_ = reading;
                }};
  }
  void Set(int64_t used, int64_t total) {
    absl::MutexLock lock(&mu_);
    reading_ = {.used_bytes = used, .total_bytes = total};
  }
  size_t Kills() {
    absl::MutexLock lock(&mu_);
    return killed_.size();
  }

  absl::Mutex mu_;
  MemoryReading reading_ ABSL_GUARDED_BY(mu_) = {.used_bytes = 0,
                                                 .total_bytes = 1};
  MemoryReading reported_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> killed_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> causes_ ABSL_GUARDED_BY(mu_);
  std::vector<absl::Time> times_ ABSL_GUARDED_BY(mu_);
};

TEST_F(MemoryMonitorTest, ReadsTheMachine) {
  const absl::StatusOr<MemoryReading> reading = ReadMemory();
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_GT(reading->used_bytes, 0);
  EXPECT_GT(reading->total_bytes, reading->used_bytes);
}

TEST_F(MemoryMonitorTest, KillsWhoeverWouldFreeMost) {
  const Hog small(1 << 20), large(64 << 20);
  MemoryMonitor monitor(
      Options(), Callbacks({{"small", small.pid()}, {"large", large.pid()}}));
  Set(95, 100);
  ASSERT_TRUE(Eventually([&] { return Kills() == 1; }));
  Set(50, 100);
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(killed_[0], "large");
  EXPECT_THAT(causes_[0], AllOf(HasSubstr("killed for memory: used "),
                                HasSubstr("(limit 90%); the actor used ")));
}

// A value of the node's store: whoever of its readers ended, it would stay.
TEST_F(MemoryMonitorTest, WhatManyHaveCountsForEachInPart) {
  constexpr size_t kMegabyte = 1 << 20, kBytes = 64 * kMegabyte;
  const auto value = MemoryFile::Create(kBytes);
  ASSERT_TRUE(value.ok()) << value.status();
  const std::string megabyte(kMegabyte, 'v');
  for (size_t i = 0; i < kBytes; i += kMegabyte) {
    ASSERT_TRUE((*value)->Append(megabyte).ok());
  }
  ASSERT_TRUE((*value)->Seal().ok());
  // Here none of it is touched.
  const auto mapped = (*value)->Map();
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const absl::string_view all(mapped->get(), kBytes);
  const Hog first(all), second(all), third(all), fourth(all);
  const Hog own(kBytes / 2);
  MemoryMonitor monitor(Options(), Callbacks({{"first", first.pid()},
                                              {"second", second.pid()},
                                              {"third", third.pid()},
                                              {"fourth", fourth.pid()},
                                              {"own", own.pid()}}));
  Set(95, 100);
  ASSERT_TRUE(Eventually([&] { return Kills() == 1; }));
  Set(50, 100);
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(killed_[0], "own");
}

TEST_F(MemoryMonitorTest, WaitsUntilWhatAKillFreedIsFree) {
  const Hog hog(8 << 20);
  MemoryMonitor monitor(Options(), Callbacks({{"hog", hog.pid()}}));
  Set(95, 100);
  ASSERT_TRUE(Eventually([&] { return Kills() == 2; }));
  absl::MutexLock lock(&mu_);
  EXPECT_GE(times_[1] - times_[0], absl::Seconds(1));
}

TEST_F(MemoryMonitorTest, BelowTheLimitItOnlyReports) {
  const Hog hog(1 << 20);
  MemoryMonitor monitor(Options(), Callbacks({{"hog", hog.pid()}}));
  Set(89, 100);
  EXPECT_TRUE(Eventually([&] {
    absl::MutexLock lock(&mu_);
    return reported_.used_bytes == 89 && reported_.total_bytes == 100;
  }));
  EXPECT_EQ(Kills(), 0);
}

}  // namespace
}  // namespace miniray
