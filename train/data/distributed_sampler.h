// DistributedSampler: a LibTorch sampler that hands out one rank's samples of
// each epoch.
//
//   MR_ASSIGN_OR_RETURN(auto sampler, train::DistributedSampler::Create(
//       size, rank, world_size, {.seed = 7}));
//   auto loader = torch::data::make_data_loader(data, sampler, 64);
//
// PrepareDataLoader (train/data/data_loader.h) is this with less to write and
// exact positions where worker threads read ahead.
//
// The order of an epoch is a permutation drawn from (seed, epoch), the same on
// all ranks and every platform, or 0, 1, 2, ... without shuffling; rank r of W
// takes places r, r + W, r + 2W, ... of it. Ranks that have done equally many
// samples have together seen exactly a prefix of it: a position is one number,
// which a run of another world size goes on from.
//
// Differs from torch::data::samplers::DistributedRandomSampler: that repeats
// one epoch until set_epoch is called, can only pad, and saves a rank's own
// place, which means nothing to another world size.
//
// Not thread-safe.

#ifndef MINIRAY_TRAIN_DATA_DISTRIBUTED_SAMPLER_H_
#define MINIRAY_TRAIN_DATA_DISTRIBUTED_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/data/samplers/base.h"
#include "train/data/sampler_state.h"
#include "train/data/tail.h"

namespace miniray::train {

class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  struct Options {
    Tail tail = Tail::kPad;
    bool shuffle = true;
    uint64_t seed = 0;  // The same on all ranks.
  };

  // num_samples: of the whole data set. rank: in [0, world_size).
  //
  // Errors: INVALID_ARGUMENT, with the numbers: no samples, a rank that there
  // is not, or fewer samples than ranks with Tail::kDrop.
  static absl::StatusOr<DistributedSampler> Create(int64_t num_samples,
                                                   int rank, int world_size,
                                                   Options options);

  // The next reset() begins `epoch`, from its first sample.
  void SetEpoch(int64_t epoch);
  // Of the pass that reset() began; before that, the one it would begin.
  int64_t epoch() const { return epoch_; }

  // Begins a pass: what SetEpoch or Restore said; where neither was called
  // since the last reset(), the epoch after that one, whether that was handed
  // out to its end or not. `new_size` is of a data set that has changed.
  // Throws c10::Error where Create would refuse the size.
  void reset(torch::optional<size_t> new_size = torch::nullopt) override;

  // Returns the next indices, in [0, num_samples), `batch_size` of them or what
  // is left; nothing at the end of the pass. A first call begins a pass.
  torch::optional<std::vector<size_t>> next(size_t batch_size) override;

  // Samples of this pass on this rank, from where it began: fewer after a
  // Restore. `remaining` are not handed out yet.
  int64_t pass_size() const { return SizeOnRank(rank_); }
  int64_t remaining() const { return pass_size() - next_; }
  // Of the rank that has the most.
  int64_t max_pass_size() const { return SizeOnRank(0); }

  // After what was handed out: {epoch + 1, 0} at the end of an epoch.
  SamplerState state() const { return StateAfter(next_); }
  // After the first `samples` of this pass on this rank.
  SamplerState StateAfter(int64_t samples) const;

  // The next reset() goes on from `state`, with its seed and its order, and
  // this sampler's rank and world size.
  //
  // Errors: INVALID_ARGUMENT, it is of another number of samples, or says what
  // cannot be. Nothing has changed then.
  absl::Status Restore(const SamplerState& state);

  // The state, to and from LibTorch's archives. Load throws c10::Error for what
  // Restore refuses.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  DistributedSampler(int64_t num_samples, int rank, int world_size,
                     Options options);

  // Places [offset_, end) of the epoch's order are dealt in this pass; those
  // from num_samples_ on are the first ones again.
  int64_t PassEnd() const;
  int64_t SizeOnRank(int rank) const;

  int64_t num_samples_;
  int rank_;
  int world_size_;
  Options options_;
  int64_t epoch_ = 0;
  int64_t offset_ = 0;          // Where the pass begins.
  int64_t next_ = 0;            // Handed out in this pass, on this rank.
  bool in_pass_ = false;        // Since reset().
  std::vector<int64_t> order_;  // Of the pass; empty: 0, 1, 2, ...
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_DISTRIBUTED_SAMPLER_H_
