#include "tests/train/checkpoint_worker.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "ATen/CPUGeneratorImpl.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "torch/torch.h"
#include "train/state_dict.h"
#include "train/training_state.h"

namespace miniray::train {
namespace {

constexpr int64_t kSamples = 64;
constexpr int64_t kBatch = 8;
constexpr int64_t kBatchesOfEpoch = 5;

}  // namespace

struct CheckpointWorker::Parts {
  torch::nn::Sequential net{torch::nn::Linear(4, 8), torch::nn::ReLU(),
                            torch::nn::Dropout(torch::nn::DropoutOptions(0.25)),
                            torch::nn::Linear(8, 1)};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  at::Generator shuffles = at::detail::createCPUGenerator(7);
  torch::Tensor x, y;   // [64, 4] and [64, 1]
  torch::Tensor order;  // int64 [64]

  TrainingParts Saved() {
    return {.models = {{"net", &*net}},
            .optimizers = {{"optimizer", optimizer.get()}},
            .generators = {{"shuffles", shuffles}}};
  }
};

CheckpointWorker::CheckpointWorker(int worker_id, const std::string& optimizer)
    : parts_([] {
        torch::manual_seed(1);  // Equal starts.
        return std::make_unique<Parts>();
      }()) {
  torch::manual_seed(100 + worker_id);
  if (optimizer == "adam") {
    parts_->optimizer = std::make_unique<torch::optim::Adam>(
        parts_->net->parameters(), torch::optim::AdamOptions(0.01));
  } else {
    parts_->optimizer = std::make_unique<torch::optim::SGD>(
        parts_->net->parameters(),
        torch::optim::SGDOptions(0.01).momentum(0.9));
  }
}

CheckpointWorker::~CheckpointWorker() = default;

absl::Status CheckpointWorker::LoadDataShard(int shard_id, int num_shards,
                                             const Config& config) {
  MR_ASSIGN_OR_RETURN(const std::string loading_file,
                      config.GetString("loading_file", ""));
  if (!loading_file.empty()) {
    MR_RETURN_IF_ERROR(WriteFileAtomically(loading_file, ""));
    while (true) pause();
  }
  at::Generator data =
      at::detail::createCPUGenerator(static_cast<uint64_t>(10 + shard_id));
  parts_->x = torch::randn({kSamples, 4}, data);
  parts_->y = parts_->x.sum(1, /*keepdim=*/true).sin();
  MR_ASSIGN_OR_RETURN(epoch_seconds_, config.GetDouble("epoch_seconds", 0));
  MR_ASSIGN_OR_RETURN(bytes_, config.GetInt("bytes", 0));
  MR_ASSIGN_OR_RETURN(fault_file_, config.GetString("fault_file", ""));
  ShuffleAgain();
  return absl::OkStatus();
}

void CheckpointWorker::ShuffleAgain() {
  parts_->order = torch::randperm(kSamples, parts_->shuffles,
                                  torch::TensorOptions(torch::kInt64));
  position_ = 0;
}

Metrics CheckpointWorker::TrainEpoch(int epoch) {
  MaybeFail();
  if (epoch_seconds_ > 0) absl::SleepFor(absl::Seconds(epoch_seconds_));
  double sum = 0;
  for (int64_t batch = 0; batch < kBatchesOfEpoch; ++batch) {
    if (position_ == kSamples) ShuffleAgain();
    const torch::Tensor items =
        parts_->order.slice(0, position_, position_ + kBatch);
    position_ += kBatch;
    parts_->optimizer->zero_grad();
    const torch::Tensor loss =
        torch::mse_loss(parts_->net->forward(parts_->x.index_select(0, items)),
                        parts_->y.index_select(0, items));
    loss.backward();
    parts_->optimizer->step();
    sum += loss.item<double>();
  }
  return {{"loss", sum / kBatchesOfEpoch},
          {"epoch", static_cast<double>(epoch)},
          {"samples", static_cast<double>(kBatchesOfEpoch * kBatch)}};
}

void CheckpointWorker::MaybeFail() const {
  if (fault_file_.empty()) return;
  const absl::StatusOr<std::string> fault = ReadFile(fault_file_);
  if (!fault.ok() || std::remove(fault_file_.c_str()) != 0) return;
  if (*fault == "throw") throw std::runtime_error("loss went up");
  if (*fault == "kill") kill(getpid(), SIGKILL);
  while (*fault == "hang") pause();
}

NamedTensors CheckpointWorker::GetWeights() const {
  return StateDict(*parts_->net);
}

absl::Status CheckpointWorker::SetWeights(const NamedTensors& weights) {
  return LoadStateDict(*parts_->net, weights);
}

absl::StatusOr<ReadOnly<ps::WeightMessage>> CheckpointWorker::SendWeights(
    const ps::WeightRequest& request) {
  return exchange_.Send(request, LendStateDict(*parts_->net).value);
}

absl::Status CheckpointWorker::ReceiveWeights(
    const ReadOnly<ps::WeightMessage>& message) {
  return exchange_.Receive(message.value, [this](const NamedTensors& weights) {
    return SetWeights(weights);
  });
}

absl::StatusOr<CheckpointFiles> CheckpointWorker::SaveCheckpoint() {
  std::string order(static_cast<const char*>(parts_->order.data_ptr()),
                    parts_->order.nbytes());
  MR_ASSIGN_OR_RETURN(CheckpointFiles files,
                      SaveTraining(parts_->Saved(), {{"position", position_}}));
  files["order"] = std::move(order);
  if (bytes_ > 0) files["more"] = std::string(static_cast<size_t>(bytes_), 'x');
  return files;
}

absl::Status CheckpointWorker::LoadCheckpoint(const CheckpointFiles& files) {
  MR_ASSIGN_OR_RETURN(const Config extras,
                      LoadTraining(files, parts_->Saved()));
  MR_ASSIGN_OR_RETURN(position_, extras.GetInt("position", -1));
  const std::string& order = files.at("order");
  if (order.size() != parts_->order.nbytes()) {
    return absl::InvalidArgumentError("order has another size");
  }
  std::copy(order.begin(), order.end(),
            static_cast<char*>(parts_->order.data_ptr()));
  return absl::OkStatus();
}

int64_t CheckpointWorker::Pid() const { return getpid(); }

}  // namespace miniray::train
