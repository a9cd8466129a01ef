// What a parameter server of several shards tells of its work: that of all
// shards together.

#ifndef MINIRAY_PS_SHARD_STATS_H_
#define MINIRAY_PS_SHARD_STATS_H_

#include <vector>

#include "ps/sync_result.h"

namespace miniray::ps {

// Sums bytes, tensors and restarts. Of what each shard counts by itself, though
// all do the same (contributions, gradients, saves, seconds): the most, that of
// the shard whose process is the oldest. Of what all have done (version,
// synchronisations, clocks): the least.
//
// parts: at least one.
SyncStats MergeShardStats(const std::vector<SyncStats>& parts);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SHARD_STATS_H_
