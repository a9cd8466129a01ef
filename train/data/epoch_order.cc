#include "train/data/epoch_order.h"

#include <utility>

#include "train/sharding.h"

namespace miniray::train {
namespace {

// One-to-one, and any bit of `x` changes about half of the result's.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t EpochSeed(uint64_t seed, int64_t epoch, int64_t part) {
  return Mix(Mix(Mix(seed) ^ static_cast<uint64_t>(epoch)) ^
             static_cast<uint64_t>(part));
}

std::vector<int64_t> DrawOrder(int64_t count, uint64_t seed) {
  if (count <= 0) return {};
  // All of them on the only shard: cannot fail.
  return *ShardItems(count, /*shard_id=*/0, /*num_shards=*/1,
                     {.method = ShardMethod::kShuffled, .seed = seed});
}

int64_t Random::Below(int64_t limit) {
  const auto count = static_cast<uint64_t>(limit);
  // Values of the incomplete last cycle are drawn again: 2^64 mod count.
  const uint64_t incomplete = (0 - count) % count;
  while (true) {
    const uint64_t value = engine_();
    if (value <= UINT64_MAX - incomplete) {
      return static_cast<int64_t>(value % count);
    }
  }
}

}  // namespace miniray::train
