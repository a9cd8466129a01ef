// Shards in which some classes are more common than others: what workers have
// whose data was never mixed.
//
// No LibTorch here.

#ifndef MINIRAY_ML_DATA_SKEWED_SHARD_H_
#define MINIRAY_ML_DATA_SKEWED_SHARD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace miniray::ml {

// Returns the items of shard `shard_id` of `num_shards`, in no useful order: a
// share 1 - skew of all items is dealt out at random, the rest is sorted by
// label and cut into contiguous pieces. So of four workers and ten classes with
// skew 0.5, half of each worker's images are of two or three classes, and half
// of all. The shards are disjoint, cover everything, and differ in size by two
// items at most.
//
// labels: of all items.  skew: in [0, 1]; 0 is a random shard.  seed: of what
// is random; the same for all shards.
//
// Errors: INVALID_ARGUMENT, skew or shard_id out of range, or a shard without
// items.
//
// Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, SCAFFOLD, section 7,
// whose "s % similarity" is skew = 1 - s / 100.
absl::StatusOr<std::vector<int64_t>> SkewedShard(
    absl::Span<const int64_t> labels, double skew, uint64_t seed, int shard_id,
    int num_shards);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_SKEWED_SHARD_H_
