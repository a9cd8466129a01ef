#include "train/gradients.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/gradient_client.h"
#include "ps/parameter_server.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/base/readme_code.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/gradient_worker.h"
#include "torch/torch.h"
#include "train/state_dict.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// With buffers, and a layer that is not trained.
torch::nn::Sequential MakeModel() {
  torch::manual_seed(3);
  // No bias before BatchNorm: its gradient is rounding alone, of which Adam
  // makes whole steps.
  torch::nn::Sequential model(
      torch::nn::Linear(torch::nn::LinearOptions(4, 8).bias(false)),
      torch::nn::BatchNorm1d(8), torch::nn::Tanh(), torch::nn::Linear(8, 8),
      torch::nn::Linear(8, 1));
  for (torch::Tensor& parameter : model[3]->parameters()) {
    parameter.set_requires_grad(false);
  }
  return model;
}

torch::Tensor Loss(torch::nn::Sequential& model, int step) {
  torch::manual_seed(static_cast<uint64_t>(step));
  const torch::Tensor input = torch::randn({16, 4});
  return (model->forward(input) - input.sum(1, true).sin()).pow(2).mean();
}

void Backward(torch::nn::Sequential& model, int step) {
  model->zero_grad();
  Loss(model, step).backward();
}

std::vector<std::string> Names(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

TEST(GradientsTest, AreOfWhatIsTrainedThenTheBuffersValues) {
  auto model = MakeModel();
  const NamedTensors before = Gradients(*model).value;
  EXPECT_THAT(
      Names(before),
      ElementsAre("0.weight", "1.weight", "1.bias", "4.weight", "4.bias",
                  "1.running_mean", "1.running_var", "1.num_batches_tracked"));
  EXPECT_EQ(before[0].second.abs().max().item<float>(), 0);
  Backward(model, 0);
  const NamedTensors after = Gradients(*model).value;
  EXPECT_TRUE(at::equal(after[0].second, model->parameters()[0].grad()));
  EXPECT_GT(after[0].second.abs().max().item<float>(), 0);
  EXPECT_EQ(after[7].second.item<int64_t>(), 1);
  for (const auto& [name, tensor] : after) {
    EXPECT_FALSE(tensor.requires_grad()) << name;
  }
}

TEST(GradientsTest, SparseOnesBecomeDense) {
  torch::nn::Embedding embedding(
      torch::nn::EmbeddingOptions(3, 2).sparse(true));
  embedding->forward(torch::tensor({1, 1})).sum().backward();
  ASSERT_TRUE(embedding->weight.grad().is_sparse());
  EXPECT_TRUE(at::equal(Gradients(*embedding).value[0].second,
                        torch::tensor({{0.f, 0.f}, {2.f, 2.f}, {0.f, 0.f}})));
}

TEST(UntrainedNamesTest, AreBuffersAndFrozenParameters) {
  EXPECT_THAT(UntrainedNames(*MakeModel()),
              ElementsAre("1.running_mean", "1.running_var",
                          "1.num_batches_tracked", "3.weight", "3.bias"));
}

// A worker that pushes its gradients alone trains as one with an optimizer of
// its own, buffers and what is not trained included.
TEST(GradientsTest, OneAsynchronousWorkerIsPlainTraining) {
  TestCluster nodes;
  const Cluster cluster = nodes.Connect();
  const auto server = ps::CreateParameterServer(
      cluster, "adamw", {{"lr", 0.01}}, {.mode = ps::SyncMode::kAsynchronous});
  ASSERT_TRUE(server.ok()) << server.status();
  auto plain = MakeModel();
  torch::optim::AdamW optimizer(plain->parameters(),
                                torch::optim::AdamWOptions(0.01));
  auto pushed = MakeModel();
  for (int step = 0; step < 20; ++step) {
    Backward(plain, step);
    optimizer.step();
  }
  const absl::Status trained = TrainWith(
      *server, 0, pushed, 20, [&](int step) { return Loss(pushed, step); });
  ASSERT_TRUE(trained.ok()) << trained;
  const NamedTensors expected = StateDict(*plain);
  const NamedTensors actual = StateDict(*pushed);
  ASSERT_EQ(Names(actual), Names(expected));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::allclose(actual[i].second, expected[i].second, 1e-4, 1e-5))
        << expected[i].first;
  }
  // A server that is not told takes them for parameters, and says so.
  const auto untold = ps::CreateParameterServer(
      cluster, "adamw", {}, {.mode = ps::SyncMode::kAsynchronous});
  ps::GradientClient other(*untold, 0);
  ASSERT_TRUE(other.Join(StateDict(*pushed), BufferNames(*pushed)).ok());
  EXPECT_THAT(other.Push(Gradients(*pushed)).status().ToString(),
              HasSubstr("tensor 3 is '4.weight', expected '3.weight'"));
}

TEST(GradientsTest, TheReadmeShowsTheCodeThatIsTestedHere) {
  ExpectReadmeShows("ps/README.md", "tests/train/gradient_worker.h");
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
