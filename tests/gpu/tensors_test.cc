// Tensors of a GPU between actors.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/tensor/on_device.h"
#include "runtime/tensor/tensor_codec.h"
#include "tests/gpu/gpu.h"
#include "tests/runtime/base/status_matchers.h"
#include "torch/torch.h"
#include "train/state_dict.h"

namespace miniray {

// Keeps a tensor on its GPU.
class GpuActor {
 public:
  // What it sees: "cuda" and how many, or "cpu".
  std::string Device() {
    return torch::cuda::is_available()
               ? absl::StrCat("cuda ", torch::cuda::device_count())
               : "cpu";
  }
  std::vector<std::string> GpuIds() {
    return ActorContext::Current()->gpu_ids();
  }
  void Set(const at::Tensor& value) {
    arrived_ = value.device().str();
    value_ = value.to(torch::kCUDA);
  }
  void SetThere(const OnDevice<at::Tensor>& value) {
    arrived_ = value.value.device().str();
    value_ = value.value;
  }
  std::string Arrived() { return arrived_; }
  // On the GPU as it is returned.
  at::Tensor Double() { return value_ * 2; }
  NamedTensors State() {
    torch::nn::Sequential model(torch::nn::Linear(4, 3),
                                torch::nn::BatchNorm1d(3));
    model->to(torch::kCUDA);
    const NamedTensors state = train::StateDict(*model);
    NamedTensors two = {{"value", value_}};
    two.insert(two.end(), state.begin(), state.end());
    return two;
  }

 private:
  at::Tensor value_;
  std::string arrived_;
};
MINIRAY_ACTOR(GpuActor, Constructor<>, &GpuActor::Device, &GpuActor::GpuIds,
              &GpuActor::Set, &GpuActor::SetThere, &GpuActor::Arrived,
              &GpuActor::Double, &GpuActor::State);

namespace {

class GpuTensorsTest : public ::testing::Test {
 protected:
  absl::StatusOr<ActorHandle<GpuActor>> Create(double gpus) {
    ActorOptions options;
    options.resources.gpu = gpus;
    return cluster_.CreateActor<GpuActor>(options);
  }

  const c10::Device gpu_ = RequireGpu();
  TestCluster nodes_{OneGpu()};
  Cluster cluster_ = nodes_.Connect();
};

TEST_F(GpuTensorsTest, AnActorSeesWhatItAsksFor) {
  auto all = Create(1);
  ASSERT_THAT(all, IsOk());
  EXPECT_EQ(*all->Call<&GpuActor::Device>().Get(), "cuda 1");
  EXPECT_EQ(all->Call<&GpuActor::GpuIds>().Get()->size(), 1u);
  auto none = Create(0);
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(*none->Call<&GpuActor::Device>().Get(), "cpu");
}

TEST_F(GpuTensorsTest, HalvesOfAGpuAreTheSameDevice) {
  auto first = Create(0.5);
  auto second = Create(0.5);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(*first->Call<&GpuActor::Device>().Get(), "cuda 1");
  EXPECT_EQ(*first->Call<&GpuActor::GpuIds>().Get(),
            *second->Call<&GpuActor::GpuIds>().Get());
}

TEST_F(GpuTensorsTest, TensorsComeAndGoByValue) {
  auto actor = Create(1);
  ASSERT_THAT(actor, IsOk());
  // Below and above the size from which memory is shared; strided; of two
  // bytes.
  const at::Tensor row = torch::arange(12, gpu_).to(torch::kFloat32);
  for (const at::Tensor& sent :
       {row, torch::rand({1000, 1000}, gpu_), row.view({3, 4}).t(),
        row.to(torch::kBFloat16)}) {
    ASSERT_TRUE(sent.is_cuda());
    ASSERT_THAT(actor->Call<&GpuActor::Set>(sent).Get(), IsOk());
    EXPECT_EQ(*actor->Call<&GpuActor::Arrived>().Get(), "cpu");
    const auto twice = actor->Call<&GpuActor::Double>().Get();
    ASSERT_THAT(twice, IsOk());
    EXPECT_TRUE(twice->is_cpu());
    EXPECT_TRUE(twice->equal(sent.cpu() * 2));
  }
}

TEST_F(GpuTensorsTest, TheyArriveWhereTheMethodSays) {
  auto actor = Create(1);
  ASSERT_THAT(actor, IsOk());
  for (const at::Tensor& sent :
       {torch::rand({3}), torch::rand({1000, 1000}, gpu_)}) {
    ASSERT_THAT(actor->Call<&GpuActor::SetThere>(sent).Get(), IsOk());
    EXPECT_EQ(*actor->Call<&GpuActor::Arrived>().Get(), "cuda:0");
    const auto twice = actor->Call<&GpuActor::Double>().Get();
    ASSERT_THAT(twice, IsOk());
    EXPECT_TRUE(twice->equal(sent.cpu() * 2));
  }
}

TEST_F(GpuTensorsTest, NamedTensorsOfAModuleToo) {
  auto actor = Create(1);
  ASSERT_THAT(actor, IsOk());
  ASSERT_THAT(actor->Call<&GpuActor::Set>(torch::ones({5}, gpu_)).Get(),
              IsOk());
  const auto state = actor->Call<&GpuActor::State>().Get();
  ASSERT_THAT(state, IsOk());
  ASSERT_EQ(state->size(), 8u);
  for (const auto& [name, tensor] : *state) {
    EXPECT_TRUE(tensor.is_cpu()) << name;
  }
  EXPECT_TRUE(state->front().second.equal(torch::ones({5})));
  torch::nn::Sequential model(torch::nn::Linear(4, 3),
                              torch::nn::BatchNorm1d(3));
  model->to(gpu_);
  EXPECT_THAT(train::LoadStateDict(
                  *model, NamedTensors(state->begin() + 1, state->end())),
              IsOk());
  EXPECT_TRUE(model->parameters()[0].is_cuda());
  EXPECT_TRUE(model->parameters()[0].cpu().equal((*state)[1].second));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
