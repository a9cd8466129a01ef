#include "ps/parallel_for.h"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace miniray::ps {
namespace {

TEST(ParallelForTest, EachPieceIsDoneOnce) {
  for (const int64_t count : {0, 1, 2, 3, 7, 100, 10000}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    ParallelFor(count, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    for (const std::atomic<int>& number : calls) ASSERT_EQ(number, 1);
  }
}

TEST(ParallelForTest, ItReturnsOnceAllAreDone) {
  for (int round = 0; round < 2000; ++round) {
    int64_t sum[4] = {};
    ParallelFor(4, [&](int64_t i) { sum[i] = i + round; });
    ASSERT_EQ(sum[0] + sum[1] + sum[2] + sum[3], 6 + 4 * round);
  }
}

TEST(ParallelForTest, ManyThreadsMayDoItAtOnce) {
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        ParallelFor(50, [&](int64_t i) { sum += i; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, int64_t{8} * 200 * (49 * 50 / 2));
}

TEST(ParallelForTest, APieceMayBeDoneInPieces) {
  std::atomic<int64_t> sum = 0;
  ParallelFor(20, [&](int64_t i) {
    ParallelFor(20, [&](int64_t k) { sum += 20 * i + k; });
  });
  EXPECT_EQ(sum, 400 * 399 / 2);
}

TEST(ParallelForTest, PiecesRunSideBySide) {
  if (std::thread::hardware_concurrency() < 2) return;
  absl::Notification begun[2];
  std::atomic<int> met = 0;
  ParallelFor(2, [&](int64_t i) {
    begun[i].Notify();
    met += begun[1 - i].WaitForNotificationWithTimeout(absl::Seconds(30));
  });
  EXPECT_EQ(met, 2);
}

}  // namespace
}  // namespace miniray::ps
