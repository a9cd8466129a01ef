#include "tools/havoc/learner.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace miniray::havoc {
namespace {

constexpr int kSamples = 200;  // Of a worker.
constexpr int kStepsOfEpoch = 4;
// Slow enough that each epoch still lowers the loss by a good part.
constexpr double kLearningRate = 0.03;
constexpr double kMomentum = 0.5;
constexpr double kNoise = 0.3;
constexpr char kFile[] = "state";

// Uniform in [-1, 1), the same everywhere.
double Uniform(std::mt19937_64* random) {
  return static_cast<double>((*random)() >> 11) * 0x1p-52 - 1;
}

}  // namespace

absl::Status Learner::LoadDataShard(int shard_id, int num_shards,
                                    const train::Config& config) {
  MR_ASSIGN_OR_RETURN(epoch_seconds_, config.GetDouble("epoch_seconds", 0));
  MR_ASSIGN_OR_RETURN(forgets_, config.GetBool("forget", false));
  std::mt19937_64 random(static_cast<uint64_t>(shard_id));
  x_.assign(kSamples, {});
  y_.assign(kSamples, 0);
  for (int i = 0; i < kSamples; ++i) {
    y_[i] = kNoise * Uniform(&random);
    for (int j = 0; j < kInputs; ++j) {
      x_[i][j] = Uniform(&random);
      y_[i] += (j + 1.0) / kInputs * x_[i][j];
    }
  }
  return absl::OkStatus();
}

double Learner::Step() {
  Vector gradient = {};
  double loss = 0;
  for (int i = 0; i < kSamples; ++i) {
    double error = -y_[i];
    for (int j = 0; j < kInputs; ++j) error += weights_[j] * x_[i][j];
    loss += error * error / kSamples;
    for (int j = 0; j < kInputs; ++j) {
      gradient[j] += 2 * error * x_[i][j] / kSamples;
    }
  }
  for (int j = 0; j < kInputs; ++j) {
    momentum_[j] = kMomentum * momentum_[j] + gradient[j];
    weights_[j] -= kLearningRate * momentum_[j];
  }
  return loss;
}

train::Metrics Learner::TrainEpoch(int epoch) {
  double loss = 0;
  for (int i = 0; i < kStepsOfEpoch; ++i) {
    absl::SleepFor(absl::Seconds(epoch_seconds_ / kStepsOfEpoch));
    loss += Step() / kStepsOfEpoch;
  }
  return {{"loss", loss}};
}

NamedTensors Learner::GetWeights() const {
  at::Tensor weights = at::empty({kInputs}, at::dtype(at::kDouble));
  std::copy(weights_.begin(), weights_.end(), weights.data_ptr<double>());
  return {{"weights", std::move(weights)}};
}

absl::Status Learner::SetWeights(const NamedTensors& weights) {
  if (weights.size() != 1 || weights[0].second.numel() != kInputs) {
    return absl::InvalidArgumentError("these are another model's weights");
  }
  const at::Tensor values = weights[0].second.contiguous();
  std::copy_n(values.data_ptr<double>(), kInputs, weights_.begin());
  return absl::OkStatus();
}

absl::StatusOr<train::CheckpointFiles> Learner::SaveCheckpoint() const {
  std::string bytes(sizeof(weights_) + sizeof(momentum_), '\0');
  std::memcpy(bytes.data(), &weights_, sizeof(weights_));
  std::memcpy(bytes.data() + sizeof(weights_), &momentum_, sizeof(momentum_));
  return train::CheckpointFiles{{kFile, std::move(bytes)}};
}

absl::Status Learner::LoadCheckpoint(const train::CheckpointFiles& files) {
  const auto file = files.find(kFile);
  if (file == files.end() ||
      file->second.size() != sizeof(weights_) + sizeof(momentum_)) {
    return absl::InvalidArgumentError("this is another model's checkpoint");
  }
  if (forgets_) return absl::OkStatus();
  std::memcpy(&weights_, file->second.data(), sizeof(weights_));
  std::memcpy(&momentum_, file->second.data() + sizeof(weights_),
              sizeof(momentum_));
  return absl::OkStatus();
}

}  // namespace miniray::havoc
