// What krum, multi_krum and bulyan have in common: distances between workers,
// and who is closest to most of the others.

#ifndef MINIRAY_PS_STRATEGIES_KRUM_SCORES_H_
#define MINIRAY_PS_STRATEGIES_KRUM_SCORES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

// num_malicious, an integer of at least 0, 1 if not given: how many workers may
// be broken.
OptionSpec NumMaliciousOption();
int64_t NumMalicious(const StrategyOptions& options);

// INVALID_ARGUMENT unless num_workers >= factor * num_malicious + 3.
absl::Status CheckMajority(absl::string_view strategy, int64_t num_workers,
                           int64_t factor, int64_t num_malicious);

// Returns the squared distance of each pair of contributions, over all
// floating-point tensors: of 0 and 1, 0 and 2, ..., 1 and 2, ... Infinite or
// NaN where a value is.
std::vector<double> PairDistances(absl::Span<const Contribution> contributions);

// Returns the members of `pool` by their Krum score, best first, those with the
// same in their order. The score is the sum of the distances to the
// |pool| - num_malicious - 2 closest others of the pool, to one at least. What
// is not finite counts as infinitely far.
//
// distances: of n contributions, as from PairDistances.
// pool: indices below n.
std::vector<size_t> KrumOrder(absl::Span<const double> distances, size_t n,
                              const std::vector<size_t>& pool,
                              int64_t num_malicious);

// Returns the contributions at these indices, in their order.
std::vector<Contribution> Select(absl::Span<const Contribution> contributions,
                                 std::vector<size_t> indices);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_KRUM_SCORES_H_
