// Says how far the images of a generator are from real ones. See README.md.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "ml/cli/blas_check.h"
#include "ml/cli/extractor_flags.h"
#include "ml/cli/flags.h"
#include "ml/cli/progress_bar.h"
#include "ml/data/dataset_loader.h"
#include "ml/gan/model_file.h"
#include "ml/metrics/fid_run.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"

ABSL_FLAG(std::string, model, "",
          "file that train saved, such as models/gan/generator.pt; required");
ABSL_FLAG(int64_t, count, 10000, "images to generate");
ABSL_FLAG(uint64_t, seed, 1, "the same seed gives the same images");

ABSL_FLAG(std::string, dataset, "fashion-mnist",
          "the real images: fashion-mnist, mnist, cifar10, image-folder or "
          "synthetic");
ABSL_FLAG(std::string, data_dir, "",
          "folder of the data set on the workers' machines");
ABSL_FLAG(std::string, split, "train", "train or test");
ABSL_FLAG(int64_t, limit, 0, "use only the first N real images; 0: all");
ABSL_FLAG(std::string, cache_dir, "models/statistics",
          "folder for statistics of real images, which the next run need not "
          "compute; empty: none");

ABSL_FLAG(int64_t, workers, 0,
          "worker processes on a cluster; 0: in this process");
ABSL_FLAG(double, num_cpus_per_worker, 1, "CPUs that a worker asks for");

namespace miniray::ml {
namespace {

constexpr char kCluster[] = "On a cluster";

ProgramHelp Help() {
  return {
      .name = "fid",
      .summary =
          "Says how far the images of a generator that train saved are from "
          "those of a data set: the Frechet distance of their features. With "
          "Inception's features that is FID; with those of a classifier of "
          "one's own it is a number to compare one's own models by, and no "
          "others.",
      .groups = {{"Generated images", {"model", "count", "seed"}},
                 {"Real images",
                  {"dataset", "data_dir", "split", "limit", "cache_dir"}},
                 {"Features (one of the two files)", ExtractorFileFlags()},
                 {"Input of --fid-features", ExtractorInputFlags()},
                 {kCluster, {"workers", "num_cpus_per_worker"}}},
      .examples = {
          {"fid --model=models/gan/generator.pt --features=cnn.pt",
           "classifier distance from Fashion-MNIST"},
          {"fid --model=g.pt --dataset=cifar10 --data-dir=/data/cifar10 "
           "--fid-features=inception.pt --count=50000 --workers=4",
           "FID, with four workers"}}};
}

absl::Status InRange(int64_t value, int64_t minimum, int64_t maximum,
                     absl::string_view flag) {
  if (value >= minimum && value <= maximum) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, " is ", value, "; expected ", minimum, " to ", maximum));
}

// Checks the flags that need no file.
absl::StatusOr<FidRunOptions> OptionsFromFlags(const ProgramHelp& help) {
  constexpr int64_t kMaxImages = 100000000;
  constexpr int64_t kMaxWorkers = 10000;
  if (absl::GetFlag(FLAGS_model).empty()) {
    return absl::InvalidArgumentError(
        "--model is required: a file that train saved, such as "
        "--model=models/gan/generator.pt");
  }
  MR_RETURN_IF_ERROR(CheckExtractorFlags());
  FidRunOptions options;
  options.count = absl::GetFlag(FLAGS_count);
  MR_RETURN_IF_ERROR(InRange(options.count, 2, kMaxImages, "count"));
  options.seed = absl::GetFlag(FLAGS_seed);

  options.data.dataset = absl::GetFlag(FLAGS_dataset);
  const std::vector<std::string> known = RegisteredDatasets();
  if (std::find(known.begin(), known.end(), options.data.dataset) ==
      known.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dataset is '", options.data.dataset,
                     "'; expected one of ", absl::StrJoin(known, ", ")));
  }
  // From where this program was started, not from where a daemon was.
  if (const std::string dir = absl::GetFlag(FLAGS_data_dir); !dir.empty()) {
    options.data.data_dir = std::filesystem::absolute(dir).string();
  }
  options.data.split = absl::GetFlag(FLAGS_split);
  if (options.data.split != "train" && options.data.split != "test") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--split is '", options.data.split, "'; expected train or test"));
  }
  options.data.limit = absl::GetFlag(FLAGS_limit);
  MR_RETURN_IF_ERROR(InRange(options.data.limit, 0,
                             std::numeric_limits<int64_t>::max(), "limit"));
  options.cache_dir = absl::GetFlag(FLAGS_cache_dir);

  const int64_t workers = absl::GetFlag(FLAGS_workers);
  MR_RETURN_IF_ERROR(InRange(workers, 0, kMaxWorkers, "workers"));
  if (workers == 0 && !GivenAddress().empty()) {
    return absl::InvalidArgumentError(
        "--address has no effect without --workers; add it");
  }
  if (workers == 0) {
    if (const std::string flag = FirstChanged(help, kCluster); !flag.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " has no effect without --workers; add it"));
    }
  }
  options.workers = static_cast<int>(workers);
  options.cpus_per_worker = absl::GetFlag(FLAGS_num_cpus_per_worker);
  if (!std::isfinite(options.cpus_per_worker) || options.cpus_per_worker < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--num-cpus-per-worker is ", options.cpus_per_worker,
                     "; expected a number, 0 or more"));
  }
  return options;
}

absl::Status Run(FidRunOptions options) {
  MR_ASSIGN_OR_RETURN(
      const GanModel model,
      LoadGanModel(absl::GetFlag(FLAGS_model), GanNetwork::kGenerator));
  if (options.data.dataset == "image-folder" &&
      model.shape.height != model.shape.width) {
    return absl::InvalidArgumentError(
        absl::StrCat("the generator's images are ", model.shape.ToString(),
                     "; pictures of an image-folder are brought to squares"));
  }
  // Pictures are brought to what the generator makes.
  options.data.image_size = model.shape.height;
  options.data.image_channels = model.shape.channels;

  MR_ASSIGN_OR_RETURN(options.extractor, ExtractorFileFromFlags());

  ProgressBar bar({.clear_on_signals = true});
  if (options.workers > 0) {
    ClusterOptions cluster;
    cluster.embedded_num_cpus =
        std::max(static_cast<double>(std::thread::hardware_concurrency()),
                 std::ceil(options.workers * options.cpus_per_worker));
    MR_ASSIGN_OR_RETURN(options.cluster, Cluster::Connect(cluster));
  }
  const absl::StatusOr<FidResult> result = RunFid(model, options, &bar);
  if (options.cluster.has_value()) options.cluster->Shutdown();
  MR_RETURN_IF_ERROR(result.status());
  if (ExtractorIsClassifier()) {
    bar.Print(
        "A classifier distance is not comparable with FID, nor with numbers by "
        "another file");
  }
  bar.Print(absl::StrFormat("%s: %.4f", result->name, result->distance));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::GLOG_WARNING;
  google::InitGoogleLogging(argv[0]);
  const ProgramHelp help = Help();
  if (const auto exit_code = ParseCommandLine(help, argc, argv)) {
    return *exit_code;
  }
  const absl::StatusOr<FidRunOptions> options = OptionsFromFlags(help);
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
