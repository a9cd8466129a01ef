#include "train/trainer_base.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/await_calls.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "train/merge_metrics.h"
#include "train/report_run.h"
#include "train/run_folder.h"
#include "train/stop_signals.h"
#include "train/waits.h"

namespace miniray::train {

TrainerBase::TrainerBase(TrainerOptions options)
    : options_(std::move(options)), cluster_(options_.cluster) {}

TrainerBase::~TrainerBase() { TrainerBase::Shutdown(); }

absl::StatusOr<Result> TrainerBase::Train(const RunOptions& run) {
  if (started_) {
    return absl::FailedPreconditionError(
        "this trainer has trained already; call Shutdown() to end its workers "
        "and train anew, or make another trainer");
  }
  MR_RETURN_IF_ERROR(Validate(options_));
  MR_RETURN_IF_ERROR(Validate(run));
  MR_RETURN_IF_ERROR(CheckSetup());
  result_ = Result();
  context_ = TrainContext(options_.num_workers, run.epochs);
  if (absl::Status opened = OpenRun(); !opened.ok()) {
    CloseRun();
    return opened;
  }
  callbacks_.clear();
  if (run_folder_ != nullptr) callbacks_.push_back(run_folder_);
  callbacks_.insert(callbacks_.end(), options_.callbacks.begin(),
                    options_.callbacks.end());
  started_ = true;
  train_start_.reset();
  needs_sync_ = false;
  current_epoch_ = 0;
  timing_ = {};
  stop_at_.reset();
  num_regroups_ = failures_in_a_row_ = epochs_to_recover_ = 0;
  backoff_.Reset();
  heals_ = starting_ = recovering_ = gives_up_ = false;
  grows_ = IsElastic(options_);
  failed_worker_ = -1;
  failed_call_ = absl::OkStatus();
  run_ = run;
  run_id_ = NewId("train");
  absl::Status status;
  std::optional<StopSignals> signals;
  if (options_.checkpoint.enabled() && options_.checkpoint.on_signal) {
    signals.emplace();
  }
  try {
    status = Run();
  } catch (const std::exception& error) {
    End(absl::InternalError(
        absl::StrCat("an exception ended Train: ", error.what())));
    throw;
  }
  End(status);
  if (!status.ok()) {
    Shutdown();
    return status;
  }
  return result_;
}

absl::Status TrainerBase::CheckSetup() const {
  const auto no_effect = [](absl::string_view option) {
    return absl::InvalidArgumentError(absl::StrCat(
        option,
        " has no effect on a BaseTrainer, whose epochs are the user's own; "
        "derive from DataParallelTrainer"));
  };
  if (IsElastic(options_)) return no_effect("max_workers");
  if (options_.sync_every > 0) return no_effect("sync_every");
  if (options_.overlap_sync) return no_effect("overlap_sync");
  if (options_.evaluate_every > 0) return no_effect("evaluate_every");
  if (options_.num_evaluators > 0) return no_effect("num_evaluators");
  if (options_.sync_interval > 1) return no_effect("sync_interval");
  return absl::OkStatus();
}

void TrainerBase::End(const absl::Status& status) {
  if (store_ != nullptr) NoteCheckpoint(store_->Wait());
  if (StoppedBySignal()) result_.stopped_by = StopSignals::Name();
  if (train_start_.has_value()) result_.seconds = SecondsSince(*train_start_);
  result_.error = status;
  if (status.ok()) OnTrainEnd(result_);
  result_.warnings = context_.warnings();
  for (const auto& callback : callbacks_) {
    callback->OnTrainEnd(context_, result_);
  }
  result_.warnings = context_.warnings();
  callbacks_.clear();
  report_.reset();
  CloseRun();  // Another training may have the folder now.
}

absl::Status TrainerBase::Run() {
  if (!cluster_.has_value()) {
    // An embedded cluster has room for every worker, even if they have to share
    // the machine's cores.
    ClusterOptions cluster;
    const int num_actors =
        std::max(options_.num_workers, options_.max_workers) +
        options_.num_evaluators;
    cluster.embedded_num_cpus =
        std::max<double>(std::thread::hardware_concurrency(),
                         std::ceil(num_actors * options_.worker_resources.cpu));
    MR_ASSIGN_OR_RETURN(cluster_, Cluster::Connect(cluster));
  }
  BeginReport();
  return RunAndRecover();
}

void TrainerBase::BeginReport() {
  if (!options_.report) return;
  const std::string& folder = result_.path;
  std::string name = folder.empty()
                         ? run_id_
                         : std::filesystem::path(folder).filename().string();
  report_ = ReportRun::Start(*cluster_, {.run_id = options_.run_id,
                                         .name = std::move(name),
                                         .kind = Kind(),
                                         .folder = folder});
  if (report_ != nullptr) callbacks_.push_back(report_);
}

void TrainerBase::WatchWorkers() {
  if (report_ == nullptr) return;
  // Within an epoch of pieces, workers know how far they are in a piece.
  const bool asks = WorkersHaveProgress() && options_.sync_every == 0;
  report_->Watch(asks ? workers_ : std::vector<AnyActorHandle>(),
                 ServerHandle());
}

void TrainerBase::ReportImage(const std::string& name, int epoch,
                              std::string png, int width, int height) {
  if (run_folder_ != nullptr) {
    run_folder_->Image(context_, name, epoch, png, width, height);
  }
  if (report_ == nullptr) return;
  report_->Image(name, epoch, std::move(png), width, height);
}

absl::Status TrainerBase::Begin(std::optional<Checkpoint> checkpoint,
                                bool anew) {
  const absl::Status started = StartActors();
  if (absl::IsCancelled(started)) MR_RETURN_IF_ERROR(CheckNotStopped());
  MR_RETURN_IF_ERROR(started);
  MR_RETURN_IF_ERROR(AfterWorkers());
  const bool is_first = !train_start_.has_value();
  if (is_first) train_start_ = absl::Now();
  OnTrainStart();
  if (is_first) {
    for (const auto& callback : callbacks_) {
      callback->OnTrainStart(context_);
    }
  }
  if (checkpoint.has_value()) MR_RETURN_IF_ERROR(LoadInto(*checkpoint));
  return checkpoint.has_value() || anew ? GoOnFrom(std::move(checkpoint), anew)
                                        : absl::OkStatus();
}

int TrainerBase::EpochsToTrain(int epochs) {
  if (context_.stop_requested() && !stop_at_.has_value()) {
    stop_at_ = std::min(epochs, run_.epochs);
  }
  return stop_at_.value_or(run_.epochs);
}

absl::Status TrainerBase::RunEpochs() {
  std::vector<EpochResult>& history = result_.history;
  const auto num_epochs = [&] { return static_cast<int>(history.size()); };
  bool stopped = StoppedBySignal();
  while (!stopped && num_epochs() < EpochsToTrain(num_epochs())) {
    const int epoch = num_epochs();
    if (IsElastic(options_)) {
      current_epoch_ = epoch;
      MR_RETURN_IF_ERROR(Annotate(Grow(), EpochName(epoch)));
    }
    absl::StatusOr<EpochResult> trained = RunEpoch(epoch);
    if (!trained.ok()) return Annotate(trained.status(), EpochName(epoch));
    history.push_back(*std::move(trained));
    OnEpochEnd(epoch, history.back());
    for (const auto& callback : callbacks_) {
      callback->OnEpochEnd(context_, history.back());
    }
    if (num_epochs() >= epochs_to_recover_) {
      failures_in_a_row_ = 0;
      backoff_.Reset();
    }
    MR_RETURN_IF_ERROR(CollectEvaluation(/*wait=*/false));
    const bool last = epoch + 1 >= EpochsToTrain(epoch + 1);
    if (store_ == nullptr) continue;
    NoteCheckpoint(store_->Poll());
    // One of the last epoch waits for the last synchronisation. One after a
    // signal does not: what goes on from it has not been interrupted.
    stopped = StoppedBySignal();
    if (stopped || (!last && CheckpointIsDue(epoch + 1, last))) {
      MR_RETURN_IF_ERROR(Annotate(TakeCheckpoint(), EpochName(epoch)));
    }
  }
  // Of one after a signal the training is not the end.
  const bool ends = !stopped || num_epochs() == run_.epochs;
  if (history.empty()) return absl::OkStatus();
  // A stop asked for in OnEpochEnd makes an epoch the last one afterwards.
  EpochResult& last = history.back();
  MR_RETURN_IF_ERROR(Annotate(Synchronize(last.epoch, /*last=*/true, &last),
                              EpochName(last.epoch)));
  last.timing.sync += std::exchange(timing_.sync, 0);
  MR_RETURN_IF_ERROR(CollectEvaluation(/*wait=*/true));
  return CheckpointIsDue(num_epochs(), /*last=*/ends)
             ? Annotate(TakeCheckpoint(), EpochName(last.epoch))
             : absl::OkStatus();
}

bool TrainerBase::StoppedBySignal() const {
  return options_.checkpoint.enabled() && options_.checkpoint.on_signal &&
         StopSignals::Received() != 0;
}

// For people, who count from 1.
std::string TrainerBase::EpochName(int epoch) const {
  return absl::StrCat("epoch ", epoch + 1, "/", run_.epochs);
}

absl::StatusOr<EpochResult> TrainerBase::RunEpoch(int epoch) {
  const absl::Time start = absl::Now();
  current_epoch_ = epoch;
  OnEpochStart(epoch);
  for (const auto& callback : callbacks_) {
    callback->OnEpochStart(context_, epoch);
  }
  WatchWorkers();
  MarkTrained();
  timing_.compute = timing_.wait = 0;  // Of calls between epochs.
  MR_ASSIGN_OR_RETURN(EpochResult result, TrainEpoch(epoch));
  MR_RETURN_IF_ERROR(CollectNotes(&result));
  result.epoch = epoch;
  result.timing = {.compute = timing_.compute, .wait = timing_.wait};
  const bool last = epoch + 1 >= EpochsToTrain(epoch + 1);
  MR_RETURN_IF_ERROR(Synchronize(epoch, last, &result));
  result.timing.sync = std::exchange(timing_.sync, 0);
  result.seconds = SecondsSince(start);
  return result;
}

absl::StatusOr<AnyActorHandle> TrainerBase::CreateCheckedWorker(int worker_id) {
  return CheckCreated(absl::StrCat("worker ", worker_id),
                      MakeWorker(worker_id, run_.config));
}

absl::StatusOr<AnyActorHandle> TrainerBase::CheckCreated(
    absl::string_view name, absl::StatusOr<AnyActorHandle> actor) {
  if (!actor.ok()) {
    return Annotate(actor.status(), absl::StrCat(name, ": CreateWorker"));
  }
  if (!actor->empty()) return actor;
  return absl::FailedPreconditionError(
      absl::StrCat(name, ": CreateWorker returned an empty handle"));
}

absl::Status TrainerBase::StartActors() {
  // What fails here is no worker that has begun, and fails again.
  gives_up_ = true;
  NamedActors actors;
  MR_RETURN_IF_ERROR(
      places_.Reserve(*cluster_, options_.num_workers + options_.num_evaluators,
                      options_.worker_resources, options_.placement, run_id_));
  MR_RETURN_IF_ERROR(BeforeWorkers(&actors));
  for (int id = 0; id < options_.num_workers; ++id) {
    MR_ASSIGN_OR_RETURN(const AnyActorHandle worker, CreateCheckedWorker(id));
    workers_.push_back(worker);
    actors.emplace_back(ps::WorkerName(id, worker), worker);
  }
  const absl::Time begin = absl::Now();
  const auto cancelled = [this] { return !CheckNotStopped().ok(); };
  const auto await_places = [&] {
    const absl::Status placed =
        places_.Await(begin, options_.start_timeout, cancelled);
    // There are none, or never will be.
    gives_up_ =
        absl::IsDeadlineExceeded(placed) || absl::IsFailedPrecondition(placed);
    return placed;
  };
  MR_RETURN_IF_ERROR(await_places());
  const absl::Status started =
      WaitForStart(*cluster_, actors, begin, options_.start_timeout, cancelled);
  if (started.ok()) {
    NoteNumWorkers();
    // One of the further workers may be what fails again and again.
    if (grows_ && failures_in_a_row_ <= 1) TakeInNewcomers();
  }
  if (!absl::IsDeadlineExceeded(started)) return started;
  // A node may have been lost since, and places with it.
  MR_RETURN_IF_ERROR(await_places());
  gives_up_ = true;
  return started;
}

absl::Status TrainerBase::KillWorker(size_t worker) const {
  return EndActor(workers_[worker], ps::WorkerName(worker, workers_[worker]));
}

absl::Status TrainerBase::EndActor(const AnyActorHandle& actor,
                                   const std::string& name) const {
  const absl::Status killed = UntilHeadAnswers([&] { return actor.Kill(); });
  if (absl::IsUnavailable(killed) || absl::IsDeadlineExceeded(killed) ||
      absl::IsCancelled(killed)) {
    return Annotate(killed, absl::StrCat("ending ", name));
  }
  if (!killed.ok()) VLOG(1) << "ending " << name << ": " << killed;
  return absl::OkStatus();
}

absl::Status TrainerBase::KillWorkers() {
  MR_RETURN_IF_ERROR(EndNewcomers());
  for (; !workers_.empty(); workers_.pop_back()) {
    MR_RETURN_IF_ERROR(KillWorker(workers_.size() - 1));
  }
  return absl::OkStatus();
}

void TrainerBase::Shutdown() {
  starting_ = recovering_ = false;  // An exception may have ended it.
  const absl::Status killed = KillWorkers();
  LOG_IF(WARNING, !killed.ok())
      << "workers may live until this program leaves the cluster: "
      << killed.message();
  workers_.clear();
  newcomers_.clear();
  places_.Release();
  if (!options_.cluster.has_value() && cluster_.has_value()) {
    cluster_->Shutdown();
    cluster_.reset();
  }
  started_ = false;
}

void TrainerBase::MarkSynced(absl::Time start) {
  needs_sync_ = false;
  timing_.sync += SecondsSince(start);
}

absl::Status TrainerBase::CallForSync(absl::string_view method,
                                      const CallWorker& call) {
  const absl::Time start = absl::Now();
  const Timing before = timing_;
  const absl::Status status = CallAndAwait(method, call);
  timing_ = before;
  timing_.sync += SecondsSince(start);
  return status;
}

void TrainerBase::AddEvaluation(int epoch, const Metrics& metrics) {
  EpochResult& result = result_.history.at(epoch);
  for (const auto& [name, value] : metrics) result.metrics[name] = value;
  OnEvaluation(epoch, result);
  for (const auto& callback : callbacks_) {
    callback->OnEvaluation(context_, result);
  }
}

void TrainerBase::NotifySync(const ps::SyncResult& result) {
  for (const auto& callback : callbacks_) {
    callback->OnSync(context_, current_epoch_, result);
  }
}

void TrainerBase::OnEpochEnd(int epoch, const EpochResult& result) {
  LOG(INFO) << EpochName(epoch) << ": " << MetricsText(result.metrics)
            << absl::StrFormat(" (%.2f s%s)", result.seconds,
                               result.synced ? ", synchronised" : "");
}

void TrainerBase::OnEvaluation(int epoch, const EpochResult& result) {
  LOG(INFO) << EpochName(epoch)
            << " evaluated: " << MetricsText(EvaluationOf(result.metrics));
}

const Cluster& TrainerBase::cluster() const {
  CHECK(cluster_.has_value())
      << "a trainer that connects itself has no cluster before Train";
  return *cluster_;
}

ActorOptions TrainerBase::WorkerOptions(int worker_id) const {
  ActorOptions options = HelperOptions(absl::StrCat("worker-", worker_id));
  options.resources = options_.worker_resources;
  places_.Place(worker_id, &options);
  return options;
}

ActorOptions TrainerBase::HelperOptions(absl::string_view name) const {
  ActorOptions options;
  options.name = std::string(name);
  options.actor_namespace = run_id_;
  options.resources.cpu = 0;
  return options;
}

}  // namespace miniray::train
