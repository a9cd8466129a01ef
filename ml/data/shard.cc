#include "ml/data/shard.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace miniray::ml {

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
