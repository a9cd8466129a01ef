#include "train/state_dict.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/shm/shared_memory.h"
#include "torch/torch.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

torch::nn::Sequential MakeModel() {
  return torch::nn::Sequential(torch::nn::Linear(2, 3),
                               torch::nn::BatchNorm1d(3));
}

std::vector<std::string> Names(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

at::Tensor& Find(NamedTensors& tensors, const std::string& name) {
  for (auto& [key, tensor] : tensors) {
    if (key == name) return tensor;
  }
  ADD_FAILURE() << name;
  return tensors.front().second;
}

TEST(StateDictTest, HasParametersThenBuffers) {
  EXPECT_THAT(
      Names(StateDict(*MakeModel())),
      ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                  "1.running_var", "1.num_batches_tracked"));
}

TEST(StateDictTest, IsACopyWithoutGradients) {
  auto model = MakeModel();
  NamedTensors state = StateDict(*model);
  const at::Tensor before = Find(state, "0.weight").clone();
  for (const auto& [name, tensor] : state) {
    EXPECT_FALSE(tensor.requires_grad()) << name;
  }
  {
    torch::NoGradGuard no_grad;
    model->parameters()[0].fill_(7);
  }
  EXPECT_TRUE(at::equal(Find(state, "0.weight"), before));
}

TEST(BufferNamesTest, AreThoseOfTheStateDict) {
  EXPECT_THAT(
      BufferNames(*MakeModel()),
      ElementsAre("1.running_mean", "1.running_var", "1.num_batches_tracked"));
}

TEST(LendStateDictTest, IsTheModulesOwnMemory) {
  auto model = MakeModel();
  const ReadOnly<NamedTensors> lent = LendStateDict(*model);
  EXPECT_EQ(Names(lent.value), Names(StateDict(*model)));
  const torch::NoGradGuard no_grad;
  model->parameters()[0].fill_(7);
  EXPECT_TRUE(torch::equal(lent.value[0].second,
                           torch::full_like(lent.value[0].second, 7)));
}

TEST(ShareParametersTest, KeepsValuesAndTrainingGoesOn) {
  auto model = MakeModel();
  const NamedTensors before = StateDict(*model);
  torch::optim::SGD optimizer(model->parameters(), 0.5);
  ShareParameters(*model);
  const ReadOnly<NamedTensors> lent = LendStateDict(*model);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(torch::equal(before[i].second, lent.value[i].second));
    EXPECT_NE(SharedMemory::Get().Find(lent.value[i].second.data_ptr()),
              nullptr);
  }
  torch::Tensor sum = torch::zeros({});
  for (const torch::Tensor& parameter : model->parameters()) {
    EXPECT_TRUE(parameter.requires_grad());
    sum = sum + parameter.sum();
  }
  sum.backward();
  optimizer.step();
  EXPECT_TRUE(torch::allclose(lent.value[0].second, before[0].second - 0.5));
}

TEST(LoadStateDictTest, MakesTwoModelsEqual) {
  auto a = MakeModel();
  auto b = MakeModel();
  (void)a->forward(torch::randn({8, 2}));  // Moves the running statistics.
  ASSERT_TRUE(LoadStateDict(*b, StateDict(*a)).ok());
  const NamedTensors expected = StateDict(*a);
  const NamedTensors loaded = StateDict(*b);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(expected[i].second, loaded[i].second))
        << expected[i].first;
  }
  EXPECT_EQ(loaded.back().second.item<int64_t>(), 1);
}

TEST(LoadStateDictTest, DoesNotNeedTheOrder) {
  auto model = MakeModel();
  NamedTensors state = StateDict(*model);
  std::reverse(state.begin(), state.end());
  Find(state, "0.bias").fill_(3);
  ASSERT_TRUE(LoadStateDict(*model, state).ok());
  EXPECT_TRUE(at::equal(model->parameters()[1], torch::full({3}, 3.0)));
}

TEST(LoadStateDictTest, TrainingGoesOnWithTheNewValues) {
  auto model = torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false));
  torch::optim::SGD optimizer(model->parameters(), 0.5);
  ASSERT_TRUE(
      LoadStateDict(*model, {{"weight", torch::full({1, 1}, 4.0)}}).ok());
  EXPECT_TRUE(model->weight.requires_grad());
  model->forward(torch::ones({1, 1})).sum().backward();  // Gradient 1.
  optimizer.step();
  EXPECT_EQ(model->weight.item<float>(), 3.5);
}

class LoadStateDictErrorTest : public ::testing::Test {
 protected:
  // Loads state_ and expects an error, and the model as it was.
  std::string Error() {
    const NamedTensors before = StateDict(*model_);
    const absl::Status status = LoadStateDict(*model_, state_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const NamedTensors after = StateDict(*model_);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_TRUE(at::equal(before[i].second, after[i].second));
    }
    return std::string(status.message());
  }

  // Other values than the model's, so that a partial copy would show.
  void SetUp() override {
    for (auto& [name, tensor] : state_) tensor = tensor + 1;
  }

  torch::nn::Sequential model_ = MakeModel();
  NamedTensors state_ = StateDict(*model_);
};

TEST_F(LoadStateDictErrorTest, AShapeThatDiffers) {
  Find(state_, "1.bias") = torch::zeros({4});
  EXPECT_EQ(Error(),
            "'1.bias' is Float [4] in the weights, but Float [3] in the "
            "module");
}

TEST_F(LoadStateDictErrorTest, AnElementTypeThatDiffers) {
  Find(state_, "1.bias") = torch::zeros({3}, torch::kDouble);
  EXPECT_THAT(Error(), HasSubstr("'1.bias' is Double [3]"));
}

TEST_F(LoadStateDictErrorTest, AnUndefinedTensor) {
  Find(state_, "1.bias") = at::Tensor();
  EXPECT_THAT(Error(), HasSubstr("'1.bias' is undefined"));
}

TEST_F(LoadStateDictErrorTest, AMissingTensor) {
  state_.pop_back();
  EXPECT_THAT(Error(), HasSubstr("lack '1.num_batches_tracked' Long []"));
}

TEST_F(LoadStateDictErrorTest, ATensorTooMany) {
  state_.emplace_back("2.weight", torch::zeros({1}));
  EXPECT_THAT(Error(), HasSubstr("have '2.weight', which the module has not"));
}

TEST_F(LoadStateDictErrorTest, ATensorTwice) {
  state_.push_back(state_.front());
  EXPECT_THAT(Error(), HasSubstr("'0.weight' twice"));
}

}  // namespace
}  // namespace miniray::train
