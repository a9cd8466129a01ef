#include "ps/strategies/krum_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ps/kernels.h"
#include "ps/model_pieces.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

constexpr int64_t kDefaultNumMalicious = 1;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

size_t NumPairs(size_t n) { return n * (n - 1) / 2; }

// Where the pair a < b of n stands.
size_t PairIndex(size_t n, size_t a, size_t b) {
  return NumPairs(n) - NumPairs(n - a) + (b - a - 1);
}

double Score(absl::Span<const double> distances, size_t n,
             const std::vector<size_t>& pool, int64_t num_malicious,
             size_t member) {
  std::vector<double> others;
  for (const size_t other : pool) {
    if (other == member) continue;
    const double distance = distances[PairIndex(n, std::min(member, other),
                                                std::max(member, other))];
    others.push_back(std::isfinite(distance) ? distance : kInfinity);
  }
  std::sort(others.begin(), others.end());
  const int64_t wanted = std::max<int64_t>(
      1, static_cast<int64_t>(pool.size()) - num_malicious - 2);
  double score = 0;
  for (size_t i = 0; i < others.size() && static_cast<int64_t>(i) < wanted;
       ++i) {
    score += others[i];
  }
  return score;
}

}  // namespace

std::vector<OptionSpec> KrumFamily::Options() {
  return {{.name = "num_malicious",
           .default_value = kDefaultNumMalicious,
           .help = "how many workers may be broken",
           .min = 0}};
}

KrumFamily::KrumFamily(absl::string_view name, int64_t factor,
                       const StrategyOptions& options)
    : name_(name),
      factor_(factor),
      num_malicious_(*options.GetInt("num_malicious", kDefaultNumMalicious)) {}

absl::Status KrumFamily::CheckWorkers(int64_t num_workers) const {
  constexpr int64_t kMore = 3;
  const int64_t most = (num_workers - kMore) / factor_;
  if (num_workers >= kMore && num_malicious_ <= most) return absl::OkStatus();
  const std::string rule =
      absl::StrCat("strategy '", name_, "' with num_malicious=", num_malicious_,
                   " needs at least ", factor_, " * num_malicious + ", kMore,
                   " workers, and there are ", num_workers);
  return absl::InvalidArgumentError(
      num_workers >= kMore
          ? absl::StrCat(rule, "; so many allow num_malicious up to ", most)
          : rule);
}

absl::StatusOr<std::vector<WideSum>> KrumFamily::Sums(
    absl::Span<const Contribution> contributions) {
  MR_RETURN_IF_ERROR(CheckWorkers(static_cast<int64_t>(contributions.size())));
  return PairDistances(contributions);
}

std::vector<WideSum> PairDistances(
    absl::Span<const Contribution> contributions) {
  const size_t n = contributions.size();
  // The elements of all workers stay in the cache while pairs are formed.
  const auto add = [n](const auto& piece, absl::Span<double> sums) {
    size_t pair = 0;
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = a + 1; b < n; ++b) {
        sums[pair++] +=
            SquaredDistance(piece.read[a], piece.read[b], piece.size);
      }
    }
  };
  return SumOverPieces(ModelsOf(contributions), NumPairs(n), add, add);
}

std::vector<size_t> KrumOrder(absl::Span<const double> distances, size_t n,
                              const std::vector<size_t>& pool,
                              int64_t num_malicious) {
  std::vector<std::pair<double, size_t>> scores;
  for (const size_t member : pool) {
    scores.emplace_back(Score(distances, n, pool, num_malicious, member),
                        member);
  }
  std::stable_sort(
      scores.begin(), scores.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<size_t> order;
  for (const auto& [score, member] : scores) order.push_back(member);
  return order;
}

std::vector<Contribution> Select(absl::Span<const Contribution> contributions,
                                 std::vector<size_t> indices) {
  std::sort(indices.begin(), indices.end());
  std::vector<Contribution> selected;
  for (const size_t index : indices) selected.push_back(contributions[index]);
  return selected;
}

}  // namespace miniray::ps
