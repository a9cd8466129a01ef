#include "ml/data/prefetcher.h"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kInternal;
using absl::StatusCode::kOutOfRange;

TEST(PrefetcherTest, ItemsComeInOrderWhateverTheThreads) {
  for (const int threads : {1, 2, 7}) {
    for (const int64_t ahead : {1, 3, 50}) {
      std::atomic<int> made = 0;
      Prefetcher<std::string> prefetcher(
          200,
          [&made](int64_t i) -> absl::StatusOr<std::string> {
            ++made;
            return absl::StrCat("item ", i);
          },
          {.threads = threads, .ahead = ahead});
      for (int64_t i = 0; i < 200; ++i) {
        ASSERT_OK_AND_ASSIGN(const std::string item, prefetcher.Next());
        EXPECT_EQ(item, absl::StrCat("item ", i));
      }
      ExpectError(prefetcher.Next().status(), kOutOfRange, {"all of 200"});
      EXPECT_EQ(made.load(), 200);
    }
  }
}

TEST(PrefetcherTest, ItemsAreMadeAheadAndBounded) {
  // Three are begun before any is taken.
  absl::BlockingCounter begun(3);
  std::atomic<int64_t> taken = 0;
  std::atomic<int64_t> furthest = 0;
  Prefetcher<int64_t> prefetcher(
      100,
      [&](int64_t i) -> absl::StatusOr<int64_t> {
        // `taken` is behind what Next has given out by one at most.
        const int64_t distance = i - taken;
        if (i < 3) begun.DecrementCount();
        int64_t before = furthest;
        while (distance > before &&
               !furthest.compare_exchange_weak(before, distance)) {
        }
        return i;
      },
      {.threads = 5, .ahead = 3});
  begun.Wait();
  for (int64_t i = 0; i < 100; ++i) {
    ASSERT_OK_AND_ASSIGN(const int64_t item, prefetcher.Next());
    EXPECT_EQ(item, i);
    ++taken;
  }
  EXPECT_GE(furthest.load(), 2);
  EXPECT_LE(furthest.load(), 3);
}

TEST(PrefetcherTest, AnErrorComesInItsPlace) {
  Prefetcher<int64_t> prefetcher(10, [](int64_t i) -> absl::StatusOr<int64_t> {
    if (i == 4) return absl::DataLossError("file 4 is damaged");
    if (i == 6) throw std::runtime_error("out of luck\nbacktrace");
    return i;
  });
  for (int64_t i = 0; i < 10; ++i) {
    const absl::StatusOr<int64_t> item = prefetcher.Next();
    if (i == 4) {
      ExpectError(item.status(), kDataLoss, {"file 4 is damaged"});
    } else if (i == 6) {
      ExpectError(item.status(), kInternal, {"item 6: out of luck"});
      EXPECT_EQ(item.status().message().find("backtrace"),
                absl::string_view::npos);
    } else {
      ASSERT_TRUE(item.ok()) << item.status();
      EXPECT_EQ(*item, i);
    }
  }
}

TEST(PrefetcherTest, MayBeLeftBeforeTheEnd) {
  const auto shared = std::make_shared<int>(0);
  {
    Prefetcher<std::shared_ptr<int>> prefetcher(
        1000, [&shared](int64_t) -> absl::StatusOr<std::shared_ptr<int>> {
          return shared;
        });
    ASSERT_TRUE(prefetcher.Next().ok());
  }
  // What was ready and never taken is gone.
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(PrefetcherTest, TheEndWaitsForWhatIsBeingMade) {
  absl::Notification begun;
  std::atomic<bool> done = false;
  {
    Prefetcher<int> prefetcher(1,
                               [&](int64_t) -> absl::StatusOr<int> {
                                 begun.Notify();
                                 done = true;
                                 return 1;
                               },
                               {.threads = 3});
    begun.WaitForNotification();
  }
  EXPECT_TRUE(done.load());
}

TEST(PrefetcherTest, OfNothingThereIsNothing) {
  for (const int64_t count : {0, -1}) {
    std::atomic<int> made = 0;
    {
      Prefetcher<int> prefetcher(count,
                                 [&made](int64_t) -> absl::StatusOr<int> {
                                   ++made;
                                   return 1;
                                 });
      ExpectError(prefetcher.Next().status(), kOutOfRange,
                  {absl::StrCat("all of ", count)});
    }
    EXPECT_EQ(made.load(), 0);
  }
}

}  // namespace
}  // namespace miniray::ml
