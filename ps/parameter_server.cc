#include "ps/parameter_server.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/await_calls.h"
#include "ps/encoded_weights.h"
#include "ps/tensor_info.h"
#include "ps/tensor_math.h"
#include "runtime/actor/registry.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

constexpr absl::Duration kReminderPeriod = absl::Seconds(30);

constexpr char kLendWeights[] = "LendWeights";
constexpr char kNumSamples[] = "NumSamples";
constexpr char kBufferNames[] = "BufferNames";

double SecondsSince(absl::Time start) {
  return absl::ToDoubleSeconds(absl::Now() - start);
}

absl::Status CheckWorkers(const std::vector<AnyActorHandle>& workers) {
  if (workers.empty()) {
    return absl::InvalidArgumentError(
        "there are no workers to synchronise; pass at least one");
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    if (workers[i].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", i, ": its handle is empty"));
    }
  }
  return absl::OkStatus();
}

// Workers are of this program or its plug-ins; of a foreign class nothing is
// known.
bool HasMethod(const AnyActorHandle& worker, absl::string_view method) {
  const auto found =
      miniray::internal::ActorRegistry::Get().Find(worker.class_name());
  return found.ok() && (*found)->methods.contains(method);
}

// What to call for a worker's weights.
std::string PullMethod(const AnyActorHandle& worker) {
  return HasMethod(worker, kLendWeights) ? kLendWeights : "GetWeights";
}

std::unique_ptr<SyncStrategy> MakeStrategy(const std::string& name,
                                           const StrategyOptions& options) {
  absl::StatusOr<std::unique_ptr<SyncStrategy>> strategy =
      StrategyRegistry::Get().Create(name, options);
  if (!strategy.ok()) {
    throw std::invalid_argument(std::string(strategy.status().message()));
  }
  return *std::move(strategy);
}

}  // namespace

ParameterServer::ParameterServer(const std::string& strategy,
                                 const StrategyOptions& options,
                                 ServerOptions server_options)
    : strategy_(MakeStrategy(strategy, options)), options_(server_options) {
  stats_.strategy = options.values().empty()
                        ? strategy
                        : absl::StrCat(strategy, " (", options.ToString(), ")");
}

absl::StatusOr<SyncResult> ParameterServer::SyncFromWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckWorkers(workers));
  SyncResult result;
  result.num_workers = static_cast<int64_t>(workers.size());
  MR_RETURN_IF_ERROR(strategy_->CheckWorkers(result.num_workers));

  absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(std::vector<Contribution> contributions, Pull(workers));
  const int64_t pulled =
      TotalBytes(contributions.front().tensors) * result.num_workers;
  result.num_refused =
      result.num_workers - static_cast<int64_t>(contributions.size());
  result.seconds_pull = SecondsSince(start);
  stats_.contributions_refused += result.num_refused;
  stats_.bytes_pulled += pulled;
  stats_.seconds_pull += result.seconds_pull;

  start = absl::Now();
  MR_ASSIGN_OR_RETURN(NamedTensors aggregated,
                      Aggregate(contributions, workers));
  Replace(std::move(aggregated));
  stats_.contributions_accepted += static_cast<int64_t>(contributions.size());
  contributions.clear();  // The push needs memory too.
  result.seconds_aggregate = SecondsSince(start);
  stats_.seconds_aggregate += result.seconds_aggregate;

  start = absl::Now();
  MR_RETURN_IF_ERROR(Push(workers));
  result.seconds_push = SecondsSince(start);
  ++stats_.num_syncs;
  result.version = stats_.version;
  result.bytes = pulled + TotalBytes(weights_) * result.num_workers;
  return result;
}

absl::StatusOr<std::vector<Contribution>> ParameterServer::Pull(
    const std::vector<AnyActorHandle>& workers) {
  // Methods of one worker run in the order of the calls: what is asked for
  // first is there when the weights are.
  ObjectRef<std::vector<std::string>> buffer_names;
  if (info_ == nullptr && HasMethod(workers.front(), kBufferNames)) {
    buffer_names = workers.front().CallByName<std::vector<std::string>>(
        std::string(kBufferNames));
  }
  std::vector<std::optional<ObjectRef<double>>> num_samples;
  std::vector<ObjectRef<ReadOnly<NamedTensors>>> refs;
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls;
  for (const AnyActorHandle& worker : workers) {
    num_samples.emplace_back();
    if (strategy_->UsesWorkerWeights() && HasMethod(worker, kNumSamples)) {
      num_samples.back() = worker.CallByName<double>(std::string(kNumSamples));
    }
    refs.push_back(
        worker.CallByName<ReadOnly<NamedTensors>>(PullMethod(worker)));
    calls.push_back(refs.back().state());
  }
  std::vector<Contribution> contributions(workers.size());
  std::vector<absl::Status> finite(workers.size());
  const bool check_finite =
      options_.non_finite == NonFinitePolicy::kDropWorker ||
      (options_.non_finite == NonFinitePolicy::kRefuse &&
       !strategy_->PassesOnNonFinite());
  MR_RETURN_IF_ERROR(AwaitCalls(
      calls, workers, "pull of weights", kReminderPeriod, [&](size_t i) {
        const std::string who = WorkerName(i, workers[i]);
        absl::StatusOr<ReadOnly<NamedTensors>> weights = refs[i].Get();
        refs[i] = {};  // The bytes that they came in are not needed any more.
        calls[i] = nullptr;
        if (!weights.ok()) return Annotate(weights.status(), who);
        contributions[i].worker_id = static_cast<int>(i);
        contributions[i].tensors = std::move(weights->value);
        if (num_samples[i].has_value()) {
          const absl::StatusOr<double> samples = num_samples[i]->Get();
          if (!samples.ok()) return Annotate(samples.status(), who);
          contributions[i].num_samples = *samples;
        }
        MR_RETURN_IF_ERROR(CheckForm(contributions[i].tensors, who));
        if (!check_finite) return absl::OkStatus();
        finite[i] = CheckFinite(contributions[i].tensors, who);
        return options_.non_finite == NonFinitePolicy::kDropWorker
                   ? absl::OkStatus()
                   : finite[i];
      }));
  const ModelLayout first = ModelLayout::Of(contributions.front().tensors);
  for (size_t i = 0; i < workers.size(); ++i) {
    MR_RETURN_IF_ERROR(CheckLayout(
        contributions[i].tensors, layout_.has_value() ? *layout_ : first,
        WorkerName(i, workers[i]),
        layout_.has_value() ? "the parameter server" : "worker 0"));
  }
  if (buffer_names.state() != nullptr) {
    const std::string who = WorkerName(0, workers.front());
    const auto names = buffer_names.Get();
    if (!names.ok()) return Annotate(names.status(), who);
    auto info = MakeInfo(contributions.front().tensors, *names);
    if (!info.ok()) return Annotate(info.status(), who);
    info_ = *std::move(info);
  }
  std::vector<Contribution> kept;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (finite[i].ok()) {
      kept.push_back(std::move(contributions[i]));
      kept.back().info = info_;
    } else {
      LOG(WARNING) << "left out of a synchronisation: " << finite[i].message();
    }
  }
  if (kept.empty()) {
    return Annotate(finite.front(), "no worker has finite weights");
  }
  SetWeightsInMean(&kept);
  return kept;
}

void ParameterServer::SetWeightsInMean(
    std::vector<Contribution>* contributions) const {
  const bool all_tell = std::all_of(
      contributions->begin(), contributions->end(),
      [](const Contribution& c) { return c.num_samples.has_value(); });
  for (Contribution& contribution : *contributions) {
    auto weight = worker_weights_.find(contribution.worker_id);
    if (weight != worker_weights_.end()) {
      contribution.weight = weight->second;
    } else if (worker_weights_.empty() && all_tell) {
      contribution.weight = *contribution.num_samples;
    }
  }
}

absl::StatusOr<NamedTensors> ParameterServer::Aggregate(
    const std::vector<Contribution>& contributions,
    const std::vector<AnyActorHandle>& workers) {
  const std::string who = absl::StrCat("strategy ", stats_.strategy);
  absl::StatusOr<NamedTensors> result;
  try {
    result = strategy_->Aggregate(contributions);
  } catch (const std::exception& error) {  // c10::Error, out of memory
    strategy_->Reset(weights_);            // Who knows how far it came.
    return absl::InternalError(absl::StrCat(who, " threw: ", error.what()));
  }
  if (!result.ok()) return Annotate(result.status(), who);
  // A strategy may be anybody's: a mistake in one must not reach the workers.
  absl::Status status = CheckForm(*result, "its result");
  const bool formed = status.ok();
  if (formed) status = CheckFinite(*result, "its result");
  const bool finite = !formed || status.ok();
  if (status.ok()) {
    status =
        CheckLayout(*result, ModelLayout::Of(contributions.front().tensors),
                    "its result", "the contributions");
  }
  if (status.ok()) return result;
  strategy_->Reset(weights_);
  if (!finite) {  // Because of whom?
    for (const Contribution& contribution : contributions) {
      const auto index = static_cast<size_t>(contribution.worker_id);
      MR_RETURN_IF_ERROR(
          CheckFinite(contribution.tensors, WorkerName(index, workers[index])));
    }
  }
  return absl::InternalError(absl::StrCat(who, ": ", status.message()));
}

absl::Status ParameterServer::Push(const std::vector<AnyActorHandle>& workers) {
  const absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(const EncodedWeights encoded,
                      EncodedWeights::Of(weights_));
  std::vector<ObjectRef<void>> refs;
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls;
  for (const AnyActorHandle& worker : workers) {
    refs.push_back(worker.CallByName<void>("SetWeights", encoded));
    calls.push_back(refs.back().state());
  }
  const int64_t bytes = TotalBytes(weights_);
  // All are waited for, so that a caller who goes on despite an error meets
  // workers that are done with the push.
  absl::Status first_error;
  MR_RETURN_IF_ERROR(AwaitCalls(
      calls, workers, "push of weights", kReminderPeriod, [&](size_t i) {
        const absl::Status pushed = refs[i].Get();
        if (pushed.ok()) stats_.bytes_pushed += bytes;
        first_error.Update(Annotate(pushed, WorkerName(i, workers[i])));
        return absl::OkStatus();
      }));
  stats_.seconds_push += SecondsSince(start);
  return first_error;
}

void ParameterServer::Replace(NamedTensors weights) {
  if (!layout_.has_value()) layout_ = ModelLayout::Of(weights);
  weights_ = std::move(weights);
  ++stats_.version;
}

absl::StatusOr<NamedTensors> ParameterServer::PullWeights() const {
  if (weights_.empty()) {
    return absl::FailedPreconditionError(
        "the parameter server has no weights yet; call SyncFromWorkers or "
        "PushWeights first");
  }
  return weights_;
}

absl::StatusOr<int64_t> ParameterServer::PushWeights(NamedTensors weights) {
  MR_RETURN_IF_ERROR(CheckValues(weights, "PushWeights"));
  if (layout_.has_value()) {
    MR_RETURN_IF_ERROR(
        CheckLayout(weights, *layout_, "PushWeights", "the parameter server"));
  }
  strategy_->Reset(weights);
  Replace(std::move(weights));
  return stats_.version;
}

absl::StatusOr<int64_t> ParameterServer::StartFromWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckWorkers(workers));
  MR_ASSIGN_OR_RETURN(const std::vector<Contribution> first,
                      Pull({workers.front()}));
  MR_RETURN_IF_ERROR(
      CheckFinite(first.front().tensors, WorkerName(0, workers.front())));
  NamedTensors weights = MeanOfModels(first);  // A copy: these are lent.
  strategy_->Reset(weights);
  Replace(std::move(weights));
  MR_RETURN_IF_ERROR(Push(workers));
  return stats_.version;
}

absl::Status ParameterServer::PushToWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckWorkers(workers));
  MR_RETURN_IF_ERROR(PullWeights().status());
  return Push(workers);
}

absl::Status ParameterServer::SetWorkerWeight(int worker_id, double weight) {
  MR_RETURN_IF_ERROR(CheckWorkerWeight(worker_id, weight));
  if (!strategy_->UsesWorkerWeights()) {
    return absl::FailedPreconditionError(
        absl::StrCat("strategy ", stats_.strategy,
                     " has no use for the weights of workers; 'weighted' has"));
  }
  worker_weights_[worker_id] = weight;
  return absl::OkStatus();
}

SyncStats ParameterServer::GetStats() const {
  SyncStats stats = stats_;
  stats.initialized = !weights_.empty();
  stats.num_tensors = static_cast<int64_t>(weights_.size());
  return stats;
}

absl::Status CheckWorkerWeight(int worker_id, double weight) {
  if (worker_id < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker_id must be 0 or more, got ", worker_id));
  }
  if (!std::isfinite(weight) || weight < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weight of worker ", worker_id,
                     " must be finite and not negative, got ", weight));
  }
  return absl::OkStatus();
}

absl::StatusOr<ActorHandle<ParameterServer>> CreateParameterServer(
    const Cluster& cluster, absl::string_view strategy,
    const StrategyOptions& options, const ServerOptions& server_options,
    const ActorOptions& actor_options) {
  MR_RETURN_IF_ERROR(
      StrategyRegistry::Get().Create(strategy, options).status());
  return cluster.CreateActor<ParameterServer>(
      actor_options, std::string(strategy), options, server_options);
}

}  // namespace miniray::ps
