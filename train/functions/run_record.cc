#include "train/functions/run_record.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"
#include "train/metrics.h"
#include "train/report_run.h"
#include "train/stop_signals.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

// Of the failures behind the first, those that a message has.
constexpr size_t kMaxLaterErrors = 3;

// The range of metrics over the ranks, where it means something.
void SetRange(EpochResult* epoch) {
  if (!AverageMetrics(epoch->per_worker).ok()) return;
  MetricsRange range = RangeOfMetrics(epoch->per_worker);
  epoch->min = std::move(range.min);
  epoch->max = std::move(range.max);
}

}  // namespace

RunRecord::RunRecord(const TorchTrainerOptions& options)
    : config_(options.run),
      resume_from_(options.resume_from_checkpoint),
      name_(options.run.name),
      context_(options.scaling.num_workers.min, /*epochs=*/0) {}

absl::StatusOr<std::unique_ptr<RunRecord>> RunRecord::Open(
    const TorchTrainerOptions& options) {
  std::unique_ptr<RunRecord> record(new RunRecord(options));
  const RunConfig& config = record->config_;
  if (!config.storage_path.empty()) {
    MR_ASSIGN_OR_RETURN(record->folder_,
                        RunFolder::Open(config.storage_path, config.name));
    const std::string& path = record->folder_->path();
    if (record->folder_->had_epochs() && !config.resume) {
      return absl::AlreadyExistsError(
          absl::StrCat("the folder ", path,
                       " has the reports of another training, and run.resume "
                       "is false; use another run.name, or remove it"));
    }
    record->name_ = std::filesystem::path(path).filename().string();
    record->result_.path = path;
    record->store_ = std::make_unique<CheckpointStore>(path, config.checkpoint);
    record->callbacks_.push_back(record->folder_);
  }
  record->callbacks_.insert(record->callbacks_.end(), config.callbacks.begin(),
                            config.callbacks.end());
  return record;
}

void RunRecord::BeginReport(const Cluster& cluster) {
  if (!config_.report) return;
  report_ = ReportRun::Start(cluster, {.run_id = config_.run_id,
                                       .name = name_,
                                       .kind = "TorchTrainer",
                                       .folder = result_.path});
  if (report_ != nullptr) callbacks_.push_back(report_);
}

absl::StatusOr<std::optional<Checkpoint>> RunRecord::LastCheckpoint() {
  if (store_ != nullptr) {
    Note(store_->Wait());
    std::vector<std::string> warnings;
    MR_ASSIGN_OR_RETURN(std::optional<Checkpoint> last,
                        store_->ReadLast(&warnings));
    WarnAll(warnings);
    if (last.has_value()) return last;
  } else if (in_memory_.has_value()) {
    return in_memory_;
  }
  if (resume_from_.empty()) return std::nullopt;
  absl::StatusOr<Checkpoint> origin = ReadCheckpoint(resume_from_);
  if (!origin.ok()) return Annotate(origin.status(), "resume_from_checkpoint");
  return *std::move(origin);
}

absl::Status RunRecord::BeginAt(const std::optional<Checkpoint>& checkpoint,
                                bool anew, int num_workers) {
  context_.set_num_workers(num_workers);
  const bool had_epochs = folder_ != nullptr && folder_->had_epochs();
  result_.history =
      checkpoint.has_value() ? checkpoint->history : std::vector<EpochResult>();
  if (store_ != nullptr) {
    std::vector<std::string> warnings;
    MR_RETURN_IF_ERROR(store_->BeginAt(num_reports(), &warnings));
    WarnAll(warnings);
    store_->Tell(&result_);
    has_checkpoints_ |= !result_.checkpoint.empty();
  }
  const bool is_first = !start_.has_value();
  if (is_first && folder_ != nullptr) MR_RETURN_IF_ERROR(folder_->Begin());
  const bool goes_on = checkpoint.has_value() || had_epochs || anew;
  if (goes_on && folder_ != nullptr) {
    folder_->SetHistory(context_, result_.history);
  }
  if (!checkpoint.has_value() && had_epochs && !anew) {
    context_.Warn(absl::StrCat(
        folder_->path(), " has reports but no checkpoint: it begins again"));
  }
  last_report_ = absl::Now();
  if (is_first) {
    start_ = last_report_;
    for (const auto& callback : callbacks_) callback->OnTrainStart(context_);
  }
  if (!checkpoint.has_value() && !anew) {
    // Else the first report would be the first that is heard of it.
    if (report_ != nullptr) report_->Begin(context_, /*first_epoch=*/0);
    return absl::OkStatus();
  }
  LOG(INFO) << "training goes on after " << num_reports() << " reports"
            << (result_.path.empty() ? "" : absl::StrCat(" of ", result_.path));
  for (const auto& callback : callbacks_) {
    callback->OnResume(context_, result_.history);
  }
  return absl::OkStatus();
}

ReportReply RunRecord::Take(std::vector<RankReport> reports,
                            const ReportTimes& times) {
  EpochResult epoch;
  epoch.epoch = num_reports();
  epoch.metrics = reports.at(0).metrics;
  for (const RankReport& report : reports) {
    epoch.per_worker.push_back(report.metrics);
  }
  SetRange(&epoch);
  epoch.seconds = SecondsSince(last_report_);
  epoch.timing = {.compute = times.last, .wait = times.last - times.mean};
  result_.history.push_back(std::move(epoch));
  LOG(INFO) << "report " << num_reports() << ": "
            << MetricsText(result_.history.back().metrics)
            << absl::StrFormat(" (%.2f s)", result_.history.back().seconds);
  for (const auto& callback : callbacks_) {
    callback->OnEpochEnd(context_, result_.history.back());
  }
  if (num_reports() >= reports_to_recover_) {
    failures_in_a_row_ = 0;
    backoff_.Reset();
  }
  if (store_ != nullptr) Note(store_->Poll());

  const bool has_checkpoint = std::any_of(
      reports.begin(), reports.end(),
      [](const RankReport& report) { return !report.checkpoint.empty(); });
  ReportReply reply;
  if (has_checkpoint) TakeCheckpoint(std::move(reports));
  has_checkpoints_ |= has_checkpoint;
  ends_with_checkpoint_ = has_checkpoint;
  if (StoppedBySignal()) {
    // With a checkpoint to go on from, where the function makes any; whether it
    // does is known once it has been asked for one.
    reply.stop = has_checkpoint || (signal_noticed_ && !has_checkpoints_);
    reply.wants_checkpoint = signal_noticed_ = true;
    result_.stopped_by = StopSignals::Name();
  }
  if (context_.stop_requested()) reply.stop = true;
  last_report_ = absl::Now();
  return reply;
}

void RunRecord::TakeCheckpoint(std::vector<RankReport> reports) {
  const absl::Time start = absl::Now();
  const auto previous = store_ == nullptr ? std::nullopt : store_->MakeWay();
  result_.history.back().timing.checkpoint = SecondsSince(start);
  Note(previous);
  Checkpoint checkpoint = {.history = result_.history};
  for (RankReport& report : reports) {
    checkpoint.workers.push_back(std::move(report.checkpoint));
  }
  if (store_ == nullptr) {
    in_memory_ = std::move(checkpoint);
    return;
  }
  const std::string missing = MissingScoreWarning(
      config_.checkpoint, result_.metrics(), "reports of rank 0");
  if (!missing.empty()) context_.Warn(missing);
  store_->Write(std::move(checkpoint));
}

bool RunRecord::AwaitCheckpoint() {
  if (store_ == nullptr) return true;
  const bool written = store_->AwaitTry();
  Note(store_->Poll());
  return written;
}

void RunRecord::Note(const std::optional<CheckpointStore::Outcome>& outcome) {
  if (!outcome.has_value()) return;
  WarnAll(outcome->warnings);
  if (!outcome->written.ok()) {
    context_.Warn(absl::StrCat("a checkpoint could not be written: ",
                               outcome->written.status().message()));
    return;
  }
  store_->Tell(&result_);
  for (const auto& callback : callbacks_) {
    callback->OnCheckpoint(context_, *outcome->written);
  }
}

void RunRecord::WarnAll(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) context_.Warn(warning);
}

bool RunRecord::BearFailure(int rank, const absl::Status& error) {
  const int limit = config_.failure.max_failures;
  const int number = static_cast<int>(result_.failures.size()) + 1;
  const WorkerFailure failure{
      .epoch = num_reports(),
      .worker_id = rank,
      .error = error,
      .number = number,
      .fatal = (limit >= 0 && number > limit) || StoppedBySignal()};
  result_.failures.push_back(failure);
  if (!failure.fatal) {
    LOG(WARNING) << "failure " << number << " of "
                 << (limit < 0 ? "any number" : absl::StrCat(limit))
                 << " that are borne: " << error.message();
  }
  for (const auto& callback : callbacks_) {
    callback->OnWorkerFailure(context_, failure);
  }
  return !failure.fatal;
}

absl::Duration RunRecord::PauseAfterFailure() {
  reports_to_recover_ = std::max(reports_to_recover_, num_reports() + 1);
  return ++failures_in_a_row_ == 1 ? absl::ZeroDuration() : backoff_.Next();
}

absl::Status RunRecord::FirstError(const absl::Status& last) const {
  const std::vector<WorkerFailure>& failures = result_.failures;
  if (failures.empty()) return last;
  std::vector<absl::string_view> later;
  for (size_t i = 1; i < failures.size(); ++i) {
    later.push_back(failures[i].error.message());
  }
  if (failures.back().error != last) later.push_back(last.message());
  const absl::Status& first = failures.front().error;
  std::string text(first.message());
  // The last ones tell why training could not go on.
  const size_t left_out =
      later.size() - std::min(later.size(), kMaxLaterErrors);
  if (left_out > 0) absl::StrAppend(&text, "; ", left_out, " more failures");
  for (size_t i = left_out; i < later.size(); ++i) {
    absl::StrAppend(&text, "; then: ", later[i]);
  }
  return absl::Status(first.code(), text);
}

void RunRecord::End(const absl::Status& status) {
  if (store_ != nullptr) Note(store_->Wait());
  if (StoppedBySignal()) result_.stopped_by = StopSignals::Name();
  if (start_.has_value()) result_.seconds = SecondsSince(*start_);
  result_.error = status;
  result_.warnings = context_.warnings();
  for (const auto& callback : callbacks_) {
    callback->OnTrainEnd(context_, result_);
  }
  result_.warnings = context_.warnings();
  callbacks_.clear();
  report_.reset();
  folder_.reset();  // Another training may have it now.
  store_.reset();
}

bool RunRecord::CatchesSignals() const {
  return store_ != nullptr && config_.checkpoint.on_signal;
}

bool RunRecord::StoppedBySignal() const {
  return CatchesSignals() && StopSignals::Received() != 0;
}

}  // namespace miniray::train
