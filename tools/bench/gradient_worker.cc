#include "tools/bench/gradient_worker.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "ps/gradient_client.h"
#include "runtime/base/status_macros.h"
#include "torch/nn/module.h"
#include "torch/optim/adamw.h"
#include "train/gradients.h"
#include "train/state_dict.h"

namespace miniray::bench {
namespace {

constexpr int kLayers = 8;

struct Model : torch::nn::Module {
  explicit Model(int64_t bytes) {
    const int64_t size = bytes / static_cast<int64_t>(sizeof(float)) / kLayers;
    for (int i = 0; i < kLayers; ++i) {
      at::Tensor weight =
          register_parameter(absl::StrCat("weight", i), torch::randn({size}));
      weight.mutable_grad() = torch::randn({size}) * 0.01;
    }
  }
};

}  // namespace

struct GradientWorker::State {
  explicit State(int64_t bytes)
      : model(bytes), alone(bytes), optimizer(alone.parameters()) {}

  Model model;
  Model alone;
  torch::optim::AdamW optimizer;
  std::unique_ptr<ps::GradientClient> client;
};

GradientWorker::GradientWorker(int64_t bytes)
    : state_(std::make_unique<State>(bytes)) {}
GradientWorker::~GradientWorker() = default;

absl::Status GradientWorker::Join(
    const ActorHandle<ps::ParameterServer>& server, int worker_id) {
  state_->client = std::make_unique<ps::GradientClient>(server, worker_id);
  MR_ASSIGN_OR_RETURN(
      const ReadOnly<NamedTensors> weights,
      state_->client->Join(train::StateDict(state_->model), {}));
  return train::LoadStateDict(state_->model, weights.value);
}

absl::Status GradientWorker::Push() {
  MR_ASSIGN_OR_RETURN(const ps::PushReply reply,
                      state_->client->Push(train::Gradients(state_->model)));
  return train::LoadStateDict(state_->model, reply.model.weights.value);
}

void GradientWorker::StepAlone() { state_->optimizer.step(); }

}  // namespace miniray::bench
