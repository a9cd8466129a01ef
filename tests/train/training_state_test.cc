// The bytes of models, optimizers and generators.

#include "train/training_state.h"

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "torch/csrc/autograd/variable.h"
#include "torch/script.h"
#include "torch/torch.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

torch::nn::Sequential MakeNet(int64_t inputs = 3) {
  return torch::nn::Sequential(
      torch::nn::Linear(inputs, 5), torch::nn::BatchNorm1d(5),
      torch::nn::Dropout(torch::nn::DropoutOptions(0.5)),
      torch::nn::Linear(5, 2));
}

// Two models with an optimizer each, and data in a random order.
struct Training {
  explicit Training(uint64_t seed)
      : shuffles(at::detail::createCPUGenerator(seed)) {}

  TrainingParts Parts() {
    return {.models = {{"a", &*a}, {"b", &*b}},
            .optimizers = {{"adam", &adam}, {"sgd", &sgd}},
            .generators = {{"shuffles", shuffles}}};
  }

  void Step() {
    for (const auto& net : {a, b}) {
      const torch::Tensor x = torch::randn({4, 3}, shuffles);
      torch::nn::Sequential(net)->forward(x).pow(2).sum().backward();
    }
    adam.step();
    sgd.step();
    adam.zero_grad();
    sgd.zero_grad();
  }

  std::vector<torch::Tensor> Tensors() {
    std::vector<torch::Tensor> tensors;
    for (const auto& net : {a, b}) {
      for (const auto& tensor : net->parameters()) tensors.push_back(tensor);
      for (const auto& tensor : net->buffers()) tensors.push_back(tensor);
    }
    return tensors;
  }

  torch::nn::Sequential a = MakeNet(), b = MakeNet();
  torch::optim::Adam adam{a->parameters(), torch::optim::AdamOptions(0.1)};
  torch::optim::SGD sgd{b->parameters(),
                        torch::optim::SGDOptions(0.1).momentum(0.9)};
  at::Generator shuffles;
};

// Whatever is not restored makes the steps afterwards differ.
TEST(TrainingStateTest, TrainingGoesOnBitForBit) {
  torch::manual_seed(1);
  Training before(2);
  for (int i = 0; i < 3; ++i) before.Step();
  static_cast<torch::optim::AdamOptions&>(
      before.adam.param_groups()[0].options())
      .lr(0.05);  // As a schedule would.
  const auto files =
      SaveTraining(before.Parts(), {{"position", 17}, {"name", "x"}});
  ASSERT_THAT(files, IsOk());
  EXPECT_THAT(*files, ElementsAre(Key("a.pt"), Key("b.pt"), Key("extras"),
                                  Key("training.pt")));
  for (int i = 0; i < 3; ++i) before.Step();

  torch::manual_seed(33);
  Training after(44);
  after.Step();
  const void* const memory = after.a->parameters()[0].data_ptr();
  const auto extras = LoadTraining(*files, after.Parts());
  ASSERT_THAT(extras, IsOk());
  EXPECT_EQ(*extras->GetInt("position", 0), 17);
  EXPECT_EQ(*extras->GetString("name", ""), "x");
  EXPECT_EQ(after.a->parameters()[0].data_ptr(), memory)
      << "parameters that lie in shared memory stay there";
  for (int i = 0; i < 3; ++i) after.Step();
  const auto expected = before.Tensors(), got = after.Tensors();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(torch::equal(got[i], expected[i])) << i;
  }
}

// Those on which a DistributedModule hangs: torch::load alone drops them.
TEST(TrainingStateTest, WhatHangsOnGradientsStays) {
  torch::nn::Linear model(3, 2);
  const TrainingParts parts = {.models = {{"model", &*model}}};
  const auto files = SaveTraining(parts);
  ASSERT_THAT(files, IsOk());
  const auto accumulator =
      torch::autograd::impl::grad_accumulator(model->weight);
  ASSERT_THAT(LoadTraining(*files, parts), IsOk());
  EXPECT_EQ(torch::autograd::impl::grad_accumulator(model->weight),
            accumulator);
  auto cut = *files;
  cut["model.pt"].resize(100);
  EXPECT_FALSE(LoadTraining(cut, parts).ok());
  EXPECT_EQ(torch::autograd::impl::grad_accumulator(model->weight),
            accumulator);
}

TEST(TrainingStateTest, ModelsOpenWithLibTorchAlone) {
  torch::manual_seed(1);
  torch::nn::Sequential net = MakeNet();
  const auto files = SaveTraining({.models = {{"net", &*net}}});
  ASSERT_THAT(files, IsOk());

  torch::nn::Sequential loaded = MakeNet();
  std::istringstream module_file(files->at("net.pt"));
  torch::load(loaded, module_file);
  EXPECT_TRUE(torch::equal(loaded->parameters()[0], net->parameters()[0]));

  // What torch.jit.load of Python is made of.
  std::istringstream script_file(files->at("net.pt"));
  const torch::jit::Module script = torch::jit::load(script_file);
  size_t found = 0;
  for (const auto& parameter : script.named_parameters()) {
    const auto own = net->named_parameters();
    EXPECT_TRUE(torch::equal(parameter.value, own[parameter.name]))
        << parameter.name;
    ++found;
  }
  EXPECT_EQ(found, net->parameters().size());
}

TEST(TrainingStateTest, WhatDoesNotFitNamesTheFile) {
  torch::nn::Sequential net = MakeNet(), wider = MakeNet(4);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  torch::optim::SGD of_one({net->parameters()[0]}, 0.1);
  auto files =
      SaveTraining({.models = {{"net", &*net}}, .optimizers = {{"sgd", &sgd}}});
  ASSERT_THAT(files, IsOk());
  auto load = [&](const TrainingParts& parts) {
    return LoadTraining(*files, parts).status();
  };
  const auto invalid = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  const torch::Tensor weight = wider->parameters()[0].detach().clone();
  EXPECT_THAT(load({.models = {{"net", &*wider}}}),
              invalid("'net.pt' does not fit"));
  EXPECT_TRUE(torch::equal(wider->parameters()[0], weight));
  EXPECT_THAT(load({.models = {{"other", &*net}}}),
              invalid("no file 'other.pt'"));
  EXPECT_THAT(load({.optimizers = {{"adam", &sgd}}}),
              invalid("'training.pt' does not fit"));
  EXPECT_THAT(load({.optimizers = {{"sgd", &of_one}}}),
              invalid("'training.pt' does not fit"));
  EXPECT_THAT(load({.generators = {{"g", at::detail::createCPUGenerator(1)}}}),
              invalid("'training.pt' does not fit"));
  (*files)["net.pt"].resize(100);
  EXPECT_THAT(load({.models = {{"net", &*net}}}),
              invalid("'net.pt' does not fit"));
  EXPECT_THAT(SaveTraining({.models = {{"training", &*net}}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace miniray::train
