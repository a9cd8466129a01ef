#include "ml/data/batch_sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ml/data/mix64.h"

namespace miniray::ml {
namespace {

// Returns a uniform draw from [0, bound), bound >= 1.
uint64_t DrawBelow(std::mt19937_64& generator, uint64_t bound) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  // 2^64 mod bound values at the top would favour the low remainders.
  const uint64_t last = kMax - (kMax % bound + 1) % bound;
  uint64_t x;
  do {
    x = generator();
  } while (x > last);
  return x % bound;
}

}  // namespace

absl::Span<const int64_t> EpochBatches::operator[](int64_t b) const {
  return absl::MakeConstSpan(order_).subspan(b * batch_size_, batch_size_);
}

absl::StatusOr<BatchSampler> BatchSampler::Create(int64_t size,
                                                  int64_t batch_size,
                                                  uint64_t seed,
                                                  bool drop_last) {
  if (size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot draw batches from ", size, " items; expected at least 1"));
  }
  if (batch_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch_size is ", batch_size, "; expected at least 1"));
  }
  if (drop_last && batch_size > size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size is ", batch_size, " but there are only ", size,
        " items, and drop_last leaves out a batch that is not full, so an "
        "epoch would have no batch; use at most ",
        size));
  }
  return BatchSampler(size, batch_size, seed, drop_last);
}

int64_t BatchSampler::num_batches() const {
  const int64_t full = size_ / batch_size_;
  return full + (!drop_last_ && size_ % batch_size_ != 0 ? 1 : 0);
}

EpochBatches BatchSampler::Epoch(int64_t epoch) const {
  std::mt19937_64 generator(Mix64(Mix64(seed_) + static_cast<uint64_t>(epoch)));
  std::vector<int64_t> order(size_);
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = size_ - 1; i > 0; --i) {
    const uint64_t j = DrawBelow(generator, static_cast<uint64_t>(i) + 1);
    std::swap(order[i], order[j]);
  }
  return EpochBatches(std::move(order), batch_size_, num_batches());
}

}  // namespace miniray::ml
