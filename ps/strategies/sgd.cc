#include "ps/strategies/sgd.h"

#include "absl/strings/str_cat.h"

namespace miniray::ps {
namespace {

constexpr double kDefaultLr = 0.01;

bool HasMomentum(const StrategyOptions& options) {
  return *options.GetDouble("momentum", 0) > 0;
}

}  // namespace

std::vector<OptionSpec> SgdRule::Options() {
  return {LearningRateOption(kDefaultLr),
          DecayOption("momentum", 0, "share of the last step that goes on"),
          {.name = "dampening",
           .default_value = 0.0,
           .help = "share of each gradient that the momentum leaves out",
           .min = 0,
           .max = 1},
          WeightDecayOption(0),
          {.name = "nesterov",
           .default_value = false,
           .help = "looks ahead along the momentum"}};
}

absl::Status SgdRule::CheckOptions(const StrategyOptions& options) {
  if (!*options.GetBool("nesterov", false)) return absl::OkStatus();
  const double dampening = *options.GetDouble("dampening", 0);
  if (HasMomentum(options) && dampening == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "strategy 'sgd': nesterov needs momentum above 0 and dampening 0, got "
      "momentum ",
      *options.GetDouble("momentum", 0), " and dampening ", dampening));
}

std::vector<Moment> SgdRule::Moments(const StrategyOptions& options) {
  if (!HasMomentum(options)) return {};
  return {{.name = "v"}};
}

SgdRule::SgdRule(const StrategyOptions& options)
    : lr_(*options.GetDouble("lr", kDefaultLr)),
      momentum_(*options.GetDouble("momentum", 0)),
      // Without momentum it has no effect, as in PyTorch.
      dampening_(HasMomentum(options) ? *options.GetDouble("dampening", 0) : 0),
      weight_decay_(*options.GetDouble("weight_decay", 0)),
      nesterov_(*options.GetBool("nesterov", false)) {}

MINIRAY_SYNC_STRATEGY("sgd", SgdStrategy);

}  // namespace miniray::ps
