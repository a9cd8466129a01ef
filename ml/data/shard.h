// Which part of a data set a worker loads.
//
// No LibTorch here: drivers and trainers compute shards without linking it.

#ifndef MINIRAY_ML_DATA_SHARD_H_
#define MINIRAY_ML_DATA_SHARD_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "train/sharding.h"

namespace miniray::ml {

using train::ContiguousShard;
using train::ShardRange;

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
