#include "ml/data/shard.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace miniray::ml {

absl::StatusOr<ShardRange> ContiguousShard(int64_t total, int shard_id,
                                           int num_shards) {
  if (total < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot shard ", total, " items"));
  }
  if (num_shards < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_shards is ", num_shards, "; expected at least 1"));
  }
  if (shard_id < 0 || shard_id >= num_shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard_id is ", shard_id, "; expected 0 to ",
                     num_shards - 1, " for ", num_shards, " shards"));
  }
  if (num_shards > total) {
    return absl::InvalidArgumentError(absl::StrCat(
        num_shards, " shards of only ", total,
        " items: some would be empty; use at most ", total, " shards"));
  }
  const int64_t base = total / num_shards;
  const int64_t longer = total % num_shards;  // Shards with one item more.
  ShardRange range;
  range.begin = shard_id * base + std::min<int64_t>(shard_id, longer);
  range.end = range.begin + base + (shard_id < longer ? 1 : 0);
  return range;
}

absl::StatusOr<ShardRange> SelectRange(int64_t total,
                                       const ShardSelection& selection) {
  if (selection.limit < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("limit is ", selection.limit,
                     "; expected 0 (no limit) or a number of items"));
  }
  if (selection.limit > 0) total = std::min(total, selection.limit);
  return ContiguousShard(total, selection.shard_id, selection.num_shards);
}

}  // namespace miniray::ml
