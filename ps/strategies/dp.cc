#include "ps/strategies/dp.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ps/check_weights.h"
#include "ps/kernels.h"
#include "ps/model_pieces.h"
#include "ps/tensor_info.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {
namespace {

constexpr double kDefaultClipNorm = 1.0;
constexpr double kDefaultNoiseMultiplier = 1.0;
constexpr char kInnerPrefix[] = "inner.";

absl::StatusOr<std::unique_ptr<SyncStrategy>> MakeInner(
    const StrategyOptions& options) {
  StrategyOptions inner;
  for (const auto& [name, value] : options.values()) {
    absl::string_view rest = name;
    if (absl::ConsumePrefix(&rest, kInnerPrefix)) inner.Set(rest, value);
  }
  auto strategy = StrategyRegistry::Get().Create(
      *options.GetString("inner", "average"), inner);
  if (strategy.ok() && (*strategy)->TakesGradients()) {
    strategy = absl::InvalidArgumentError(
        "it takes gradients, and must be one that takes weights");
  }
  // It would see the norms and distances of a shard's part only.
  if (strategy.ok() &&
      dynamic_cast<WholeModelStrategy*>(strategy->get()) != nullptr) {
    strategy = absl::InvalidArgumentError(
        "it looks at whole models of several workers, and there is one left, "
        "the private mean");
  }
  if (strategy.ok()) return strategy;
  return Annotate(strategy.status(), "strategy 'dp', its inner one");
}

// Of Steele, Lea, Flood 2014, Fast Splittable Pseudorandom Number Generators:
// a bijection whose outputs for consecutive inputs look independent.
uint64_t SplitMix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in (0, 1], for the upper 53 bits.
double Uniform(uint64_t bits) {
  return (static_cast<double>(bits >> 11) + 1) * 0x1p-53;
}

// The noise of one tensor in one synchronisation.
class Noise {
 public:
  Noise(uint64_t seed, int64_t sync, absl::string_view name)
      : key_(SplitMix64(seed)) {
    key_ = SplitMix64(key_ ^ static_cast<uint64_t>(sync));
    for (const char c : name) {
      key_ = SplitMix64(key_ ^ static_cast<unsigned char>(c));
    }
    second_key_ = SplitMix64(~key_);
  }

  // Two standard normal numbers, by Box and Muller: for the elements 2 * pair
  // and 2 * pair + 1.
  std::pair<double, double> At(int64_t pair) const {
    const uint64_t i = SplitMix64(static_cast<uint64_t>(pair));
    const double radius =
        std::sqrt(-2 * std::log(Uniform(SplitMix64(key_ + i))));
    const double angle =
        2 * std::numbers::pi * Uniform(SplitMix64(second_key_ + i));
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }

 private:
  uint64_t key_;
  uint64_t second_key_;
};

}  // namespace

std::vector<OptionSpec> DpStrategy::Options() {
  return {{.name = "clip_norm",
           .default_value = kDefaultClipNorm,
           .help = "the largest L2 norm of an update",
           .min = 0,
           .min_allowed = false},
          {.name = "noise_multiplier",
           .default_value = kDefaultNoiseMultiplier,
           .help = "standard deviation of the sum's noise, in clip_norm",
           .min = 0},
          {.name = "seed",
           .default_value = int64_t{0},
           .help = "of the noise, a secret; 0: from the operating system",
           .secret = true},
          {.name = "inner",
           .default_value = "average",
           .help = "the strategy that gets the private mean"},
          {.name = kInnerPrefix,
           .default_value = "",
           .help = "options of the inner strategy"}};
}

absl::Status DpStrategy::CheckOptions(const StrategyOptions& options) {
  return MakeInner(options).status();
}

DpStrategy::DpStrategy(const StrategyOptions& options)
    : clip_norm_(*options.GetDouble("clip_norm", kDefaultClipNorm)),
      noise_multiplier_(
          *options.GetDouble("noise_multiplier", kDefaultNoiseMultiplier)),
      inner_(*MakeInner(options)),
      seed_(static_cast<uint64_t>(*options.GetInt("seed", 0))) {
  std::random_device device;
  while (seed_ == 0) seed_ = (uint64_t{device()} << 32) | device();
}

absl::Status DpStrategy::CheckWorkers(int64_t num_workers) const {
  return Annotate(inner_->CheckWorkers(1), "strategy 'dp', its inner one");
}

absl::StatusOr<std::vector<WideSum>> DpStrategy::Sums(
    absl::Span<const Contribution> contributions) {
  const Contribution& first = contributions.front();
  if (weights_.empty()) {
    return absl::FailedPreconditionError(
        "strategy 'dp' needs the weights that the workers start from: call "
        "StartFromWorkers before the first synchronisation");
  }
  MR_RETURN_IF_ERROR(CheckLayout(first.tensors, ModelLayout::Of(weights_),
                                 absl::StrCat("worker ", first.worker_id),
                                 "the server's weights"));
  const size_t n = contributions.size();
  std::vector<const NamedTensors*> models = ModelsOf(contributions);
  models.insert(models.begin(), &weights_);
  const auto add = [n](const auto& piece, absl::Span<double> sums) {
    for (size_t k = 0; k < n; ++k) {
      sums[k] += SquaredDistance(piece.read[k + 1], piece.read[0], piece.size);
    }
  };
  return SumOverPieces(models, n, add, add);
}

absl::StatusOr<NamedTensors> DpStrategy::AggregateWith(
    absl::Span<const Contribution> contributions,
    absl::Span<const double> sums) {
  Contribution mean = {.worker_id = contributions.front().worker_id,
                       .tensors = PrivateMean(contributions, sums),
                       .info = contributions.front().info};
  ++num_syncs_;
  MR_ASSIGN_OR_RETURN(weights_, inner_->AggregateOwn(std::move(mean)));
  return weights_;
}

NamedTensors DpStrategy::PrivateMean(
    absl::Span<const Contribution> contributions,
    absl::Span<const double> square_norms) const {
  const auto n = static_cast<double>(contributions.size());
  // weights + sum of c_k (worker_k - weights), in the terms of each.
  std::vector<const NamedTensors*> models = {&weights_};
  std::vector<double> coefficients = {1};
  for (size_t k = 0; k < contributions.size(); ++k) {
    const double norm = std::sqrt(square_norms[k]);
    if (!std::isfinite(norm)) continue;
    models.push_back(&contributions[k].tensors);
    coefficients.push_back((norm > clip_norm_ ? clip_norm_ / norm : 1) / n);
    coefficients.front() -= coefficients.back();
  }
  const double deviation = noise_multiplier_ * clip_norm_ / n;
  const std::vector<TensorInfo> info = InfoOf(contributions.front());
  std::vector<Noise> noise;
  for (const auto& [name, tensor] : weights_) {
    noise.emplace_back(seed_, num_syncs_, name);
  }

  NamedTensors result = EmptySharedTensors(weights_);
  const auto work = [&]<class T>(const ModelPiece<T>& piece) {
    T* const out = piece.written.front();
    LinearCombination(piece.read, coefficients, piece.size, out);
    if (deviation == 0) return;
    const int64_t begin = info[piece.tensor].offset + piece.begin;
    const bool is_variance =
        absl::EndsWith(weights_[piece.tensor].first, "running_var");
    std::pair<double, double> normal;
    for (int64_t i = 0; i < piece.size; ++i) {
      const int64_t element = begin + i;
      const bool second = element % 2 == 1;
      if (i == 0 || !second) normal = noise[piece.tensor].At(element / 2);
      const double value = static_cast<double>(out[i]) +
                           deviation * (second ? normal.second : normal.first);
      out[i] = static_cast<T>(is_variance ? std::max(0.0, value) : value);
    }
  };
  ForEachPiece(models, {&result}, work, work);
  SetMaxima(contributions, &result);
  return result;
}

void DpStrategy::Reset(const NamedTensors& weights) {
  weights_ = weights;
  inner_->Reset(weights);
}

absl::StatusOr<StrategyState> DpStrategy::SaveState() const {
  MR_ASSIGN_OR_RETURN(const StrategyState inner, inner_->SaveState());
  StrategyState state;
  for (const auto& [name, tensor] : inner.tensors) {
    state.tensors.emplace_back(absl::StrCat(kInnerPrefix, name), tensor);
  }
  for (const auto& [name, value] : inner.scalars.values()) {
    state.scalars.Set(absl::StrCat(kInnerPrefix, name), value);
  }
  state.scalars.Set("seed", static_cast<int64_t>(seed_));
  state.scalars.Set("num_syncs", num_syncs_);
  return state;
}

absl::Status DpStrategy::RestoreState(const StrategyState& state,
                                      const NamedTensors& weights) {
  MR_ASSIGN_OR_RETURN(const int64_t seed, state.scalars.GetInt("seed", 0));
  MR_ASSIGN_OR_RETURN(const int64_t num_syncs,
                      state.scalars.GetInt("num_syncs", -1));
  if (seed == 0 || num_syncs < 0) {
    return absl::InvalidArgumentError(
        "the saved state lacks the seed or the number of synchronisations: it "
        "is not one of strategy 'dp'");
  }
  StrategyState inner;
  for (const auto& [name, tensor] : state.tensors) {
    absl::string_view rest = name;
    if (absl::ConsumePrefix(&rest, kInnerPrefix)) {
      inner.tensors.emplace_back(rest, tensor);
    }
  }
  for (const auto& [name, value] : state.scalars.values()) {
    absl::string_view rest = name;
    if (absl::ConsumePrefix(&rest, kInnerPrefix))
      inner.scalars.Set(rest, value);
  }
  MR_RETURN_IF_ERROR(inner_->RestoreState(inner, weights));
  seed_ = static_cast<uint64_t>(seed);
  num_syncs_ = num_syncs;
  weights_ = weights;
  return absl::OkStatus();
}

MINIRAY_SYNC_STRATEGY("dp", DpStrategy);

}  // namespace miniray::ps
