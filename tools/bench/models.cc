// Measures one training step of each model of ml/ against the same model
// written straight on LibTorch.
//
//   bazel-bin/tools/bench/models [--batch=N] [--models=A,B] [--rounds=N]
//       [--json] [--check]

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
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

ABSL_FLAG(int, batch, 128, "Images, or rows, in a step.");
ABSL_FLAG(std::string, models, "", "Only these, of those in the help.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures one training step of each model of ml/, in milliseconds, on one compute
thread: forward, backward, optimizer.

  models [FLAGS]

The peers are the same models written straight on LibTorch (torch::nn, its Adam and
SGD, its losses), on the same batches, each in a process of its own:
  plain LibTorch       as a program of one's own runs
  ..., actors' malloc  with the settings of malloc that actors are started with, as
                       ours has: what of the difference is not memory

mlp_gan, dcgan and conditional_gan make images of CIFAR-10's shape; mlp, cnn and
resnet20 sort them into 10 classes; regression predicts a number from 10.

A step may take 2 % more, by which one run differs from the next; that of mlp_gan
at most 0.88 of the peer's. Behind each row: the least and the greatest ratio of a
round.

  --batch=N      images, or rows, in a step (default 128)
  --models=A,B   only these)";

constexpr char kOurRole[] = "our-models";
constexpr char kPlainRole[] = "plain-models";
constexpr char kPlainName[] = "plain LibTorch";
constexpr char kPlainMallocName[] = "plain LibTorch, actors' malloc";

// Not slower, but for what one run differs from the next.
constexpr double kNotSlower = 1.02;
constexpr double kMlpGan = 0.88;

// Of each measurement.
constexpr double kMilliseconds = 400;

// The processes of a turn, in its order.
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

absl::Status Measure(Table* table) {
  const int batch = absl::GetFlag(FLAGS_batch);
  if (batch < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch is ", batch, "; expected 2 or more"));
  }
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> models, ModelsFromFlags());
  MR_ASSIGN_OR_RETURN(const std::vector<Side> sides, StartSides());
  std::vector<Measurement> measurements;
  // Of each measurement, turn by turn.
  std::vector<std::vector<double>> turns(models.size() * sides.size());
  for (const std::string& model : models) {
    MR_ASSIGN_OR_RETURN(const int64_t steps, Open(model, batch, sides));
    const std::string command = absl::StrCat("train ", model, " ", steps);
    for (const Side& side : sides) {
      std::vector<double>* const own = &turns[measurements.size()];
      measurements.push_back({absl::StrCat(model, ", ", side.name),
                              [command, own, child = side.child.get()]()
                                  -> absl::StatusOr<double> {
                                MR_ASSIGN_OR_RETURN(own->emplace_back(),
                                                    child->AskNumber(command));
                                return own->back();
                              }});
    }
  }
  MR_ASSIGN_OR_RETURN(const std::vector<double> medians,
                      MeasureInTurn(measurements, table));
  for (size_t m = 0; m < models.size(); ++m) {
    const size_t ours = m * sides.size();
    for (size_t peer = 1; peer < sides.size(); ++peer) {
      Row row = {.what = models[m],
                 .unit = "ms",
                 .ours = medians[ours],
                 .peer_name = sides[peer].name,
                 .peer = medians[ours + peer],
                 .note = RangeOfRatios(turns[ours], turns[ours + peer])};
      if (peer == 1)
        row.at_most = models[m] == "mlp_gan" ? kMlpGan : kNotSlower;
      table->Add(std::move(row));
    }
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
