#include "ml/examples/classification_flags.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "ml/cli/flags.h"
#include "ml/cli/output_file.h"
#include "ml/cli/train_loop_flags.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

ABSL_FLAG(int, workers, 2, "workers, each in a process of its own");
ABSL_FLAG(int, epochs, 6, "passes over the data");
ABSL_FLAG(int, sync_interval, 3,
          "epochs from one average of the workers' models to the next");
ABSL_FLAG(int64_t, sync_every, 0,
          "steps from one average to the next, instead of epochs; 1 with "
          "plain or momentum SGD is training with batches of all workers");
ABSL_FLAG(bool, evaluate, true,
          "test images are looked at after each average; --evaluate=false: "
          "there are none, or none are wanted");
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
ABSL_FLAG(int64_t, batch_size, 64, "images in a batch of each worker");
ABSL_FLAG(double, lr, 0.05,
          "learning rate of SGD with momentum 0.9 and weight decay 1e-4");
ABSL_FLAG(bool, augment, false,
          "images to train on are flipped and moved at random");
ABSL_FLAG(uint64_t, seed, 1, "of the first weights and the order of images");
ABSL_FLAG(std::string, save, "",
          "file for the trained classifier, for fid --features; empty: none");

namespace miniray::ml {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxImageSize = 4096;
constexpr char kImageFolder[] = "image-folder";
constexpr char kPictures[] = "Pictures of an image-folder";

std::vector<std::string> TrainingStepFlags() {
  std::vector<std::string> flags = TrainLoopFlags();
  flags.insert(flags.begin(), {"batch_size", "lr", "augment", "seed"});
  return flags;
}

ProgramHelp Help() {
  return {.name = "classification",
          .summary = "Trains an image classifier.",
          .groups = {
              {"Flags",
               {"workers", "epochs", "sync_interval", "sync_every", "evaluate",
                "limit", "network", "dataset", "data_dir", "save"}},
              {"The training step", TrainingStepFlags()},
              {kPictures, {"image_size", "image_channels", "lazy"}}}};
}

absl::Status AtLeastOne(absl::string_view flag, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " is ", value, "; expected at least 1"));
}

// What is wrong of the numbers that training goes by; settles between
// sync_interval and sync_every.
absl::Status CheckTraining(ClassificationFlags* flags) {
  MR_RETURN_IF_ERROR(AtLeastOne("workers", flags->workers));
  MR_RETURN_IF_ERROR(AtLeastOne("epochs", flags->epochs));
  MR_RETURN_IF_ERROR(AtLeastOne("sync-interval", flags->sync_interval));
  MR_RETURN_IF_ERROR(AtLeastOne("batch-size", flags->data.batch_size));
  if (!std::isfinite(flags->data.lr) || flags->data.lr <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--lr is ", flags->data.lr, "; expected a number above 0"));
  }
  if (flags->sync_every < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sync-every is ", flags->sync_every,
                     "; expected steps, or 0 for --sync-interval's epochs"));
  }
  if (flags->sync_every == 0) return absl::OkStatus();
  if (flags->sync_interval != ClassificationFlags().sync_interval) {
    return absl::InvalidArgumentError(
        "--sync-every and --sync-interval are both given; give one");
  }
  flags->sync_interval = 1;
  return absl::OkStatus();
}

absl::StatusOr<ClassificationFlags> FlagsFrom(const ProgramHelp& help) {
  ClassificationFlags flags = {
      .workers = absl::GetFlag(FLAGS_workers),
      .epochs = absl::GetFlag(FLAGS_epochs),
      .sync_interval = absl::GetFlag(FLAGS_sync_interval),
      .sync_every = absl::GetFlag(FLAGS_sync_every),
      .data = {.dataset = absl::GetFlag(FLAGS_dataset),
               .limit = absl::GetFlag(FLAGS_limit),
               .evaluates = absl::GetFlag(FLAGS_evaluate),
               .image_size = absl::GetFlag(FLAGS_image_size),
               .image_channels = absl::GetFlag(FLAGS_image_channels),
               .lazy = absl::GetFlag(FLAGS_lazy),
               .network = absl::GetFlag(FLAGS_network),
               .lr = absl::GetFlag(FLAGS_lr),
               .batch_size = absl::GetFlag(FLAGS_batch_size),
               .augment = absl::GetFlag(FLAGS_augment),
               .seed = absl::GetFlag(FLAGS_seed)},
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
  MR_RETURN_IF_ERROR(CheckTraining(&flags));
  MR_ASSIGN_OR_RETURN(flags.data.loop, TrainLoopOptionsFromFlags(flags.epochs));
  if (const int64_t accumulate = flags.data.loop.accumulate;
      flags.sync_every % accumulate != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sync-every is ", flags.sync_every,
                     "; expected a multiple of --accumulate=", accumulate,
                     ", the batches that make one step of the optimizer"));
  }
  MR_ASSIGN_OR_RETURN(flags.data.device, DeviceFromFlags());
  // From where this program was started, not from where a daemon was.
  if (const std::string dir = absl::GetFlag(FLAGS_data_dir); !dir.empty()) {
    flags.data.data_dir = fs::absolute(dir).string();
  }
  return flags;
}

}  // namespace

std::optional<int> ParseClassificationFlags(int argc, char** argv,
                                            ClassificationFlags* flags) {
  const ProgramHelp help = Help();
  if (const auto code = ParseCommandLine(help, argc, argv)) return code;
  absl::StatusOr<ClassificationFlags> parsed = FlagsFrom(help);
  if (!parsed.ok()) return Fail(help, parsed.status(), kExitUsage);
  if (const absl::Status save = CheckOutputFile("--save", parsed->save);
      !save.ok()) {
    return Fail(help, save, kExitFailure);
  }
  *flags = *std::move(parsed);
  return std::nullopt;
}

void PrintEpoch(int epoch, const train::Metrics& metrics) {
  std::cout << absl::StrFormat("epoch %2d", epoch + 1);
  // No step had a finite loss where there is none.
  if (const auto loss = metrics.find("loss"); loss != metrics.end()) {
    std::cout << absl::StrFormat("  loss %.4f", loss->second);
  } else {
    std::cout << "  no finite loss";
  }
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
  return Finish(Help(), status);
}

}  // namespace miniray::ml
