// Ranks that are actor processes, which die of real signals.

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/collective/rank_worker.h"

namespace miniray::train {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// What takes a timeout of minutes otherwise; on a busy machine, too.
constexpr absl::Duration kAtOnce = absl::Seconds(20);

constexpr int kRanks = 3;

class ProcessGroupActorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < kRanks; ++rank) workers_.push_back(Create(rank));
  }

  ActorHandle<RankWorker> Create(int rank) {
    auto worker = driver_.CreateActor<RankWorker>(RankWorker::Options(), rank);
    EXPECT_THAT(worker, IsOk());
    return *worker;
  }

  // A new generation: a store of its own.
  void StartGeneration() {
    auto store =
        driver_.CreateActor<RendezvousStore>(RendezvousStore::Options(kRanks));
    ASSERT_THAT(store, IsOk());
    std::vector<ObjectRef<void>> starts;
    for (auto& worker : workers_) {
      starts.push_back(worker.Call<&RankWorker::Start>(*store, kRanks));
    }
    ASSERT_THAT(GetAll(starts), IsOk());
    ASSERT_THAT(store->Kill(), IsOk());
  }

  void ExpectGroupWorks() {
    std::vector<ObjectRef<int64_t>> sums;
    for (int rank = 0; rank < kRanks; ++rank) {
      sums.push_back(workers_[rank].Call<&RankWorker::Sum>(rank + 1));
    }
    EXPECT_THAT(GetAll(sums),
                IsOkAndHolds(std::vector<int64_t>(kRanks, 1 + 2 + 3)));
  }

  // Kills the last rank in the middle of what `call` begins, tells the others,
  // and goes on with a new generation.
  void KillInTheMiddleOf(
      const std::function<ObjectRef<void>(ActorHandle<RankWorker>&)>& call) {
    StartGeneration();
    const auto pid = workers_.back().Call<&RankWorker::Pid>().Get();
    ASSERT_THAT(pid, IsOk());
    std::vector<ObjectRef<void>> calls;
    for (auto& worker : workers_) calls.push_back(call(worker));
    ASSERT_TRUE(Eventually([&] {
      return workers_[0].Call<&RankWorker::Steps>().Get().value_or(0) >= 3;
    }));
    const absl::Time killed = absl::Now();
    ASSERT_EQ(kill(static_cast<pid_t>(*pid), SIGKILL), 0);
    // What a trainer does: it hears of the death, and tells the others.
    EXPECT_THAT(calls.back().Get(), StatusIs(absl::StatusCode::kUnavailable,
                                             HasSubstr("signal 9")));
    for (int rank = 0; rank + 1 < kRanks; ++rank) {
      workers_[rank].Call<&RankWorker::Abort>("rank 2 died of signal 9");
    }
    for (int rank = 0; rank + 1 < kRanks; ++rank) {
      const absl::Status status = calls[rank].Get();
      EXPECT_LT(absl::Now() - killed, kAtOnce) << rank;
      // The connection that broke, or Abort: whichever was first.
      EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kUnavailable,
                                       absl::StatusCode::kAborted))
          << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("rank ", rank)));
    }
    workers_.back() = Create(kRanks - 1);
    StartGeneration();
    ExpectGroupWorks();
  }

  TestCluster cluster_;
  Cluster driver_ = cluster_.Connect();
  std::vector<ActorHandle<RankWorker>> workers_;
};

TEST_F(ProcessGroupActorsTest, RanksMeetAtTheirNodesAddress) {
  StartGeneration();
  ExpectGroupWorks();
  EXPECT_THAT(workers_[1].Call<&RankWorker::Address>().Get(),
              IsOkAndHolds("127.0.0.1"));
  EXPECT_THAT(CollectiveAddress(driver_), IsOkAndHolds("127.0.0.1"));
}

TEST_F(ProcessGroupActorsTest, ADeathEndsTheOthersSmallReductions) {
  KillInTheMiddleOf([](ActorHandle<RankWorker>& worker) {
    return worker.Call<&RankWorker::Reduce>(1000);
  });
}

TEST_F(ProcessGroupActorsTest, ADeathEndsTheOthersLargeTransfers) {
  KillInTheMiddleOf([](ActorHandle<RankWorker>& worker) {
    return worker.Call<&RankWorker::Reduce>(4 << 20);
  });
}

TEST_F(ProcessGroupActorsTest, ADeathEndsTheOthersBackwardPasses) {
  KillInTheMiddleOf([](ActorHandle<RankWorker>& worker) {
    return worker.Call<&RankWorker::Train>();
  });
}

// Nobody's connection breaks: rank 2 lives, and takes no part.
TEST_F(ProcessGroupActorsTest, AbortEndsABarrierInTheSameProcesses) {
  StartGeneration();
  ObjectRef<void> waits[] = {workers_[0].Call<&RankWorker::Barrier>(),
                             workers_[1].Call<&RankWorker::Barrier>()};
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(Eventually([&] {
      return workers_[rank].Call<&RankWorker::Waits>().Get().value_or(0) > 0;
    }));
  }
  const absl::Time aborted = absl::Now();
  for (int rank = 0; rank < 2; ++rank) {
    workers_[rank].Call<&RankWorker::Abort>("elastic: rank 3 joins");
  }
  for (auto& wait : waits) {
    EXPECT_THAT(wait.Get().code(), AnyOf(absl::StatusCode::kUnavailable,
                                         absl::StatusCode::kAborted));
    EXPECT_LT(absl::Now() - aborted, kAtOnce);
  }
  StartGeneration();
  ExpectGroupWorks();
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
