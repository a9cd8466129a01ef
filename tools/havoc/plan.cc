#include "tools/havoc/plan.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace miniray::havoc {
namespace {

struct Chance {
  FaultKind kind;
  int weight;
};

constexpr Chance kChances[] = {
    {FaultKind::kKillActor, 28},    {FaultKind::kPauseActor, 14},
    {FaultKind::kKillDaemon, 8},    {FaultKind::kPauseDaemon, 8},
    {FaultKind::kKillTemplate, 8},  {FaultKind::kKillHead, 10},
    {FaultKind::kPauseHead, 6},     {FaultKind::kCutHeadNode, 9},
    {FaultKind::kCutDriverNode, 9},
};

// Between two faults, in the mean.
constexpr absl::Duration kMeanPause = absl::Milliseconds(700);

// The engine's numbers are the same everywhere; the library's distributions are
// not.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  double Unit() {  // in [0, 1)
    return static_cast<double>(engine_() >> 11) /
           static_cast<double>(1ULL << 53);
  }
  int Below(int n) { return static_cast<int>(Unit() * n); }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return low + Unit() * (high - low);
  }

 private:
  std::mt19937_64 engine_;
};

FaultKind DrawKind(Random* random) {
  int sum = 0;
  for (const Chance& chance : kChances) sum += chance.weight;
  int left = random->Below(sum);
  for (const Chance& chance : kChances) {
    left -= chance.weight;
    if (left < 0) return chance.kind;
  }
  return FaultKind::kKillActor;
}

}  // namespace

std::vector<Fault> MakePlan(const PlanOptions& options) {
  Random random(options.seed);
  std::vector<Fault> plan;
  absl::Duration now = absl::ZeroDuration();
  while (true) {
    now += -std::log(1 - random.Unit()) * kMeanPause;
    if (now >= options.length) return plan;
    Fault fault;
    fault.at = now;
    fault.kind = DrawKind(&random);
    // All draws for every kind: what comes later does not depend on it.
    const double which = random.Unit();
    const double how_long = random.Unit();
    const bool is_actor = fault.kind == FaultKind::kKillActor ||
                          fault.kind == FaultKind::kPauseActor;
    fault.target =
        static_cast<int>(which * (is_actor ? options.actors : options.nodes));
    if (!options.can_cut && (fault.kind == FaultKind::kCutHeadNode ||
                             fault.kind == FaultKind::kCutDriverNode)) {
      fault.kind = FaultKind::kPauseDaemon;
    }
    absl::Duration low = absl::Milliseconds(100), high;
    switch (fault.kind) {
      case FaultKind::kKillActor:
      case FaultKind::kKillTemplate:
        break;
      case FaultKind::kKillDaemon:
      case FaultKind::kKillHead:
        high = options.lease;
        break;
      case FaultKind::kPauseActor:
      case FaultKind::kPauseHead:
        high = options.lease;
        break;
      case FaultKind::kPauseDaemon:
      case FaultKind::kCutHeadNode:
      case FaultKind::kCutDriverNode:
        high = 2.5 * options.lease;
        break;
    }
    if (high > absl::ZeroDuration()) {
      fault.duration =
          absl::Trunc(low + how_long * (high - low), absl::Milliseconds(1));
    }
    plan.push_back(fault);
  }
}

std::string Name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillActor:
      return "kill actor";
    case FaultKind::kPauseActor:
      return "pause actor";
    case FaultKind::kKillDaemon:
      return "kill daemon";
    case FaultKind::kPauseDaemon:
      return "pause daemon";
    case FaultKind::kKillTemplate:
      return "kill template";
    case FaultKind::kKillHead:
      return "kill head";
    case FaultKind::kPauseHead:
      return "pause head";
    case FaultKind::kCutHeadNode:
      return "cut head from node";
    case FaultKind::kCutDriverNode:
      return "cut driver from node";
  }
  return "";
}

std::string Describe(const Fault& fault) {
  std::string text = Name(fault.kind);
  if (fault.kind != FaultKind::kKillHead &&
      fault.kind != FaultKind::kPauseHead) {
    absl::StrAppend(&text, " ", fault.target);
  }
  if (fault.duration > absl::ZeroDuration()) {
    absl::StrAppend(
        &text,
        absl::StrFormat(" for %.1fs", absl::ToDoubleSeconds(fault.duration)));
  }
  return text;
}

}  // namespace miniray::havoc
