// Cuts a data set into shuffled mini-batches, a new order each epoch, the same
// order for the same seed on every platform.
//
//   MR_ASSIGN_OR_RETURN(BatchSampler sampler,
//                       BatchSampler::Create(data.size(), 128, seed, true));
//   for (int64_t epoch = 0; epoch < epochs; ++epoch) {
//     const EpochBatches batches = sampler.Epoch(epoch);
//     for (int64_t b = 0; b < batches.size(); ++b) {
//       MR_ASSIGN_OR_RETURN(ImageBatch batch, GatherBatch(data, batches[b]));
//       ...

#ifndef MINIRAY_ML_DATA_BATCH_SAMPLER_H_
#define MINIRAY_ML_DATA_BATCH_SAMPLER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace miniray::ml {

// One epoch's order, cut into batches. Immutable, so safe to share.
class EpochBatches {
 public:
  // Number of batches.
  int64_t size() const { return num_batches_; }

  // Item indices of batch `b`, in [0, size()). The span lives as long as this
  // object. Only the last batch may be shorter than the rest.
  absl::Span<const int64_t> operator[](int64_t b) const;

  // The whole permutation, the items that drop_last leaves out included.
  const std::vector<int64_t>& order() const { return order_; }

 private:
  friend class BatchSampler;
  EpochBatches(std::vector<int64_t> order, int64_t batch_size,
               int64_t num_batches)
      : order_(std::move(order)),
        batch_size_(batch_size),
        num_batches_(num_batches) {}

  std::vector<int64_t> order_;
  int64_t batch_size_;
  int64_t num_batches_;
};

// Holds no position: epochs may be asked for in any order, so a run that
// resumes at epoch 7 sees the same batches as one that never stopped.
// Immutable, so safe to share.
class BatchSampler {
 public:
  // size: items in the data set.  batch_size: items in a batch.
  // drop_last: leave out a last batch that would be shorter.
  //
  // Errors: InvalidArgument for size < 1, batch_size < 1, or drop_last with a
  // batch_size that leaves no batch at all.
  static absl::StatusOr<BatchSampler> Create(int64_t size, int64_t batch_size,
                                             uint64_t seed, bool drop_last);

  // Returns the batches of `epoch`: a uniformly drawn permutation of
  // [0, size), a function of (size, seed, epoch) only.
  //
  // Fisher-Yates from the last position down; position i swaps with a draw from
  // [0, i]. Draws come from std::mt19937_64, seeded with
  // Mix64(Mix64(seed) + epoch); a raw value x becomes x mod (i + 1), values of
  // the incomplete last cycle being drawn again. Unlike std::shuffle and
  // std::uniform_int_distribution, all of that is fixed by the C++ standard.
  EpochBatches Epoch(int64_t epoch) const;

  // Batches in every epoch.
  int64_t num_batches() const;

  int64_t size() const { return size_; }
  int64_t batch_size() const { return batch_size_; }

 private:
  BatchSampler(int64_t size, int64_t batch_size, uint64_t seed, bool drop_last)
      : size_(size),
        batch_size_(batch_size),
        seed_(seed),
        drop_last_(drop_last) {}

  int64_t size_;
  int64_t batch_size_;
  uint64_t seed_;
  bool drop_last_;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_BATCH_SAMPLER_H_
