// "dp": differential privacy for the workers' data: what one of them can change
// is limited, and hidden in noise. The result goes on to another strategy.
//
//   update_k = worker_k - weights
//   clipped  = update_k * min(1, clip_norm / |update_k|)
//   mean     = weights + mean over k of clipped + noise
//   noise    ~ normal(0, noise_multiplier * clip_norm / n), for each element
//   weights  = inner(mean), which sees one worker of these weights
//
// for n workers, |.| being the L2 norm over all floating-point tensors. An
// inner rule that takes the mean of the workers, like average, momentum,
// fedavgm, fedadam or diloco, so takes the private one, and nothing that it
// does to it costs privacy. Rules that compare workers have nothing to compare.
//
// Buffers are floating-point tensors like others: clipped and with noise, but
// where a name ends in running_var, at least 0. Tensors that are not
// floating-point are the maximum over the workers, WITHOUT noise: a model whose
// counters or masks are secret has no privacy by this.
//
// The start: an update is one from weights that everybody knows, so there must
// be some: StartFromWorkers, which trainers call, or PushWeights comes before
// the first synchronisation, which fails otherwise.
//
// A contribution whose norm is not finite counts as no update.
//
// The noise depends on `seed`, on how many synchronisations there were, and on
// name and index of the element. Who knows the seed can take the noise off
// again: it is a secret, and so is the saved state, which holds it. The
// generator is a fast one (SplitMix64, Box-Muller), not one for cryptography.
// From a restored state on, the same noise is drawn as was drawn after it had
// been saved: where results are published, save after each synchronisation.
// How much privacy (epsilon, delta) a run has spent, an accountant has to say,
// from noise_multiplier, the share of workers in a round, and their number.
//
// Options: clip_norm, above 0, 1 if not given; noise_multiplier, at least 0, 1
// if not given; seed, 0 if not given, which stands for one from the operating
// system; inner, the name of a strategy, "average" if not given; inner.NAME,
// its option NAME.
//
// McMahan, Ramage, Talwar, Zhang 2018, Learning Differentially Private
// Recurrent Language Models (the estimator with a fixed number of users, all of
// the same weight).

#ifndef MINIRAY_PS_STRATEGIES_DP_H_
#define MINIRAY_PS_STRATEGIES_DP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/strategy_registry.h"
#include "ps/sync_strategy.h"

namespace miniray::ps {

class DpStrategy : public WholeModelStrategy {
 public:
  static std::vector<OptionSpec> Options();
  static absl::Status CheckOptions(const StrategyOptions& options);
  explicit DpStrategy(const StrategyOptions& options);

  // Those of the inner strategy for one worker.
  absl::Status CheckWorkers(int64_t num_workers) const override;

  // Errors: FAILED_PRECONDITION, there are no weights to start from.
  // INVALID_ARGUMENT, the model is another. Those of the inner strategy.
  absl::StatusOr<std::vector<WideSum>> Sums(
      absl::Span<const Contribution> contributions) override;
  absl::StatusOr<NamedTensors> AggregateWith(
      absl::Span<const Contribution> contributions,
      absl::Span<const double> sums) override;

  // A seed that was used goes on: no noise comes twice.
  void Reset(const NamedTensors& weights) override;
  bool UsesStart() const override { return true; }

  absl::StatusOr<StrategyState> SaveState() const override;
  absl::Status RestoreState(const StrategyState& state,
                            const NamedTensors& weights) override;

 private:
  NamedTensors PrivateMean(absl::Span<const Contribution> contributions,
                           absl::Span<const double> square_norms) const;

  const double clip_norm_;
  const double noise_multiplier_;
  const std::unique_ptr<SyncStrategy> inner_;
  uint64_t seed_;
  int64_t num_syncs_ = 0;
  NamedTensors weights_;  // The server's.
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGIES_DP_H_
