// Which items of a data set each worker trains on.
//
//   absl::Status LoadDataShard(int shard_id, int num_shards,
//                              const train::Config& config) {
//     MR_ASSIGN_OR_RETURN(const train::Sharding sharding,
//                         train::ShardingFromConfig(config));
//     MR_ASSIGN_OR_RETURN(items_, train::ShardItems(data_.size(), shard_id,
//                                                   num_shards, sharding));
//     ...
//   trainer.Train({.config = {{"sharding", "shuffled"}, {"sharding_seed",
//   7}}});
//
// No LibTorch here.

#ifndef MINIRAY_TRAIN_SHARDING_H_
#define MINIRAY_TRAIN_SHARDING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps/option_map.h"

namespace miniray::train {

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
// Errors: INVALID_ARGUMENT, with the numbers, for total < 0, num_shards < 1,
// shard_id outside [0, num_shards), or more shards than items (a worker with
// nothing to train on is never what was meant).
absl::StatusOr<ShardRange> ContiguousShard(int64_t total, int shard_id,
                                           int num_shards);

enum class ShardMethod {
  kContiguous,  // See ContiguousShard. Fit for data in no order.
  kStrided,     // Items shard_id, shard_id + num_shards, ...
  // A permutation drawn with `seed`, cut like kContiguous. The same on every
  // platform.
  kShuffled,
  // Whole classes: all items of a label are in one shard, the classes dealt out
  // largest first, each to the shard with the fewest items so far. What
  // workers have whose data was never mixed.
  kByClass,
  kFunction,  // The user's.
};

// "contiguous", "strided", "shuffled", "by_class" or "function".
absl::string_view ShardMethodName(ShardMethod method);

// How a data set is cut. All workers must have the same.
struct Sharding {
  ShardMethod method = ShardMethod::kContiguous;
  uint64_t seed = 0;                 // kShuffled
  absl::Span<const int64_t> labels;  // kByClass: of all items.
  // kFunction: the shard of an item, in [0, num_shards).
  std::function<int(int64_t item, int num_shards)> shard_of;
};

// Returns the items, indices in [0, num_items), of one shard: ascending, but
// for kShuffled, whose order is the permutation's. Each item is in exactly one
// shard. Sizes differ by one at most, except with kByClass and kFunction.
//
// Errors: INVALID_ARGUMENT, those of ContiguousShard; labels that are not as
// many as the items; fewer classes than shards; a function that is not set,
// names a shard that there is not, or leaves this one empty.
absl::StatusOr<std::vector<int64_t>> ShardItems(int64_t num_items, int shard_id,
                                                int num_shards,
                                                const Sharding& sharding);

inline constexpr char kShardingOption[] = "sharding";
inline constexpr char kShardingSeedOption[] = "sharding_seed";

// Returns what the options "sharding" (a method's name; "contiguous" if not
// set) and "sharding_seed" (0) say. With "by_class" and "function", labels and
// function remain to be set. Errors: INVALID_ARGUMENT, no such method, or an
// option of the wrong type.
absl::StatusOr<Sharding> ShardingFromConfig(const ps::OptionMap& config);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_SHARDING_H_
