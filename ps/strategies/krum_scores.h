// What krum, multi_krum and bulyan have in common: distances between workers,
// and who is closest to most of the others.

#ifndef MINIRAY_PS_STRATEGIES_KRUM_SCORES_H_
#define MINIRAY_PS_STRATEGIES_KRUM_SCORES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

// A strategy for n workers, of which f = num_malicious may be broken, with
// n >= factor * f + 3, that chooses among them by their distances.
class KrumFamily : public WholeModelStrategy {
 public:
  // num_malicious, an integer of at least 0, 1 if not given.
  static std::vector<OptionSpec> Options();

  // INVALID_ARGUMENT unless there are enough workers.
  absl::Status CheckWorkers(int64_t num_workers) const override;
  bool UsesServerWeights() const override { return false; }

  // PairDistances. Errors: of CheckWorkers.
  absl::StatusOr<std::vector<WideSum>> Sums(
      absl::Span<const Contribution> contributions) final;

 protected:
  KrumFamily(absl::string_view name, int64_t factor,
             const StrategyOptions& options);

  int64_t num_malicious() const { return num_malicious_; }

 private:
  const std::string name_;
  const int64_t factor_;
  const int64_t num_malicious_;
};

// Returns the squared distance of each pair of contributions, over all
// floating-point tensors: of 0 and 1, 0 and 2, ..., 1 and 2, ... Infinite or
// NaN where a value is.
std::vector<WideSum> PairDistances(
    absl::Span<const Contribution> contributions);

// Returns the members of `pool` by their Krum score, best first, those with the
// same in their order. The score is the sum of the distances to the
// |pool| - num_malicious - 2 closest others of the pool, to one at least. What
// is not finite counts as infinitely far.
//
// distances: of n contributions, the values of PairDistances.
// pool: indices below n.
std::vector<size_t> KrumOrder(absl::Span<const double> distances, size_t n,
                              const std::vector<size_t>& pool,
                              int64_t num_malicious);

// Returns the contributions at these indices, in their order.
std::vector<Contribution> Select(absl::Span<const Contribution> contributions,
                                 std::vector<size_t> indices);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_KRUM_SCORES_H_
