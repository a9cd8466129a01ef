#include "train/functions/torch_trainer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"
#include "train/functions/run_function.h"
#include "train/stop_signals.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

// What one rank alone gets of a checkpoint, besides rank 0's files: see
// Context::GetCheckpoint.
CheckpointFiles PartOf(const std::optional<Checkpoint>& checkpoint, int rank) {
  if (!checkpoint.has_value() || checkpoint->workers.empty()) return {};
  const size_t part = rank % checkpoint->workers.size();
  return part == 0 ? CheckpointFiles() : checkpoint->workers[part];
}

// The reports of the only rank, in local mode. What a callback throws is not
// the function's, and shall not look so: it is kept, and the function ends.
class LocalSink : public ReportSink {
 public:
  explicit LocalSink(RunRecord& record)
      : record_(record), round_start_(absl::Now()) {}

  absl::StatusOr<ReportReply> Exchange(RankReport report) override {
    const double seconds = SecondsSince(round_start_);
    std::vector<RankReport> reports;
    reports.push_back(std::move(report));
    ReportReply reply;
    try {
      reply =
          record_.Take(std::move(reports), {.last = seconds, .mean = seconds});
    } catch (...) {
      thrown_ = std::current_exception();
      reply.stop = true;
    }
    round_start_ = absl::Now();
    return reply;
  }

  void Rethrow() const {
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  }

 private:
  RunRecord& record_;
  std::exception_ptr thrown_;
  absl::Time round_start_;
};

}  // namespace

TorchTrainer::TorchTrainer(void (*function)(Context&),
                           TorchTrainerOptions options)
    : function_(function), options_(std::move(options)) {}

TorchTrainer::TorchTrainer(absl::Status (*function)(Context&),
                           TorchTrainerOptions options)
    : function_(function), options_(std::move(options)) {}

absl::StatusOr<Result> TorchTrainer::Fit() {
  result_ = Result();
  MR_RETURN_IF_ERROR(Validate(options_));
  MR_ASSIGN_OR_RETURN(function_name_,
                      internal::TrainFunctions::Get().NameOf(function_));
  MR_ASSIGN_OR_RETURN(record_, RunRecord::Open(options_));
  std::optional<StopSignals> signals;
  if (record_->CatchesSignals()) signals.emplace();
  // An exception of a callback passes through here too.
  const auto end = absl::MakeCleanup([this] {
    result_ = record_->result();
    group_.reset();
    record_.reset();
    if (!options_.cluster.has_value() && cluster_.has_value()) {
      cluster_->Shutdown();
    }
    cluster_.reset();
  });
  absl::Status status;
  try {
    status = Run();
  } catch (const std::exception& error) {
    record_->End(absl::InternalError(
        absl::StrCat("an exception ended Fit: ", error.what())));
    throw;
  }
  record_->End(status);
  if (!status.ok()) return status;
  return record_->result();
}

absl::Status TorchTrainer::Run() {
  grows_ = false;
  if (options_.scaling.num_workers.max > 0) {
    MR_RETURN_IF_ERROR(Connect());
    record_->BeginReport(*cluster_);
  }
  MR_ASSIGN_OR_RETURN(std::optional<Checkpoint> checkpoint,
                      record_->LastCheckpoint());
  for (int generation = 0;; ++generation) {
    int rank = -1;
    bool gives_up = false;
    const absl::Status status =
        RunGeneration(checkpoint, generation, &rank, &gives_up);
    const bool cancelled =
        absl::IsCancelled(status) && record_->StoppedBySignal();
    if (grows_ && (status.ok() || cancelled) && record_->ShallEnd()) {
      return absl::OkStatus();  // The last report has its checkpoint.
    }
    if (status.ok() && !grows_) return status;
    if (!status.ok()) {
      grows_ = false;
      if (gives_up || cancelled || !record_->BearFailure(rank, status)) {
        return record_->FirstError(status);
      }
      Pause();
      if (record_->StoppedBySignal()) return record_->FirstError(status);
    }
    absl::StatusOr<std::optional<Checkpoint>> last = record_->LastCheckpoint();
    if (!last.ok()) return record_->FirstError(last.status());
    checkpoint = *std::move(last);
    LOG_IF(WARNING, !grows_)
        << "all ranks begin again, after "
        << (checkpoint.has_value() ? checkpoint->epochs() : 0) << " reports";
  }
}

absl::Status TorchTrainer::Connect() {
  cluster_ = options_.cluster;
  if (!cluster_.has_value()) {
    // An embedded cluster has room for every worker, even if they have to share
    // the machine's cores. A worker whose GPU is not there says so.
    ClusterOptions cluster;
    const ScalingConfig& scaling = options_.scaling;
    cluster.embedded_num_cpus = std::max<double>(
        std::thread::hardware_concurrency(),
        std::ceil(scaling.num_workers.max * scaling.resources_per_worker.cpu));
    cluster.embedded_num_gpus = static_cast<int>(
        std::ceil(scaling.num_workers.max * WorkerResources(scaling).gpu));
    MR_ASSIGN_OR_RETURN(cluster_, Cluster::Connect(cluster));
  }
  group_ = std::make_unique<WorkerGroup>(*cluster_, options_.scaling, [this] {
    return record_->StoppedBySignal();
  });
  return absl::OkStatus();
}

absl::Status TorchTrainer::RunGeneration(
    const std::optional<Checkpoint>& checkpoint, int generation, int* rank,
    bool* gives_up) {
  GenerationStart start;
  start.function = function_name_;
  start.run_name = record_->name();
  start.config = options_.config;
  start.generation = generation;
  start.collective_timeout_ms =
      absl::ToInt64Milliseconds(options_.run.collective_timeout);
  start.use_gpu = options_.scaling.use_gpu;
  start.first_report = checkpoint.has_value() ? checkpoint->epochs() : 0;
  start.checkpoint_frequency = std::max(1, options_.run.checkpoint.frequency);
  return group_ == nullptr
             ? RunLocally(std::move(start), checkpoint, rank)
             : RunWorkers(std::move(start), checkpoint, rank, gives_up);
}

SharedStart TorchTrainer::Shared(
    const std::optional<Checkpoint>& checkpoint) const {
  SharedStart shared = {.datasets = options_.datasets};
  if (checkpoint.has_value() && !checkpoint->workers.empty()) {
    shared.checkpoint = checkpoint->workers[0];
  }
  return shared;
}

absl::StatusOr<ObjectRef<SharedStart>> TorchTrainer::PutShared(
    const std::optional<Checkpoint>& checkpoint) const {
  const absl::Time deadline = absl::Now() + options_.scaling.start_timeout;
  while (true) {
    ObjectRef<SharedStart> ref = cluster_->Put(Shared(checkpoint));
    const absl::Status put = miniray::internal::WaitForAllOrFailure(
        {ref.state()}, absl::ZeroDuration());
    if (put.ok()) return ref;
    // The head may take a node for alive that has just been lost.
    if (!absl::IsUnavailable(put) || absl::Now() >= deadline ||
        record_->StoppedBySignal()) {
      return Annotate(put, "the data sets and the checkpoint for all ranks");
    }
    absl::SleepFor(kSignalTurn);
  }
}

absl::Status TorchTrainer::RunLocally(
    GenerationStart start, const std::optional<Checkpoint>& checkpoint,
    int* rank) {
  *rank = 0;
  MR_RETURN_IF_ERROR(record_->BeginAt(checkpoint, start.generation > 0, 1));
  const std::string function = start.function;
  LocalSink sink(*record_);
  Context context(std::move(start), sink, Shared(checkpoint));
  const RunOutcome outcome = RunTrainFunction(function, context);
  sink.Rethrow();
  return Annotate(absl::Status(static_cast<absl::StatusCode>(outcome.code),
                               outcome.message),
                  "rank 0 (in this process)");
}

absl::Status TorchTrainer::RunWorkers(
    GenerationStart start, const std::optional<Checkpoint>& checkpoint,
    int* rank, bool* gives_up) {
  MR_RETURN_IF_ERROR(group_->Start(gives_up));
  grows_ = false;
  MR_ASSIGN_OR_RETURN(std::vector<GenerationStart> starts, group_->Places());
  // Anew for each generation: what was put is lost with the node that held it.
  auto shared = PutShared(checkpoint);
  if (!shared.ok()) {
    *gives_up = !absl::IsUnavailable(shared.status()) &&
                !absl::IsResourceExhausted(shared.status());
    return shared.status();
  }
  if (group_->size() > 1) {
    MR_ASSIGN_OR_RETURN(start.rendezvous,
                        cluster_->CreateActor<RendezvousStore>(
                            RendezvousStore::Options(group_->size())));
  }
  const auto end_rendezvous = absl::MakeCleanup([&start] {
    if (start.rendezvous.has_value()) start.rendezvous->Kill().IgnoreError();
  });
  for (GenerationStart& place : starts) {
    // All else is the same for all ranks.
    start.rank = place.rank;
    start.world_size = place.world_size;
    start.local_rank = place.local_rank;
    start.local_world_size = place.local_world_size;
    start.node_rank = place.node_rank;
    start.addresses = std::move(place.addresses);
    start.checkpoint = PartOf(checkpoint, place.rank);
    place = start;
  }
  const bool anew = start.generation > 0;
  MR_RETURN_IF_ERROR(record_->BeginAt(checkpoint, anew, group_->size()));
  Generation generation(
      *group_,
      {.report_timeout = options_.run.report_timeout,
       .hang_timeout = options_.run.failure.hang_timeout,
       .abort_timeout = options_.run.abort_timeout,
       .at_turn =
           [this] {
             // Without a checkpoint, to begin again would lose all.
             if (record_->has_checkpoints() && !record_->ShallEnd()) {
               group_->LookForRoom();
             }
           }},
      std::move(starts), *std::move(shared),
      [this](std::vector<RankReport> reports, const ReportTimes& times) {
        return Take(std::move(reports), times);
      });
  GenerationEnd end = generation.Run();
  *rank = end.rank;
  for (const int lost : end.lost) {
    // The head's silence is no reason to forget why.
    const absl::Status ended = group_->End(lost);
    if (ended.ok()) continue;
    *gives_up = true;
    return absl::Status(
        end.status.code(),
        absl::StrCat(end.status.message(), "; then: ", ended.message()));
  }
  return end.status;
}

ReportReply TorchTrainer::Take(std::vector<RankReport> reports,
                               const ReportTimes& times) {
  ReportReply reply = record_->Take(std::move(reports), times);
  grows_ = !reply.stop && record_->ends_with_checkpoint() &&
           group_->CanGrow() && record_->AwaitCheckpoint();
  reply.stop |= grows_;
  return reply;
}

void TorchTrainer::Pause() {
  const absl::Time end = absl::Now() + record_->PauseAfterFailure();
  while (absl::Now() < end && !record_->StoppedBySignal()) {
    absl::SleepFor(std::min(kSignalTurn, end - absl::Now()));
  }
}

}  // namespace miniray::train
