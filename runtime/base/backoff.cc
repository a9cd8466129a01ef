#include "runtime/base/backoff.h"

#include <algorithm>

namespace miniray {
namespace {

// Less than half, so that each pause is longer than the one before.
constexpr double kChance = 0.25;

}  // namespace

Backoff::Backoff(absl::Duration first, absl::Duration max)
    : first_(first), max_(max), next_(first), random_(std::random_device()()) {}

absl::Duration Backoff::Next() {
  const absl::Duration longest = std::min(next_, max_);
  next_ = std::min(2 * next_, std::max(first_, max_));
  return longest *
         std::uniform_real_distribution<double>(1 - kChance, 1)(random_);
}

}  // namespace miniray
