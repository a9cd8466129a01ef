#include "train/run_folder.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "train/merge_metrics.h"

namespace miniray::train {
namespace {

namespace fs = std::filesystem;

constexpr char kResultFile[] = "/result.json";

// Makes the folder, for good: the disk has its name, too, and those of folders
// above it that are new.
absl::Status MakeFolder(const std::string& folder) {
  std::vector<std::string> parents;  // Of what is not there yet.
  std::error_code error;
  for (fs::path path = folder;
       path.has_relative_path() && !fs::exists(path, error);
       path = path.parent_path()) {
    parents.push_back(path.parent_path().string());
  }
  MR_RETURN_IF_ERROR(MakeDirectories(folder));
  for (const std::string& parent : parents) {
    MR_RETURN_IF_ERROR(SyncToDisk(parent));
  }
  return absl::OkStatus();
}

// What TensorBoard shows of an epoch, by tag.
std::map<std::string, double> Scalars(const EpochResult& result) {
  std::map<std::string, double> scalars;
  const std::pair<const char*, const Metrics*> kinds[] = {
      {"/mean", &result.metrics}, {"/min", &result.min}, {"/max", &result.max}};
  for (const auto& [kind, metrics] : kinds) {
    for (const auto& [name, value] : *metrics) {
      // An evaluation has no range over the workers.
      const bool is_evaluation = absl::StartsWith(name, kEvaluationPrefix);
      scalars[is_evaluation ? name : absl::StrCat(name, kind)] = value;
    }
  }
  scalars["seconds/epoch"] = result.seconds;
  scalars["seconds/compute"] = result.timing.compute;
  scalars["seconds/wait"] = result.timing.wait;
  scalars["seconds/sync"] = result.timing.sync;
  return scalars;
}

}  // namespace

absl::Status CheckRunName(const std::string& name) {
  if (!absl::StrContains(name, '/') && name.find('\0') == std::string::npos &&
      name != "." && name != "..") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "name must be that of a folder, without '/', got '", name, "'"));
}

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Create(
    const std::string& storage_path, const std::string& name) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<RunFolder> folder,
                      Open(storage_path, name));
  if (folder->had_epochs()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "the folder ", folder->path(),
        " has the epochs of another training; use another name, remove it, or "
        "go on with it (checkpoint.resume; --resume=auto)"));
  }
  MR_RETURN_IF_ERROR(folder->Begin());
  return folder;
}

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Open(
    const std::string& storage_path, const std::string& name) {
  MR_RETURN_IF_ERROR(CheckRunName(name));
  const std::string folder =
      name.empty() ? NewId(absl::FormatTime("%Y-%m-%d_%H-%M-%S", absl::Now(),
                                            absl::LocalTimeZone()))
                   : name;
  std::error_code error;
  const std::string path =
      (fs::absolute(storage_path, error) / folder).string();
  if (error) {
    return ErrnoStatus(error.value(),
                       absl::StrCat("storage_path '", storage_path, "'"));
  }
  MR_RETURN_IF_ERROR(Annotate(MakeFolder(path), "storage_path"));
  MR_ASSIGN_OR_RETURN(AppendedFile history,
                      AppendedFile::Open(path + "/history.jsonl"));
  return std::unique_ptr<RunFolder>(new RunFolder(path, std::move(history)));
}

RunFolder::RunFolder(std::string path, AppendedFile history)
    : path_(std::move(path)), history_(std::move(history)) {}

absl::Status RunFolder::Begin() {
  MR_ASSIGN_OR_RETURN(events_, EventFile::Create(path_, absl::Now()));
  const std::string result = path_ + kResultFile;
  std::error_code error;
  fs::remove(result, error);
  if (!error) return absl::OkStatus();
  return ErrnoStatus(error.value(), absl::StrCat("remove ", result));
}

void RunFolder::SetHistory(TrainContext& context,
                           const std::vector<EpochResult>& history) {
  std::string lines;
  for (const EpochResult& epoch : history) {
    absl::StrAppend(&lines, epoch.ToJson(), "\n");
  }
  Check(context, history_.Replace(lines));
  Check(context,
        events_->AddStart(static_cast<int64_t>(history.size()), absl::Now()));
}

void RunFolder::Image(TrainContext& context, const std::string& name, int epoch,
                      const std::string& png, int width, int height) {
  Check(context,
        events_->AddImage(epoch, absl::Now(), name, png, width, height));
}

void RunFolder::OnEpochEnd(TrainContext& context, const EpochResult& result) {
  Check(context, history_.Append(result.ToJson() + "\n"));
  Check(context,
        events_->AddScalars(result.epoch, absl::Now(), Scalars(result)));
}

void RunFolder::OnEvaluation(TrainContext& context, const EpochResult& result) {
  const Metrics metrics = EvaluationOf(result.metrics);
  Check(context,
        history_.Append(EvaluationToJson(result.epoch, metrics) + "\n"));
  Check(context, events_->AddScalars(result.epoch, absl::Now(),
                                     std::map<std::string, double>(
                                         metrics.begin(), metrics.end())));
}

void RunFolder::OnTrainEnd(TrainContext& context, const Result& result) {
  Check(context, history_.Flush());
  if (events_.has_value()) Check(context, events_->Flush());
  Check(context,
        WriteFileAtomically(path_ + kResultFile, result.ToJson() + "\n"));
}

void RunFolder::Check(TrainContext& context,
                      const absl::Status& written) const {
  if (written.ok()) return;
  context.Warn(
      absl::StrCat("the run folder is not complete: ", written.message()));
}

}  // namespace miniray::train
