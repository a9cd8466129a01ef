#include "ps/parameter_server.h"

#include <cmath>
#include <exception>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "ps/await_calls.h"
#include "ps/encoded_weights.h"
#include "runtime/actor/registry.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

constexpr absl::Duration kReminderPeriod = absl::Seconds(30);

constexpr char kLendWeights[] = "LendWeights";

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

// What to call for a worker's weights.
std::string PullMethod(const AnyActorHandle& worker) {
  // Workers are of this program or its plug-ins; of a foreign class nothing is
  // known.
  const auto found =
      miniray::internal::ActorRegistry::Get().Find(worker.class_name());
  return found.ok() && (*found)->methods.contains(kLendWeights) ? kLendWeights
                                                                : "GetWeights";
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
                                 const StrategyOptions& options)
    : strategy_(MakeStrategy(strategy, options)) {
  stats_.strategy = options.values().empty()
                        ? strategy
                        : absl::StrCat(strategy, " (", options.ToString(), ")");
}

absl::StatusOr<SyncResult> ParameterServer::SyncFromWorkers(
    const std::vector<AnyActorHandle>& workers) {
  MR_RETURN_IF_ERROR(CheckWorkers(workers));
  SyncResult result;
  result.num_workers = static_cast<int64_t>(workers.size());

  absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(std::vector<Contribution> contributions, Pull(workers));
  const int64_t pulled =
      TotalBytes(contributions.front().tensors) * result.num_workers;
  result.seconds_pull = SecondsSince(start);
  stats_.bytes_pulled += pulled;
  stats_.seconds_pull += result.seconds_pull;

  start = absl::Now();
  MR_ASSIGN_OR_RETURN(NamedTensors aggregated,
                      Aggregate(contributions, workers));
  Replace(std::move(aggregated));
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
  std::vector<ObjectRef<ReadOnly<NamedTensors>>> refs;
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls;
  for (const AnyActorHandle& worker : workers) {
    refs.push_back(
        worker.CallByName<ReadOnly<NamedTensors>>(PullMethod(worker)));
    calls.push_back(refs.back().state());
  }
  std::vector<Contribution> contributions(workers.size());
  MR_RETURN_IF_ERROR(AwaitCalls(
      calls, workers, "pull of weights", kReminderPeriod, [&](size_t i) {
        const std::string who = WorkerName(i, workers[i]);
        absl::StatusOr<ReadOnly<NamedTensors>> weights = refs[i].Get();
        refs[i] = {};  // The bytes that they came in are not needed any more.
        calls[i] = nullptr;
        if (!weights.ok()) return Annotate(weights.status(), who);
        contributions[i].worker_id = static_cast<int>(i);
        contributions[i].tensors = std::move(weights->value);
        MR_RETURN_IF_ERROR(CheckForm(contributions[i].tensors, who));
        if (strategy_->PassesOnNonFinite()) return absl::OkStatus();
        return CheckFinite(contributions[i].tensors, who);
      }));
  const ModelLayout first = ModelLayout::Of(contributions.front().tensors);
  for (size_t i = 0; i < workers.size(); ++i) {
    Contribution& contribution = contributions[i];
    MR_RETURN_IF_ERROR(CheckLayout(
        contribution.tensors, layout_.has_value() ? *layout_ : first,
        WorkerName(i, workers[i]),
        layout_.has_value() ? "the parameter server" : "worker 0"));
    auto weight = worker_weights_.find(contribution.worker_id);
    if (weight != worker_weights_.end()) contribution.weight = weight->second;
  }
  return contributions;
}

absl::StatusOr<NamedTensors> ParameterServer::Aggregate(
    const std::vector<Contribution>& contributions,
    const std::vector<AnyActorHandle>& workers) {
  const std::string who = absl::StrCat("strategy ", stats_.strategy);
  absl::StatusOr<NamedTensors> result;
  try {
    result = strategy_->Aggregate(contributions);
  } catch (const std::exception& error) {  // c10::Error, out of memory
    return absl::InternalError(absl::StrCat(who, " threw: ", error.what()));
  }
  if (!result.ok()) return Annotate(result.status(), who);
  // A strategy may be anybody's: a mistake in one must not reach the workers.
  absl::Status status = CheckForm(*result, "its result");
  if (status.ok()) {
    status = CheckFinite(*result, "its result");
    if (!status.ok() && strategy_->PassesOnNonFinite()) {
      for (const Contribution& contribution : contributions) {
        MR_RETURN_IF_ERROR(CheckFinite(
            contribution.tensors,
            WorkerName(static_cast<size_t>(contribution.worker_id),
                       workers[static_cast<size_t>(contribution.worker_id)])));
      }
    }
  }
  if (status.ok()) {
    status =
        CheckLayout(*result, ModelLayout::Of(contributions.front().tensors),
                    "its result", "the contributions");
  }
  if (!status.ok()) {
    return absl::InternalError(absl::StrCat(who, ": ", status.message()));
  }
  return result;
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
    const StrategyOptions& options, const ActorOptions& actor_options) {
  MR_RETURN_IF_ERROR(
      StrategyRegistry::Get().Create(strategy, options).status());
  return cluster.CreateActor<ParameterServer>(actor_options,
                                              std::string(strategy), options);
}

}  // namespace miniray::ps
