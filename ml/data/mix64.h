// A 64-bit mixing function for deriving independent seeds.

#ifndef MINIRAY_ML_DATA_MIX64_H_
#define MINIRAY_ML_DATA_MIX64_H_

#include <cstdint>

namespace miniray::ml {

// Returns a bijective scramble of `x`: one step of SplitMix64 from state `x`.
// The same on every platform.
//
// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014; constants of Vigna's splitmix64.c.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Returns the seed of one of a run's streams of random numbers.
//
// stream: an enumeration of them, below 256. id: of the worker or shard, where
// each has a stream of its own; >= 0.
template <class Stream>
constexpr uint64_t StreamSeed(uint64_t seed, Stream stream, int id = 0) {
  return Mix64(Mix64(seed) + static_cast<uint64_t>(stream) +
               (static_cast<uint64_t>(id) << 8));
}

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_MIX64_H_
