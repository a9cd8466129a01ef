#include "tools/bench/node_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace miniray::bench {
namespace {

constexpr int64_t kSize = 64 << 20;
constexpr int64_t kMost = kSize * 9 / 10;

// Fresh pages, however the heap is kept.
struct Pages {
  void* const address = mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ~Pages() { munmap(address, kSize); }
};

TEST(TreeMemoryTest, CountsPrivateMemory) {
  const int64_t before = TreeMemory({});
  const Pages pages;
  ASSERT_NE(pages.address, MAP_FAILED);
  EXPECT_GT(TreeMemory({}), before + kMost);
}

TEST(TreeMemoryTest, CountsAFileInMemoryThatNobodyMaps) {
  const int64_t before = TreeMemory({});
  const ScopedFd file(memfd_create("bench-test", MFD_CLOEXEC));
  ASSERT_TRUE(file.valid());
  const std::string block(1 << 20, 'x');
  for (int64_t done = 0; done < kSize; done += 1 << 20) {
    ASSERT_EQ(write(file.get(), block.data(), block.size()), 1 << 20);
  }
  EXPECT_GT(TreeMemory({}), before + kMost);
}

TEST(TreeMemoryTest, CountsChildrenButNotThoseLeftOut) {
  const int64_t before = TreeMemory({});
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Pages pages;
    (void)!write(ready[1], "r", 1);
    pause();
    _exit(0);
  }
  char unused;
  ASSERT_EQ(read(ready[0], &unused, 1), 1);
  EXPECT_GT(TreeMemory({}), before + kMost);
  EXPECT_LT(TreeMemory({child}), before + kMost);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(PeakTreeMemoryTest, SeesWhatLivesOnlyDuringTheWork) {
  const int64_t before = TreeMemory({});
  std::atomic<int> looks = 0;
  const auto peak = PeakTreeMemory(
      {},
      [&]() -> absl::Status {
        const Pages pages;
        // The second look from now began after this.
        const int enough = looks + 2;
        const absl::Time deadline = absl::Now() + absl::Seconds(60);
        while (looks < enough && absl::Now() < deadline) {
          absl::SleepFor(absl::Milliseconds(1));
        }
        return absl::OkStatus();
      },
      &looks);
  ASSERT_TRUE(peak.ok());
  EXPECT_GT(*peak, before + kMost);
  EXPECT_LT(TreeMemory({}), before + kMost);
}

TEST(PeakTreeMemoryTest, ReturnsTheErrorOfTheWork) {
  EXPECT_EQ(PeakTreeMemory({}, [] { return absl::AbortedError("no"); })
                .status()
                .code(),
            absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace miniray::bench
