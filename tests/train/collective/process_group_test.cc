// Ranks as threads over a HashStore: what the collectives compute, and how they
// fail. Ranks as processes: process_group_actors_test.cc.

#include "train/collective/process_group.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ATen.h"
#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status_macros.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/train/collective/ranks.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Group = std::shared_ptr<ProcessGroup>;

// What takes a timeout of minutes otherwise; on a busy machine, too.
constexpr absl::Duration kAtOnce = absl::Seconds(20);

TEST(ProcessGroupTest, AllReduceGivesAllTheSame) {
  const auto results = RunRanks(3, [](Group group) -> absl::Status {
    const double mine = group->rank() + 1;
    for (const at::ScalarType type :
         {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kChar,
          at::kByte, at::kInt, at::kLong}) {
      struct Case {
        ReduceOp op;
        double expected;
      };
      for (const Case& c :
           {Case{ReduceOp::kSum, 6}, Case{ReduceOp::kMin, 1},
            Case{ReduceOp::kMax, 3}, Case{ReduceOp::kMean, 2}}) {
        if (c.op == ReduceOp::kMean && !at::isFloatingType(type)) continue;
        const at::Tensor tensor = at::full({2, 5}, mine, type);
        MR_RETURN_IF_ERROR(group->AllReduce(tensor, c.op));
        EXPECT_TRUE(at::equal(tensor, at::full({2, 5}, c.expected, type)))
            << at::toString(type);
      }
    }
    MR_ASSIGN_OR_RETURN(const int64_t most,
                        group->AllReduce(10 * group->rank(), ReduceOp::kMax));
    EXPECT_EQ(most, 20);
    // Every second column, and nothing between them.
    const at::Tensor wide = at::ones({4, 6});
    MR_RETURN_IF_ERROR(group->AllReduce(wide.slice(1, 0, 6, 2)));
    EXPECT_EQ(wide.sum().item<double>(), 12 * 3 + 12);
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(ProcessGroupTest, BroadcastTakesTensorsOfAnyType) {
  const auto results = RunRanks(3, [](Group group) -> absl::Status {
    const bool root = group->rank() == 1;
    auto make = [&](at::Tensor expected) {
      return root ? expected : at::zeros_like(expected);
    };
    const std::vector<at::Tensor> expected = {
        at::arange(5, at::kFloat), at::ones({3}, at::kBool),
        at::full({2, 2}, 1.5, at::kBFloat16), at::empty({0}),
        at::full({}, 7, at::kLong),
        // More than what is packed.
        at::arange(6 << 20, at::kFloat)};
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& t : expected) tensors.push_back(make(t.clone()));
    // One that is not contiguous, and one that is a trained parameter.
    const at::Tensor wide = at::full({4, 6}, root ? 3. : 0.);
    tensors.push_back(wide.slice(1, 0, 6, 2));
    at::Tensor parameter = at::full({3}, root ? 4. : 0.);
    parameter.requires_grad_(true);
    tensors.push_back(parameter);
    MR_RETURN_IF_ERROR(group->Broadcast(tensors, /*root=*/1));
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(tensors[i], expected[i])) << i;
    }
    EXPECT_EQ(wide.sum().item<double>(), root ? 72 : 36);
    EXPECT_EQ(parameter.sum().item<double>(), 12);
    return group->Broadcast(std::vector<at::Tensor>());
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(ProcessGroupTest, AllGatherIsByRank) {
  const auto results = RunRanks(3, [](Group group) -> absl::Status {
    MR_ASSIGN_OR_RETURN(const auto tensors, group->AllGather(at::full(
                                                {2}, group->rank(), at::kInt)));
    EXPECT_EQ(tensors.size(), 3);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::equal(tensors[i], at::full({2}, i, at::kInt)));
    }
    MR_ASSIGN_OR_RETURN(
        const auto texts,
        group->AllGather(std::string(10 * group->rank(), 'a' + group->rank())));
    EXPECT_THAT(texts, ElementsAre("", "bbbbbbbbbb", "cccccccccccccccccccc"));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(ProcessGroupTest, ABarrierHoldsUntilAllAreThere) {
  std::atomic<int> arrived = 0;
  const auto results = RunRanks(4, [&](Group group) -> absl::Status {
    for (int i = 1; i <= 5; ++i) {
      ++arrived;
      MR_RETURN_IF_ERROR(group->Barrier());
      EXPECT_GE(arrived, 4 * i);
      MR_RETURN_IF_ERROR(group->Barrier());
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(ProcessGroupTest, AWorldOfOneNeedsNoStore) {
  ProcessGroup group({});
  ASSERT_THAT(group.StartAlone(), IsOk());
  const at::Tensor tensor = at::ones({3});
  EXPECT_THAT(group.AllReduce(tensor, ReduceOp::kMean), IsOk());
  EXPECT_THAT(group.Broadcast(tensor), IsOk());
  EXPECT_THAT(group.Barrier(), IsOk());
  EXPECT_TRUE(at::equal(tensor, at::ones({3})));
}

TEST(ProcessGroupTest, WrongArgumentsLeaveTheGroupAlone) {
  const auto results = RunRanks(2, [](Group group) -> absl::Status {
    const auto kInvalid = absl::StatusCode::kInvalidArgument;
    EXPECT_THAT(group->AllReduce(at::ones({2}, at::kBool)),
                StatusIs(kInvalid, HasSubstr("Bool")));
    EXPECT_THAT(group->AllReduce(at::ones({2}, at::kInt), ReduceOp::kMean),
                StatusIs(kInvalid, HasSubstr("Int")));
    EXPECT_THAT(group->AllReduce(at::Tensor()),
                StatusIs(kInvalid, HasSubstr("")));
    EXPECT_THAT(group->AllReduce(at::ones({2}).to_sparse()),
                StatusIs(kInvalid, HasSubstr("dense")));
    EXPECT_THAT(group->Broadcast(at::ones({2}), 2),
                StatusIs(kInvalid, HasSubstr("root 2")));
    return group->Barrier();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(ProcessGroupTest, OptionsAreChecked) {
  auto start = [](ProcessGroup::Options options) {
    auto store = c10::make_intrusive<c10d::HashStore>();
    return ProcessGroup(std::move(options)).Start(*store);
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(start({.rank = 2, .world_size = 2}),
              StatusIs(kInvalid, HasSubstr("rank 2 of 2")));
  EXPECT_THAT(start({.address = "localhost"}),
              StatusIs(kInvalid, HasSubstr("no IP address")));
  EXPECT_THAT(start({.timeout = absl::InfiniteDuration()}),
              StatusIs(kInvalid, HasSubstr("finite")));
  EXPECT_THAT(start({.num_threads = 0}), Not(IsOk()));
  // An address of another machine (TEST-NET-1).
  EXPECT_THAT(start({.address = "192.0.2.1"}), Not(IsOk()));
  EXPECT_THAT(ProcessGroup({.world_size = 2}).StartAlone(), Not(IsOk()));

  ProcessGroup group({});
  EXPECT_THAT(group.Barrier(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("")));
  EXPECT_THAT(group.StartAlone(), IsOk());
  EXPECT_THAT(group.StartAlone(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("")));
}

TEST(ProcessGroupTest, StartTellsWhichRanksAreMissing) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      ProcessGroup group({.rank = rank,
                          .world_size = 4,
                          .start_timeout = absl::Milliseconds(300)});
      EXPECT_THAT(group.Start(*store),
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           AllOf(HasSubstr("missing: 1, 3"),
                                 HasSubstr(absl::StrCat("rank ", rank)))));
      EXPECT_THAT(group.status(), Not(IsOk()));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ProcessGroupTest, AbortEndsAStartThatWaits) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  ProcessGroup group({.rank = 0, .world_size = 2});
  absl::Notification begun;
  absl::Time aborted;
  std::thread aborter([&] {
    begun.WaitForNotification();
    // Once it has shown itself, it waits for the other one.
    store->wait({"default/rank/0"}, std::chrono::seconds(20));
    aborted = absl::Now();
    group.Abort(absl::AbortedError("rank 1 died"));
  });
  begun.Notify();
  EXPECT_THAT(group.Start(*store),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 1 died")));
  const absl::Time ended = absl::Now();
  aborter.join();
  EXPECT_LT(ended - aborted, kAtOnce);

  ProcessGroup late({});
  late.Abort(absl::CancelledError("not needed"));
  EXPECT_THAT(late.StartAlone(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("not needed")));
}

// A rank that takes no part, and the word that it is dead: whatever the others
// are in the middle of ends, and the next generation works.
TEST(ProcessGroupTest, AbortEndsCollectivesThatWait) {
  using Collective = absl::Status (*)(ProcessGroup&);
  const std::vector<Collective> collectives = {
      [](ProcessGroup& group) { return group.Barrier(); },
      [](ProcessGroup& group) { return group.AllReduce(at::ones({10})); },
      [](ProcessGroup& group) { return group.AllReduce(at::ones({10 << 20})); },
      [](ProcessGroup& group) { return group.Broadcast(at::ones({9}), 2); },
      [](ProcessGroup& group) { return group.AllGather("x").status(); },
  };
  for (const Collective& collective : collectives) {
    absl::Barrier* both_wait = new absl::Barrier(2);
    absl::Notification over;
    const auto results = RunRanks(3, [&](Group group) -> absl::Status {
      MR_RETURN_IF_ERROR(group->Barrier());
      if (group->rank() == 2) {
        over.WaitForNotification();
        return absl::OkStatus();
      }
      absl::Time aborted;
      std::thread aborter([&] {
        EXPECT_TRUE(AwaitWait(*group));
        if (both_wait->Block()) delete both_wait;
        aborted = absl::Now();
        group->Abort(absl::AbortedError("rank 2 died"));
      });
      const absl::Status status = collective(*group);
      const absl::Time ended = absl::Now();
      aborter.join();
      EXPECT_LT(ended - aborted, kAtOnce);
      // The other one may have closed its connections before this one heard.
      EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kAborted,
                                       absl::StatusCode::kUnavailable));
      EXPECT_THAT(group->Barrier().code(), status.code());
      if (group->rank() == 0) over.Notify();
      return absl::OkStatus();
    });
    EXPECT_THAT(results, Each(IsOk()));
  }
}

// Large tensors between ranks that go on and on, aborted at once: in the middle
// of a transfer, which Gloo itself would leave waiting for its timeout.
TEST(ProcessGroupTest, AbortEndsTransfersInTheMiddle) {
  for (int generation = 0; generation < 5; ++generation) {
    const auto results = RunRanks(3, [&](Group group) -> absl::Status {
      const at::Tensor tensor = at::ones({5 << 20});
      absl::Notification first;
      absl::Time aborted = absl::InfiniteFuture();
      std::thread aborter([&] {
        first.WaitForNotification();
        aborted = absl::Now();
        group->Abort(absl::AbortedError("rank 7 died"));
      });
      absl::Status status;
      while (status.ok()) {
        status = group->AllReduce(tensor, ReduceOp::kMean);
        if (!first.HasBeenNotified()) first.Notify();
      }
      const absl::Time ended = absl::Now();
      aborter.join();
      EXPECT_LT(ended - aborted, kAtOnce);
      return absl::OkStatus();
    });
    EXPECT_THAT(results, Each(IsOk()));
  }
}

TEST(ProcessGroupTest, ARankThatHangsIsNoticedByTheTimeout) {
  absl::Notification over;
  const auto results = RunRanks(
      3,
      [&](Group group) -> absl::Status {
        if (group->rank() == 1) {
          over.WaitForNotification();
          return absl::OkStatus();
        }
        const absl::Status status = group->AllReduce(at::ones({10}));
        // Who is first closes its connections, which the other one sees.
        EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kDeadlineExceeded,
                                         absl::StatusCode::kUnavailable));
        EXPECT_THAT(
            std::string(status.message()),
            HasSubstr(absl::StrCat("rank ", group->rank(), ": AllReduce")));
        if (group->rank() == 0) over.Notify();
        return absl::OkStatus();
      },
      {.timeout = absl::Milliseconds(300)});
  EXPECT_THAT(results, Each(IsOk()));
}

// The connections of a rank that is gone break at once.
TEST(ProcessGroupTest, ARankThatLeavesFailsTheOthers) {
  const auto results = RunRanks(3, [&](Group group) -> absl::Status {
    MR_RETURN_IF_ERROR(group->Barrier());
    if (group->rank() == 1) return absl::OkStatus();
    const absl::Status status = group->AllReduce(at::ones({10}));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST(ProcessGroupTest, SeveralGroupsUseOneStore) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      for (const char* name : {"a", "b"}) {
        ProcessGroup group({.rank = rank, .world_size = 2, .name = name});
        EXPECT_THAT(group.Start(*store), IsOk());
        EXPECT_THAT(group.Barrier(), IsOk());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace miniray::train
