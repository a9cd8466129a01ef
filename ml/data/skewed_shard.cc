#include "ml/data/skewed_shard.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ml/data/batch_sampler.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// Appends piece `id` of `pieces` of items [begin, end).
void AppendPiece(const std::vector<int64_t>& items, int64_t begin, int64_t end,
                 int id, int pieces, std::vector<int64_t>* out) {
  const int64_t size = end - begin;
  out->insert(out->end(), items.begin() + begin + size * id / pieces,
              items.begin() + begin + size * (id + 1) / pieces);
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> SkewedShard(
    absl::Span<const int64_t> labels, double skew, uint64_t seed, int shard_id,
    int num_shards) {
  if (!(skew >= 0 && skew <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the skew of shards must be in [0, 1], got ", skew));
  }
  if (num_shards < 1 || shard_id < 0 || shard_id >= num_shards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no shard ", shard_id, " of ", num_shards, " shards"));
  }
  const auto size = static_cast<int64_t>(labels.size());
  MR_ASSIGN_OR_RETURN(
      const BatchSampler sampler,
      BatchSampler::Create(size, /*batch_size=*/1, seed, /*drop_last=*/false));
  std::vector<int64_t> items = sampler.Epoch(0).order();
  const int64_t mixed =
      std::llround((1 - skew) * static_cast<double>(items.size()));
  std::stable_sort(items.begin() + mixed, items.end(),
                   [&](int64_t a, int64_t b) { return labels[a] < labels[b]; });
  std::vector<int64_t> shard;
  AppendPiece(items, 0, mixed, shard_id, num_shards, &shard);
  AppendPiece(items, mixed, size, shard_id, num_shards, &shard);
  if (!shard.empty()) return shard;
  return absl::InvalidArgumentError(absl::StrCat(
      "shard ", shard_id, " of ", num_shards, " of ", size, " items has none"));
}

}  // namespace miniray::ml
