// What the benchmark of models compares is the same: the models that are
// written straight on LibTorch do what ours do.

#include "tools/bench/peers/plain_models.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Parallel.h"
#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/architecture.h"
#include "ml/gan/networks.h"
#include "tools/bench/model_steps.h"
#include "torch/types.h"

namespace miniray::bench {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 8;
constexpr int kSteps = 3;

void Copy(const std::vector<at::Tensor>& from,
          const std::vector<at::Tensor>& to) {
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].sizes(), to[i].sizes()) << i;
    to[i].detach().copy_(from[i]);
  }
}

std::vector<at::Tensor> Clone(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> clones;
  for (const at::Tensor& tensor : tensors) {
    clones.push_back(tensor.detach().clone());
  }
  return clones;
}

// Those whose steps hang on no random numbers of their own. The dcgan's noise
// comes from the same seed.
class SameStepsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SameStepsTest, TakesTheSteps) {
  at::set_num_threads(1);
  const auto ours = MakeOurModel(GetParam(), kBatch);
  ASSERT_TRUE(ours.ok()) << ours.status();
  const auto plain = MakePlainModel(GetParam(), kBatch);
  ASSERT_TRUE(plain.ok()) << plain.status();
  Copy((*ours)->Parameters(), (*plain)->Parameters());
  const std::vector<at::Tensor> start = Clone((*ours)->Parameters());
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_EQ((*ours)->Step(), absl::OkStatus());
    ASSERT_EQ((*plain)->Step(), absl::OkStatus());
  }
  const std::vector<at::Tensor> end = (*ours)->Parameters();
  const std::vector<at::Tensor> other = (*plain)->Parameters();
  for (size_t i = 0; i < start.size(); ++i) {
    // Single values may differ: Adam's step has the sign of a gradient that is
    // nothing but rounding.
    const double way = (end[i].detach() - start[i]).abs().mean().item<double>();
    const double apart =
        (end[i].detach() - other[i].detach()).abs().mean().item<double>();
    EXPECT_GT(way, 0) << i;
    EXPECT_LT(apart, 0.01 * way) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SameStepsTest,
                         ::testing::Values("dcgan", "mlp", "cnn", "resnet20",
                                           "regression"),
                         [](const auto& info) { return info.param; });

// Dropout draws its own masks, so what is compared are the networks.
TEST(PlainGanTest, HasTheNetworksOfOurs) {
  const torch::NoGradGuard no_grad;
  const auto random = [](uint64_t seed) {
    return at::make_generator<at::CPUGeneratorImpl>(seed);
  };
  for (const int64_t classes : {int64_t{0}, kModelClasses}) {
    const ml::GanSizes sizes = {
        .latent_dim = kModelLatent,
        .shape = {kModelChannels, kModelSide, kModelSide},
        .classes = classes};
    ml::Generator generator(sizes, random(1));
    ml::Discriminator discriminator(sizes, random(1), random(2));
    PlainGenerator plain_generator(/*dcgan=*/false, classes);
    PlainDiscriminator plain_discriminator(/*dcgan=*/false, classes);
    Copy(generator->parameters(), plain_generator->parameters());
    Copy(discriminator->parameters(), plain_discriminator->parameters());
    generator->eval();
    discriminator->eval();
    plain_generator->eval();
    plain_discriminator->eval();

    const torch::Tensor noise = torch::randn({5, kModelLatent}, random(3));
    const torch::Tensor labels =
        classes > 0 ? torch::tensor(std::vector<int64_t>{3, 0, 9, 2, 2})
                    : torch::Tensor();
    const torch::Tensor images = generator->forward(noise, labels);
    EXPECT_TRUE(
        plain_generator->forward(noise, labels).allclose(images, 1e-4, 1e-5));
    EXPECT_TRUE(
        plain_discriminator->forward(images, labels)
            .allclose(discriminator->Logits(images, labels), 1e-4, 1e-5));
  }
}

TEST(PlainModelsTest, AllNamesAreKnownToBothAndNoOthers) {
  for (const char* name : kModelNames) {
    const auto ours = MakeOurModel(name, 2);
    ASSERT_TRUE(ours.ok()) << ours.status();
    const auto plain = MakePlainModel(name, 2);
    ASSERT_TRUE(plain.ok()) << plain.status();
    Copy((*ours)->Parameters(), (*plain)->Parameters());  // They fit.
  }
  for (const absl::Status& status :
       {MakeOurModel("bert", 2).status(), MakePlainModel("bert", 2).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'bert'"));
  }
}

}  // namespace
}  // namespace miniray::bench
