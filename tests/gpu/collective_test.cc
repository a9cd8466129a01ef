// Collectives of tensors on a GPU. Ranks are threads here, which may not be in
// backward passes at the same time: LibTorch has one thread a GPU for those.
// train_functions_test has ranks in processes.

#include <memory>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status_macros.h"
#include "tests/gpu/gpu.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/train/collective/ranks.h"
#include "torch/torch.h"
#include "train/collective/distributed_module.h"
#include "train/collective/nccl_backend.h"

namespace miniray::train {
namespace {

using ::testing::Each;
using Group = std::shared_ptr<ProcessGroup>;

class GpuCollectiveTest : public ::testing::Test {
 protected:
  // All collectives, with values that follow from the ranks.
  absl::Status RunAll(ProcessGroup& group) {
    const float rank = static_cast<float>(group.rank());
    const int n = group.world_size();
    const at::Tensor sum = torch::full({1000}, rank + 1, gpu_);
    MR_RETURN_IF_ERROR(group.AllReduce(sum));
    EXPECT_TRUE(sum.is_cuda());
    EXPECT_TRUE(sum.cpu().eq(n * (n + 1) / 2.0).all().item<bool>());
    const at::Tensor half = torch::full({3, 2}, rank, gpu_).to(torch::kHalf);
    MR_RETURN_IF_ERROR(group.AllReduce(half.t(), ReduceOp::kMean));
    EXPECT_TRUE(half.cpu().eq((n - 1) / 2.0).all().item<bool>());
    const at::Tensor most =
        torch::full({2}, group.rank(), torch::dtype(torch::kLong).device(gpu_));
    MR_RETURN_IF_ERROR(group.AllReduce(most, ReduceOp::kMax));
    EXPECT_EQ(most[0].item<int64_t>(), n - 1);
    // Tensors of other types, without elements, not contiguous, on the CPU.
    const at::Tensor flags = torch::full({5}, rank == 0, gpu_);
    const at::Tensor strided = torch::full({4, 6}, rank + 7, gpu_).t();
    const at::Tensor empty = torch::empty({0}, gpu_);
    const at::Tensor host = torch::full({3}, rank + 9);
    const at::Tensor bits =
        torch::full({3}, rank + 4, gpu_).to(torch::kBFloat16);
    MR_RETURN_IF_ERROR(group.Broadcast({flags, strided, empty, host, bits}));
    EXPECT_TRUE(flags.cpu().all().item<bool>());
    EXPECT_TRUE(strided.cpu().eq(7).all().item<bool>());
    EXPECT_TRUE(host.eq(9).all().item<bool>());
    EXPECT_TRUE(bits.cpu().eq(4).all().item<bool>());
    MR_ASSIGN_OR_RETURN(const std::vector<at::Tensor> all,
                        group.AllGather(torch::full({2, 2}, rank, gpu_)));
    EXPECT_EQ(all.size(), static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) {
      EXPECT_TRUE(all[i].is_cuda());
      EXPECT_TRUE(all[i].cpu().eq(i).all().item<bool>());
    }
    MR_ASSIGN_OR_RETURN(internal::Backend * backend, group.BackendFor(gpu_));
    const at::Tensor pieces = torch::full({n, 3}, rank, gpu_);
    const at::Tensor got = torch::empty_like(pieces);
    backend->AllToAll(got, pieces)->Wait();
    for (int i = 0; i < n; ++i) {
      EXPECT_TRUE(got[i].cpu().eq(i).all().item<bool>());
    }
    return group.Barrier();
  }

  static bool HasNccl(ProcessGroup& group) {
    return dynamic_cast<internal::NcclBackend*>(
               *group.BackendFor(RequireGpu())) != nullptr;
  }

  const c10::Device gpu_ = RequireGpu();
};

TEST_F(GpuCollectiveTest, RanksOnOneGpuGoThroughTheCpusMemory) {
  for (const int ranks : {2, 3}) {
    EXPECT_THAT(RunRanks(ranks,
                         [&](Group group) {
                           EXPECT_FALSE(HasNccl(*group));
                           return RunAll(*group);
                         }),
                Each(IsOk()));
  }
}

TEST_F(GpuCollectiveTest, ARankWithAGpuOfItsOwnHasNccl) {
  EXPECT_THAT(RunRanks(1,
                       [&](Group group) {
                         EXPECT_TRUE(HasNccl(*group));
                         return RunAll(*group);
                       }),
              Each(IsOk()));
}

// What is computed in the stream before a collective is in it, and what comes
// after it sees the result.
TEST_F(GpuCollectiveTest, CollectivesKeepTheOrderOfTheStream) {
  for (const int ranks : {1, 2}) {
    EXPECT_THAT(RunRanks(ranks,
                         [&](Group group) {
                           at::Tensor x = torch::eye(2048, gpu_);
                           // Some milliseconds of work that is only queued.
                           for (int i = 0; i < 20; ++i) x = torch::matmul(x, x);
                           MR_RETURN_IF_ERROR(group->AllReduce(x));
                           x.div_(ranks);
                           EXPECT_TRUE(x.equal(torch::eye(2048, gpu_)));
                           return absl::OkStatus();
                         }),
                Each(IsOk()));
  }
}

TEST_F(GpuCollectiveTest, AbortEndsAReductionThatWaits) {
  absl::Barrier* const started = new absl::Barrier(2);
  const std::vector<absl::Status> results =
      RunRanks(2, [&](Group group) -> absl::Status {
        MR_RETURN_IF_ERROR(group->AllReduce(torch::ones({10}, gpu_)));
        if (started->Block()) delete started;
        if (group->rank() == 1) {
          group->Abort(absl::AbortedError("rank 1 has enough"));
          return absl::OkStatus();
        }
        return group->AllReduce(torch::ones({10'000'000}, gpu_));
      });
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(results[1], IsOk());
}

TEST_F(GpuCollectiveTest, AbortedNcclIsOfNoUse) {
  EXPECT_THAT(RunRanks(1,
                       [&](Group group) {
                         EXPECT_TRUE(HasNccl(*group));
                         group->Abort(absl::AbortedError("enough"));
                         return group->AllReduce(torch::ones({10}, gpu_));
                       }),
              Each(StatusIs(absl::StatusCode::kAborted,
                            ::testing::HasSubstr("enough"))));
}

TEST_F(GpuCollectiveTest, AModuleIsOnOneDevice) {
  EXPECT_THAT(
      RunRanks(1,
               [&](Group group) {
                 torch::nn::Sequential model(torch::nn::Linear(2, 2),
                                             torch::nn::Linear(2, 2));
                 model[1]->to(gpu_);
                 return DistributedModule::Create(group, *model).status();
               }),
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    ::testing::HasSubstr("must be on one device"))));
}

}  // namespace
}  // namespace miniray::train
