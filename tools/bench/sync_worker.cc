#include "tools/bench/sync_worker.h"

#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/bench/peers/memory.h"
#include "train/state_dict.h"

namespace miniray::bench {
namespace {

// Layers of a network whose parameters are of several sizes.
constexpr int kLayers = 8;
constexpr int64_t kBias = 64;

}  // namespace

struct SyncWorker::Model : torch::nn::Module {
  explicit Model(int64_t bytes) {
    const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
    int64_t done = 0;
    for (int i = 0; i < kLayers; ++i) {
      // The last one takes the rest.
      const int64_t end = i + 1 == kLayers ? count : count / kLayers * (i + 1);
      Add(absl::StrCat("weight", i), end - done - kBias);
      Add(absl::StrCat("bias", i), kBias);
      done = end;
    }
  }
  void Add(const std::string& name, int64_t size) {
    register_parameter(name, at::empty({size}, at::kFloat));
  }
  // Calls f(data, size) of each parameter.
  template <class F>
  void ForEach(F f) {
    for (const at::Tensor& parameter : parameters()) {
      f(parameter.data_ptr<float>(), parameter.numel());
    }
  }
};

SyncWorker::SyncWorker(int64_t bytes) : model_(std::make_unique<Model>(bytes)) {
  train::ShareParameters(*model_);
}
SyncWorker::~SyncWorker() = default;

NamedTensors SyncWorker::GetWeights() { return train::StateDict(*model_); }

ReadOnly<NamedTensors> SyncWorker::LendWeights() {
  return train::LendStateDict(*model_);
}

absl::Status SyncWorker::SetWeights(const ReadOnly<NamedTensors>& weights) {
  return train::LoadStateDict(*model_, weights.value);
}

absl::StatusOr<ReadOnly<ps::WeightMessage>> SyncWorker::SendWeights(
    const ps::WeightRequest& request) {
  return exchange_.Send(request, LendWeights().value);
}

absl::Status SyncWorker::ReceiveWeights(
    const ReadOnly<ps::WeightMessage>& message) {
  return exchange_.Receive(message.value, [this](const NamedTensors& weights) {
    return train::LoadStateDict(*model_, weights);
  });
}

void SyncWorker::Fill(int worker, int round) {
  model_->ForEach([&](float* data, int64_t size) {
    for (int64_t i = 0; i < size; ++i) {
      data[i] = PatternAt(i) + static_cast<float>(worker + round);
    }
  });
}

absl::Status SyncWorker::Check(int workers, int round) {
  // Exact: halves at most.
  const float offset =
      static_cast<float>(workers - 1) / 2 + static_cast<float>(round);
  bool good = true;
  model_->ForEach([&](const float* data, int64_t size) {
    for (int64_t i = 0; i < size; ++i) {
      good = good && data[i] == PatternAt(i) + offset;
    }
  });
  if (good) return absl::OkStatus();
  return absl::InternalError("the module does not hold the mean");
}

}  // namespace miniray::bench
