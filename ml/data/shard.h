// Which part of a data set a worker loads.
//
// No LibTorch here: drivers and trainers compute shards without linking it.

#ifndef MINIRAY_ML_DATA_SHARD_H_
#define MINIRAY_ML_DATA_SHARD_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace miniray::ml {

// The half-open range of item indices [begin, end).
struct ShardRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }

  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

// Returns shard `shard_id` of `total` items cut into `num_shards` contiguous
// ranges. The ranges are disjoint, cover [0, total) in order and differ in size
// by at most one item, the longer ones first: 50,000 on 4 is 12,500 each, 10 on
// 4 is 3, 3, 2, 2.
//
// Errors: InvalidArgument, with the numbers, for total < 0, num_shards < 1,
// shard_id outside [0, num_shards), or more shards than items (a worker with
// nothing to train on is never what was meant).
absl::StatusOr<ShardRange> ContiguousShard(int64_t total, int shard_id,
                                           int num_shards);

// A request for a part of a split: its first `limit` items, then shard
// `shard_id` of `num_shards` of those. The default is everything.
struct ShardSelection {
  int64_t limit = 0;  // 0: no limit; beyond the split's size: the whole split.
  int shard_id = 0;
  int num_shards = 1;
};

// Returns the range that `selection` means in a split of `total` items.
//
// Errors: InvalidArgument for a negative limit, and those of ContiguousShard.
absl::StatusOr<ShardRange> SelectRange(int64_t total,
                                       const ShardSelection& selection);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_SHARD_H_
