// What several ranks compute is what one process computes with all the data.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status_macros.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/train/collective/ranks.h"
#include "torch/torch.h"
#include "train/collective/distributed_module.h"

namespace miniray::train {
namespace {

constexpr int kRanks = 4;
constexpr int kSteps = 50;
constexpr int64_t kBatch = 8;  // B, of each rank.
constexpr double kTolerance = 1e-5;

using Tensors = std::vector<torch::Tensor>;

// [N, 6] -> [N, 1].
torch::nn::Sequential Mlp(bool batch_norm = false) {
  torch::nn::Sequential net(torch::nn::Linear(6, 16));
  if (batch_norm) net->push_back(torch::nn::BatchNorm1d(16));
  net->push_back(torch::nn::Tanh());
  net->push_back(torch::nn::Linear(16, 1));
  return net;
}

Tensors Copies(const Tensors& tensors) {
  Tensors copies;
  for (const torch::Tensor& t : tensors) copies.push_back(t.detach().clone());
  return copies;
}

void Assign(const Tensors& from, const Tensors& to) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

double MaxDifference(const Tensors& a, const Tensors& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, (a[i].to(torch::kDouble) - b[i].to(torch::kDouble))
                                .abs()
                                .max()
                                .item<double>());
  }
  return worst;
}

class DistributedModuleNumbersTest : public ::testing::Test {
 protected:
  DistributedModuleNumbersTest() {
    torch::set_num_threads(1);
    torch::manual_seed(1);
    // [steps, ranks B, 6] and [steps, ranks B, 1].
    x_ = torch::randn({kSteps, kRanks * kBatch, 6});
    y_ = x_.sum(2, /*keepdim=*/true).sin() +
         0.1 * torch::randn({kSteps, kRanks * kBatch, 1});
  }

  torch::Tensor RankX(int step, int rank) const {
    return x_[step].narrow(0, rank * kBatch, kBatch);
  }
  torch::Tensor RankY(int step, int rank) const {
    return y_[step].narrow(0, rank * kBatch, kBatch);
  }

  // The parameters after training in one process with all samples of a step.
  Tensors TrainAlone(torch::nn::Sequential net) const {
    torch::optim::SGD sgd(net->parameters(),
                          torch::optim::SGDOptions(0.05).momentum(0.9));
    for (int step = 0; step < kSteps; ++step) {
      sgd.zero_grad();
      torch::mse_loss(net->forward(x_[step]), y_[step]).backward();
      sgd.step();
    }
    return Copies(net->parameters());
  }

  // The same with ranks; accumulate: in how many pieces each rank cuts its
  // part. All ranks' parameters.
  std::vector<Tensors> TrainTogether(DistributedOptions options,
                                     int accumulate = 1) const {
    std::vector<torch::nn::Sequential> nets;
    for (int i = 0; i < kRanks; ++i) nets.push_back(Mlp());
    std::vector<Tensors> trained(kRanks);
    const auto results = RunRanks(
        kRanks, [&](std::shared_ptr<ProcessGroup> group) -> absl::Status {
          const int rank = group->rank();
          torch::nn::Sequential& net = nets[rank];
          MR_ASSIGN_OR_RETURN(const auto ddp,
                              DistributedModule::Create(group, *net, options));
          torch::optim::SGD sgd(net->parameters(),
                                torch::optim::SGDOptions(0.05).momentum(0.9));
          const int64_t piece = kBatch / accumulate;
          for (int step = 0; step < kSteps; ++step) {
            sgd.zero_grad();
            auto backward = [&](int i) {
              const auto x = RankX(step, rank).narrow(0, i * piece, piece);
              const auto y = RankY(step, rank).narrow(0, i * piece, piece);
              (torch::mse_loss(net->forward(x), y) / accumulate).backward();
            };
            {
              const DistributedModule::NoSync no_sync(*ddp);
              for (int i = 0; i + 1 < accumulate; ++i) backward(i);
            }
            backward(accumulate - 1);
            sgd.step();
          }
          EXPECT_EQ(ddp->stats().num_reductions, kSteps);
          trained[rank] = Copies(net->parameters());
          return absl::OkStatus();
        });
    for (const absl::Status& status : results) EXPECT_THAT(status, IsOk());
    first_ = Copies(nets[0]->parameters());
    return trained;
  }

  // One process that starts as rank 0 does: the first Mlp() after the seed.
  Tensors Expected() const {
    torch::manual_seed(2);
    return TrainAlone(Mlp());
  }

  torch::Tensor x_, y_;
  mutable Tensors first_;
};

TEST_F(DistributedModuleNumbersTest, RanksEqualOneProcessWithTheWholeBatch) {
  torch::manual_seed(2);
  const auto trained = TrainTogether({});
  const Tensors expected = Expected();
  for (const Tensors& mine : trained) {
    EXPECT_LE(MaxDifference(mine, expected), kTolerance);
    EXPECT_EQ(MaxDifference(mine, trained[0]), 0) << "ranks drift apart";
  }
}

TEST_F(DistributedModuleNumbersTest, ManySmallBucketsGiveTheSame) {
  torch::manual_seed(2);
  const auto trained =
      TrainTogether({.first_bucket_bytes = 4, .bucket_bytes = 100});
  const Tensors expected = Expected();
  for (const Tensors& mine : trained) {
    EXPECT_LE(MaxDifference(mine, expected), kTolerance);
  }
}

TEST_F(DistributedModuleNumbersTest, AccumulationOfFourEqualsOneBigBatch) {
  torch::manual_seed(2);
  const auto trained = TrainTogether({}, /*accumulate=*/4);
  const Tensors expected = Expected();
  for (const Tensors& mine : trained) {
    EXPECT_LE(MaxDifference(mine, expected), kTolerance);
  }
}

// The rounding of a step is bounded by the type's precision; the ranks never
// drift apart.
TEST_F(DistributedModuleNumbersTest, CompressedGradientsAreCloseAndTheSame) {
  struct Case {
    GradientCompression compression;
    double tolerance;
  };
  for (const Case& c : {Case{GradientCompression::kFloat16, 5e-3},
                        Case{GradientCompression::kBfloat16, 5e-2}}) {
    torch::manual_seed(2);
    const auto trained = TrainTogether({.compression = c.compression});
    const Tensors expected = Expected();
    const double difference = MaxDifference(trained[0], expected);
    EXPECT_LE(difference, c.tolerance);
    EXPECT_GT(difference, kTolerance) << "nothing was compressed";
    for (const Tensors& mine : trained) {
      EXPECT_EQ(MaxDifference(mine, trained[0]), 0);
    }
  }
}

// A GAN: a step of D on real and generated samples, in two backward passes of
// one step, then one of G through D.
TEST_F(DistributedModuleNumbersTest, TwoModelsEqualOneProcess) {
  const torch::Tensor noise = torch::randn({kSteps, kRanks * kBatch, 3});
  auto make_g = [] {
    return torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::Tanh(),
                                 torch::nn::Linear(8, 6));
  };
  auto train = [&](torch::nn::Sequential g, torch::nn::Sequential d, int rank,
                   int64_t count) {
    torch::optim::SGD g_sgd(g->parameters(), 0.05);
    torch::optim::SGD d_sgd(d->parameters(), 0.05);
    const auto ones = torch::ones({count, 1});
    auto loss = [](const torch::Tensor& logits, const torch::Tensor& labels) {
      return torch::binary_cross_entropy_with_logits(logits, labels);
    };
    for (int step = 0; step < kSteps; ++step) {
      const auto real = x_[step].narrow(0, rank * count, count);
      const auto z = noise[step].narrow(0, rank * count, count);
      const auto fake = g->forward(z);
      d_sgd.zero_grad();
      loss(d->forward(real), ones).backward();
      loss(d->forward(fake.detach()), torch::zeros_like(ones)).backward();
      d_sgd.step();
      g_sgd.zero_grad();
      loss(d->forward(fake), ones).backward();
      g_sgd.step();
    }
    Tensors all = Copies(g->parameters());
    for (const auto& p : Copies(d->parameters())) all.push_back(p);
    return all;
  };

  torch::manual_seed(3);
  std::vector<torch::nn::Sequential> gs, ds;
  for (int i = 0; i < kRanks; ++i) {
    gs.push_back(make_g());
    ds.push_back(Mlp());
  }
  torch::nn::Sequential g = make_g();
  torch::nn::Sequential d = Mlp();
  Assign(gs[0]->parameters(), g->parameters());
  Assign(ds[0]->parameters(), d->parameters());
  const Tensors expected = train(g, d, 0, kRanks * kBatch);

  const auto results = RunRanks(
      kRanks, [&](std::shared_ptr<ProcessGroup> group) -> absl::Status {
        const int rank = group->rank();
        MR_ASSIGN_OR_RETURN(const auto g_ddp,
                            DistributedModule::Create(group, *gs[rank]));
        MR_ASSIGN_OR_RETURN(const auto d_ddp,
                            DistributedModule::Create(group, *ds[rank]));
        const Tensors mine = train(gs[rank], ds[rank], rank, kBatch);
        EXPECT_LE(MaxDifference(mine, expected), kTolerance);
        EXPECT_EQ(g_ddp->stats().num_reductions, kSteps);
        EXPECT_EQ(d_ddp->stats().num_reductions, 3 * kSteps);
        return absl::OkStatus();
      });
  for (const absl::Status& status : results) EXPECT_THAT(status, IsOk());
}

// Each rank normalises with its own batch, and rank 0's running statistics are
// everybody's. The reference computes just that, in one process.
TEST_F(DistributedModuleNumbersTest, BatchNormIsAsDocumented) {
  torch::manual_seed(4);
  std::vector<torch::nn::Sequential> nets, references;
  for (int i = 0; i < kRanks; ++i) {
    nets.push_back(Mlp(/*batch_norm=*/true));
    references.push_back(Mlp(/*batch_norm=*/true));
    Assign(nets[0]->parameters(), references[i]->parameters());
  }
  torch::optim::SGD sgd(references[0]->parameters(), 0.05);
  for (int step = 0; step < kSteps; ++step) {
    for (int rank = 0; rank < kRanks; ++rank) {
      references[rank]->zero_grad();
      torch::mse_loss(references[rank]->forward(RankX(step, rank)),
                      RankY(step, rank))
          .backward();
    }
    const auto parameters = references[0]->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor sum = torch::zeros_like(parameters[i]);
      for (auto& net : references) sum += net->parameters()[i].grad();
      parameters[i].grad().copy_(sum / kRanks);
    }
    sgd.step();
    for (auto& net : references) {
      Assign(parameters, net->parameters());
      Assign(references[0]->buffers(), net->buffers());
    }
  }

  const auto results = RunRanks(
      kRanks, [&](std::shared_ptr<ProcessGroup> group) -> absl::Status {
        const int rank = group->rank();
        torch::nn::Sequential& net = nets[rank];
        MR_ASSIGN_OR_RETURN(const auto ddp,
                            DistributedModule::Create(group, *net));
        torch::optim::SGD sgd(net->parameters(), 0.05);
        for (int step = 0; step < kSteps; ++step) {
          sgd.zero_grad();
          torch::mse_loss(net->forward(RankX(step, rank)), RankY(step, rank))
              .backward();
          sgd.step();
        }
        EXPECT_LE(MaxDifference(net->parameters(), references[0]->parameters()),
                  kTolerance);
        EXPECT_LE(MaxDifference(net->buffers(), references[0]->buffers()),
                  kTolerance);
        return absl::OkStatus();
      });
  for (const absl::Status& status : results) EXPECT_THAT(status, IsOk());
}

}  // namespace
}  // namespace miniray::train
