// Generates images with a generator that `train` saved. See README.md.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "ml/cli/blas_check.h"
#include "ml/cli/flags.h"
#include "ml/cli/progress_bar.h"
#include "ml/gan/generation_run.h"
#include "ml/gan/generator_worker.h"
#include "ml/gan/model_file.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"

ABSL_FLAG(std::string, model, "",
          "file that train saved, such as models/gan/generator.pt; required");
ABSL_FLAG(int64_t, num_images, 10, "images to generate");
ABSL_FLAG(std::string, output, "generated",
          "folder for image_000.png and so on, and grid.png; of an earlier "
          "run, files of the same names are replaced, and others stay");
ABSL_FLAG(int64_t, seed, -1,
          "0 or more: the same seed gives the same images; -1: another seed "
          "each time");
ABSL_FLAG(std::string, class, "",
          "name or number of the class that images are of, with a model that "
          "was trained with --conditional; empty: of each class in turn");
ABSL_FLAG(int64_t, grid, 8,
          "columns of grid.png, which shows that many rows at most");
ABSL_FLAG(int64_t, batch_size, 64, "images that are made at a time");

ABSL_FLAG(bool, distributed, false,
          "share the work among workers on a cluster");
ABSL_FLAG(int64_t, workers, 4, "worker processes");
ABSL_FLAG(double, num_cpus_per_worker, 1, "CPUs that a worker asks for");

namespace miniray::ml {
namespace {

constexpr char kCluster[] = "On a cluster";

ProgramHelp Help() {
  return {
      .name = "generate",
      .summary =
          "Generates images with a generator that train saved, as PNG files. "
          "The images depend on the model and the seed only, not on the number "
          "of workers.",
      .groups = {{"Images",
                  {"model", "num_images", "output", "seed", "class", "grid",
                   "batch_size"}},
                 {kCluster, {"distributed", "workers", "num_cpus_per_worker"}}},
      .examples = {
          {"generate --model=models/gan/generator.pt", "ten images"},
          {"generate --model=models/gan/generator.pt --num-images=10000 "
           "--distributed --workers=4 --seed=42",
           "many, with four workers, the same ones each time"},
          {"generate --model=models/gan/generator.pt --class=cat",
           "of one class, with a conditional model"}}};
}

absl::Status InRange(int64_t value, int64_t minimum, int64_t maximum,
                     absl::string_view flag) {
  if (value >= minimum && value <= maximum) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, " is ", value, "; expected ", minimum, " to ", maximum));
}

absl::StatusOr<GenerationRunOptions> OptionsFromFlags(const ProgramHelp& help) {
  constexpr int64_t kMaxImages = 100000000;
  constexpr int64_t kMaxColumns = 100;
  constexpr int64_t kMaxWorkers = 10000;
  if (absl::GetFlag(FLAGS_model).empty()) {
    return absl::InvalidArgumentError(
        "--model is required: a file that train saved, such as "
        "--model=models/gan/generator.pt");
  }
  GenerationRunOptions options;
  options.num_images = absl::GetFlag(FLAGS_num_images);
  MR_RETURN_IF_ERROR(InRange(options.num_images, 1, kMaxImages, "num-images"));
  options.output = absl::GetFlag(FLAGS_output);
  if (options.output.empty()) {
    return absl::InvalidArgumentError("--output is empty; expected a folder");
  }
  if (absl::GetFlag(FLAGS_seed) < -1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seed is ", absl::GetFlag(FLAGS_seed),
                     "; expected 0 or more, or -1 for another each time"));
  }
  options.seed = absl::GetFlag(FLAGS_seed) < 0
                     ? std::random_device()()
                     : static_cast<uint64_t>(absl::GetFlag(FLAGS_seed));
  MR_RETURN_IF_ERROR(
      InRange(absl::GetFlag(FLAGS_grid), 1, kMaxColumns, "grid"));
  options.columns = static_cast<int>(absl::GetFlag(FLAGS_grid));
  options.batch_size = absl::GetFlag(FLAGS_batch_size);
  MR_RETURN_IF_ERROR(
      InRange(options.batch_size, 1, GeneratorWorker::kMaxCount, "batch-size"));
  if (!absl::GetFlag(FLAGS_distributed) && !GivenAddress().empty()) {
    return absl::InvalidArgumentError(
        "--address has no effect without --distributed; add it");
  }
  MR_RETURN_IF_ERROR(
      InRange(absl::GetFlag(FLAGS_workers), 1, kMaxWorkers, "workers"));
  options.workers = static_cast<int>(absl::GetFlag(FLAGS_workers));
  options.cpus_per_worker = absl::GetFlag(FLAGS_num_cpus_per_worker);
  if (!std::isfinite(options.cpus_per_worker) || options.cpus_per_worker < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--num-cpus-per-worker is ", options.cpus_per_worker,
                     "; expected a number, 0 or more"));
  }
  if (!absl::GetFlag(FLAGS_distributed)) {
    if (const std::string flag = FirstChanged(help, kCluster); !flag.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " has no effect without --distributed; add it"));
    }
  }
  return options;
}

absl::Status Run(GenerationRunOptions options) {
  MR_ASSIGN_OR_RETURN(
      const GanModel model,
      LoadGanModel(absl::GetFlag(FLAGS_model), GanNetwork::kGenerator));
  if (const std::string name = absl::GetFlag(FLAGS_class); !name.empty()) {
    const absl::StatusOr<int64_t> label = FindClass(model, name);
    if (!label.ok()) return Annotate(label.status(), "--class");
    options.label = *label;
  }
  ProgressBar bar({.clear_on_signals = true});
  if (absl::GetFlag(FLAGS_distributed)) {
    ClusterOptions cluster;
    cluster.embedded_num_cpus =
        std::max(static_cast<double>(std::thread::hardware_concurrency()),
                 std::ceil(options.workers * options.cpus_per_worker));
    MR_ASSIGN_OR_RETURN(options.cluster, Cluster::Connect(cluster));
  }
  if (absl::GetFlag(FLAGS_seed) < 0) {
    bar.Print(absl::StrCat("Seed: ", options.seed));
  }
  const absl::Status status = RunGeneration(model, options, &bar);
  if (options.cluster.has_value()) options.cluster->Shutdown();
  return status;
}

int Main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::GLOG_WARNING;
  google::InitGoogleLogging(argv[0]);
  const ProgramHelp help = Help();
  if (const auto exit_code = ParseCommandLine(help, argc, argv)) {
    return *exit_code;
  }
  const absl::StatusOr<GenerationRunOptions> options = OptionsFromFlags(help);
  if (!options.ok()) return Fail(help, options.status(), kExitUsage);
  if (const std::string warning = BlasWarning(); !warning.empty()) {
    std::cerr << help.name << ": " << warning << std::endl;
  }
  return Finish(help, Run(*options));
}

}  // namespace
}  // namespace miniray::ml

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  return miniray::ml::Main(argc, argv);
}
