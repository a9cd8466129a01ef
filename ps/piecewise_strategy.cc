#include "ps/piecewise_strategy.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ps/check_weights.h"
#include "ps/run_strategy.h"
#include "ps/tensor_info.h"
#include "ps/weight_message.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {
namespace {

// Each costs a call to each worker, which cuts its model for it.
constexpr int64_t kMaxPieces = 1024;

// One tensor of a strategy's state: "WHAT/NAME".
struct StateName {
  std::string what;
  std::string tensor;
};

absl::StatusOr<StateName> ParseStateName(const std::string& name) {
  const std::vector<std::string> words =
      absl::StrSplit(name, absl::MaxSplits('/', 1));
  if (words.size() == 2) return StateName{words[0], words[1]};
  return absl::InvalidArgumentError(
      absl::StrCat("the strategy's state has '", name,
                   "', which is not named WHAT/NAME after a tensor"));
}

// A piece of each contribution.
std::vector<Contribution> PieceOf(
    absl::Span<const Contribution> contributions, const ModelPart& piece,
    const std::shared_ptr<const std::vector<TensorInfo>>& info) {
  std::vector<Contribution> result;
  for (const Contribution& contribution : contributions) {
    result.push_back({.worker_id = contribution.worker_id,
                      .weight = contribution.weight,
                      .num_samples = contribution.num_samples,
                      .tensors = TensorsOfPart(contribution.tensors, piece),
                      .info = info});
  }
  return result;
}

}  // namespace

absl::Status CheckPieces(absl::string_view name, const SyncStrategy& strategy,
                         const ServerOptions& options) {
  if (options.piece_bytes == 0) return absl::OkStatus();
  if (dynamic_cast<const WholeModelStrategy*>(&strategy) == nullptr &&
      !strategy.TakesGradients()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("strategy '", name,
                   "' takes the whole model at once and cannot aggregate it in "
                   "pieces; leave "
                   "piece_bytes at 0"));
}

std::shared_ptr<const std::vector<TensorInfo>> InfoOfPiece(
    const std::vector<TensorInfo>& whole, const ModelPart& piece) {
  auto info = std::make_shared<std::vector<TensorInfo>>();
  for (const TensorRange& range : piece) {
    info->push_back(
        {.is_buffer = whole[range.tensor].is_buffer, .offset = range.begin});
  }
  return info;
}

PiecewiseStrategy::PiecewiseStrategy(Maker make, int64_t piece_bytes)
    : make_(std::move(make)), piece_bytes_(piece_bytes), example_(make_()) {}

void PiecewiseStrategy::Cut(const NamedTensors& model) {
  const int64_t wanted = (TotalBytes(model) - 1) / piece_bytes_ + 1;
  const int64_t most = std::min(kMaxPieces, MaxParts(model));
  // So many there can be.
  pieces_ = *CutModel(model, std::clamp<int64_t>(wanted, 1, most));
}

std::vector<PiecewiseStrategy::Piece> PiecewiseStrategy::NewStrategies() const {
  std::vector<Piece> strategies(pieces_.size());
  for (Piece& piece : strategies) piece.strategy = make_();
  return strategies;
}

absl::StatusOr<SyncStrategy*> PiecewiseStrategy::Begin(size_t piece) {
  Piece& state = strategies_[piece];
  MR_ASSIGN_OR_RETURN(state.before, CopyOfState(*state.strategy));
  return state.strategy.get();
}

void PiecewiseStrategy::Commit(const NamedTensors& weights) {
  weights_ = weights;
  for (Piece& piece : strategies_) piece.before.reset();
}

absl::Status PiecewiseStrategy::Rollback() {
  for (size_t k = 0; k < strategies_.size(); ++k) {
    Piece& piece = strategies_[k];
    if (!piece.before.has_value()) continue;
    const StrategyState before = *std::exchange(piece.before, std::nullopt);
    if (weights_.empty()) {
      MR_RETURN_IF_ERROR(ResetStrategy(*piece.strategy, {}));
      continue;
    }
    const absl::Status restored =
        RestoreStrategy(*piece.strategy, before, WeightsOf(k));
    if (!restored.ok()) {
      MR_RETURN_IF_ERROR(ResetStrategy(*this, NamedTensors(weights_)));
      return restored;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<NamedTensors> PiecewiseStrategy::Aggregate(
    absl::Span<const Contribution> contributions) {
  if (pieces_.empty()) {
    Cut(contributions.front().tensors);
    strategies_ = NewStrategies();
  }
  absl::StatusOr<NamedTensors> result = AggregateAll(contributions);
  if (result.ok()) {
    Commit(*result);
  } else {
    MR_RETURN_IF_ERROR(Rollback());
  }
  return result;
}

absl::StatusOr<NamedTensors> PiecewiseStrategy::AggregateAll(
    absl::Span<const Contribution> contributions) {
  const Contribution& first = contributions.front();
  const std::vector<TensorInfo> info = InfoOf(first);
  NamedTensors result = EmptySharedTensors(first.tensors);
  for (size_t k = 0; k < pieces_.size(); ++k) {
    MR_ASSIGN_OR_RETURN(SyncStrategy* const strategy, Begin(k));
    const std::vector<Contribution> of_piece =
        PieceOf(contributions, pieces_[k], InfoOfPiece(info, pieces_[k]));
    MR_ASSIGN_OR_RETURN(const NamedTensors aggregated,
                        strategy->Aggregate(of_piece));
    // It is copied by what it should look like.
    absl::Status formed = CheckForm(aggregated, "its result");
    if (formed.ok()) {
      formed = CheckLayout(aggregated, ModelLayout::Of(of_piece[0].tensors),
                           "its result", "the contributions");
    }
    if (!formed.ok()) return absl::InternalError(formed.message());
    CopyPart(aggregated, pieces_[k], &result);
  }
  return result;
}

void PiecewiseStrategy::Reset(const NamedTensors& weights) {
  weights_ = weights;
  for (Piece& piece : strategies_) piece.before.reset();
  if (weights.empty()) {
    // The next ones may be another model's.
    pieces_.clear();
    strategies_.clear();
    return;
  }
  if (pieces_.empty()) {
    Cut(weights);
    strategies_ = NewStrategies();
  }
  for (size_t k = 0; k < strategies_.size(); ++k) {
    strategies_[k].strategy->Reset(WeightsOf(k));
  }
}

absl::StatusOr<StrategyState> PiecewiseStrategy::SaveState() const {
  if (strategies_.empty() || weights_.empty()) return example_->SaveState();
  StrategyState whole;
  // The state's tensors in parts, by WHAT in the order of its first, then by
  // the tensor's place in the model, as the strategy itself would have them.
  std::vector<std::string> whats;
  std::map<std::pair<size_t, size_t>, WeightMessage> parts;
  for (size_t k = 0; k < strategies_.size(); ++k) {
    MR_ASSIGN_OR_RETURN(StrategyState state,
                        strategies_[k].strategy->SaveState());
    if (k == 0) {
      whole.scalars = std::move(state.scalars);
    } else if (state.scalars.values() != whole.scalars.values()) {
      return absl::InternalError(
          "the strategy remembers different numbers for the pieces of a model; "
          "leave piece_bytes at 0");
    }
    std::map<absl::string_view, size_t> ranges;  // By the tensor's name.
    for (size_t i = 0; i < pieces_[k].size(); ++i) {
      ranges[weights_[pieces_[k][i].tensor].first] = i;
    }
    for (auto& [name, tensor] : state.tensors) {
      MR_ASSIGN_OR_RETURN(const StateName parsed, ParseStateName(name));
      const auto range = ranges.find(parsed.tensor);
      if (range == ranges.end()) {
        return absl::InternalError(
            absl::StrCat("the strategy's state has '", name, "' of no tensor"));
      }
      const TensorRange& place = pieces_[k][range->second];
      size_t what = static_cast<size_t>(
          std::find(whats.begin(), whats.end(), parsed.what) - whats.begin());
      if (what == whats.size()) whats.push_back(parsed.what);
      WeightMessage& message = parts[{what, place.tensor}];
      message.tensors.emplace_back(name, std::move(tensor));
      message.parts.push_back(
          {.begin = place.begin,
           .shape = weights_[place.tensor].second.sizes().vec()});
    }
  }
  std::vector<const WeightMessage*> messages;
  for (const auto& [place, message] : parts) messages.push_back(&message);
  MR_ASSIGN_OR_RETURN(whole.tensors, JoinParts(messages));
  return whole;
}

absl::Status PiecewiseStrategy::RestoreState(const StrategyState& state,
                                             const NamedTensors& weights) {
  std::map<absl::string_view, size_t> indices;
  for (size_t i = 0; i < weights.size(); ++i) indices[weights[i].first] = i;
  // The index in the model of each of the state's tensors.
  std::vector<size_t> of_tensor;
  for (const auto& [name, tensor] : state.tensors) {
    MR_ASSIGN_OR_RETURN(const StateName parsed, ParseStateName(name));
    const auto found = indices.find(parsed.tensor);
    if (found == indices.end() || !tensor.defined() ||
        tensor.sizes() != weights[found->second].second.sizes()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the saved state has '", name,
                       "', and the server no such tensor of that shape"));
    }
    of_tensor.push_back(found->second);
  }
  if (pieces_.empty()) Cut(weights);
  std::vector<Piece> strategies = NewStrategies();
  for (size_t k = 0; k < pieces_.size(); ++k) {
    StrategyState of_piece = {.scalars = state.scalars};
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      for (const TensorRange& range : pieces_[k]) {
        if (range.tensor != of_tensor[i]) continue;
        const NamedTensors piece = TensorsOfPart(
            {state.tensors[i]},
            {{.tensor = 0, .begin = range.begin, .size = range.size}});
        of_piece.tensors.push_back(piece.front());
      }
    }
    MR_RETURN_IF_ERROR(strategies[k].strategy->RestoreState(
        of_piece, TensorsOfPart(weights, pieces_[k])));
  }
  weights_ = weights;
  strategies_ = std::move(strategies);
  return absl::OkStatus();
}

}  // namespace miniray::ps
