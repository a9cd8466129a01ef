// The part of TrainerBase that takes checkpoints and goes on from them.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "train/trainer_base.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

namespace fs = std::filesystem;

// In a run's folder: the checkpoint of another run that it began from.
constexpr char kOriginFile[] = "/resumed_from";

// Empty: it did not.
absl::StatusOr<std::string> ReadOrigin(const std::string& file) {
  absl::StatusOr<std::string> origin = ReadFile(file);
  if (absl::IsNotFound(origin.status())) return std::string();
  return origin;
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::weakly_canonical(path, error);
  return error ? path : absolute.string();
}

// Which checkpoints lie in; they have a history too.
bool IsRunFolder(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path + "/history.jsonl", ignored) &&
         !fs::exists(path + "/manifest.json", ignored);
}

}  // namespace

absl::Status TrainerBase::OpenRun() {
  const CheckpointConfig& config = options_.checkpoint;
  const bool resumes = config.resume != "never";
  if ((config.enabled() || resumes) && !WorkersHaveCheckpoints()) {
    return absl::FailedPreconditionError(
        "checkpoints need workers with `train::CheckpointFiles "
        "SaveCheckpoint()` and `void LoadCheckpoint(const "
        "train::CheckpointFiles&)`, listed in their MINIRAY_ACTOR");
  }
  checkpointed_epochs_ = 0;
  if (options_.storage_path.empty()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(
      run_folder_,
      resumes ? RunFolder::Open(options_.storage_path, options_.name)
              : RunFolder::Create(options_.storage_path, options_.name));
  result_.path = run_folder_->path();
  if (!resumes) {
    std::error_code ignored;
    fs::remove(run_folder_->path() + kOriginFile, ignored);
  }
  if (!config.enabled() && !resumes) return absl::OkStatus();

  store_ = std::make_unique<CheckpointStore>(run_folder_->path(), config);
  std::vector<std::string> warnings;
  if (resumes) MR_RETURN_IF_ERROR(FindCheckpoint(&warnings));
  if (resumed_.has_value() && !IsElastic(options_) &&
      resumed_->workers.size() != static_cast<size_t>(options_.num_workers)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint is of ", resumed_->workers.size(),
        " workers, and num_workers is ", options_.num_workers,
        "; give num_workers (--workers) ", resumed_->workers.size(),
        ", or, in a program of your own, max_workers"));
  }
  MR_RETURN_IF_ERROR(store_->BeginAt(
      resumed_.has_value() ? resumed_->epochs() : 0, &warnings));
  store_->Tell(&result_);
  for (const std::string& warning : warnings) context_.Warn(warning);
  if (resumes) {
    MR_RETURN_IF_ERROR(run_folder_->Begin());
    // What result.json says if training ends before it has begun.
    if (resumed_.has_value()) result_.history = resumed_->history;
    run_folder_->SetHistory(context_, result_.history);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Checkpoint>> TrainerBase::LastCheckpoint(
    std::vector<std::string>* warnings) const {
  MR_ASSIGN_OR_RETURN(std::optional<Checkpoint> last,
                      store_->ReadLast(warnings));
  if (last.has_value()) return last;
  const std::string origin_file = run_folder_->path() + kOriginFile;
  MR_ASSIGN_OR_RETURN(const std::string origin, ReadOrigin(origin_file));
  if (origin.empty()) return std::nullopt;
  absl::StatusOr<Checkpoint> found = ReadCheckpoint(origin);
  if (found.ok()) return *std::move(found);
  return Annotate(found.status(),
                  absl::StrCat("what ", origin_file, " says it began from"));
}

absl::Status TrainerBase::FindCheckpoint(std::vector<std::string>* warnings) {
  const std::string& resume = options_.checkpoint.resume;
  const std::string origin_file = run_folder_->path() + kOriginFile;
  MR_ASSIGN_OR_RETURN(const std::string origin, ReadOrigin(origin_file));
  if (resume == "auto" || (run_folder_->had_epochs() && !origin.empty() &&
                           origin == AbsolutePath(resume))) {
    MR_ASSIGN_OR_RETURN(resumed_, LastCheckpoint(warnings));
    if (!resumed_.has_value() && run_folder_->had_epochs()) {
      warnings->push_back(absl::StrCat(
          run_folder_->path(),
          " has epochs but no checkpoint: they are trained again"));
    }
    return absl::OkStatus();
  }
  if (IsRunFolder(resume)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint.resume is ", resume,
        ", the folder of a run: it must be 'auto', to go on with the run of "
        "this name, or one of the checkpoints in the folder"));
  }
  absl::StatusOr<Checkpoint> found = ReadCheckpoint(resume);
  if (!found.ok()) return Annotate(found.status(), "checkpoint.resume");
  resumed_ = *std::move(found);
  std::error_code error;
  const fs::path real = fs::canonical(resume, error);
  if (!error &&
      fs::equivalent(real.parent_path(), run_folder_->path(), error)) {
    const std::string name = CheckpointName(resumed_->epochs());
    if (real.filename() == name) return absl::OkStatus();
    // After a kill 'auto' would not find it again.
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint.resume is ", resume,
                     ", which was set aside when training went on from an "
                     "earlier one, or renamed; to go on from it, give it back "
                     "its name, ",
                     name));
  }
  if (run_folder_->had_epochs()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "checkpoint.resume is ", resume, ", of another run than ",
        run_folder_->path(),
        ", which has epochs that did not begin there; use another name, or "
        "'auto' to go on with them"));
  }
  // Before there is anything else: whoever is killed now begins there again.
  MR_RETURN_IF_ERROR(WriteFileAtomically(origin_file, AbsolutePath(resume)));
  MR_RETURN_IF_ERROR(SyncToDisk(origin_file));
  return SyncToDisk(run_folder_->path());
}

void TrainerBase::CloseRun() {
  store_.reset();
  run_folder_.reset();
  resumed_.reset();
}

bool TrainerBase::CheckpointIsDue(int epochs, bool last) const {
  const CheckpointConfig& config = options_.checkpoint;
  if (!config.enabled() || epochs == checkpointed_epochs_) return false;
  if (last && config.at_end) return true;
  return config.frequency > 0 && epochs % config.frequency == 0;
}

absl::Status TrainerBase::TakeCheckpoint() {
  // Its history has the evaluation of this epoch, too.
  MR_RETURN_IF_ERROR(CollectEvaluation(/*wait=*/true));
  absl::Time start = absl::Now();
  const auto previous = store_->MakeWay();
  const double waited = SecondsSince(start);
  NoteCheckpoint(previous);
  start = absl::Now();  // Hooks do not count.
  MR_ASSIGN_OR_RETURN(Checkpoint checkpoint, Snapshot());
  MR_RETURN_IF_ERROR(Annotate(CheckFileNames(checkpoint), "SaveCheckpoint"));
  checkpointed_epochs_ = checkpoint.epochs();
  const std::string missing = MissingScoreWarning(
      options_.checkpoint, result_.metrics(), "epochs with a checkpoint");
  if (!missing.empty()) context_.Warn(missing);
  store_->Write(std::move(checkpoint));
  result_.history.back().timing.checkpoint += waited + SecondsSince(start);
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> TrainerBase::Snapshot() {
  Checkpoint checkpoint{.needs_sync = needs_sync_, .history = result_.history};
  std::vector<ObjectRef<CheckpointFiles>> refs(workers_.size());
  const auto call = [&](int id) {
    refs[id] = workers_[id].CallByName<CheckpointFiles>("SaveCheckpoint");
    return refs[id].state();
  };
  MR_RETURN_IF_ERROR(CallAndAwait("SaveCheckpoint", call));
  MR_ASSIGN_OR_RETURN(checkpoint.workers, GetAll(refs));
  MR_RETURN_IF_ERROR(
      Annotate(SaveServer(&checkpoint.server), "the parameter server"));
  return checkpoint;
}

absl::Status TrainerBase::LoadInto(const Checkpoint& checkpoint) {
  MR_RETURN_IF_ERROR(
      Annotate(LoadServer(checkpoint.server), "the parameter server"));
  const size_t num_saved = checkpoint.workers.size();
  if (num_saved > workers_.size() && checkpoint.needs_sync) {
    context_.Warn(absl::StrCat("the checkpoint is of ", num_saved,
                               " workers, and training goes on "
                               "with ",
                               workers_.size(),
                               ": what the others had trained since the "
                               "last synchronisation is lost"));
  }
  std::vector<Call> calls;
  for (size_t i = 0; i < workers_.size(); ++i) {
    calls.push_back(workers_[i]
                        .CallByName<void>("LoadCheckpoint",
                                          checkpoint.workers[i % num_saved])
                        .state());
  }
  return AwaitWorkers(std::move(calls), "LoadCheckpoint");
}

absl::Status TrainerBase::GoOnFrom(std::optional<Checkpoint> checkpoint,
                                   bool anew) {
  const int epochs = checkpoint.has_value() ? checkpoint->epochs() : 0;
  if (anew && store_ != nullptr) {
    std::vector<std::string> warnings;
    MR_RETURN_IF_ERROR(store_->BeginAt(epochs, &warnings));
    for (const std::string& warning : warnings) context_.Warn(warning);
    store_->Tell(&result_);
  }
  if (checkpoint.has_value()) needs_sync_ = checkpoint->needs_sync;
  checkpointed_epochs_ = epochs;
  result_.history = checkpoint.has_value() ? std::move(checkpoint->history)
                                           : std::vector<EpochResult>();
  current_epoch_ = epochs;
  if (anew && run_folder_ != nullptr) {
    run_folder_->SetHistory(context_, result_.history);
  }
  LOG(INFO) << "goes on after " << epochs << " epochs"
            << (result_.path.empty() ? "" : absl::StrCat(" of ", result_.path));
  OnResume(result_.history);
  for (const auto& callback : callbacks_) {
    callback->OnResume(context_, result_.history);
  }
  return absl::OkStatus();
}

void TrainerBase::NoteCheckpoint(
    const std::optional<CheckpointStore::Outcome>& outcome) {
  if (!outcome.has_value()) return;
  for (const std::string& warning : outcome->warnings) context_.Warn(warning);
  if (!outcome->written.ok()) {
    context_.Warn(absl::StrCat("a checkpoint could not be written: ",
                               outcome->written.status().message()));
    return;
  }
  store_->Tell(&result_);
  OnCheckpoint(*outcome->written);
  for (const auto& callback : callbacks_) {
    callback->OnCheckpoint(context_, *outcome->written);
  }
}

}  // namespace miniray::train
