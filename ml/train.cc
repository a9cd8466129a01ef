// Trains a GAN, in this process or on a cluster. See README.md.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "ml/cli/blas_check.h"
#include "ml/cli/extractor_flags.h"
#include "ml/cli/flags.h"
#include "ml/cli/progress_bar.h"
#include "ml/cli/train_loop_flags.h"
#include "ml/data/dataset_loader.h"
#include "ml/gan/architecture.h"
#include "ml/gan/fid_curve.h"
#include "ml/gan/gan_loss.h"
#include "ml/gan/sync_moments.h"
#include "ml/gan/training_run.h"
#include "ps/option_map.h"
#include "ps/strategy_registry.h"
#include "runtime/api/miniray.h"
#include "runtime/base/job_id.h"
#include "runtime/base/status_macros.h"
#include "train/options.h"
#include "train/sharding.h"

ABSL_FLAG(std::string, mode, "single",
          "single: in this process; distributed: with workers on a cluster");
ABSL_FLAG(int64_t, epochs, 10, "passes over the data");
ABSL_FLAG(int64_t, batch_size, 128, "images in a step of each worker");
ABSL_FLAG(int64_t, latent_dim, 100, "numbers that the generator starts from");
ABSL_FLAG(double, lr, 0.0002, "learning rate of Adam");
ABSL_FLAG(std::string, architecture, "mlp",
          "mlp: linear layers; dcgan: convolutions, for square images whose "
          "side is 4, 5, 6 or 7 doubled (28, 32, 64, ...)");
ABSL_FLAG(bool, conditional, false,
          "make and judge images by the labels of the data set; generate then "
          "takes --class");
ABSL_FLAG(double, ema_decay, 0,
          "above 0, what is saved and shown is a moving average of the "
          "generator's weights; 0.999 is over some 1,000 steps");
ABSL_FLAG(int64_t, sample_every, 0,
          "epochs from one picture samples/epoch-0001.png to the next, in the "
          "run's folder, or in save-dir where there is none; 0: none");
ABSL_FLAG(
    std::string, loss, "non_saturating",
    "what the networks minimise: non_saturating (cross-entropy) or hinge");
ABSL_FLAG(double, label_smoothing, 0,
          "real images count as real to 1 minus this");
ABSL_FLAG(uint64_t, seed, 1, "the same seed gives the same run");
ABSL_FLAG(int64_t, threads, 0,
          "compute threads of each worker; 0: one, and in single mode one for "
          "each core");
ABSL_FLAG(std::string, save_dir, "models/gan",
          "folder for generator.pt, discriminator.pt and samples.png");

ABSL_FLAG(
    std::string, dataset, "fashion-mnist",
    "fashion-mnist, mnist, cifar10, image-folder (of PNG and JPEG files) or "
    "synthetic");
ABSL_FLAG(std::string, data_dir, "",
          "folder of the data set on the workers' machines; fashion-mnist "
          "needs none where the package dataset-fashion-mnist is installed");
ABSL_FLAG(int64_t, limit, 0, "use only the first N images; 0: all");
ABSL_FLAG(int64_t, image_size, 64,
          "height and width that the pictures of an image-folder are brought "
          "to");
ABSL_FLAG(int64_t, image_channels, 3, "of an image-folder: 3, or 1 for grey");
ABSL_FLAG(bool, lazy, false,
          "pictures of an image-folder stay on the disk, and are read by "
          "threads ahead of each step");

ABSL_FLAG(int64_t, eval_fid_every, 0,
          "epochs from one comparison of generated images with the real ones "
          "to the next (and one after the last epoch), by --features or "
          "--fid-features; workers are synchronised for it; 0: none");
ABSL_FLAG(int64_t, fid_count, 10000, "images to generate for it");
ABSL_FLAG(std::string, fid_cache_dir, "models/statistics",
          "folder for statistics of the real images, which the next run and "
          "fid need not compute; empty: none");

ABSL_FLAG(int64_t, workers, 4, "worker processes");
ABSL_FLAG(int64_t, sync_interval, 5,
          "epochs from one synchronisation of the workers to the next; the "
          "last epoch always ends with one");
ABSL_FLAG(std::string, sync_strategy, "average",
          "how the workers' weights become one: average, weighted, momentum, "
          "median, trimmed_mean, krum, multi_krum, bulyan, fedavgm, fedadam, "
          "fedyogi, fedadagrad, diloco, dp, or one that a plug-in brings");
ABSL_FLAG(std::optional<double>, momentum, std::nullopt,
          "option of the strategies momentum (0.9 if not given), fedavgm and "
          "diloco; others are in sync-options");
ABSL_FLAG(std::string, sync_options, "",
          "further options of the strategy: name=value,name=value");
ABSL_FLAG(std::string, sync_moments, "keep",
          "what becomes of Adam's moments at a synchronisation: keep (each "
          "worker its own), average, or reset");
ABSL_FLAG(std::string, sharding, "contiguous",
          "how the images are dealt to the workers: contiguous, strided, "
          "shuffled (by the seed) or by_class (whole classes)");
ABSL_FLAG(double, num_cpus_per_worker, 1, "CPUs that a worker asks for");
ABSL_FLAG(double, num_gpus_per_worker, 0,
          "GPUs that a worker asks for, of nodes that offer some "
          "(miniray start --num_gpus); 0.5: two workers share one");
ABSL_FLAG(double, start_timeout, 60,
          "seconds to wait for the cluster to have room for the workers");
ABSL_FLAG(std::string, job_id, "",
          "name of the job and of its run on the dashboard: 1 to 64 letters, "
          "digits, '.', '_' and '-'; empty: made up, the run's from --name");

ABSL_FLAG(std::string, storage_path, "",
          "folder of runs on this machine: history, what TensorBoard reads, "
          "and checkpoints; empty: none");
ABSL_FLAG(std::string, name, "",
          "the run's folder in storage-path; empty: one of date and time");
ABSL_FLAG(int64_t, checkpoint_every, 0,
          "epochs from one checkpoint to the next; the last epoch has one in "
          "any case; 0: none");
ABSL_FLAG(int64_t, num_to_keep, 0, "checkpoints that stay; 0: all");
ABSL_FLAG(std::string, resume, "never",
          "never: a new training; auto: goes on from the last good checkpoint "
          "of the run, where there is one; else the path of a checkpoint");

namespace miniray::ml {
namespace {

constexpr char kDistributed[] = "Distributed mode";
constexpr char kCurve[] =
    "A curve of distances (one of the two files of features)";
constexpr char kRunFolder[] = "Run folder and checkpoints (distributed mode)";

std::vector<std::string> CurveFlags() {
  std::vector<std::string> flags = {"eval_fid_every"};
  for (const auto& names : {ExtractorFileFlags(), ExtractorInputFlags()}) {
    flags.insert(flags.end(), names.begin(), names.end());
  }
  flags.insert(flags.end(), {"fid_count", "fid_cache_dir"});
  return flags;
}

ProgramHelp Help() {
  return {
      .name = "train",
      .summary =
          "Trains a generative adversarial network on images: in this process, "
          "or data-parallel with workers that are synchronised every few "
          "epochs. Without --address, distributed mode starts a cluster on "
          "this machine for the time of the run.",
      .groups = {{"Training",
                  {"mode", "epochs", "batch_size", "latent_dim", "lr", "seed",
                   "threads", "save_dir", "sample_every"}},
                 {"The model",
                  {"architecture", "conditional", "loss", "label_smoothing",
                   "ema_decay"}},
                 {"The training step", TrainLoopFlags()},
                 {"Data",
                  {"dataset", "data_dir", "limit", "image_size",
                   "image_channels", "lazy"}},
                 {kCurve, CurveFlags()},
                 {kDistributed,
                  {"workers", "sync_interval", "sync_strategy", "momentum",
                   "sync_options", "sync_moments", "sharding",
                   "num_cpus_per_worker", "num_gpus_per_worker",
                   "start_timeout", "job_id"}},
                 {kRunFolder,
                  {"storage_path", "name", "checkpoint_every", "num_to_keep",
                   "resume"}}},
      .examples = {
          {"train --epochs=10", "Fashion-MNIST, every core of this machine"},
          {"train --mode=distributed --workers=2 --sync-interval=1",
           "the same with two workers on this machine"},
          {"train --mode=distributed --workers=4 --address=10.0.0.1:6380 "
           "--dataset=cifar10 --data-dir=/data/cifar10 --epochs=100",
           "CIFAR-10 on a cluster"},
          {"train --mode=distributed --workers=2 --epochs=100 "
           "--storage-path=runs --name=gan --checkpoint-every=5 --resume=auto",
           "may be killed, and goes on when it is started again"},
          {"train --dataset=cifar10 --data-dir=/data/cifar10 --epochs=50 "
           "--architecture=dcgan --conditional --ema-decay=0.999 "
           "--sample-every=5",
           "convolutions, by class, with a picture every five epochs"},
          {"train --dataset=cifar10 --data-dir=/data/cifar10 --epochs=50 "
           "--features=resnet20.pt --eval-fid-every=5",
           "with the distance from the real images every five epochs"},
          {"train --dataset=synthetic --epochs=1",
           "a quick look whether everything works"}}};
}

absl::Status AtLeast(int64_t value, int64_t minimum, absl::string_view flag) {
  if (value >= minimum) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, " is ", value, "; expected ", minimum, " or more"));
}

absl::Status AtMost(int64_t value, int64_t maximum, absl::string_view flag) {
  if (value <= maximum) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, " is ", value, "; expected ", maximum, " or less"));
}

// A value as a strategy would take it.
ps::OptionValue ParseOptionValue(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  if (int64_t integer; absl::SimpleAtoi(text, &integer)) return integer;
  if (double number; absl::SimpleAtod(text, &number)) return number;
  return text;
}

absl::StatusOr<ps::StrategyOptions> StrategyOptionsFromFlags() {
  const std::string strategy = absl::GetFlag(FLAGS_sync_strategy);
  ps::StrategyOptions options;
  // Given without use, it is an error rather than without effect.
  if (const std::optional<double> momentum = absl::GetFlag(FLAGS_momentum)) {
    options.Set("momentum", *momentum);
  }
  for (const absl::string_view part : absl::StrSplit(
           absl::GetFlag(FLAGS_sync_options), ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> option =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (option.first.empty() || option.second.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--sync-options has '", part, "'; expected name=value"));
    }
    options.Set(option.first, ParseOptionValue(option.second));
  }
  MR_RETURN_IF_ERROR(
      ps::StrategyRegistry::Get().Create(strategy, options).status());
  return options;
}

absl::Status CheckDataset(const std::string& name) {
  const std::vector<std::string> known = RegisteredDatasets();
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--dataset is '", name,
                                                 "'; expected one of ",
                                                 absl::StrJoin(known, ", ")));
}

// What is written while training goes on, and what is gone on with.
absl::Status SetStorageFromFlags(train::TrainerOptions* trainer) {
  trainer->storage_path = absl::GetFlag(FLAGS_storage_path);
  trainer->name = absl::GetFlag(FLAGS_name);
  train::CheckpointConfig& checkpoint = trainer->checkpoint;
  checkpoint.resume = absl::GetFlag(FLAGS_resume);
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  const int64_t every = absl::GetFlag(FLAGS_checkpoint_every);
  MR_RETURN_IF_ERROR(AtLeast(every, 0, "checkpoint-every"));
  MR_RETURN_IF_ERROR(AtMost(every, kMax, "checkpoint-every"));
  const int64_t keep = absl::GetFlag(FLAGS_num_to_keep);
  MR_RETURN_IF_ERROR(AtLeast(keep, 0, "num-to-keep"));
  MR_RETURN_IF_ERROR(AtMost(keep, kMax, "num-to-keep"));
  checkpoint.frequency = static_cast<int>(every);
  checkpoint.at_end = every > 0;
  checkpoint.num_to_keep = static_cast<int>(keep);
  const std::pair<bool, absl::string_view> given[] = {
      {!trainer->name.empty(), "name"},
      {every > 0, "checkpoint-every"},
      {keep > 0, "num-to-keep"},
      {checkpoint.resume != "never", "resume"}};
  for (const auto& [is_given, flag] : given) {
    if (!is_given || !trainer->storage_path.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, " has no effect without --storage-path"));
  }
  if (keep > 0 && every == 0) {
    return absl::InvalidArgumentError(
        "--num-to-keep has no effect without --checkpoint-every");
  }
  if (checkpoint.resume.empty()) {
    return absl::InvalidArgumentError(
        "--resume is empty; expected never, auto or the path of a checkpoint");
  }
  if (checkpoint.resume == "auto" && trainer->name.empty()) {
    return absl::InvalidArgumentError(
        "--resume=auto needs --name, which says what run is gone on with");
  }
  return absl::OkStatus();
}

// The curve of distances; its file is read later.
absl::Status SetCurveFromFlags(const ProgramHelp& help, int64_t max_epochs,
                               FidCurveOptions* curve) {
  constexpr int64_t kMaxImages = 100000000;
  const int64_t every = absl::GetFlag(FLAGS_eval_fid_every);
  MR_RETURN_IF_ERROR(AtLeast(every, 0, "eval-fid-every"));
  MR_RETURN_IF_ERROR(AtMost(every, max_epochs, "eval-fid-every"));
  if (every == 0) {
    const std::string flag = FirstChanged(help, kCurve);
    if (flag.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " has no effect without --eval-fid-every; add it"));
  }
  MR_RETURN_IF_ERROR(CheckExtractorFlags());
  curve->every = static_cast<int>(every);
  curve->count = absl::GetFlag(FLAGS_fid_count);
  MR_RETURN_IF_ERROR(AtLeast(curve->count, 2, "fid-count"));
  MR_RETURN_IF_ERROR(AtMost(curve->count, kMaxImages, "fid-count"));
  curve->cache_dir = absl::GetFlag(FLAGS_fid_cache_dir);
  return absl::OkStatus();
}

// Checks the flags and returns what they say; connects to nothing.
absl::StatusOr<TrainingRunOptions> OptionsFromFlags(const ProgramHelp& help) {
  constexpr int64_t kMaxWorkers = 10000;
  constexpr int64_t kMaxEpochs = 1000000;
  TrainingRunOptions options;

  const std::string mode = absl::GetFlag(FLAGS_mode);
  if (mode != "single" && mode != "distributed") {
    return absl::InvalidArgumentError(
        absl::StrCat("--mode is '", mode, "'; expected single or distributed"));
  }
  options.distributed = mode == "distributed";
  if (!options.distributed && !GivenAddress().empty()) {
    return absl::InvalidArgumentError(
        "--address has no effect with --mode=single; add --mode=distributed");
  }
  MR_RETURN_IF_ERROR(AtLeast(absl::GetFlag(FLAGS_epochs), 1, "epochs"));
  MR_RETURN_IF_ERROR(AtMost(absl::GetFlag(FLAGS_epochs), kMaxEpochs, "epochs"));
  options.epochs = static_cast<int>(absl::GetFlag(FLAGS_epochs));
  MR_RETURN_IF_ERROR(AtLeast(absl::GetFlag(FLAGS_threads), 0, "threads"));
  MR_RETURN_IF_ERROR(AtMost(absl::GetFlag(FLAGS_threads), 1024, "threads"));
  options.threads = static_cast<int>(absl::GetFlag(FLAGS_threads));
  if (options.threads == 0) {
    options.threads =
        options.distributed
            ? 1
            : std::max(1,
                       static_cast<int>(std::thread::hardware_concurrency()));
  }
  options.save_dir = absl::GetFlag(FLAGS_save_dir);
  if (options.save_dir.empty()) {
    return absl::InvalidArgumentError("--save-dir is empty; expected a folder");
  }

  GanWorkerOptions& worker = options.worker;
  worker.dataset = absl::GetFlag(FLAGS_dataset);
  MR_RETURN_IF_ERROR(CheckDataset(worker.dataset));
  // From where this program was started, not from where a daemon was.
  if (const std::string dir = absl::GetFlag(FLAGS_data_dir); !dir.empty()) {
    worker.data_dir = std::filesystem::absolute(dir).string();
  }
  worker.limit = absl::GetFlag(FLAGS_limit);
  MR_RETURN_IF_ERROR(AtLeast(worker.limit, 0, "limit"));
  worker.image_size = absl::GetFlag(FLAGS_image_size);
  worker.image_channels = absl::GetFlag(FLAGS_image_channels);
  MR_RETURN_IF_ERROR(AtLeast(worker.image_size, 1, "image-size"));
  MR_RETURN_IF_ERROR(AtLeast(worker.image_channels, 1, "image-channels"));
  worker.lazy = absl::GetFlag(FLAGS_lazy);
  if (worker.lazy && worker.dataset != "image-folder") {
    return absl::InvalidArgumentError(
        "--lazy has no effect without --dataset=image-folder; add it");
  }
  worker.batch_size = absl::GetFlag(FLAGS_batch_size);
  MR_RETURN_IF_ERROR(AtLeast(worker.batch_size, 2, "batch-size"));
  worker.latent_dim = absl::GetFlag(FLAGS_latent_dim);
  MR_RETURN_IF_ERROR(AtLeast(worker.latent_dim, 1, "latent-dim"));
  MR_RETURN_IF_ERROR(AtMost(worker.latent_dim, kMaxLatentDim, "latent-dim"));
  worker.lr = absl::GetFlag(FLAGS_lr);
  if (!std::isfinite(worker.lr) || worker.lr <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lr is ", worker.lr, "; expected a number above 0"));
  }
  const absl::StatusOr<GanArchitecture> architecture =
      ParseGanArchitecture(absl::GetFlag(FLAGS_architecture));
  if (!architecture.ok()) {
    return Annotate(architecture.status(), "--architecture");
  }
  worker.architecture = *architecture;
  if (worker.dataset == "image-folder") {
    // Of other data sets the workers know the sizes, once they have read them.
    if (worker.image_channels != 1 && worker.image_channels != 3) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--image-channels is ", worker.image_channels, "; expected 1 or 3"));
    }
    MR_RETURN_IF_ERROR(Annotate(
        ValidateGanSizes({.latent_dim = worker.latent_dim,
                          .shape = {worker.image_channels, worker.image_size,
                                    worker.image_size},
                          .architecture = worker.architecture}),
        "--image-size"));
  }
  worker.conditional = absl::GetFlag(FLAGS_conditional);
  worker.ema_decay = absl::GetFlag(FLAGS_ema_decay);
  if (!(worker.ema_decay >= 0 && worker.ema_decay < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ema-decay is ", worker.ema_decay,
                     "; expected 0 for none, or more and less than 1"));
  }
  MR_RETURN_IF_ERROR(
      AtLeast(absl::GetFlag(FLAGS_sample_every), 0, "sample-every"));
  MR_RETURN_IF_ERROR(
      AtMost(absl::GetFlag(FLAGS_sample_every), kMaxEpochs, "sample-every"));
  options.sample_every = static_cast<int>(absl::GetFlag(FLAGS_sample_every));
  MR_RETURN_IF_ERROR(SetCurveFromFlags(help, kMaxEpochs, &options.fid));
  const absl::StatusOr<GanLoss> loss = ParseGanLoss(absl::GetFlag(FLAGS_loss));
  if (!loss.ok()) return Annotate(loss.status(), "--loss");
  worker.loss = *loss;
  worker.label_smoothing = absl::GetFlag(FLAGS_label_smoothing);
  if (!(worker.label_smoothing >= 0 && worker.label_smoothing < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--label-smoothing is ", worker.label_smoothing,
                     "; expected 0 or more and less than 1"));
  }
  if (worker.loss == GanLoss::kHinge && worker.label_smoothing > 0) {
    return absl::InvalidArgumentError(
        "--label-smoothing has no effect with --loss=hinge, which has no "
        "targets to smooth");
  }
  MR_ASSIGN_OR_RETURN(worker.loop, TrainLoopOptionsFromFlags(options.epochs));
  MR_ASSIGN_OR_RETURN(worker.device, DeviceFromFlags());
  worker.seed = absl::GetFlag(FLAGS_seed);

  train::TrainerOptions& trainer = options.trainer;
  MR_RETURN_IF_ERROR(AtLeast(absl::GetFlag(FLAGS_workers), 1, "workers"));
  MR_RETURN_IF_ERROR(
      AtMost(absl::GetFlag(FLAGS_workers), kMaxWorkers, "workers"));
  trainer.num_workers = static_cast<int>(absl::GetFlag(FLAGS_workers));
  MR_RETURN_IF_ERROR(
      AtLeast(absl::GetFlag(FLAGS_sync_interval), 1, "sync-interval"));
  trainer.sync_interval = static_cast<int>(
      std::min(absl::GetFlag(FLAGS_sync_interval), kMaxEpochs));
  trainer.sync_strategy = absl::GetFlag(FLAGS_sync_strategy);
  MR_ASSIGN_OR_RETURN(trainer.strategy_options, StrategyOptionsFromFlags());
  const absl::StatusOr<SyncMoments> moments =
      ParseSyncMoments(absl::GetFlag(FLAGS_sync_moments));
  if (!moments.ok()) return Annotate(moments.status(), "--sync-moments");
  worker.sync_moments = *moments;
  const double cpus = absl::GetFlag(FLAGS_num_cpus_per_worker);
  if (!std::isfinite(cpus) || cpus < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--num-cpus-per-worker is ", cpus, "; expected a number, 0 or more"));
  }
  trainer.worker_resources.cpu = cpus;
  const double gpus = absl::GetFlag(FLAGS_num_gpus_per_worker);
  if (!std::isfinite(gpus) || gpus < 0 ||
      (gpus > 1 && gpus != std::floor(gpus))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--num-gpus-per-worker is ", gpus,
                     "; expected a number from 0 to 1, or a whole one"));
  }
  trainer.worker_resources.gpu = gpus;
  const double timeout = absl::GetFlag(FLAGS_start_timeout);
  if (!(timeout > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--start-timeout is ", timeout, "; expected seconds above 0"));
  }
  trainer.start_timeout = absl::Seconds(timeout);
  trainer.run_id = absl::GetFlag(FLAGS_job_id);
  if (!trainer.run_id.empty()) {
    MR_RETURN_IF_ERROR(Annotate(CheckJobId(trainer.run_id), "--job-id"));
  }
  ps::OptionMap sharding;
  sharding.Set("sharding", absl::GetFlag(FLAGS_sharding));
  MR_ASSIGN_OR_RETURN(const train::Sharding parsed,
                      train::ShardingFromConfig(sharding));
  if (parsed.method == train::ShardMethod::kFunction) {
    return absl::InvalidArgumentError(
        "--sharding is 'function', which a program must bring; expected "
        "contiguous, strided, shuffled or by_class");
  }
  worker.sharding = absl::GetFlag(FLAGS_sharding);
  for (const char* group : {kDistributed, kRunFolder}) {
    const std::string flag = FirstChanged(help, group);
    if (options.distributed || flag.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag,
                     " has no effect with --mode=single; add "
                     "--mode=distributed, with --workers=1 for one worker"));
  }
  MR_RETURN_IF_ERROR(SetStorageFromFlags(&trainer));
  return options;
}

absl::Status Run(TrainingRunOptions options) {
  if (options.fid.every > 0) {
    MR_ASSIGN_OR_RETURN(options.fid.extractor, ExtractorFileFromFlags());
  }
  // With checkpoints the trainer has its own use for signals.
  ProgressBar bar({.clear_on_signals = !options.distributed ||
                                       !options.trainer.checkpoint.enabled()});
  if (options.distributed) {
    ClusterOptions cluster;
    cluster.job_id = absl::GetFlag(FLAGS_job_id);
    // An embedded cluster on a small machine has room for every worker all the
    // same: they share its cores.
    cluster.embedded_num_cpus =
        std::max(static_cast<double>(std::thread::hardware_concurrency()),
                 std::ceil(options.trainer.num_workers *
                           options.trainer.worker_resources.cpu));
    cluster.embedded_num_gpus = static_cast<int>(std::ceil(
        options.trainer.num_workers * options.trainer.worker_resources.gpu));
    MR_ASSIGN_OR_RETURN(options.trainer.cluster, Cluster::Connect(cluster));
  }
  const absl::Status status = RunTraining(options, &bar);
  if (options.trainer.cluster.has_value()) options.trainer.cluster->Shutdown();
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
  const absl::StatusOr<TrainingRunOptions> options = OptionsFromFlags(help);
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
