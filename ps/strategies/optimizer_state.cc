#include "ps/strategies/optimizer_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/view_as_real.h"
#include "absl/strings/str_cat.h"
#include "ps/check_weights.h"
#include "ps/kernels.h"
#include "ps/model_pieces.h"
#include "ps/tensor_info.h"
#include "ps/tensor_math.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {
namespace {

// Elements whose gradient waits in the L1 cache for the rule.
constexpr int64_t kBlock = 1024;

// The type that moments of weights of `type` are kept in.
at::ScalarType MomentType(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
    case at::kBFloat16:
      return at::kFloat;
    case at::kComplexHalf:
      return at::kComplexFloat;
    default:
      return type;
  }
}

}  // namespace

OptimizerState::OptimizerState(std::vector<Moment> moments)
    : moments_(std::move(moments)) {}

absl::StatusOr<NamedTensors> OptimizerState::Step(
    absl::Span<const Contribution> contributions, double keep,
    const ElementRule& rule) {
  return StepInto(contributions, keep, rule, /*over=*/false);
}

absl::StatusOr<NamedTensors> OptimizerState::StepOver(
    const Contribution& contribution, double keep, const ElementRule& rule) {
  return StepInto({&contribution, 1}, keep, rule, /*over=*/true);
}

absl::StatusOr<NamedTensors> OptimizerState::StepInto(
    absl::Span<const Contribution> contributions, double keep,
    const ElementRule& rule, bool over) {
  const Contribution& first = contributions.front();
  MR_RETURN_IF_ERROR(CheckLayout(first.tensors, ModelLayout::Of(weights_),
                                 absl::StrCat("worker ", first.worker_id),
                                 "the server's weights"));
  const std::vector<TensorInfo> info = InfoOf(first);
  MR_RETURN_IF_ERROR(CheckMoments(first.tensors, info));
  if (values_.empty()) {
    std::vector<NamedTensors> values;
    for (const Moment& moment : moments_) {
      values.push_back(StartMoment(first.tensors, info, moment.start));
    }
    values_ = std::move(values);
  }

  const size_t n = contributions.size();
  const std::vector<double> mean(n, 1.0 / static_cast<double>(n));
  std::vector<double> mean_and_weights = {keep};
  mean_and_weights.insert(mean_and_weights.end(), mean.begin(), mean.end());

  std::vector<const NamedTensors*> read = ModelsOf(contributions);
  read.insert(read.begin(), &weights_);
  // Each element is read before it is written.
  NamedTensors result =
      over ? first.tensors : EmptySharedTensors(first.tensors);
  std::vector<NamedTensors*> written = {&result};
  for (NamedTensors& value : values_) written.push_back(&value);

  const auto work = [&]<class T>(const ModelPiece<T>& piece) {
    if (info[piece.tensor].is_buffer) {
      LinearCombination(absl::MakeConstSpan(piece.read).subspan(1), mean,
                        piece.size, piece.written.front());
      return;
    }
    T gradient[kBlock];
    std::vector<const T*> in(n + 1);
    std::vector<T*> moments(moments_.size());
    for (int64_t begin = 0; begin < piece.size; begin += kBlock) {
      const int64_t length = std::min(kBlock, piece.size - begin);
      for (size_t k = 0; k < in.size(); ++k) in[k] = piece.read[k] + begin;
      for (size_t k = 0; k < moments.size(); ++k) {
        moments[k] = piece.written[k + 1] + begin;
      }
      if (keep == 0) {
        LinearCombination(absl::MakeConstSpan(in).subspan(1), mean, length,
                          gradient);
      } else {
        LinearCombination(in, mean_and_weights, length, gradient);
      }
      rule.Apply(OptimizerStep<T>{.size = length,
                                  .weights = in.front(),
                                  .gradient = gradient,
                                  .moments = moments,
                                  .out = piece.written.front() + begin});
    }
  };
  ForEachPiece(read, written, work, work);
  SetMaxima(contributions, &result);
  weights_ = result;
  return result;
}

absl::Status OptimizerState::CheckMoments(
    const NamedTensors& model, const std::vector<TensorInfo>& info) const {
  for (size_t k = 0; k < values_.size(); ++k) {
    for (size_t i = 0; i < model.size(); ++i) {
      const auto& [name, tensor] = model[i];
      if (!IsFloat(tensor) || info[i].is_buffer ||
          values_[k][i].second.defined()) {
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "the restored state has no '", moments_[k].name, "/", name, "'"));
    }
  }
  return absl::OkStatus();
}

void OptimizerState::Reset(const NamedTensors& weights) {
  weights_ = weights;
  values_.clear();
}

NamedTensors OptimizerState::StartMoment(const NamedTensors& model,
                                         const std::vector<TensorInfo>& info,
                                         double start) const {
  NamedTensors moment;
  for (size_t i = 0; i < model.size(); ++i) {
    const auto& [name, tensor] = model[i];
    at::Tensor value;
    if (IsFloat(tensor) && !info[i].is_buffer) {
      value = at::empty(tensor.sizes(),
                        at::dtype(MomentType(tensor.scalar_type())));
      (value.is_complex() ? at::view_as_real(value) : value).fill_(start);
    }
    moment.emplace_back(name, std::move(value));
  }
  return moment;
}

NamedTensors OptimizerState::Save() const {
  NamedTensors saved;
  for (size_t k = 0; k < values_.size(); ++k) {
    for (const auto& [name, value] : values_[k]) {
      if (!value.defined()) continue;
      saved.emplace_back(absl::StrCat(moments_[k].name, "/", name), value);
    }
  }
  return saved;
}

absl::Status OptimizerState::Restore(const NamedTensors& saved_tensors,
                                     const NamedTensors& weights) {
  std::map<std::string, at::Tensor> saved(saved_tensors.begin(),
                                          saved_tensors.end());
  std::vector<NamedTensors> values;
  for (const Moment& moment : moments_) {
    if (saved.empty() && values.empty()) break;  // Before the first step.
    NamedTensors value;
    for (const auto& [name, tensor] : weights) {
      auto it = saved.find(absl::StrCat(moment.name, "/", name));
      value.emplace_back(name, at::Tensor());
      if (it == saved.end()) continue;
      if (!it->second.defined() || it->second.sizes() != tensor.sizes() ||
          it->second.scalar_type() != MomentType(tensor.scalar_type())) {
        return absl::InvalidArgumentError(
            absl::StrCat("the saved '", it->first, "' is not of the shape and ",
                         "element type of the server's '", name, "'"));
      }
      // A copy: it will be written to.
      value.back().second =
          it->second.cpu().clone(at::MemoryFormat::Contiguous);
      saved.erase(it);
    }
    values.push_back(std::move(value));
  }
  if (!saved.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the saved state has '", saved.begin()->first,
                     "', for which this strategy and model have no use"));
  }
  weights_ = weights;
  values_ = std::move(values);
  return absl::OkStatus();
}

OptionSpec LearningRateOption(double default_value) {
  return {.name = "lr",
          .default_value = default_value,
          .help = "learning rate of the server",
          .min = 0,
          .min_allowed = false};
}

OptionSpec DecayOption(const std::string& name, double default_value,
                       const std::string& help) {
  return {.name = name,
          .default_value = default_value,
          .help = help,
          .min = 0,
          .max = 1,
          .max_allowed = false};
}

OptionSpec WeightDecayOption(double default_value) {
  return {.name = "weight_decay",
          .default_value = default_value,
          .help = "pull of the weights towards 0",
          .min = 0};
}

OptionSpec EpsOption(double default_value) {
  return {.name = "eps",
          .default_value = default_value,
          .help = "added to the root, so that nothing is divided by 0",
          .min = 0,
          .min_allowed = false};
}

}  // namespace miniray::ps
