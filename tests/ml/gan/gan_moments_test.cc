// What becomes of Adam's moments where weights come from outside.

#include <memory>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/maximum.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/gan.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/sync_moments.h"
#include "tests/ml/gan/gan_testutil.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBatch = 32;
constexpr int kSteps = 3;

void Train(Gan& gan, uint64_t images) {
  ASSERT_EQ(gan.TrainStep(SmallImages(kBatch, images)), absl::OkStatus());
}

GanOptions OptionsWith(SyncMoments moments) {
  GanOptions options = SmallGanOptions();
  options.sync_moments = moments;
  return options;
}

// One that has taken kSteps steps on these images.
std::unique_ptr<Gan> Trained(SyncMoments moments, uint64_t images) {
  auto gan = MakeGan(OptionsWith(moments));
  for (int i = 0; i < kSteps; ++i) Train(*gan, images + i);
  return gan;
}

// The tensor of that name.
at::Tensor Find(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [each, tensor] : tensors) {
    if (each == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST(SyncMomentsTest, NamesAndBack) {
  for (const char* name : {"keep", "average", "reset"}) {
    const absl::StatusOr<SyncMoments> moments = ParseSyncMoments(name);
    ASSERT_EQ(moments.status(), absl::OkStatus());
    EXPECT_EQ(SyncMomentsName(*moments), name);
  }
  const absl::Status unknown = ParseSyncMoments("sum").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("'sum'; expected keep, average or reset"));
  EXPECT_EQ(SyncMomentsName(static_cast<SyncMoments>(7)), "");

  const absl::Status created =
      Gan::Create(OptionsWith(static_cast<SyncMoments>(7))).status();
  EXPECT_EQ(created.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(created.message()), HasSubstr("sync_moments is 7"));
}

// Whether two GANs that have learned from other images take the same step after
// a synchronisation. Their noise and masks are the same.
bool StepAlike(SyncMoments moments) {
  const auto a = Trained(moments, 0);
  const auto b = Trained(moments, 100);
  const NamedTensors weights = Copy(a->Weights());
  for (Gan* gan : {a.get(), b.get()}) {
    EXPECT_EQ(gan->SetWeights(weights), absl::OkStatus());
    EXPECT_TRUE(Equal(gan->Weights(), weights));
    Train(*gan, 9);
  }
  return Equal(a->Weights(), b->Weights());
}

TEST(SyncMomentsTest, WorkersStepAlikeUnlessTheyKeepTheirOwn) {
  EXPECT_FALSE(StepAlike(SyncMoments::kKeep));
  EXPECT_TRUE(StepAlike(SyncMoments::kAverage));
  EXPECT_TRUE(StepAlike(SyncMoments::kReset));
}

TEST(SyncMomentsTest, OnlyWhatIsAveragedTravels) {
  for (const SyncMoments moments : {SyncMoments::kKeep, SyncMoments::kReset}) {
    const auto gan = Trained(moments, 0);
    EXPECT_THAT(gan->Moments(), IsEmpty());
    EXPECT_EQ(gan->Weights().size(),
              GanWeightSpecs(gan->options().sizes(), /*ema=*/false).size());
  }
  const auto gan = Trained(SyncMoments::kAverage, 0);
  const NamedTensors weights = gan->Weights();
  const std::vector<TensorSpec> specs = GanWeightSpecs(gan->options());
  ASSERT_EQ(weights.size(), specs.size());
  int moments = 0;
  int parameters = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(weights[i].first, specs[i].name);
    if (absl::StrContains(specs[i].name, "_adam.")) {
      EXPECT_TRUE(specs[i].is_buffer) << specs[i].name;
      ++moments;
    } else if (!specs[i].is_buffer) {
      ++parameters;
    }
  }
  // Two of each parameter, and each network's number of steps.
  EXPECT_EQ(moments, 2 * parameters + 2);
  // Not the generator's own, whose names begin in the same way.
  for (const auto& [name, tensor] : SelectTrainedGenerator(weights)) {
    EXPECT_TRUE(absl::StartsWith(name, "layers.")) << name;
  }
}

TEST(SyncMomentsTest, BothGoOnWithTheMean) {
  const auto a = Trained(SyncMoments::kAverage, 0);
  const auto b = Trained(SyncMoments::kAverage, 100);
  // As the strategy "average" has it.
  NamedTensors mean = Copy(a->Weights());
  const NamedTensors other = b->Weights();
  ASSERT_EQ(mean.size(), other.size());
  for (size_t i = 0; i < mean.size(); ++i) {
    at::Tensor& tensor = mean[i].second;
    tensor = tensor.scalar_type() == at::kLong
                 ? at::maximum(tensor, other[i].second)
                 : (tensor + other[i].second) / 2;
  }
  EXPECT_FALSE(Equal(a->Weights(), mean));
  for (Gan* gan : {a.get(), b.get()}) {
    ASSERT_EQ(gan->SetWeights(mean), absl::OkStatus());
    EXPECT_TRUE(Equal(gan->Weights(), mean));
  }
  for (const char* network : {"generator", "discriminator"}) {
    const at::Tensor steps =
        Find(a->Weights(), absl::StrCat(network, "_adam.step"));
    EXPECT_EQ(steps.item<int64_t>(), kSteps) << network;
    const std::string layer = "layers.9.weight";
    const at::Tensor exp_avg =
        Find(mean, absl::StrCat(network, "_adam.exp_avg.", layer));
    const at::Tensor exp_avg_sq =
        Find(mean, absl::StrCat(network, "_adam.exp_avg_sq.", layer));
    EXPECT_EQ(exp_avg.sizes(),
              Find(mean, absl::StrCat(network, ".", layer)).sizes());
    EXPECT_GT(exp_avg.abs().max().item<float>(), 0);
    EXPECT_GE(exp_avg_sq.min().item<float>(), 0);
    EXPECT_GT(exp_avg_sq.max().item<float>(), 0);
  }
}

// Before the first step there are zeros to be sent.
TEST(SyncMomentsTest, BeginAtZero) {
  const auto gan = MakeGan(OptionsWith(SyncMoments::kAverage));
  for (const auto& [name, tensor] : gan->Moments()) {
    EXPECT_EQ(tensor.abs().max().item<double>(), 0) << name;
  }
  // They are those that Adam would have begun with.
  const auto plain = MakeGan(OptionsWith(SyncMoments::kKeep));
  Train(*gan, 1);
  Train(*plain, 1);
  for (const GanNetwork network : kGanNetworks) {
    EXPECT_TRUE(
        Equal(gan->NetworkWeights(network), plain->NetworkWeights(network)));
  }
}

TEST(SyncMomentsTest, NoiseMakesNoSquareNegative) {
  const auto gan = Trained(SyncMoments::kAverage, 0);
  NamedTensors weights = Copy(gan->Weights());
  const std::string name = "discriminator_adam.exp_avg_sq.layers.3.bias";
  Find(weights, name).fill_(-1);
  ASSERT_EQ(gan->SetWeights(weights), absl::OkStatus());
  EXPECT_EQ(Find(gan->Weights(), name).abs().max().item<float>(), 0);
}

// The first step of Adam is lr * g / (|g| + 1e-8), which is lr wherever the
// gradient is not tiny; a later one is shorter where gradients differ.
TEST(SyncMomentsTest, AfterAResetAdamBeginsAnew) {
  const auto gan = Trained(SyncMoments::kReset, 0);
  const NamedTensors weights = Copy(gan->Weights());
  ASSERT_EQ(gan->SetWeights(weights), absl::OkStatus());
  Train(*gan, 9);
  const std::string name = "generator.layers.9.weight";
  const at::Tensor step =
      (Find(gan->Weights(), name) - Find(weights, name)).abs() /
      gan->options().lr;
  EXPECT_LT(step.max().item<float>(), 1.001);
  EXPECT_GT(step.gt(0.99).to(at::kFloat).mean().item<float>(), 0.8);
}

TEST(SyncMomentsTest, ACheckpointAfterAResetHasNoMoments) {
  const auto gan = Trained(SyncMoments::kReset, 0);
  ASSERT_EQ(gan->SetWeights(Copy(gan->Weights())), absl::OkStatus());
  ASSERT_EQ(gan->EndEpoch().status(), absl::OkStatus());
  const absl::StatusOr<train::CheckpointFiles> files = gan->SaveState();
  ASSERT_EQ(files.status(), absl::OkStatus());

  // It has some of its own, which must not stay.
  const auto resumed = Trained(SyncMoments::kReset, 100);
  ASSERT_EQ(resumed->LoadState(*files), absl::OkStatus());
  for (Gan* each : {gan.get(), resumed.get()}) {
    each->BeginEpoch(1);
    Train(*each, 9);
  }
  EXPECT_TRUE(Equal(gan->Weights(), resumed->Weights()));
}

TEST(SyncMomentsTest, ACheckpointHasTheServersMomentsOrNot) {
  const auto files_of = [](SyncMoments moments) {
    const auto gan = Trained(moments, 0);
    EXPECT_EQ(gan->EndEpoch().status(), absl::OkStatus());
    return *gan->SaveState();
  };
  const train::CheckpointFiles averaged = files_of(SyncMoments::kAverage);
  const train::CheckpointFiles kept = files_of(SyncMoments::kKeep);

  const auto gan = Trained(SyncMoments::kAverage, 100);
  ASSERT_EQ(gan->LoadState(averaged), absl::OkStatus());
  EXPECT_TRUE(
      Equal(gan->Weights(), Trained(SyncMoments::kAverage, 0)->Weights()));
  const std::string without(gan->LoadState(kept).message());
  EXPECT_THAT(without, HasSubstr("a training with sync_moments keep, and it is "
                                 "average now"));
  EXPECT_THAT(without, HasSubstr("--sync-moments=keep"));
  const auto plain = MakeGan(OptionsWith(SyncMoments::kReset));
  const std::string with(plain->LoadState(averaged).message());
  EXPECT_THAT(with, HasSubstr("--sync-moments=average"));
  // The server has the same of both.
  EXPECT_EQ(plain->LoadState(kept), absl::OkStatus());
}

}  // namespace
}  // namespace miniray::ml
