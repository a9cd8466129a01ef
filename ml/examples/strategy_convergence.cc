// Trains the same classifier with every strategy of the parameter server, on
// workers whose data is skewed by class, and with a worker that is broken. See
// README.md.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"
#include "ml/cli/blas_check.h"
#include "ml/cli/flags.h"
#include "ml/examples/convergence_report.h"
#include "ml/examples/convergence_run.h"
#include "ml/examples/convergence_worker.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"

ABSL_FLAG(int64_t, steps, 2000, "steps of each worker in a run");
ABSL_FLAG(int64_t, batch_size, 32, "images in a step of a worker");
ABSL_FLAG(int64_t, hidden, 64, "units of the hidden layer");
ABSL_FLAG(double, lr, 0.1, "learning rate of the workers' SGD");
ABSL_FLAG(double, adamw_lr, 0.001, "learning rate of the workers' AdamW");
ABSL_FLAG(uint64_t, seed, 1, "the same seed gives the same figures");
ABSL_FLAG(std::string, dataset, "fashion-mnist",
          "fashion-mnist, mnist, cifar10 or synthetic");
ABSL_FLAG(std::string, data_dir, "",
          "folder of the data set; fashion-mnist needs none where the package "
          "dataset-fashion-mnist is installed");
ABSL_FLAG(int64_t, limit, 0,
          "use only the first N images, to train and to test; 0: all");
ABSL_FLAG(double, skew, 0.5,
          "share of each worker's images that is sorted by class; the rest is "
          "of all classes");
ABSL_FLAG(std::string, strategies, "",
          "only these: name,name; empty: all that there are");
ABSL_FLAG(int64_t, sync_interval, 10,
          "steps from one synchronisation to the next");
ABSL_FLAG(int64_t, rare_sync_interval, 50, "the same where they are rare");
ABSL_FLAG(std::string, broken, "scaled",
          "what a broken worker sends: its weights times 100 (scaled) or nan");
ABSL_FLAG(bool, json, false, "print JSON instead of a table");
ABSL_FLAG(bool, check, false, "exit 1 unless every statement holds");

namespace miniray::ml {
namespace {

// Enough for krum (2 f + 3) and bulyan (4 f + 3) with one broken worker.
constexpr int kWorkersOfBroken = 7;
constexpr int kWorkers = 4;

ProgramHelp Help() {
  return {
      .name = "strategy_convergence",
      .summary =
          "Trains a small classifier in one process and on four workers "
          "with every strategy of the parameter server; with DiLoCo and "
          "the mean where synchronisations are rare; and with strategies "
          "that are to stand it on seven workers, of which one is broken. "
          "Prints the accuracy on the test images.",
      .groups = {{"Training",
                  {"steps", "batch_size", "hidden", "lr", "adamw_lr", "seed"}},
                 {"Data", {"dataset", "data_dir", "limit", "skew"}},
                 {"Synchronisation",
                  {"strategies", "sync_interval", "rare_sync_interval",
                   "broken"}},
                 {"Output", {"json", "check"}}},
      .examples = {
          {"strategy_convergence --check", "all of it"},
          {"strategy_convergence --strategies=average,krum", "two of them"}}};
}

// How a strategy is run.
struct Entry {
  std::string name;
  ps::StrategyOptions options;
  double fedprox_mu = 0;
};

// The options are those that were tuned or that four workers need.
std::vector<Entry> EveryStrategy() {
  return {{"average", {}},
          {"weighted", {}},
          {"momentum", {{"momentum", 0.5}}},
          {"median", {}},
          {"trimmed_mean", {}},
          {"krum", {{"num_malicious", 0}}},
          {"multi_krum", {{"num_malicious", 0}, {"num_selected", 3}}},
          {"bulyan", {{"num_malicious", 0}}},
          {"fedavgm", {{"momentum", 0.9}}},
          {"fedadam", {{"lr", 0.01}}},
          {"fedyogi", {{"lr", 0.01}}},
          {"fedadagrad", {{"lr", 0.03}}},
          {"diloco", {{"lr", 0.7}}},
          {"dp", {{"noise_multiplier", 0.01}, {"seed", 1}}},
          {"fedprox", {}, 0.01}};
}

// Those that take gradients, with their own learning rates but for sgd's, which
// is that of the workers above.
std::vector<Entry> EveryGradientStrategy() {
  return {{"sgd", {{"lr", 0.1}}},
          {"adam", {{"lr", 0.001}}},
          {"adamw", {{"lr", 0.001}}},
          {"adagrad", {{"lr", 0.01}}}};
}

// On seven workers, as they come.
std::vector<Entry> ForBrokenWorkers() {
  return {{"average", {}}, {"median", {}},     {"trimmed_mean", {}},
          {"krum", {}},    {"multi_krum", {}}, {"bulyan", {}}};
}

// What --strategies names; empty: all.
std::vector<std::string> Names() {
  return absl::StrSplit(absl::GetFlag(FLAGS_strategies), ',',
                        absl::SkipEmpty());
}

std::vector<Entry> Wanted(std::vector<Entry> entries) {
  const std::vector<std::string> names = Names();
  if (names.empty()) return entries;
  std::erase_if(entries, [&](const Entry& entry) {
    return std::find(names.begin(), names.end(), entry.name) == names.end();
  });
  return entries;
}

absl::Status CheckStrategies() {
  std::vector<std::string> known;
  for (const Entry& entry : EveryStrategy()) known.push_back(entry.name);
  for (const Entry& entry : EveryGradientStrategy()) {
    known.push_back(entry.name);
  }
  for (const std::string& name : Names()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--strategies has '", name, "'; expected some of ",
                       absl::StrJoin(known, ", ")));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ConvergenceWorkerOptions> WorkerFromFlags() {
  const auto bad = [](const std::string& message) {
    return absl::InvalidArgumentError(message);
  };
  ConvergenceWorkerOptions worker{
      .dataset = absl::GetFlag(FLAGS_dataset),
      .limit = absl::GetFlag(FLAGS_limit),
      .skew = absl::GetFlag(FLAGS_skew),
      .batch_size = absl::GetFlag(FLAGS_batch_size),
      .hidden = absl::GetFlag(FLAGS_hidden),
      .lr = absl::GetFlag(FLAGS_lr),
      .steps = absl::GetFlag(FLAGS_steps),
      .steps_per_epoch = absl::GetFlag(FLAGS_sync_interval),
      .seed = absl::GetFlag(FLAGS_seed)};
  // From where this program was started, not from where a daemon was.
  if (const std::string dir = absl::GetFlag(FLAGS_data_dir); !dir.empty()) {
    worker.data_dir = std::filesystem::absolute(dir).string();
  }
  for (const int64_t interval : {absl::GetFlag(FLAGS_sync_interval),
                                 absl::GetFlag(FLAGS_rare_sync_interval)}) {
    if (interval < 1 || worker.steps < 1 || worker.steps % interval != 0) {
      return bad(absl::StrCat("--steps is ", worker.steps,
                              "; expected a multiple of --sync-interval and "
                              "--rare-sync-interval, which are 1 or more"));
    }
  }
  if (worker.batch_size < 1 || worker.hidden < 1 || worker.limit < 0) {
    return bad(
        "--batch-size and --hidden must be 1 or more, --limit 0 or more");
  }
  if (!(worker.lr > 0 && absl::GetFlag(FLAGS_adamw_lr) > 0) ||
      !std::isfinite(worker.lr + absl::GetFlag(FLAGS_adamw_lr))) {
    return bad("--lr and --adamw-lr must be above 0");
  }
  if (!(worker.skew >= 0 && worker.skew <= 1)) {
    return bad(absl::StrCat("--skew is ", worker.skew, "; expected 0 to 1"));
  }
  const std::string broken = absl::GetFlag(FLAGS_broken);
  if (broken != "scaled" && broken != "nan") {
    return bad(
        absl::StrCat("--broken is '", broken, "'; expected scaled or nan"));
  }
  MR_RETURN_IF_ERROR(CheckStrategies());
  return worker;
}

std::map<std::string, std::string> Settings() {
  return {{"dataset", absl::GetFlag(FLAGS_dataset)},
          {"limit", absl::StrCat(absl::GetFlag(FLAGS_limit))},
          {"skew", absl::StrCat(absl::GetFlag(FLAGS_skew))},
          {"steps", absl::StrCat(absl::GetFlag(FLAGS_steps))},
          {"batch_size", absl::StrCat(absl::GetFlag(FLAGS_batch_size))},
          {"hidden", absl::StrCat(absl::GetFlag(FLAGS_hidden))},
          {"sync_interval", absl::StrCat(absl::GetFlag(FLAGS_sync_interval))},
          {"rare_sync_interval",
           absl::StrCat(absl::GetFlag(FLAGS_rare_sync_interval))},
          {"lr", absl::StrCat(absl::GetFlag(FLAGS_lr))},
          {"adamw_lr", absl::StrCat(absl::GetFlag(FLAGS_adamw_lr))},
          {"broken", absl::GetFlag(FLAGS_broken)},
          {"seed", absl::StrCat(absl::GetFlag(FLAGS_seed))}};
}

// Does the runs, and says each as it ends.
class Comparison {
 public:
  Comparison(Cluster cluster, ImageDataset test)
      : cluster_(std::move(cluster)), test_(std::move(test)) {}

  const std::vector<ConvergenceRow>& rows() const { return rows_; }

  absl::Status EveryStrategyOn(const ConvergenceWorkerOptions& worker) {
    Say(absl::StrFormat(
        "%d workers, SGD with lr %g, synchronised every %d "
        "steps\n%s",
        kWorkers, worker.lr, worker.steps_per_epoch, ConvergenceHeading()));
    for (const int64_t batch :
         {worker.batch_size, kWorkers * worker.batch_size}) {
      ConvergenceWorkerOptions single = worker;
      single.batch_size = batch;
      MR_ASSIGN_OR_RETURN(ConvergenceResult result,
                          RunInOneProcess(single, test_));
      Add({.strategy = "one process",
           .options = absl::StrCat("batch ", batch),
           .result = std::move(result)});
    }
    for (const Entry& entry : Wanted(EveryStrategy())) {
      MR_RETURN_IF_ERROR(RunOn(ConvergencePart::kEveryStrategy, entry, kWorkers,
                               worker, Fault::kNone));
    }
    return absl::OkStatus();
  }

  absl::Status GradientsOn(const ConvergenceWorkerOptions& worker) {
    const std::vector<Entry> entries = Wanted(EveryGradientStrategy());
    if (entries.empty()) return absl::OkStatus();
    Say(absl::StrFormat(
        "\n%d workers; the server takes a step with the mean of their "
        "gradients, always with the same learning rate\n%s",
        kWorkers, ConvergenceHeading()));
    for (const Entry& entry : entries) {
      MR_RETURN_IF_ERROR(RunOn(ConvergencePart::kGradients, entry, kWorkers,
                               worker, Fault::kNone));
    }
    return absl::OkStatus();
  }

  absl::Status RareSyncsOn(ConvergenceWorkerOptions worker) {
    const std::vector<Entry> entries =
        Wanted({{"average", {}}, {"diloco", {}}});
    if (entries.empty()) return absl::OkStatus();
    worker.steps_per_epoch = absl::GetFlag(FLAGS_rare_sync_interval);
    worker.optimizer = "adamw";
    worker.lr = absl::GetFlag(FLAGS_adamw_lr);
    Say(absl::StrFormat(
        "\n%d workers, AdamW with lr %g, synchronised every %d "
        "steps\n%s",
        kWorkers, worker.lr, worker.steps_per_epoch, ConvergenceHeading()));
    for (const Entry& entry : entries) {
      MR_RETURN_IF_ERROR(RunOn(ConvergencePart::kRareSyncs, entry, kWorkers,
                               worker, Fault::kNone));
    }
    return absl::OkStatus();
  }

  absl::Status BrokenWorkerOn(const ConvergenceWorkerOptions& worker) {
    const std::vector<Entry> entries = Wanted(ForBrokenWorkers());
    if (entries.empty()) return absl::OkStatus();
    const bool scaled = absl::GetFlag(FLAGS_broken) == "scaled";
    Say(absl::StrFormat(
        "\n%d workers, SGD with lr %g, synchronised every %d "
        "steps; the broken one sends %s\n%s",
        kWorkersOfBroken, worker.lr, worker.steps_per_epoch,
        scaled ? "its weights times 100" : "NaN", ConvergenceHeading()));
    for (const Entry& entry : entries) {
      for (const Fault fault :
           {Fault::kNone, scaled ? Fault::kScaled : Fault::kNan}) {
        MR_RETURN_IF_ERROR(RunOn(ConvergencePart::kBrokenWorker, entry,
                                 kWorkersOfBroken, worker, fault));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status RunOn(ConvergencePart part, const Entry& entry, int workers,
                     ConvergenceWorkerOptions worker, Fault fault) {
    worker.fedprox_mu = entry.fedprox_mu;
    const bool fedprox = entry.fedprox_mu > 0;
    MR_ASSIGN_OR_RETURN(
        ConvergenceResult result,
        RunOnWorkers(cluster_,
                     {.strategy = fedprox ? "average" : entry.name,
                      .strategy_options = entry.options,
                      .takes_gradients = part == ConvergencePart::kGradients,
                      .workers = workers,
                      .worker = worker,
                      .fault = fault},
                     test_));
    // Only what is broken on purpose may fail.
    if (fault == Fault::kNone) {
      MR_RETURN_IF_ERROR(Annotate(result.status, entry.name));
    }
    Add({.part = part,
         .strategy = entry.name,
         .options = fedprox ? absl::StrCat("mu=", entry.fedprox_mu)
                            : entry.options.ToString(),
         .workers = workers,
         .broken = fault == Fault::kNone ? 0 : 1,
         .result = std::move(result)});
    return absl::OkStatus();
  }

  void Add(ConvergenceRow row) {
    rows_.push_back(std::move(row));
    Say(ConvergenceLine(rows_.back()));
  }

  static void Say(const std::string& text) {
    if (!absl::GetFlag(FLAGS_json)) std::cout << text << std::endl;
  }

  const Cluster cluster_;
  const ImageDataset test_;
  std::vector<ConvergenceRow> rows_;
};

// Returns whether all statements hold.
absl::StatusOr<bool> Run(const ConvergenceWorkerOptions& worker) {
  MR_ASSIGN_OR_RETURN(ImageDataset test,
                      LoadSplit(worker, "test", worker.limit));
  MR_ASSIGN_OR_RETURN(
      const Cluster cluster,
      Cluster::Connect({.embedded_num_cpus = kWorkersOfBroken}));
  Comparison comparison(cluster, std::move(test));
  MR_RETURN_IF_ERROR(comparison.EveryStrategyOn(worker));
  MR_RETURN_IF_ERROR(comparison.GradientsOn(worker));
  MR_RETURN_IF_ERROR(comparison.RareSyncsOn(worker));
  MR_RETURN_IF_ERROR(comparison.BrokenWorkerOn(worker));

  const bool json = absl::GetFlag(FLAGS_json);
  if (json) {
    std::cout << ConvergenceJson(Settings(), comparison.rows()) << "\n";
  } else {
    std::cout << "\n";
  }
  bool all_hold = true;
  for (const ConvergenceStatement& statement :
       ConvergenceStatements(comparison.rows())) {
    if (!json) std::cout << ConvergenceLine(statement) << "\n";
    all_hold = all_hold && statement.held;
  }
  return all_hold;
}

int Main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::GLOG_ERROR;
  google::InitGoogleLogging(argv[0]);
  const ProgramHelp help = Help();
  if (const auto exit_code = ParseCommandLine(help, argc, argv)) {
    return *exit_code;
  }
  const auto worker = WorkerFromFlags();
  if (!worker.ok()) return Fail(help, worker.status(), kExitUsage);
  if (const std::string warning = BlasWarning(); !warning.empty()) {
    std::cerr << help.name << ": " << warning << std::endl;
  }
  const absl::StatusOr<bool> all_hold = Run(*worker);
  if (!all_hold.ok()) return Fail(help, all_hold.status(), kExitFailure);
  if (!absl::GetFlag(FLAGS_check) || *all_hold) {
    return Finish(help, absl::OkStatus());
  }
  std::cerr << help.name << ": a statement does not hold\n";
  return kExitFailure;
}

}  // namespace
}  // namespace miniray::ml

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  return miniray::ml::Main(argc, argv);
}
