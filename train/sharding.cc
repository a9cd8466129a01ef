#include "train/sharding.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

constexpr std::array<absl::string_view, 5> kNames = {
    "contiguous", "strided", "shuffled", "by_class", "function"};

// A number in [0, limit], each as likely: raw values of an incomplete last
// cycle are drawn again. std::uniform_int_distribution differs between
// platforms.
uint64_t Draw(std::mt19937_64& random, uint64_t limit) {
  const uint64_t count = limit + 1;
  // 2^64 mod count; none where count divides 2^64.
  const uint64_t incomplete = (0 - count) % count;
  while (true) {
    const uint64_t value = random();
    if (value <= UINT64_MAX - incomplete) return value % count;
  }
}

// Fisher-Yates, from the last position down.
std::vector<int64_t> Permutation(int64_t size, uint64_t seed) {
  std::vector<int64_t> items(static_cast<size_t>(size));
  std::iota(items.begin(), items.end(), 0);
  std::mt19937_64 random(seed);
  for (size_t i = items.size(); i-- > 1;) {
    std::swap(items[i], items[Draw(random, i)]);
  }
  return items;
}

absl::StatusOr<std::vector<int64_t>> ByClass(int64_t num_items, int shard_id,
                                             int num_shards,
                                             absl::Span<const int64_t> labels) {
  if (static_cast<int64_t>(labels.size()) != num_items) {
    return absl::InvalidArgumentError(
        absl::StrCat("sharding by class needs the labels of all ", num_items,
                     " items, got ", labels.size()));
  }
  std::map<int64_t, int64_t> counts;  // Items by label.
  for (const int64_t label : labels) ++counts[label];
  if (static_cast<int64_t>(counts.size()) < num_shards) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_shards, " shards by class of only ", counts.size(),
                     " classes: some would be empty; use at most ",
                     counts.size(), " shards, or another method"));
  }
  std::vector<std::pair<int64_t, int64_t>> classes(counts.begin(),
                                                   counts.end());
  std::stable_sort(
      classes.begin(), classes.end(),
      [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<int64_t> sizes(static_cast<size_t>(num_shards));
  std::map<int64_t, int> shard_of;  // By label.
  for (const auto& [label, count] : classes) {
    const auto smallest = std::min_element(sizes.begin(), sizes.end());
    *smallest += count;
    shard_of[label] = static_cast<int>(smallest - sizes.begin());
  }
  std::vector<int64_t> items;
  for (int64_t i = 0; i < num_items; ++i) {
    if (shard_of[labels[static_cast<size_t>(i)]] == shard_id) {
      items.push_back(i);
    }
  }
  return items;
}

absl::StatusOr<std::vector<int64_t>> ByFunction(int64_t num_items, int shard_id,
                                                int num_shards,
                                                const Sharding& sharding) {
  if (sharding.shard_of == nullptr) {
    return absl::InvalidArgumentError(
        "sharding by a function needs one; set Sharding::shard_of");
  }
  std::vector<int64_t> items;
  for (int64_t i = 0; i < num_items; ++i) {
    const int shard = sharding.shard_of(i, num_shards);
    if (shard < 0 || shard >= num_shards) {
      return absl::InvalidArgumentError(
          absl::StrCat("the sharding function puts item ", i, " into shard ",
                       shard, "; expected 0 to ", num_shards - 1));
    }
    if (shard == shard_id) items.push_back(i);
  }
  if (items.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the sharding function leaves shard ", shard_id, " of ",
                     num_shards, " without any of the ", num_items, " items"));
  }
  return items;
}

}  // namespace

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

absl::string_view ShardMethodName(ShardMethod method) {
  return kNames.at(static_cast<size_t>(method));
}

absl::StatusOr<std::vector<int64_t>> ShardItems(int64_t num_items, int shard_id,
                                                int num_shards,
                                                const Sharding& sharding) {
  MR_ASSIGN_OR_RETURN(const ShardRange range,
                      ContiguousShard(num_items, shard_id, num_shards));
  std::vector<int64_t> items(static_cast<size_t>(range.size()));
  switch (sharding.method) {
    case ShardMethod::kContiguous:
      std::iota(items.begin(), items.end(), range.begin);
      return items;
    case ShardMethod::kStrided:
      // As many as in the contiguous shard: the first ones are longer in both.
      for (size_t i = 0; i < items.size(); ++i) {
        items[i] = shard_id + static_cast<int64_t>(i) * num_shards;
      }
      return items;
    case ShardMethod::kShuffled: {
      const std::vector<int64_t> all = Permutation(num_items, sharding.seed);
      items.assign(all.begin() + range.begin, all.begin() + range.end);
      return items;
    }
    case ShardMethod::kByClass:
      return ByClass(num_items, shard_id, num_shards, sharding.labels);
    case ShardMethod::kFunction:
      return ByFunction(num_items, shard_id, num_shards, sharding);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no sharding method ", static_cast<int>(sharding.method)));
}

absl::StatusOr<Sharding> ShardingFromConfig(const ps::OptionMap& config) {
  Sharding sharding;
  MR_ASSIGN_OR_RETURN(const std::string name,
                      config.GetString(kShardingOption, kNames[0]));
  MR_ASSIGN_OR_RETURN(const int64_t seed,
                      config.GetInt(kShardingSeedOption, 0));
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sharding is '", name, "'; expected one of ",
                     absl::StrJoin(kNames, ", ")));
  }
  sharding.method = static_cast<ShardMethod>(found - kNames.begin());
  sharding.seed = static_cast<uint64_t>(seed);
  return sharding;
}

}  // namespace miniray::train
