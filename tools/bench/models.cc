// Measures one training step of each model of ml/ against the same model
// written straight on LibTorch.
//
//   bazel-bin/tools/bench/models [--batch=N] [--models=A,B] [--rounds=N]
//       [--json] [--check]

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/child.h"
#include "tools/bench/model_steps.h"
#include "tools/bench/peers/actor_environment.h"
#include "tools/bench/peers/plain_models.h"
#include "tools/bench/peers/torch_gan.h"

ABSL_FLAG(int, batch, 128, "Images, or rows, in a step.");
ABSL_FLAG(std::string, models, "", "Only these, of those in the help.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures one training step of each model of ml/, in milliseconds, on one compute
thread: forward, backward, optimizer.

  models [FLAGS]

The peers are the same models written straight on LibTorch (torch::nn, its Adam and
SGD, its losses), on the same batches. Each model is measured in processes of its
own, as programs train it: what malloc has left from another would count, too.
  plain LibTorch       as a program of one's own runs
  ..., actors' malloc  with the settings of malloc that actors are started with, as
                       ours has: what of the difference is not memory

mlp_gan, dcgan and conditional_gan make images of CIFAR-10's shape; mlp, cnn and
resnet20 sort them into 10 classes; regression predicts a number from 10.

The peer of mlp_gan is also PyTorch, where python3 or /usr/bin/python3 can import it.

A step may take 2 % more, by which one run differs from the next; that of mlp_gan
at most 0.88 of what it takes plain LibTorch. Behind each row: the least and the greatest ratio of a
round.

  --batch=N      images, or rows, in a step (default 128)
  --models=A,B   only these)";

constexpr char kOurRole[] = "our-models";
constexpr char kPlainRole[] = "plain-models";
constexpr char kPlainName[] = "plain LibTorch";
constexpr char kPlainMallocName[] = "plain LibTorch, actors' malloc";

// Not slower, but for what one run differs from the next.
constexpr double kNotSlower = 1.02;
constexpr double kMlpGanAtMost = 0.88;
constexpr char kMlpGan[] = "mlp_gan";

// Of each measurement.
constexpr double kMilliseconds = 400;

// The processes of a model, in the order of a turn.
struct Side {
  const char* name;
  std::unique_ptr<Child> child;
};

absl::StatusOr<std::vector<std::string>> ModelsFromFlags() {
  const std::string given = absl::GetFlag(FLAGS_models);
  const std::vector<std::string> all(kModelNames.begin(), kModelNames.end());
  if (given.empty()) return all;
  std::vector<std::string> models = absl::StrSplit(given, ',');
  for (const std::string& model : models) {
    if (std::find(all.begin(), all.end(), model) != all.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--models has '", model,
                                                   "'; expected some of ",
                                                   absl::StrJoin(all, ",")));
  }
  return models;
}

absl::StatusOr<std::vector<Side>> StartSides() {
  // One thread, as actors have; all else as any program has it.
  const Child::Environment plain = {{"OMP_NUM_THREADS", "1"}};
  std::vector<Side> sides;
  for (const auto& [name, role, environment] :
       {std::tuple("ours", kOurRole, ActorEnvironment()),
        std::tuple(kPlainName, kPlainRole, plain),
        std::tuple(kPlainMallocName, kPlainRole, ActorEnvironment())}) {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Child> child,
                        Child::Start(role, {}, environment));
    sides.push_back({name, std::move(child)});
  }
  return sides;
}

// Makes the model in all processes, which must have the same. Returns the steps
// of a measurement.
absl::StatusOr<int64_t> Open(const std::string& model, int batch,
                             const std::vector<Side>& sides) {
  std::vector<double> parameters;
  for (const Side& side : sides) {
    MR_ASSIGN_OR_RETURN(
        parameters.emplace_back(),
        side.child->AskNumber(absl::StrCat("open ", model, " ", batch)));
  }
  if (parameters[0] != parameters[1]) {
    return absl::InternalError(absl::StrFormat(
        "%s has %.0f parameters and the peer %.0f: they are not the same",
        model, parameters[0], parameters[1]));
  }
  MR_ASSIGN_OR_RETURN(
      const double milliseconds,
      sides[1].child->AskNumber(absl::StrCat("train ", model, " 1")));
  return std::clamp<int64_t>(
      std::llround(kMilliseconds / std::max(milliseconds, 1e-3)), 1, 10000);
}

// "rounds 0.79 to 0.84". The first turn does not count.
std::string RangeOfRatios(const std::vector<double>& ours,
                          const std::vector<double>& peer) {
  std::vector<double> ratios;
  for (size_t i = 1; i < ours.size(); ++i) ratios.push_back(ours[i] / peer[i]);
  const auto [least, greatest] =
      std::minmax_element(ratios.begin(), ratios.end());
  return absl::StrFormat("rounds %.2f to %.2f", *least, *greatest);
}

// One of the comparisons: what is measured as numbers `ours` and `peer`.
struct Comparison {
  std::string model;
  size_t ours = 0;
  size_t peer = 0;
  std::string peer_name;
  std::optional<double> at_most;
};

// What is measured in turn, and what came of it.
class Turns {
 public:
  // Returns its number.
  size_t Add(const std::string& name, Child* child,
             const std::string& command) {
    std::vector<double>* const own = &values_.emplace_back();
    measurements_.push_back(
        {name, [child, command, own]() -> absl::StatusOr<double> {
           MR_ASSIGN_OR_RETURN(const double value, child->AskNumber(command));
           own->push_back(value);
           return value;
         }});
    return measurements_.size() - 1;
  }

  absl::Status Measure(Table* table) {
    MR_ASSIGN_OR_RETURN(medians_, MeasureInTurn(measurements_, table));
    return absl::OkStatus();
  }

  double median(size_t number) const { return medians_[number]; }

  Row RowOf(const Comparison& comparison) const {
    return {.what = comparison.model,
            .unit = "ms",
            .ours = medians_[comparison.ours],
            .peer_name = comparison.peer_name,
            .peer = medians_[comparison.peer],
            .note = RangeOfRatios(values_[comparison.ours],
                                  values_[comparison.peer]),
            .at_most = comparison.at_most};
  }

 private:
  std::vector<Measurement> measurements_;
  std::deque<std::vector<double>> values_;  // By number, turn by turn.
  std::vector<double> medians_;
};

absl::Status MeasureModel(const std::string& model, int batch, Table* table) {
  const bool is_mlp_gan = model == kMlpGan;
  MR_ASSIGN_OR_RETURN(const std::vector<Side> sides, StartSides());
  MR_ASSIGN_OR_RETURN(const int64_t steps, Open(model, batch, sides));
  const std::string command = absl::StrCat("train ", model, " ", steps);
  Turns turns;
  const auto add = [&](const char* name, Child* child) {
    return turns.Add(absl::StrCat(model, ", ", name), child, command);
  };
  std::vector<Comparison> comparisons;
  const size_t ours = add("ours", sides[0].child.get());
  for (size_t i = 1; i < sides.size(); ++i) {
    comparisons.push_back({.model = model,
                           .ours = ours,
                           .peer = add(sides[i].name, sides[i].child.get()),
                           .peer_name = sides[i].name});
  }
  comparisons[0].at_most = is_mlp_gan ? kMlpGanAtMost : kNotSlower;
  TorchGan torch;
  if (is_mlp_gan) {
    MR_ASSIGN_OR_RETURN(torch, StartTorchGan());
  }
  if (torch.child != nullptr) {
    MR_RETURN_IF_ERROR(
        torch.child->Ask(absl::StrCat("open ", model, " ", batch)).status());
    comparisons.push_back({.model = model,
                           .ours = ours,
                           .peer = add("PyTorch", torch.child.get()),
                           .peer_name = absl::StrCat("PyTorch ", torch.version),
                           .at_most = kNotSlower});
  }
  MR_RETURN_IF_ERROR(turns.Measure(table));
  for (const Comparison& comparison : comparisons) {
    table->Add(turns.RowOf(comparison));
  }
  if (is_mlp_gan && torch.child == nullptr) {
    table->Add({.what = model,
                .unit = "ms",
                .ours = turns.median(ours),
                .peer_name = kNoTorchGan});
  }
  return absl::OkStatus();
}

absl::Status Measure(Table* table) {
  const int batch = absl::GetFlag(FLAGS_batch);
  if (batch < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch is ", batch, "; expected 2 or more"));
  }
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> models, ModelsFromFlags());
  for (const std::string& model : models) {
    MR_RETURN_IF_ERROR(MeasureModel(model, batch, table));
  }
  return absl::OkStatus();
}

int ServeOurs() { return ServeModels(MakeOurModel); }
int ServePlain() { return ServeModels(MakePlainModel); }

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(argc, argv,
                     {.name = "models",
                      .help = bench::kHelp,
                      .measure = bench::Measure,
                      .roles = {{bench::kOurRole, bench::ServeOurs},
                                {bench::kPlainRole, bench::ServePlain}}});
}
