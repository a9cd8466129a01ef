#include "train/epoch_meter.h"

#include "absl/time/clock.h"

namespace miniray::train {

void EpochMeter::Begin(int epoch, int64_t samples) {
  const absl::MutexLock lock(&mutex_);
  progress_ = {.epoch = epoch, .samples = samples};
  means_.clear();
  start_ = absl::Now();
}

void EpochMeter::Average(int64_t samples, const Metrics& metrics) {
  const absl::MutexLock lock(&mutex_);
  for (const auto& [name, value] : metrics) {
    const auto [entry, is_new] = means_.try_emplace(name);
    Mean& mean = entry->second;
    if (is_new) mean.unit = samples;
    const double weight =
        static_cast<double>(samples) / static_cast<double>(mean.unit);
    mean.sum += weight * value;
    mean.weight += weight;
  }
}

void EpochMeter::Set(const Metrics& metrics) {
  const absl::MutexLock lock(&mutex_);
  for (const auto& [name, value] : metrics) {
    means_[name] = {.sum = value, .weight = 1};
  }
}

void EpochMeter::Advance(int64_t samples) {
  const absl::MutexLock lock(&mutex_);
  progress_.samples_done += samples;
}

Progress EpochMeter::Now() const {
  const absl::MutexLock lock(&mutex_);
  Progress progress = progress_;
  progress.metrics = Means();
  if (progress.epoch >= 0 && !progress.done) {
    progress.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  }
  return progress;
}

Metrics EpochMeter::Finish() {
  const absl::MutexLock lock(&mutex_);
  progress_.seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  progress_.done = true;
  Metrics metrics = Means();
  metrics[kSamplesMetric] = static_cast<double>(progress_.samples_done);
  return metrics;
}

Metrics EpochMeter::Means() const {
  Metrics metrics;
  for (const auto& [name, mean] : means_) {
    metrics[name] = mean.sum / mean.weight;
  }
  return metrics;
}

}  // namespace miniray::train
