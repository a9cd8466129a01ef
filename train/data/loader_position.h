// Which pass a PreparedDataLoader is in and how much of it the loop's body has
// seen: what does not depend on the data set's type. Not for users.

#ifndef MINIRAY_TRAIN_DATA_LOADER_POSITION_H_
#define MINIRAY_TRAIN_DATA_LOADER_POSITION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/data/data_loader_options.h"
#include "train/data/distributed_sampler.h"

namespace miniray::train {

// What LibTorch's DataLoader asks for indices: a sampler that others keep too.
class IndexSource {
 public:
  using BatchRequestType = std::vector<size_t>;

  explicit IndexSource(std::shared_ptr<DistributedSampler> sampler)
      : sampler_(std::move(sampler)) {}
  void reset() { sampler_->reset(); }
  torch::optional<std::vector<size_t>> next(size_t batch_size) {
    return sampler_->next(batch_size);
  }

 private:
  std::shared_ptr<DistributedSampler> sampler_;
};

class LoaderPosition {
 public:
  static absl::StatusOr<LoaderPosition> Create(
      int64_t num_samples, int rank, int world_size,
      const DataLoaderOptions& options);

  IndexSource index_source() const { return IndexSource(sampler_); }

  // Around a loop. Throws std::logic_error if one runs already.
  void BeginPass();
  void CountBatch() { ++batches_; }  // The loop's body has it.
  void EndPass();

  int64_t epoch() const { return sampler_->epoch(); }
  // Throws std::logic_error while a loop runs, std::invalid_argument if epoch
  // is below 0.
  void SetEpoch(int64_t epoch);
  int64_t steps() const { return Steps(sampler_->pass_size()); }
  int64_t max_steps() const { return Steps(sampler_->max_pass_size()); }
  std::string State() const;
  absl::Status Restore(absl::string_view state);

 private:
  LoaderPosition(DistributedSampler sampler, const DataLoaderOptions& options);
  int64_t Steps(int64_t samples) const;

  std::shared_ptr<DistributedSampler> sampler_;
  int64_t batch_size_;
  bool drop_last_;
  bool in_pass_ = false;
  int64_t batches_ = 0;  // Of this pass that the loop's body has seen.
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_LOADER_POSITION_H_
