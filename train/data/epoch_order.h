// Seeds and draws behind the orders of epochs, the same on every platform. Not
// for users.

#ifndef MINIRAY_TRAIN_DATA_EPOCH_ORDER_H_
#define MINIRAY_TRAIN_DATA_EPOCH_ORDER_H_

#include <cstdint>
#include <random>
#include <vector>

namespace miniray::train {

// Returns a seed for `part` of `epoch`: different ones, and unlike each other,
// for any two of the arguments that differ.
// Source: the finaliser of SplitMix64, Steele et al., OOPSLA 2014.
uint64_t EpochSeed(uint64_t seed, int64_t epoch, int64_t part = 0);

// Returns a permutation of 0 ... count - 1 drawn with `seed`.
std::vector<int64_t> DrawOrder(int64_t count, uint64_t seed);

// A sequence of draws.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // Returns a number in [0, limit), each as likely; limit from 1.
  // std::uniform_int_distribution differs between platforms.
  int64_t Below(int64_t limit);

 private:
  std::mt19937_64 engine_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_EPOCH_ORDER_H_
