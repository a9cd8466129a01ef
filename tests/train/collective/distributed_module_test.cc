// DistributedModule besides its numbers: checks, unused parameters, buffers,
// errors.

#include "train/collective/distributed_module.h"

#include <atomic>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status_macros.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/train/collective/ranks.h"
#include "torch/torch.h"
#include "train/collective/collective_error.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

using Group = std::shared_ptr<ProcessGroup>;

// What takes a timeout of minutes otherwise; on a busy machine, too.
constexpr absl::Duration kAtOnce = absl::Seconds(20);

// y = used(x), and other(x) if it is asked for.
struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    used = register_module("used", torch::nn::Linear(3, 1));
    other = register_module("other", torch::nn::Linear(3, 1));
  }
  torch::nn::Linear used{nullptr}, other{nullptr};
};
TORCH_MODULE(TwoHeads);

template <class Module>
std::vector<Module> MakeModules(int count) {
  std::vector<Module> modules;
  for (int i = 0; i < count; ++i) modules.push_back(Module());
  return modules;
}

// The text of what backward() throws; empty if nothing.
std::string ErrorOfBackward(const torch::Tensor& loss) {
  try {
    loss.backward();
  } catch (const CollectiveError& error) {
    return error.what();
  }
  return "";
}

class DistributedModuleTest : public ::testing::Test {
 protected:
  DistributedModuleTest() {
    torch::set_num_threads(1);
    torch::manual_seed(1);
  }
};

TEST_F(DistributedModuleTest, AllStartFromRankZero) {
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      register_module("linear", torch::nn::Linear(3, 2));
      register_module("norm", torch::nn::BatchNorm1d(2));
      register_buffer("flags", torch::rand({5}) > 0.5);
      register_parameter("half", torch::rand({3}).to(torch::kBFloat16));
      register_parameter("fixed", torch::rand({3}), /*requires_grad=*/false);
    }
  };
  std::vector<std::shared_ptr<NetImpl>> nets;
  for (int i = 0; i < 3; ++i) nets.push_back(std::make_shared<NetImpl>());
  std::vector<torch::Tensor> expected;
  for (const auto& t : nets[0]->parameters()) expected.push_back(t.clone());
  for (const auto& t : nets[0]->buffers()) expected.push_back(t.clone());
  const auto results = RunRanks(3, [&](Group group) -> absl::Status {
    const int rank = group->rank();
    MR_RETURN_IF_ERROR(DistributedModule::Create(group, *nets[rank]).status());
    std::vector<torch::Tensor> mine = nets[rank]->parameters();
    for (const auto& t : nets[rank]->buffers()) mine.push_back(t);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::equal(mine[i], expected[i])) << rank << " " << i;
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_F(DistributedModuleTest, TellsHowARankDiffers) {
  struct Case {
    torch::nn::Sequential odd;
    std::vector<std::string> told;
  };
  const std::vector<Case> cases = {
      {torch::nn::Sequential(torch::nn::Linear(4, 3)),
       {"rank 2", "'0.weight'", "[3, 4]", "[3, 5]"}},
      {torch::nn::Sequential(
           torch::nn::Linear(torch::nn::LinearOptions(5, 3).bias(false))),
       {"rank 2", "has no parameter '0.bias'"}},
      {torch::nn::Sequential(torch::nn::Linear(5, 3), torch::nn::Linear(3, 3)),
       {"rank 2", "'1.weight'", "not there in rank 0"}},
      {[] {
         torch::nn::Sequential net(torch::nn::Linear(5, 3));
         net->to(torch::kDouble);
         return net;
       }(),
       {"rank 2", "'0.weight'", "Double", "Float"}},
  };
  for (const Case& c : cases) {
    auto nets = std::vector<torch::nn::Sequential>();
    for (int i = 0; i < 2; ++i) {
      nets.push_back(torch::nn::Sequential(torch::nn::Linear(5, 3)));
    }
    nets.push_back(c.odd);
    const auto results = RunRanks(3, [&](Group group) -> absl::Status {
      const auto ddp = DistributedModule::Create(group, *nets[group->rank()]);
      EXPECT_THAT(group->status(), IsOk()) << "it may try again";
      return ddp.status();
    });
    for (const absl::Status& status : results) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      for (const std::string& text : c.told) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(text));
      }
    }
  }
}

TEST_F(DistributedModuleTest, OptionsMustBeTheSameAndMakeSense) {
  auto nets = MakeModules<TwoHeads>(2);
  auto create = [&](DistributedOptions of_rank_1) {
    return RunRanks(2, [&](Group group) -> absl::Status {
      return DistributedModule::Create(
                 group, *nets[group->rank()],
                 group->rank() == 1 ? of_rank_1 : DistributedOptions())
          .status();
    });
  };
  EXPECT_THAT(
      create({.bucket_bytes = 7}),
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("rank 1"), HasSubstr("bucket_bytes")))));
  // Also in rank 0, whose own options are good: it must not wait.
  EXPECT_THAT(create({.broadcast_buffers_every = -1}),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            AllOf(HasSubstr("rank 1"),
                                  HasSubstr("broadcast_buffers_every")))));
}

TEST_F(DistributedModuleTest, UnusedParametersAreAnErrorThatNamesThem) {
  auto nets = MakeModules<TwoHeads>(2);
  const auto results = RunRanks(2, [&](Group group) -> absl::Status {
    TwoHeads& net = nets[group->rank()];
    MR_ASSIGN_OR_RETURN(const auto ddp, DistributedModule::Create(group, *net));
    const torch::Tensor x = torch::ones({2, 3});
    // Only one rank leaves something out; the other one is told at once.
    torch::Tensor loss = net->used(x).sum();
    if (group->rank() == 0) loss = loss + net->other(x).sum();
    const std::string error = ErrorOfBackward(loss);
    if (group->rank() == 1) {
      EXPECT_THAT(error, AllOf(HasSubstr("other.weight"),
                               HasSubstr("other.bias"), HasSubstr("rank 1"),
                               HasSubstr("allow_unused_parameters"),
                               Not(HasSubstr("used.weight"))));
    } else {
      EXPECT_THAT(error, Not(HasSubstr("imed out")));
      EXPECT_NE(error, "");
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_F(DistributedModuleTest, AllowedUnusedParametersCountAsZero) {
  auto nets = MakeModules<TwoHeads>(2);
  const auto results = RunRanks(2, [&](Group group) -> absl::Status {
    TwoHeads& net = nets[group->rank()];
    MR_ASSIGN_OR_RETURN(const auto ddp,
                        DistributedModule::Create(
                            group, *net, {.allow_unused_parameters = true}));
    const torch::Tensor x = torch::ones({2, 3});
    // Nobody uses `other`.
    net->used(x).sum().backward();
    EXPECT_TRUE(
        torch::equal(net->used->weight.grad(), torch::full({1, 3}, 2.)));
    EXPECT_FALSE(net->other->weight.grad().defined());
    // Rank 0 does.
    net->zero_grad();
    torch::Tensor loss = net->used(x).sum();
    if (group->rank() == 0) loss = loss + net->other(x).sum();
    loss.backward();
    EXPECT_TRUE(
        torch::equal(net->used->weight.grad(), torch::full({1, 3}, 2.)));
    EXPECT_TRUE(torch::equal(net->other->weight.grad(), torch::ones({1, 3})));
    EXPECT_TRUE(torch::equal(net->other->bias.grad(), torch::ones({1})));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

// Two losses of one step, the first of them in NoSync: all parameters got a
// gradient, though none of the passes reaches all of them.
TEST_F(DistributedModuleTest, GradientsOfNoSyncAreAveragedLater) {
  auto nets = MakeModules<TwoHeads>(2);
  const auto results = RunRanks(2, [&](Group group) -> absl::Status {
    TwoHeads& net = nets[group->rank()];
    MR_ASSIGN_OR_RETURN(const auto ddp, DistributedModule::Create(group, *net));
    const torch::Tensor x = torch::ones({2, 3}) * (group->rank() + 1);
    {
      const DistributedModule::NoSync no_sync(*ddp);
      net->other(x).sum().backward();
      EXPECT_EQ(ddp->stats().num_reductions, 0);
      EXPECT_TRUE(torch::equal(net->other->weight.grad(),
                               torch::full({1, 3}, 2. * (group->rank() + 1))));
    }
    net->used(x).sum().backward();
    EXPECT_EQ(ddp->stats().num_reductions, 1);
    EXPECT_TRUE(
        torch::equal(net->other->weight.grad(), torch::full({1, 3}, 3.)));
    EXPECT_TRUE(
        torch::equal(net->used->weight.grad(), torch::full({1, 3}, 3.)));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_F(DistributedModuleTest, FrozenParametersAreLeftAlone) {
  auto nets = MakeModules<TwoHeads>(2);
  const auto results = RunRanks(2, [&](Group group) -> absl::Status {
    TwoHeads& net = nets[group->rank()];
    MR_ASSIGN_OR_RETURN(const auto ddp, DistributedModule::Create(group, *net));
    const torch::Tensor x = torch::ones({2, 3}) * (group->rank() + 1);
    // Frozen for some steps, as a GAN's D is while G trains.
    for (auto& p : net->other->parameters()) p.requires_grad_(false);
    (net->used(x) + net->other(x)).sum().backward();
    EXPECT_FALSE(net->other->weight.grad().defined());
    EXPECT_TRUE(
        torch::equal(net->used->weight.grad(), torch::full({1, 3}, 3.)));
    for (auto& p : net->other->parameters()) p.requires_grad_(true);
    net->zero_grad();
    (net->used(x) + net->other(x)).sum().backward();
    EXPECT_TRUE(
        torch::equal(net->other->weight.grad(), torch::full({1, 3}, 3.)));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_F(DistributedModuleTest, ThawedParametersAreAnError) {
  auto nets = MakeModules<TwoHeads>(2);
  const auto results = RunRanks(2, [&](Group group) -> absl::Status {
    TwoHeads& net = nets[group->rank()];
    net->other->weight.requires_grad_(false);
    MR_ASSIGN_OR_RETURN(const auto ddp, DistributedModule::Create(group, *net));
    net->other->weight.requires_grad_(true);
    const torch::Tensor x = torch::ones({2, 3});
    EXPECT_THAT(ErrorOfBackward((net->used(x) + net->other(x)).sum()), Not(""));
    return group->status();
  });
  for (const absl::Status& status : results) EXPECT_FALSE(status.ok());
}

TEST_F(DistributedModuleTest, LostHooksAreFound) {
  torch::nn::Sequential net(torch::nn::Linear(3, 2), torch::nn::Linear(2, 1));
  std::stringstream file;
  torch::save(net, file);
  const auto results = RunRanks(1, [&](Group group) -> absl::Status {
    MR_ASSIGN_OR_RETURN(const auto ddp, DistributedModule::Create(group, *net));
    net->forward(torch::ones({2, 3})).sum().backward();
    EXPECT_THAT(ddp->CheckHooks(), IsOk());
    torch::load(net, file);
    EXPECT_THAT(
        ddp->CheckHooks(),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("'0.weight'"), HasSubstr("torch::load"))));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

TEST_F(DistributedModuleTest, BuffersAreBroadcastEverySoManySteps) {
  struct Case {
    int every;
    std::vector<bool> equal;  // After each of four passes.
  };
  for (const Case& c :
       {Case{1, {true, true, true, true}}, Case{3, {false, false, true, false}},
        Case{0, {false, false, false, false}}}) {
    const auto results = RunRanks(2, [&](Group group) -> absl::Status {
      torch::nn::BatchNorm1d norm(2);
      MR_ASSIGN_OR_RETURN(
          const auto ddp,
          DistributedModule::Create(group, *norm,
                                    {.broadcast_buffers_every = c.every}));
      auto equal = [&]() -> absl::StatusOr<bool> {
        MR_ASSIGN_OR_RETURN(const auto all,
                            group->AllGather(norm->running_mean));
        return torch::equal(all[0], all[1]);
      };
      for (const bool expected : c.equal) {
        norm(torch::ones({4, 2}) * (group->rank() + 1)).sum().backward();
        MR_ASSIGN_OR_RETURN(const bool are_equal, equal());
        EXPECT_EQ(are_equal, expected) << c.every;
      }
      MR_RETURN_IF_ERROR(ddp->BroadcastBuffers());
      MR_ASSIGN_OR_RETURN(const bool are_equal, equal());
      EXPECT_TRUE(are_equal);
      return absl::OkStatus();
    });
    EXPECT_THAT(results, Each(IsOk()));
  }
}

TEST_F(DistributedModuleTest, AShadowKeepsUpWithTheOthers) {
  auto nets = MakeModules<TwoHeads>(2);
  for (const bool allow_unused : {false, true}) {
    const auto results = RunRanks(2, [&](Group group) -> absl::Status {
      TwoHeads& net = nets[group->rank()];
      MR_ASSIGN_OR_RETURN(
          const auto ddp,
          DistributedModule::Create(group, *net,
                                    {.allow_unused_parameters = allow_unused}));
      torch::optim::SGD sgd(net->parameters(), 0.1);
      const torch::Tensor x = torch::ones({2, 3});
      // Rank 1 has one batch, rank 0 has three.
      for (int i = 0; i < 3; ++i) {
        sgd.zero_grad();
        if (group->rank() == 0 || i == 1) {
          (net->used(x) + net->other(x)).sum().backward();
        } else {
          MR_RETURN_IF_ERROR(ddp->ShadowBackward());
        }
        EXPECT_TRUE(torch::equal(net->used->weight.grad(),
                                 torch::full({1, 3}, i == 1 ? 2. : 1.)));
        sgd.step();
      }
      MR_ASSIGN_OR_RETURN(const auto all, group->AllGather(net->other->weight));
      EXPECT_TRUE(torch::equal(all[0], all[1]));
      return absl::OkStatus();
    });
    EXPECT_THAT(results, Each(IsOk()));
  }
}

TEST_F(DistributedModuleTest, ManyRanksOrOneAndTiedWeights) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      a = register_parameter("a", torch::ones({3, 3}));
      register_parameter("again", a);
    }
    torch::Tensor a;
  };
  for (const int ranks : {1, 7}) {
    for (const auto compression :
         {GradientCompression::kNone, GradientCompression::kBfloat16}) {
      const auto results = RunRanks(ranks, [&](Group group) -> absl::Status {
        auto net = std::make_shared<TiedImpl>();
        MR_ASSIGN_OR_RETURN(const auto ddp,
                            DistributedModule::Create(
                                group, *net, {.compression = compression}));
        for (int i = 1; i <= 2; ++i) {
          (net->a * (group->rank() + 1)).sum().backward();
          // The mean of 1 ... ranks, twice with the second pass.
          EXPECT_TRUE(torch::allclose(
              net->a.grad(), torch::full({3, 3}, i * (ranks + 1) / 2.)));
        }
        return absl::OkStatus();
      });
      EXPECT_THAT(results, Each(IsOk()));
    }
  }
}

TEST_F(DistributedModuleTest, BucketsAndCompressionShowInTheStats) {
  auto nets = MakeModules<TwoHeads>(2);
  auto stats = [&](DistributedOptions options) {
    DistributedModule::Stats of_rank_0;
    EXPECT_THAT(RunRanks(2,
                         [&](Group group) -> absl::Status {
                           MR_ASSIGN_OR_RETURN(
                               const auto ddp,
                               DistributedModule::Create(
                                   group, *nets[group->rank()], options));
                           if (group->rank() == 0) of_rank_0 = ddp->stats();
                           return absl::OkStatus();
                         }),
                Each(IsOk()));
    return of_rank_0;
  };
  // 2 (3 + 1) floats.
  EXPECT_EQ(stats({}).num_buckets, 1);
  EXPECT_EQ(stats({}).bytes_per_pass, 32);
  EXPECT_EQ(
      stats({.compression = GradientCompression::kFloat16}).bytes_per_pass, 16);
  // [4 + 12 bytes], [4 + 12], since a bucket is closed once it is full.
  EXPECT_EQ(stats({.first_bucket_bytes = 5, .bucket_bytes = 5}).num_buckets, 2);
  EXPECT_EQ(stats({.first_bucket_bytes = 1, .bucket_bytes = 5}).num_buckets, 3);
}

// A rank that makes no backward pass, and the word that it is dead.
TEST_F(DistributedModuleTest, AbortEndsABackwardPassThatWaits) {
  auto nets = MakeModules<TwoHeads>(2);
  absl::Notification first_is_done;
  const auto results = RunRanks(2, [&](Group group) -> absl::Status {
    TwoHeads& net = nets[group->rank()];
    MR_ASSIGN_OR_RETURN(const auto ddp, DistributedModule::Create(group, *net));
    if (group->rank() == 1) {
      first_is_done.WaitForNotification();
      return absl::OkStatus();
    }
    const torch::Tensor x = torch::ones({2, 3});
    absl::Time aborted;
    // Fires in the middle of the pass: what it waits for has been sent.
    std::thread aborter;
    net->used->weight.register_hook([&](torch::Tensor) {
      aborter = std::thread([&] {
        aborted = absl::Now();
        group->Abort(absl::AbortedError("rank 1 died of signal 9"));
      });
    });
    absl::Status status;
    try {
      (net->used(x) + net->other(x)).sum().backward();
    } catch (const CollectiveError& error) {
      status = error.status();
    }
    const absl::Time ended = absl::Now();
    aborter.join();
    first_is_done.Notify();
    EXPECT_LT(ended - aborted, kAtOnce);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                                 HasSubstr("rank 1 died of signal 9")));
    EXPECT_THAT(group->status(), StatusIs(absl::StatusCode::kAborted,
                                          "rank 1 died of signal 9"));
    // And so does every later one, at once.
    EXPECT_THAT(ErrorOfBackward((net->used(x) + net->other(x)).sum()),
                HasSubstr("rank 1 died of signal 9"));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(IsOk()));
}

// Code of the user's that throws in the middle of a pass leaves the others
// waiting; with the module goes the group.
TEST_F(DistributedModuleTest, APassThatWasLeftAbortsTheGroup) {
  auto nets = MakeModules<TwoHeads>(2);
  const auto results = RunRanks(2, [&](Group group) -> absl::Status {
    TwoHeads& net = nets[group->rank()];
    {
      MR_ASSIGN_OR_RETURN(
          const auto ddp,
          DistributedModule::Create(group, *net, {.first_bucket_bytes = 1}));
      const torch::Tensor x = torch::ones({2, 3});
      torch::Tensor hidden = net->used(x);
      if (group->rank() == 1) {
        hidden.register_hook([](torch::Tensor) -> torch::Tensor {
          throw std::runtime_error("no more");
        });
      }
      // `other` first, then `used`, whose hook throws.
      try {
        (net->other(hidden.expand({2, 3})).sum()).backward();
      } catch (const CollectiveError& error) {
        EXPECT_EQ(group->rank(), 0) << error.what();
      } catch (const std::exception& error) {
        EXPECT_EQ(group->rank(), 1) << error.what();
      }
    }
    return group->status();
  });
  EXPECT_THAT(results[0], Not(IsOk()));
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kAborted,
                                   HasSubstr("left a backward pass")));
}

}  // namespace
}  // namespace miniray::train
