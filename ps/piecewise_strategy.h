// PiecewiseStrategy: a strategy that looks at one element at a time, as one
// instance for each piece of the model, so that a piece can be aggregated
// before the others have come. Its results and what it remembers are those of
// the strategy itself, to the bit.
//
// A synchronisation in pieces is one Aggregate of each piece's strategy:
//
//   for each piece k:
//     MR_ASSIGN_OR_RETURN(SyncStrategy* strategy, all.Begin(k));
//     ... strategy->Aggregate(the piece of the contributions) ...
//   all.Commit(the new weights);    // or, after any failure:
//   all.Rollback();                 // as if there had been none of it
//
// Memory: where a strategy keeps its weights, they are kept here besides the
// server's; from Begin on, what it remembers is kept twice.

#ifndef MINIRAY_PS_PIECEWISE_STRATEGY_H_
#define MINIRAY_PS_PIECEWISE_STRATEGY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps/model_cut.h"
#include "ps/server_options.h"
#include "ps/sync_strategy.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// INVALID_ARGUMENT if the options want pieces, and the strategy `name` cannot
// have them: a WholeModelStrategy, or one that takes gradients.
absl::Status CheckPieces(absl::string_view name, const SyncStrategy& strategy,
                         const ServerOptions& options);

// What is known of the tensors of a piece; whole: of the model's.
std::shared_ptr<const std::vector<TensorInfo>> InfoOfPiece(
    const std::vector<TensorInfo>& whole, const ModelPart& piece);

// Not thread-safe.
class PiecewiseStrategy : public SyncStrategy {
 public:
  using Maker = std::function<std::unique_ptr<SyncStrategy>()>;

  // make: of a new instance of the strategy, which CheckPieces lets through.
  // piece_bytes: above 0.
  PiecewiseStrategy(Maker make, int64_t piece_bytes);

  // The cut; none before the model is known, by Aggregate, Reset or
  // RestoreState.
  const std::vector<ModelPart>& pieces() const { return pieces_; }

  // The strategy of one piece, after keeping what it remembers. REQUIRES: the
  // model is known; since the last Commit or Rollback, the first for this
  // piece. Errors: of SaveState.
  absl::StatusOr<SyncStrategy*> Begin(size_t piece);
  // weights: the server's from now on.
  void Commit(const NamedTensors& weights);
  // Errors: of RestoreState; then the strategy starts anew from the weights.
  absl::Status Rollback();

  // SyncStrategy. Errors of Aggregate: nothing has changed.
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override;
  void Reset(const NamedTensors& weights) override;
  absl::StatusOr<StrategyState> SaveState() const override;
  absl::Status RestoreState(const StrategyState& state,
                            const NamedTensors& weights) override;
  absl::Status CheckWorkers(int64_t num_workers) const override {
    return example_->CheckWorkers(num_workers);
  }
  bool PassesOnNonFinite() const override {
    return example_->PassesOnNonFinite();
  }
  bool UsesStart() const override { return example_->UsesStart(); }
  bool UsesWorkerWeights() const override {
    return example_->UsesWorkerWeights();
  }

 private:
  struct Piece {
    std::unique_ptr<SyncStrategy> strategy;
    std::optional<StrategyState> before;  // What Rollback returns to.
  };

  void Cut(const NamedTensors& model);
  std::vector<Piece> NewStrategies() const;
  absl::StatusOr<NamedTensors> AggregateAll(
      absl::Span<const Contribution> contributions);
  NamedTensors WeightsOf(size_t piece) const {
    return TensorsOfPart(weights_, pieces_[piece]);
  }

  const Maker make_;
  const int64_t piece_bytes_;
  const std::unique_ptr<SyncStrategy> example_;  // Asked what it is.
  NamedTensors weights_;  // The server's; empty: there are none.
  std::vector<ModelPart> pieces_;
  std::vector<Piece> strategies_;  // By piece.
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_PIECEWISE_STRATEGY_H_
