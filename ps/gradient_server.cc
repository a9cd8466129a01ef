#include "ps/gradient_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/check_weights.h"
#include "ps/run_strategy.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

// Of a push that waits for others: nobody tells the server that a worker that
// only pushes is dead.
constexpr absl::Duration kDefaultTimeout = absl::Minutes(5);
constexpr size_t kMaxWarnings = 20;

// Of what may be malformed yet.
int64_t DenseBytes(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.layout() != at::kStrided) continue;
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

VersionedWeights Served(const ModelSnapshot& model) {
  return {.version = model.version, .weights = {model.weights}};
}

}  // namespace

GradientServer::GradientServer(GradientStrategy* strategy, StrategyId id,
                               const ServerOptions& options)
    : options_(options),
      in_rounds_(StepsInRounds(options)),
      timeout_(options.sync_timeout_seconds > 0
                   ? absl::Seconds(options.sync_timeout_seconds)
                   : kDefaultTimeout),
      model_(strategy, std::move(id), options),
      clocks_({.num_workers = options.num_workers,
               .max_staleness = options.max_staleness,
               .policy = options.staleness_policy}) {}

absl::Status GradientServer::Restore(int64_t num_restarts) {
  MR_ASSIGN_OR_RETURN(GradientProgress progress, model_.Restore(num_restarts));
  absl::MutexLock lock(&mu_);
  clocks_.Restore(progress.clocks);
  last_sync_ = std::move(progress.last_sync);
  num_syncs_ = progress.num_syncs;
  return absl::OkStatus();
}

absl::StatusOr<JoinReply> GradientServer::Join(
    int worker, NamedTensors start, std::vector<std::string> buffers) {
  MR_RETURN_IF_ERROR(CheckWorker(worker));
  absl::MutexLock lock(&mu_);
  AwaitIdle();
  const std::shared_ptr<const ModelSnapshot> model = model_.Snapshot();
  if (model->empty()) {
    MR_RETURN_IF_ERROR(Annotate(RunAlone([&] {
                                  return model_.Start(std::move(start),
                                                      std::move(buffers),
                                                      {.clocks = {}});
                                }),
                                NameOf(worker)));
  } else {
    MR_RETURN_IF_ERROR(CheckLayout(start, model->layout, NameOf(worker),
                                   "the parameter server"));
  }
  clocks_.Join(worker);
  const std::shared_ptr<const ModelSnapshot> joined = model_.Snapshot();
  return JoinReply{.model = Served(*joined),
                   .terms = TermsOf(*joined),
                   .last_sequence = clocks_.Of(worker).last_sequence};
}

absl::Status GradientServer::Leave(int worker) {
  MR_RETURN_IF_ERROR(CheckWorker(worker));
  absl::MutexLock lock(&mu_);
  AwaitIdle();
  clocks_.Leave(worker);
  FinishRoundIfComplete();
  return absl::OkStatus();
}

PushTerms GradientServer::TermsOf(const ModelSnapshot& model) const {
  PushTerms terms = {.in_rounds = in_rounds_,
                     .non_finite = options_.non_finite,
                     .from_workers = options_.from_workers,
                     .places = model.places};
  for (size_t i = 0; i < model.weights.size(); ++i) {
    if ((*model.info)[i].is_buffer) {
      terms.buffers.push_back(model.weights[i].first);
    }
  }
  return terms;
}

absl::StatusOr<PullReply> GradientServer::Pull() const {
  const std::shared_ptr<const ModelSnapshot> model = model_.Snapshot();
  if (!model->empty()) {
    return PullReply{.model = Served(*model), .terms = TermsOf(*model)};
  }
  return absl::FailedPreconditionError(
      "the parameter server has no weights yet; call JoinGradients, "
      "StartFromWorkers or PushWeights first");
}

absl::StatusOr<int64_t> GradientServer::Start(
    NamedTensors weights, std::optional<std::vector<std::string>> buffers,
    std::vector<TensorPart> places, int64_t version) {
  absl::MutexLock lock(&mu_);
  AwaitIdle();
  const std::shared_ptr<const ModelSnapshot> before = model_.Snapshot();
  const GradientProgress progress = {.num_syncs = num_syncs_,
                                     .clocks = clocks_.State()};
  const absl::Status status = RunAlone([&] {
    return model_.Start(std::move(weights), std::move(buffers), progress,
                        std::move(places), version);
  });
  const std::shared_ptr<const ModelSnapshot> now = model_.Snapshot();
  if (now != before) {  // Though they may not be saved.
    last_sync_.clear();
    DissolveRound();
  }
  MR_RETURN_IF_ERROR(status);
  return now->version;
}

absl::Status GradientServer::StepTogether(
    std::vector<Contribution> contributions,
    const ModelSnapshot& completed_from, const std::string& sync_id,
    int64_t num_syncs, absl::FunctionRef<std::string(int)> worker_name) {
  absl::MutexLock lock(&mu_);
  AwaitIdle();
  const std::shared_ptr<const ModelSnapshot> model = model_.Snapshot();
  for (Contribution& contribution : contributions) {
    contribution.info = model->info;
    GradientModel::CompleteAnew(completed_from, *model, &contribution.tensors);
  }
  bool stepped = false;
  const GradientProgress progress = {
      .last_sync = sync_id, .num_syncs = num_syncs, .clocks = clocks_.State()};
  const absl::Time start = absl::Now();
  const absl::Status status = RunAlone([&] {
    MR_ASSIGN_OR_RETURN(NamedTensors next,
                        model_.Step(contributions, 1, worker_name));
    stepped = true;
    return model_.Publish(std::move(next), progress);
  });
  stats_.seconds_step += absl::ToDoubleSeconds(absl::Now() - start);
  if (!stepped) return status;
  ++stats_.steps;
  stats_.accepted += static_cast<int64_t>(contributions.size());
  for (size_t i = 0; i < contributions.size(); ++i) {
    CountStaleness(0, &stats_.staleness);
  }
  last_sync_ = sync_id;
  num_syncs_ = num_syncs;
  DissolveRound();
  return status;
}

absl::Status GradientServer::SaveIfFailed() {
  absl::MutexLock lock(&mu_);
  AwaitIdle();
  return RunAlone([this] { return model_.SaveIfFailed(); });
}

absl::Status GradientServer::SaveUnsaved() {
  absl::MutexLock lock(&mu_);
  AwaitIdle();
  return RunAlone([this] { return model_.SaveUnsaved(); });
}

absl::StatusOr<PushReply> GradientServer::Push(GradientPush push) {
  const PushId id = push.id;
  MR_RETURN_IF_ERROR(CheckWorker(id.worker));
  if (id.sequence < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(id.worker), ": sequence numbers begin with 1, got ",
                     id.sequence));
  }
  if (in_rounds_ && options_.num_workers == 0) {
    return absl::FailedPreconditionError(
        "ServerOptions::num_workers does not say how many gradients make a "
        "round; set it, or let the server pull (SyncGradientsFromWorkers)");
  }
  MR_RETURN_IF_ERROR(Pull().status());
  // Checked while others step: this is most of the work beside the step.
  bool finite = true;
  bool taken = false;
  {
    absl::MutexLock lock(&mu_);
    taken = clocks_.Taken(id);
  }
  std::shared_ptr<const ModelSnapshot> completed_from = model_.Snapshot();
  if (!taken) {
    const absl::StatusOr<Checked> checked = Check(*completed_from, &push);
    if (!checked.ok()) {
      absl::MutexLock lock(&mu_);
      ++stats_.refused;
      return checked.status();
    }
    finite = checked->finite;
    absl::MutexLock lock(&mu_);
    stats_.bytes += checked->bytes;
    stats_.bytes_saved += checked->bytes_saved;
  }

  absl::MutexLock lock(&mu_);
  AwaitIdle();
  if (!taken && finite) {
    GradientModel::CompleteAnew(*completed_from, *model_.Snapshot(),
                                &push.gradients);
  }
  completed_from.reset();  // A wait for others needs no memory for it.
  PushReply reply;
  if (clocks_.Taken(id)) {
    reply.repeated = true;
    ++stats_.repeated;
    MR_RETURN_IF_ERROR(RunAlone([this] { return model_.SaveIfFailed(); }));
  } else if (in_rounds_ && push.version < model_.Snapshot()->version) {
    // Its round went on without it.
    ++stats_.refused;
    clocks_.Join(id.worker);
    reply.model = Served(*model_.Snapshot());
    return reply;
  } else if (in_rounds_) {
    std::optional<NamedTensors> part;
    if (finite) part = std::move(push.gradients);
    MR_RETURN_IF_ERROR(StepInRound(std::move(part), id, &reply));
  } else if (finite) {
    MR_RETURN_IF_ERROR(
        StepAlone(std::move(push.gradients), push.version, id, &reply));
  } else {
    ++stats_.refused;
    clocks_.Take(id);
  }
  if (!in_rounds_) {
    MR_RETURN_IF_ERROR(AwaitOthers(
        id.worker,
        [this, &id] {
          mu_.AssertReaderHeld();
          return clocks_.HeldUpBy(id.worker).empty();
        },
        [this, &id] {
          mu_.AssertReaderHeld();
          return clocks_.HeldUpBy(id.worker);
        },
        [this, &id] {
          mu_.AssertReaderHeld();
          return static_cast<int64_t>(clocks_.Active().size() -
                                      clocks_.HeldUpBy(id.worker).size());
        },
        [] {}));
  }
  reply.model = Served(*model_.Snapshot());
  return reply;
}

std::string GradientServer::NameOf(int worker) {
  return absl::StrCat("worker ", worker);
}

absl::Status GradientServer::CheckWorker(int worker) const {
  const int64_t end =
      options_.num_workers > 0 ? options_.num_workers : kMaxWorkers;
  if (worker >= 0 && worker < end) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "worker ", worker, ": workers are numbered from 0 to ", end - 1));
}

absl::StatusOr<GradientServer::Checked> GradientServer::Check(
    const ModelSnapshot& model, GradientPush* push) const {
  const std::string who = NameOf(push->id.worker);
  const int64_t version = push->version;
  if (version < 1 || version > model.version) {
    return absl::OutOfRangeError(absl::StrCat(
        who, ": its gradient is of version ", version,
        " of the weights, and the server's is ", model.version,
        version > model.version
            ? "; if the server restarted without its last versions, join again"
            : ""));
  }
  Checked checked;
  if (push->left_out) return checked;
  checked.bytes = DenseBytes(push->gradients);
  if (push->compression.method != Compression::kNone) {
    MR_RETURN_IF_ERROR(
        GradientModel::Decode(model, who, push->compression, &push->gradients));
    checked.bytes_saved = DenseBytes(push->gradients) - checked.bytes;
  }
  MR_RETURN_IF_ERROR(
      GradientModel::CheckAndComplete(model, who, &push->gradients));
  checked.finite = true;
  if (options_.non_finite == NonFinitePolicy::kAllow) return checked;
  const absl::Status finite = CheckFinite(push->gradients, who);
  if (!finite.ok() && options_.non_finite == NonFinitePolicy::kRefuse) {
    return finite;
  }
  checked.finite = finite.ok();
  return checked;
}

void GradientServer::AwaitIdle() const {
  const auto idle = [this] {
    mu_.AssertReaderHeld();
    return !busy_;
  };
  mu_.Await(absl::Condition(&idle));
}

absl::Status GradientServer::RunAlone(
    absl::FunctionRef<absl::Status()> change) {
  busy_ = true;
  mu_.Unlock();
  // An exception would leave with the lock let go, and nobody else come in.
  const absl::Status status = Guarded("the parameter server", change);
  mu_.Lock();
  busy_ = false;
  return status;
}

absl::Status GradientServer::Step(std::vector<Contribution> contributions,
                                  double lr_scale, absl::Span<const PushId> ids,
                                  bool* stepped) {
  const std::shared_ptr<const ModelSnapshot> model = model_.Snapshot();
  for (Contribution& contribution : contributions) {
    contribution.info = model->info;
  }
  WorkerClocks next_clocks = clocks_;
  for (const PushId& id : ids) next_clocks.Take(id);
  const GradientProgress progress = {.last_sync = last_sync_,
                                     .num_syncs = num_syncs_,
                                     .clocks = next_clocks.State()};
  const absl::Time start = absl::Now();
  const absl::Status status = RunAlone([&] {
    MR_ASSIGN_OR_RETURN(NamedTensors next,
                        model_.Step(contributions, lr_scale, NameOf));
    *stepped = true;
    return model_.Publish(std::move(next), progress);
  });
  stats_.seconds_step += absl::ToDoubleSeconds(absl::Now() - start);
  if (!*stepped) return status;
  ++stats_.steps;
  for (const PushId& id : ids) clocks_.Take(id);
  return status;
}

absl::Status GradientServer::StepAlone(NamedTensors gradients, int64_t version,
                                       const PushId& id, PushReply* reply) {
  reply->staleness = model_.Snapshot()->version - version;
  reply->lr_scale = clocks_.LearningRateScale(reply->staleness);
  bool stepped = false;
  const absl::Status status =
      Step({{.worker_id = id.worker, .tensors = std::move(gradients)}},
           reply->lr_scale, {id}, &stepped);
  if (!stepped) {
    ++stats_.refused;
    return status;
  }
  reply->accepted = true;
  ++stats_.accepted;
  if (reply->lr_scale < 1) ++stats_.damped;
  CountStaleness(reply->staleness, &stats_.staleness);
  return status;
}

void GradientServer::Warn(std::string warning) {
  LOG(WARNING) << warning;
  if (warnings_.size() >= kMaxWarnings) warnings_.erase(warnings_.begin());
  warnings_.push_back(std::move(warning));
}

std::string GradientServer::last_sync() const {
  absl::MutexLock lock(&mu_);
  return last_sync_;
}

int64_t GradientServer::num_syncs() const {
  absl::MutexLock lock(&mu_);
  return num_syncs_;
}

GradientStats GradientServer::GetStats() const {
  absl::MutexLock lock(&mu_);
  GradientStats stats = stats_;
  stats.clocks = clocks_.State();
  return stats;
}

std::vector<std::string> GradientServer::Warnings() const {
  absl::MutexLock lock(&mu_);
  return warnings_;
}

}  // namespace miniray::ps
