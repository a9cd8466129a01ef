#include "train/weight_sync.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "ps/await_calls.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

namespace fs = std::filesystem;

// A server that takes longer over its state at the end of training is ended.
constexpr absl::Duration kSaveTimeout = absl::Minutes(1);

// What the folder `from` has takes the place of what is by the same names in
// `to`; then `from` is gone.
void MoveInto(const std::string& from, const std::string& to,
              std::error_code* error) {
  fs::create_directories(to, *error);
  if (*error) return;
  std::vector<fs::path> moved;
  for (const auto& entry : fs::directory_iterator(from, *error)) {
    moved.push_back(entry.path());
  }
  for (const fs::path& path : moved) {
    if (*error) return;
    const fs::path target = fs::path(to) / path.filename();
    fs::remove_all(target, *error);
    if (!*error) fs::rename(path, target, *error);
  }
  if (!*error) fs::remove(from, *error);
}

}  // namespace

WeightSync::WeightSync(std::string strategy, ps::StrategyOptions options,
                       ps::ServerOptions server_options, int num_workers,
                       Wait wait)
    : strategy_(std::move(strategy)),
      options_(std::move(options)),
      server_options_(std::move(server_options)),
      num_workers_(num_workers),
      wait_(std::move(wait)) {}

WeightSync::~WeightSync() { StopForGood(); }

absl::Status WeightSync::Check() const {
  MR_RETURN_IF_ERROR(Annotate(ps::Validate(server_options_), "server_options"));
  if (server_options_.min_workers > num_workers_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "server_options: min_workers is ", server_options_.min_workers,
        ", and num_workers ", num_workers_));
  }
  const auto strategy = ps::StrategyRegistry::Get().Create(strategy_, options_);
  if (strategy.ok() && (*strategy)->TakesGradients()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sync_strategy '", strategy_,
                     "' takes gradients, and trainers synchronise weights; see "
                     "ps/gradient_client.h"));
  }
  return Annotate(strategy.ok() ? (*strategy)->CheckWorkers(num_workers_)
                                : strategy.status(),
                  "sync_strategy");
}

absl::Status WeightSync::CheckElastic() const {
  if (!ps::NeedsExchange(server_options_)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "max_workers is set, and server_options have weights travel compressed, "
      "in pieces or to several shards, which is for a number of workers that "
      "does not change");
}

absl::Status WeightSync::Start(const Cluster& cluster,
                               const ActorOptions& options, bool anew) {
  ps::ServerOptions server_options = server_options_;
  if (anew && !server_options.state_dir.empty()) {
    absl::StrAppend(&server_options.state_dir, ".", NewId("anew"));
    anew_dir_ = server_options.state_dir;
    LOG(WARNING) << "the parameter server keeps its state in " << anew_dir_
                 << " until training ends";
  }
  MR_ASSIGN_OR_RETURN(
      server_, ps::CreateParameterServer(cluster, strategy_, options_,
                                         server_options, options, &shards_));
  return absl::OkStatus();
}

absl::Status WeightSync::BeginAnew() const {
  if (server_options_.state_dir.empty()) return absl::OkStatus();
  return Await(server_.With(Retries()).Call<&ps::ParameterServer::BeginAnew>());
}

absl::Status WeightSync::SendWorkerWeights() const {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ps::SyncStrategy> strategy,
                      ps::StrategyRegistry::Get().Create(strategy_, options_));
  if (!strategy->UsesWorkerWeights()) return absl::OkStatus();
  return Await(
      server_.With(Retries()).Call<&ps::ParameterServer::SetWorkerWeights>(
          weights_));
}

absl::Status WeightSync::SendStart(
    const std::vector<AnyActorHandle>& workers) const {
  if (ps::NeedsExchange(server_options_)) {  // Before anything is trained.
    MR_RETURN_IF_ERROR(ps::CheckExchange(workers, "server_options"));
  }
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ps::SyncStrategy> strategy,
                      ps::StrategyRegistry::Get().Create(strategy_, options_));
  if (!strategy->UsesStart()) return absl::OkStatus();
  return Annotate(
      Await(
          server_.With(Retries()).Call<&ps::ParameterServer::StartFromWorkers>(
              workers))
          .status(),
      "start of the synchronisation");
}

absl::Status WeightSync::CheckWeights(
    const std::vector<AnyActorHandle>& workers) const {
  if (!weights_.empty()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ps::SyncStrategy> strategy,
                      ps::StrategyRegistry::Get().Create(strategy_, options_));
  return strategy->UsesWorkerWeights() ? ps::CheckSamples(workers, strategy_)
                                       : absl::OkStatus();
}

absl::Status WeightSync::SendTo(absl::string_view name,
                                const AnyActorHandle& actor) const {
  MR_ASSIGN_OR_RETURN(
      const ps::SyncStats stats,
      Await(server_.With(Retries()).Call<&ps::ParameterServer::GetStats>()));
  if (!stats.initialized && stats.version == 0) return absl::OkStatus();
  if (!stats.initialized) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " (", actor.ToString(),
        ") cannot get the weights of the last synchronisation: one has failed "
        "since, and the parameter server does not keep its weights meanwhile "
        "(server_options.keep_weights = false); synchronise the other workers "
        "first, or go on from a checkpoint"));
  }
  const absl::Status sent =
      Await(server_.With(Retries()).Call<&ps::ParameterServer::PushToWorkers>(
          std::vector<AnyActorHandle>{actor}));
  // To the server it is the first of one.
  const std::string text = absl::StrReplaceAll(
      sent.message(), {{ps::WorkerName(0, actor),
                        absl::StrCat(name, " (", actor.ToString(), ")")}});
  return Annotate(absl::Status(sent.code(), text),
                  "the weights of the last synchronisation");
}

CallOptions WeightSync::Retries() const {
  CallOptions options;
  if (!server_options_.state_dir.empty()) options.max_retries = -1;
  return options;
}

absl::Status WeightSync::EndActors() {
  running_.reset();
  const auto end = [](const AnyActorHandle& actor) {
    const absl::Status killed = actor.Kill();
    if (absl::IsUnavailable(killed) || absl::IsDeadlineExceeded(killed)) {
      return Annotate(killed, "ending the parameter server");
    }
    if (!killed.ok()) VLOG(1) << "ending the parameter server: " << killed;
    return absl::OkStatus();
  };
  if (!server_.empty()) MR_RETURN_IF_ERROR(end(server_));
  server_ = {};
  for (; !shards_.empty(); shards_.pop_back()) {
    MR_RETURN_IF_ERROR(end(shards_.back()));
  }
  return absl::OkStatus();
}

absl::Status WeightSync::Stop() {
  MR_RETURN_IF_ERROR(EndActors());
  if (anew_dir_.empty()) return absl::OkStatus();
  std::error_code error;
  fs::remove_all(anew_dir_, error);
  LOG_IF(WARNING, error) << "the state of a parameter server that has ended "
                            "stays in "
                         << anew_dir_ << ": " << error.message();
  anew_dir_.clear();
  return absl::OkStatus();
}

void WeightSync::StopForGood() {
  if (!server_.empty() && !server_options_.state_dir.empty() &&
      server_options_.save_every > 1) {
    const absl::Status saved =
        server_.Call<&ps::ParameterServer::SaveNow>().Get(kSaveTimeout);
    LOG_IF(WARNING, !saved.ok())
        << "up to " << server_options_.save_every - 1
        << " of the last synchronisations are not in "
        << server_options_.state_dir << ": " << saved.message();
  }
  const absl::Status ended = EndActors();
  LOG_IF(WARNING, !ended.ok())
      << "it may live until this program leaves the cluster: "
      << ended.message();
  server_ = {};
  shards_.clear();
  const std::string from = std::exchange(anew_dir_, "");
  std::error_code error;
  // One that may live may write there; and it may be on another machine.
  if (!ended.ok() || from.empty() || !fs::exists(from, error)) return;
  MoveInto(from, server_options_.state_dir, &error);
  LOG_IF(WARNING, error) << "the state of the parameter server stays in "
                         << from << ": " << error.message();
}

absl::Status WeightSync::SetWorkerWeight(int worker_id, double weight) {
  MR_RETURN_IF_ERROR(ps::CheckWorkerWeight(worker_id, weight));
  if (worker_id >= num_workers_) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker_id must be below num_workers, ", num_workers_,
                     "; got ", worker_id));
  }
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<ps::SyncStrategy> strategy,
                      ps::StrategyRegistry::Get().Create(strategy_, options_));
  if (!strategy->UsesWorkerWeights()) {
    return absl::FailedPreconditionError(
        absl::StrCat("sync_strategy '", strategy_,
                     "' has no use for the weights of workers; 'weighted' "
                     "has"));
  }
  weights_[worker_id] = weight;
  if (server_.empty()) return absl::OkStatus();
  return Await(
      server_.With(Retries()).Call<&ps::ParameterServer::SetWorkerWeight>(
          worker_id, weight));
}

absl::StatusOr<ps::SyncResult> WeightSync::Sync(
    const std::vector<AnyActorHandle>& workers) {
  ++num_syncs_;
  return SyncAgain(workers);
}

absl::StatusOr<ps::SyncResult> WeightSync::SyncAgain(
    const std::vector<AnyActorHandle>& workers) {
  MR_ASSIGN_OR_RETURN(ObjectRef<ps::SyncResult> call, CallServer(workers));
  return Await(std::move(call));
}

absl::Status WeightSync::Begin(const std::vector<AnyActorHandle>& workers) {
  ++num_syncs_;
  MR_ASSIGN_OR_RETURN(running_, CallServer(workers));
  return absl::OkStatus();
}

absl::StatusOr<ps::SyncResult> WeightSync::Finish() {
  ObjectRef<ps::SyncResult> call = *std::move(running_);
  running_.reset();
  return Await(std::move(call));
}

absl::StatusOr<ObjectRef<ps::SyncResult>> WeightSync::CallServer(
    const std::vector<AnyActorHandle>& workers) const {
  MR_RETURN_IF_ERROR(CheckStarted());
  return server_.With(Retries()).Call<&ps::ParameterServer::SyncOnce>(
      workers, absl::StrCat(run_id_, "/", num_syncs_));
}

absl::StatusOr<ps::SyncStats> WeightSync::Stats() const {
  MR_RETURN_IF_ERROR(CheckStarted());
  return Await(server_.With(Retries()).Call<&ps::ParameterServer::GetStats>());
}

absl::StatusOr<NamedTensors> WeightSync::PullWeights() const {
  MR_RETURN_IF_ERROR(CheckStarted());
  return Await(
      server_.With(Retries()).Call<&ps::ParameterServer::PullWeights>());
}

absl::StatusOr<std::string> WeightSync::ExportState() const {
  MR_RETURN_IF_ERROR(CheckStarted());
  return Await(
      server_.With(Retries()).Call<&ps::ParameterServer::ExportState>());
}

absl::Status WeightSync::ImportState(const std::string& state) const {
  MR_RETURN_IF_ERROR(CheckStarted());
  MR_RETURN_IF_ERROR(Await(
      server_.With(Retries()).Call<&ps::ParameterServer::ImportState>(state)));
  return SendWorkerWeights();
}

absl::Status WeightSync::CheckStarted() const {
  if (!server_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "there is no parameter server before Train, nor after Shutdown");
}

std::vector<std::shared_ptr<miniray::internal::CallState>> CallLoadDataShard(
    const std::vector<AnyActorHandle>& workers, internal::ShardCall form,
    const Config& config, std::optional<int> only) {
  if (form == internal::ShardCall::kNone) return {};
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls(
      workers.size());
  const int num_shards = static_cast<int>(workers.size());
  for (int shard = 0; shard < num_shards; ++shard) {
    if (only.has_value() && shard != *only) continue;
    const AnyActorHandle& worker = workers[shard];
    const ObjectRef<void> call =
        form == internal::ShardCall::kPlain
            ? worker.CallByName<void>("LoadDataShard", shard, num_shards)
            : worker.CallByName<void>("LoadDataShard", shard, num_shards,
                                      config);
    calls[shard] = call.state();
  }
  return calls;
}

}  // namespace miniray::train
