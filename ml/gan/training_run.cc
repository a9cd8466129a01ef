#include "ml/gan/training_run.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "ml/data/exception_text.h"
#include "ml/gan/gan_fid_team.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/gan_trainer.h"
#include "ml/gan/image_generator.h"
#include "ml/gan/model_file.h"
#include "ml/gan/sample_writer.h"
#include "ml/gan/total_progress.h"
#include "ml/image/grid.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/runs/run_checks.h"

namespace miniray::ml {
namespace {

// For the workers to say how far they are.
constexpr absl::Duration kPollTimeout = absl::Milliseconds(500);
// For worker 0 to make its images.
constexpr absl::Duration kSampleTimeout = absl::Minutes(1);

// The folder for results: made at once, so that a training is not lost for want
// of it, and taken away again if nothing came to lie in it.
class SaveFolder {
 public:
  explicit SaveFolder(std::string path) : path_(std::move(path)) {}
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;
  ~SaveFolder() {
    if (made_) rmdir(path_.c_str());  // Fails where it is not empty.
  }

  absl::Status Prepare() {
    made_ = access(path_.c_str(), F_OK) != 0;
    MR_RETURN_IF_ERROR(
        Annotate(MakeDirectories(path_), "--save-dir: cannot make the folder"));
    if (access(path_.c_str(), W_OK | X_OK) != 0) {
      return ErrnoStatus(
          errno, absl::StrCat("--save-dir: cannot write to folder ", path_));
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  bool made_ = false;
};

// Says how training goes: a bar within an epoch, a line after it.
class Reporter {
 public:
  Reporter(ProgressBar* bar, int epochs) : bar_(*bar), epochs_(epochs) {}

  void WithinEpoch(int epoch, const TotalProgress& progress) {
    const double all = (epoch + progress.fraction) / epochs_;
    bar_.Update(
        progress.fraction, Name(epoch),
        absl::StrFormat("%.0f images/s  g_loss %.3f  d_loss %.3f  %s",
                        progress.images_per_sec, progress.g_loss,
                        progress.d_loss, time_left_.Text(all, absl::Now())));
  }

  void AfterEpoch(int epoch, double g_loss, double d_loss, double images,
                  double seconds, absl::string_view remark) {
    bar_.Print(absl::StrFormat(
        "%s  g_loss %.4f  d_loss %.4f  %.0f images/s  %.1f s%s", Name(epoch),
        g_loss, d_loss, images / std::max(seconds, 1e-9), seconds, remark));
  }

  ProgressBar& bar() { return bar_; }

 private:
  // "epoch  3/10"
  std::string Name(int epoch) const {
    const std::string total = absl::StrCat(epochs_);
    return absl::StrFormat("epoch %*d/%s", static_cast<int>(total.size()),
                           epoch + 1, total);
  }

  ProgressBar& bar_;
  const int epochs_;
  TimeLeft time_left_;  // Of all epochs; for WithinEpoch.
};

// Classes that the networks know, of so many in the data.
int64_t ClassesOf(const TrainingRunOptions& options, const GanShard& shard) {
  return options.worker.conditional
             ? static_cast<int64_t>(shard.class_names.size())
             : 0;
}

// A network of a GAN that trains on such a shard. weights: as Gan::Weights.
GanModel ModelOf(const TrainingRunOptions& options, const GanShard& shard,
                 GanNetwork network, const NamedTensors& weights) {
  GanModel model = {.network = network,
                    .latent_dim = options.worker.latent_dim,
                    .shape = shard.shape(),
                    .architecture = options.worker.architecture,
                    .classes = ClassesOf(options, shard),
                    .weights = network == GanNetwork::kGenerator
                                   ? SelectTrainedGenerator(weights)
                                   : SelectNetwork(network, weights)};
  if (model.classes > 0) model.class_names = shard.class_names;
  return model;
}

// Saves both networks and the picture, and prints where.
absl::Status SaveResult(const TrainingRunOptions& options,
                        const GanShard& shard, const NamedTensors& weights,
                        ProgressBar* bar) {
  GanModel generator;
  for (const GanNetwork network : kGanNetworks) {
    GanModel model = ModelOf(options, shard, network, weights);
    MR_RETURN_IF_ERROR(SaveGanModel(
        absl::StrCat(options.save_dir, "/", GanNetworkName(network), ".pt"),
        model));
    if (network == GanNetwork::kGenerator) generator = std::move(model);
  }
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ImageGenerator> images,
                      ImageGenerator::Create(generator));
  const std::string picture = absl::StrCat(options.save_dir, "/samples.png");
  const SampleGrid grid = SampleGridFor(generator.classes);
  MR_RETURN_IF_ERROR(SaveImageGrid(
      picture, images->Generate(kSampleSeed, 0, grid.images), grid.columns));
  bar->Print(absl::StrCat("Model: ", options.save_dir, "/generator.pt"));
  bar->Print(absl::StrCat("Picture: ", picture));
  return absl::OkStatus();
}

absl::Status StatusOf(const std::exception& error) {
  return absl::InternalError(FirstLine(error));
}

// A worker's samples. Its memory may be too small for them: that is no end of
// training.
absl::StatusOr<at::Tensor> SamplesOf(const GanWorker& worker, int64_t images) {
  try {
    return worker.SampleImages(kSampleSeed, images);
  } catch (const std::exception& error) {
    return StatusOf(error);
  }
}

absl::Status WritePicture(const SampleWriter& writer, int epoch,
                          const at::Tensor& images, int columns) {
  try {
    return writer.Write(epoch, images, columns);
  } catch (const std::exception& error) {
    return StatusOf(error);
  }
}

// Pictures while training goes on: what fails is a warning.
void WriteSamples(const SampleWriter& writer, int epoch,
                  const absl::StatusOr<at::Tensor>& images, int columns,
                  ProgressBar* bar) {
  const absl::Status written =
      images.ok() ? WritePicture(writer, epoch, *images, columns)
                  : images.status();
  if (written.ok()) return;
  bar->Print(absl::StrCat("Warning: no picture after epoch ", epoch + 1,
                          " (training goes on): ", written.message()));
}

void PrintAverageWarning(const TrainingRunOptions& options, int64_t images,
                         ProgressBar* bar) {
  const std::string warning = AverageWarning(options, images);
  if (!warning.empty()) bar->Print(warning);
}

std::string DataText(const TrainingRunOptions& options, int64_t images,
                     const ImageShape& shape) {
  return absl::StrCat("Training on ", options.worker.dataset, ": ", images,
                      " images of ", shape.ToString(), ", ", options.epochs,
                      options.epochs == 1 ? " epoch" : " epochs");
}

// What an epoch's line says of its distance; the time that it took is in
// *seconds.
std::string FidRemark(const train::Metrics& metrics, double* seconds) {
  const auto time = metrics.find(kFidSecondsMetric);
  *seconds = time == metrics.end() ? 0 : time->second;
  const auto distance = metrics.find(kFidMetric);
  return distance == metrics.end()
             ? ""
             : absl::StrFormat("  %s %.4f", kFidMetric, distance->second);
}

std::string SamplesFolder(const std::string& folder) {
  return absl::StrCat(folder, "/samples");
}

// Keeps freed memory instead of giving it back to the system at every step and
// taking page faults at the next: a tenth of the time. Actor processes are
// started so, and with huge pages.
void KeepFreedMemory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

// Asks the workers, from time to time, how far they are.
class ProgressWatcher {
 public:
  using Ask = std::function<absl::StatusOr<std::vector<train::Progress>>()>;

  ProgressWatcher(Ask ask, Reporter* reporter)
      : ask_(std::move(ask)),
        reporter_(*reporter),
        interval_(reporter->bar().poll_interval()),
        thread_([this] { Watch(); }) {}

  ~ProgressWatcher() {
    done_.Notify();
    thread_.join();
  }

  // From now on, shows progress within `epoch`; between epochs, -1.
  void set_epoch(int epoch) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    epoch_ = epoch;
  }

 private:
  void Watch() ABSL_LOCKS_EXCLUDED(mu_) {
    while (!done_.WaitForNotificationWithTimeout(interval_)) {
      const absl::StatusOr<std::vector<train::Progress>> workers = ask_();
      // Without an answer there is nothing to show; training does not depend
      // on it.
      if (!workers.ok()) continue;
      absl::MutexLock lock(&mu_);
      if (epoch_ >= 0) reporter_.WithinEpoch(epoch_, AddUp(*workers, epoch_));
    }
  }

  const Ask ask_;
  Reporter& reporter_;
  const absl::Duration interval_;
  absl::Mutex mu_;
  int epoch_ ABSL_GUARDED_BY(mu_) = -1;
  absl::Notification done_;
  std::thread thread_;  // Last: it uses the others.
};

absl::Status RunSingle(const TrainingRunOptions& options, ProgressBar* bar) {
  KeepFreedMemory();
  at::set_num_threads(options.threads);
  Reporter reporter(bar, options.epochs);
  GanWorker worker(options.worker);
  MR_RETURN_IF_ERROR(worker.LoadDataShard(0, 1));
  MR_ASSIGN_OR_RETURN(const GanShard shard, worker.DescribeShard());
  bar->Print(absl::StrCat(DataText(options, shard.images, shard.shape()),
                          ", in this process, ", options.threads,
                          options.threads == 1 ? " thread" : " threads"));
  PrintAverageWarning(options, shard.images, bar);
  ProgressWatcher watcher(
      [&worker] { return std::vector{worker.GetProgress()}; }, &reporter);
  FidCurve fid(options.fid);
  LocalGanFidTeam team(&worker);
  if (fid.enabled()) {
    MR_RETURN_IF_ERROR(worker.LoadExtractor(options.fid.extractor));
    MR_RETURN_IF_ERROR(fid.Start(shard.shape(), &team, bar));
  }
  const SampleWriter samples(SamplesFolder(options.save_dir),
                             options.sample_every);
  const SampleGrid grid = SampleGridFor(ClassesOf(options, shard));
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    watcher.set_epoch(epoch);
    absl::StatusOr<train::Metrics> metrics = worker.TrainEpoch(epoch);
    watcher.set_epoch(-1);
    if (!metrics.ok()) {
      return Annotate(metrics.status(), absl::StrCat("epoch ", epoch + 1));
    }
    if (fid.IsDue(epoch, epoch + 1 == options.epochs)) {
      fid.Measure(epoch, &team, bar, &*metrics);
    }
    double fid_seconds = 0;  // Not in the worker's.
    reporter.AfterEpoch(epoch, metrics->at("g_loss"), metrics->at("d_loss"),
                        metrics->at("images"), metrics->at("seconds"),
                        FidRemark(*metrics, &fid_seconds));
    if (samples.IsDue(epoch)) {
      WriteSamples(samples, epoch, SamplesOf(worker, grid.images), grid.columns,
                   bar);
    }
  }
  MR_ASSIGN_OR_RETURN(const NamedTensors weights, worker.GetWeights());
  return SaveResult(options, shard, weights, bar);
}

// A GanTrainer that says how it goes.
class ReportingTrainer : public GanTrainer {
 public:
  ReportingTrainer(const TrainingRunOptions& options, Reporter* reporter)
      : GanTrainer(options.trainer, options.worker, options.threads),
        run_(options),
        reporter_(*reporter),
        fid_(options.fid) {}

  ~ReportingTrainer() override { StopWatching(); }

  // Errors of Describe, which a hook cannot return: the first epoch does, where
  // there is one.
  const absl::Status& status() const { return status_; }
  // Of worker 0.
  const GanShard& shard() const { return shard_; }

  void StopWatching() { watcher_.reset(); }

 protected:
  void OnTrainStart() override { status_ = Describe(); }

  void OnEpochStart(int epoch) override {
    if (watcher_ != nullptr) watcher_->set_epoch(epoch);
  }

  absl::StatusOr<train::EpochResult> TrainEpoch(int epoch) override {
    MR_RETURN_IF_ERROR(status_);
    MR_ASSIGN_OR_RETURN(train::EpochResult result,
                        GanTrainer::TrainEpoch(epoch));
    // After a signal nobody waits for what only the end has.
    const bool last = epoch + 1 == epochs() && !StoppedBySignal();
    if (!fid_.IsDue(epoch, last)) return result;
    if (watcher_ != nullptr) watcher_->set_epoch(-1);
    // One generator is compared: the one that all have then.
    if (needs_sync()) MR_RETURN_IF_ERROR(SyncWeights().status());
    GanFidTeam team(workers());
    fid_.Measure(epoch, &team, &reporter_.bar(), &result.metrics);
    result.notes.resize(static_cast<size_t>(num_workers()));
    result.notes[0][kFidMetric] = fid_.name();
    return result;
  }

  void OnEpochEnd(int epoch, const train::EpochResult& result) override {
    if (watcher_ != nullptr) watcher_->set_epoch(-1);
    double images = 0;
    for (const train::Metrics& metrics : result.per_worker) {
      images += metrics.at("images");
    }
    double fid_seconds = 0;
    const std::string fid = FidRemark(result.metrics, &fid_seconds);
    reporter_.AfterEpoch(epoch, result.metrics.at("g_loss"),
                         result.metrics.at("d_loss"), images,
                         result.seconds - fid_seconds,
                         absl::StrCat(result.synced ? "  synced" : "", fid));
    SaveSamples(epoch);
  }

 private:
  void SaveSamples(int epoch) {
    const std::string& run_folder = last_result().path;
    const SampleWriter samples(
        SamplesFolder(run_folder.empty() ? run_.save_dir : run_folder),
        run_.sample_every);
    if (!samples.IsDue(epoch)) return;
    const SampleGrid grid = SampleGridFor(ClassesOf(run_, shard_));
    const absl::StatusOr<at::Tensor> images =
        workers()[0]
            .Call<&GanWorker::SampleImages>(kSampleSeed, grid.images)
            .Get(kSampleTimeout);
    WriteSamples(samples, epoch, images, grid.columns, &reporter_.bar());
    if (images.ok() && (options().report || !run_folder.empty())) {
      ShowSamples(epoch, *images, grid);
    }
  }

  // The same to who watches the run, and to TensorBoard. What fails has failed
  // for the file, too.
  void ShowSamples(int epoch, const at::Tensor& images,
                   const SampleGrid& grid) {
    try {
      absl::StatusOr<SamplePicture> picture =
          EncodeSamples(images, grid.columns, kMaxImageBytes);
      if (!picture.ok()) return;
      ReportImage("samples", epoch, std::move(picture->png), picture->width,
                  picture->height);
    } catch (const std::exception&) {
    }
  }

  // Looks at the shards, and starts to watch the workers.
  absl::Status Describe() {
    MR_ASSIGN_OR_RETURN(const std::vector<GanShard> shards,
                        CallWorkers<&GanWorker::DescribeShard>());
    int64_t images = 0;
    for (const GanShard& shard : shards) images += shard.images;
    shard_ = shards[0];
    reporter_.bar().Print(
        absl::StrCat(DataText(run_, images, shard_.shape()), ", on ",
                     num_workers(), num_workers() == 1 ? " worker" : " workers",
                     ", ", options().sync_strategy, " every ",
                     options().sync_interval == 1
                         ? "epoch"
                         : absl::StrCat(options().sync_interval, " epochs")));
    // Not again where all workers are made anew.
    if (!std::exchange(warned_, true)) {
      PrintAverageWarning(run_, shard_.images, &reporter_.bar());
    }
    if (fid_.enabled()) MR_RETURN_IF_ERROR(StartFid());
    watcher_ = std::make_unique<ProgressWatcher>(
        [this] { return WorkerProgress(kPollTimeout); }, &reporter_);
    return absl::OkStatus();
  }

  absl::Status StartFid() {
    // Once, however many workers a machine has.
    const ObjectRef<ExtractorFile> extractor =
        cluster().Put(fid_.options().extractor);
    MR_RETURN_IF_ERROR(CallWorkers<&GanWorker::LoadExtractor>(extractor));
    GanFidTeam team(workers());
    return fid_.Start(shard_.shape(), &team, &reporter_.bar());
  }

  const TrainingRunOptions& run_;
  Reporter& reporter_;
  FidCurve fid_;
  absl::Status status_;
  GanShard shard_;
  bool warned_ = false;
  std::unique_ptr<ProgressWatcher> watcher_;  // Null until there are workers.
};

absl::Status RunDistributed(const TrainingRunOptions& options,
                            ProgressBar* bar) {
  Reporter reporter(bar, options.epochs);
  ReportingTrainer trainer(options, &reporter);
  MR_ASSIGN_OR_RETURN(const train::Result result,
                      trainer.Train({.epochs = options.epochs}));
  MR_RETURN_IF_ERROR(trainer.status());
  trainer.StopWatching();
  if (!result.path.empty()) {
    bar->Print(absl::StrCat("Run folder: ", result.path));
  }
  // A signal in the last epoch changes nothing.
  if (!result.stopped_by.empty() &&
      (static_cast<int>(result.history.size()) < options.epochs ||
       !result.history.back().synced)) {
    return absl::CancelledError(absl::StrCat(
        "stopped by ", result.stopped_by, " after ", result.history.size(),
        " of ", options.epochs, " epochs; checkpoint: ", result.checkpoint));
  }

  // What matters most comes first.
  // The last synchronisation was after the last epoch.
  MR_ASSIGN_OR_RETURN(const NamedTensors average, trainer.PullWeights());
  MR_RETURN_IF_ERROR(SaveResult(options, trainer.shard(), average, bar));
  for (int i = 0; i < trainer.num_workers(); ++i) {
    // One at a time, so that this process never holds them all.
    absl::StatusOr<NamedTensors> weights =
        trainer.workers()[i].Call<&GanWorker::GetWeights>().Get();
    if (!weights.ok()) {
      return Annotate(weights.status(), absl::StrCat("cannot save worker ", i));
    }
    const std::string folder = absl::StrCat(options.save_dir, "/worker_", i);
    MR_RETURN_IF_ERROR(MakeDirectories(folder));
    MR_RETURN_IF_ERROR(SaveGanModel(
        folder + "/generator.pt",
        ModelOf(options, trainer.shard(), GanNetwork::kGenerator, *weights)));
  }
  bar->Print(absl::StrCat(
      "Workers: ", options.save_dir, "/worker_0",
      trainer.num_workers() == 1
          ? ""
          : absl::StrCat(" to worker_", trainer.num_workers() - 1)));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunTraining(const TrainingRunOptions& options, ProgressBar* bar) {
  SaveFolder folder(options.save_dir);
  MR_RETURN_IF_ERROR(folder.Prepare());
  try {
    return options.distributed ? RunDistributed(options, bar)
                               : RunSingle(options, bar);
  } catch (const std::exception& error) {
    return StatusOf(error);
  }
}

std::string AverageWarning(const TrainingRunOptions& options, int64_t images) {
  constexpr double kMostLeft = 0.05;       // What passes without a word,
  constexpr double kSuggestedLeft = 0.01;  // and what is proposed.
  const double decay = options.worker.ema_decay;
  const int64_t batches = images / std::min(options.worker.batch_size, images);
  const double steps =
      std::ceil(static_cast<double>(batches) /
                static_cast<double>(options.worker.loop.accumulate)) *
      options.epochs;
  const double left = std::pow(decay, steps);
  if (left < kMostLeft) return "";
  const double better = std::pow(kSuggestedLeft, 1 / std::max(steps, 1.0));
  // Two digits of what it lacks to 1: 0.46, 0.954, 0.99954.
  const int digits =
      std::max(2, 1 + static_cast<int>(std::ceil(-std::log10(1 - better))));
  return absl::StrFormat(
      "Warning: the generator's average will still be %.0f%% initial weights "
      "after %.0f %s; take a smaller --ema-decay, such as %.*f",
      100 * left, steps, steps == 1 ? "step" : "steps", digits, better);
}

}  // namespace miniray::ml
