#include "tests/train/functions/curve.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "tests/train/functions/fault.h"
#include "torch/torch.h"
#include "train/functions/train_functions.h"

namespace miniray::train {
namespace {

// Point i of the curve; as x three numbers, of which a GAN takes two as noise.
class Curve : public torch::data::datasets::Dataset<Curve> {
 public:
  torch::data::Example<> get(size_t i) override {
    const auto t = static_cast<double>(i) / kCurveSamples;
    return {
        torch::tensor({t, std::cos(40 * t), std::sin(70 * t)}, torch::kFloat32),
        torch::tensor({std::sin(6 * t)}, torch::kFloat32)};
  }
  torch::optional<size_t> size() const override { return kCurveSamples; }
};

torch::nn::Sequential Net(int64_t in, int64_t out) {
  return torch::nn::Sequential(torch::nn::Linear(in, 4), torch::nn::Tanh(),
                               torch::nn::Linear(4, out));
}

void AddParameters(const std::vector<torch::Tensor>& parameters,
                   Metrics* metrics) {
  int number = 0;
  for (const torch::Tensor& parameter : parameters) {
    const torch::Tensor values = parameter.detach().flatten();
    for (int64_t i = 0; i < values.numel(); ++i) {
      (*metrics)[absl::StrCat("p", number++)] = values[i].item<double>();
    }
  }
}

// Other values on each rank but those of rank 0: all must begin with its.
void Seed(const Context& ctx) { torch::manual_seed(5 + ctx.rank()); }

void NoteTime(const Context& ctx, const std::string& file) {
  if (file.empty()) return;
  const absl::Status written =
      WriteFileAtomically(absl::StrCat(file, ".", ctx.rank()),
                          absl::StrCat(absl::ToUnixMillis(absl::Now())));
  if (!written.ok()) throw std::runtime_error(written.ToString());
}

}  // namespace

void FitCurve(Context& ctx) {
  Seed(ctx);
  auto model = ctx.PrepareModel(Net(3, 1));
  auto loader = ctx.PrepareDataLoader(
      Curve(),
      {.batch_size = ctx.config<int64_t>("batch_size"),
       .tail = ctx.config<bool>("uneven", false) ? Tail::kUneven : Tail::kPad,
       .seed = 3});
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.5));
  const int accumulate = ctx.config<int>("accumulate", 1);
  const int start = ctx.RestoreFrom(model, optimizer);
  for (int epoch = start; epoch < ctx.config<int>("epochs"); ++epoch) {
    int64_t step = 0;
    int64_t seen = 0;
    const auto backward = [&](auto& batch) {
      ++step;
      seen += batch.data.size(0);
      const torch::Tensor predicted = model(batch.data);
      predicted.register_hook([&](const torch::Tensor& gradient) {
        if (step == 2) MaybeFail(ctx, epoch, "backward");
        return gradient;
      });
      const torch::Tensor loss =
          torch::mse_loss(predicted, batch.target) / accumulate;
      if (step % accumulate == 0) {
        loss.backward();
      } else {
        const auto no_sync = model.NoSync();
        loss.backward();
      }
    };
    const auto update = [&] {
      if (step % accumulate != 0) return;
      optimizer.step();
      optimizer.zero_grad();
    };
    loader.SetEpoch(epoch);
    try {
      ForEachJoined(ctx, loader, model, backward, update);
    } catch (const CollectiveError&) {
      NoteTime(ctx, ctx.config<std::string>("felt", ""));
      throw;
    }
    Metrics metrics = {{"seen", seen}, {"generation", ctx.generation()}};
    AddParameters(model->parameters(), &metrics);
    CheckpointFiles files = ctx.Checkpoint(model, optimizer, epoch);
    if (MaybeFail(ctx, epoch, "save")) return;
    std::thread dying = MaybeDieInBarrier(ctx, epoch);
    ctx.Report(metrics, std::move(files));
    if (dying.joinable()) dying.join();
  }
}
MINIRAY_TRAIN_FUNC(FitCurve);

void FitGan(Context& ctx) {
  Seed(ctx);
  auto generator = ctx.PrepareModel(Net(2, 1));
  auto critic = ctx.PrepareModel(Net(1, 1));
  auto loader = ctx.PrepareDataLoader(
      Curve(), {.batch_size = ctx.config<int64_t>("batch_size")});
  torch::optim::SGD g_sgd(generator->parameters(), 0.05);
  torch::optim::SGD c_sgd(critic->parameters(), 0.05);
  const auto loss = [](const torch::Tensor& logits, double label) {
    return torch::binary_cross_entropy_with_logits(
        logits, torch::full_like(logits, label));
  };
  for (int epoch = 0; epoch < ctx.config<int>("epochs"); ++epoch) {
    loader.SetEpoch(epoch);
    for (auto& batch : loader) {
      const torch::Tensor fake = generator(batch.data.narrow(1, 1, 2));
      c_sgd.zero_grad();
      loss(critic(batch.target), 1).backward();
      loss(critic(fake.detach()), 0).backward();
      c_sgd.step();
      g_sgd.zero_grad();
      loss(critic(fake), 1).backward();
      g_sgd.step();
    }
    std::vector<torch::Tensor> parameters = generator->parameters();
    for (const torch::Tensor& p : critic->parameters()) parameters.push_back(p);
    Metrics metrics;
    AddParameters(parameters, &metrics);
    ctx.Report(metrics);
  }
}
MINIRAY_TRAIN_FUNC(FitGan);

}  // namespace miniray::train
