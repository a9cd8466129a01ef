#include "ml/examples/classification_flags.h"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ml/cli/flags.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

ABSL_FLAG(int, workers, 2, "workers, each in a process of its own");
ABSL_FLAG(int, epochs, 6, "passes over the data");
ABSL_FLAG(int64_t, limit, 0, "use only the first N images; 0: all");
ABSL_FLAG(std::string, network, "cnn", "mlp, cnn or resnet20");
ABSL_FLAG(std::string, dataset, "fashion-mnist",
          "fashion-mnist, mnist, cifar10, image-folder or synthetic");
ABSL_FLAG(std::string, data_dir, "", "where it is on the workers' machines");
ABSL_FLAG(int64_t, image_size, 64,
          "height and width that they are brought to; for fid --features, "
          "those of the generator's images");
ABSL_FLAG(int64_t, image_channels, 3, "3, or 1: grey");
ABSL_FLAG(bool, lazy, false,
          "those to train on stay on the disk, and are read by threads ahead "
          "of each step");
ABSL_FLAG(std::string, save, "",
          "file for the trained classifier, for fid --features; empty: none");

namespace miniray::ml {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxImageSize = 4096;
constexpr char kImageFolder[] = "image-folder";
constexpr char kPictures[] = "Pictures of an image-folder";

ProgramHelp Help() {
  return {.name = "classification",
          .summary = "Trains an image classifier.",
          .groups = {{"Flags",
                      {"workers", "epochs", "limit", "network", "dataset",
                       "data_dir", "save"}},
                     {kPictures, {"image_size", "image_channels", "lazy"}}}};
}

absl::StatusOr<ClassificationFlags> FlagsFrom(const ProgramHelp& help) {
  ClassificationFlags flags = {
      .workers = absl::GetFlag(FLAGS_workers),
      .epochs = absl::GetFlag(FLAGS_epochs),
      .data = {.dataset = absl::GetFlag(FLAGS_dataset),
               .limit = absl::GetFlag(FLAGS_limit),
               .image_size = absl::GetFlag(FLAGS_image_size),
               .image_channels = absl::GetFlag(FLAGS_image_channels),
               .lazy = absl::GetFlag(FLAGS_lazy),
               .network = absl::GetFlag(FLAGS_network)},
      .save = absl::GetFlag(FLAGS_save)};
  if (const std::string flag = FirstChanged(help, kPictures);
      !flag.empty() && flags.data.dataset != kImageFolder) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " has no effect without --dataset=", kImageFolder, "; add it"));
  }
  if (flags.data.image_size < 1 || flags.data.image_size > kMaxImageSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("--image-size is ", flags.data.image_size,
                     "; expected 1 to ", kMaxImageSize));
  }
  if (flags.data.image_channels != 1 && flags.data.image_channels != 3) {
    return absl::InvalidArgumentError(absl::StrCat("--image-channels is ",
                                                   flags.data.image_channels,
                                                   "; expected 1 or 3"));
  }
  // From where this program was started, not from where a daemon was.
  if (const std::string dir = absl::GetFlag(FLAGS_data_dir); !dir.empty()) {
    flags.data.data_dir = fs::absolute(dir).string();
  }
  return flags;
}

// A file that cannot be written is to be known before hours of training.
absl::Status CheckSave(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return absl::FailedPreconditionError(
        absl::StrCat("--save: ", path, " is a folder; expected a file"));
  }
  const fs::path folder = fs::absolute(path).parent_path();
  if (fs::is_directory(folder, ignored)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("--save: there is no folder ",
                                          folder.string(), "; make it first"));
}

}  // namespace

std::optional<int> ParseClassificationFlags(int argc, char** argv,
                                            ClassificationFlags* flags) {
  const ProgramHelp help = Help();
  if (const auto code = ParseCommandLine(help, argc, argv)) return code;
  absl::StatusOr<ClassificationFlags> parsed = FlagsFrom(help);
  if (!parsed.ok()) return Fail(help, parsed.status(), kExitUsage);
  if (const absl::Status save = CheckSave(parsed->save); !save.ok()) {
    return Fail(help, save, kExitFailure);
  }
  *flags = *std::move(parsed);
  return std::nullopt;
}

void PrintEpoch(int epoch, const train::Metrics& metrics) {
  std::cout << absl::StrFormat("epoch %2d  loss %.4f", epoch + 1,
                               metrics.at("loss"));
  if (metrics.contains("eval/accuracy")) {
    std::cout << absl::StrFormat("  averaged; test accuracy %.2f %%",
                                 100 * metrics.at("eval/accuracy"));
  }
  std::cout << std::endl;
}

absl::Status SaveClassifier(const ActorHandle<ClassifierWorker>& worker,
                            const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const std::string bytes,
                      worker.Call<&ClassifierWorker::ModelFile>().Get());
  MR_RETURN_IF_ERROR(WriteOutput(path, bytes));
  std::cout << "Classifier: " << path << std::endl;
  return absl::OkStatus();
}

int ClassificationExitCode(const absl::Status& status) {
  return status.ok() ? 0 : Fail(Help(), status, kExitFailure);
}

}  // namespace miniray::ml
