// The method of ParameterServer that synchronises in pieces.
//
// The order of what happens is what makes it all or nothing:
//   1. every piece is pulled, checked, aggregated, and, but for the last one,
//      pushed: no worker takes new weights yet;
//   2. all workers have taken those pieces;
//   3. the new weights are the server's, and saved;
//   4. the last piece is pushed.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/await_calls.h"
#include "ps/model_cut.h"
#include "ps/parameter_server.h"
#include "ps/piecewise_strategy.h"
#include "ps/pull_pieces.h"
#include "ps/push_pieces.h"
#include "ps/run_strategy.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {
namespace {

// Adds the time that it lives.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(*seconds) {}
  ~Stopwatch() { seconds_ += absl::ToDoubleSeconds(absl::Now() - start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  const absl::Time start_ = absl::Now();
};

}  // namespace

class ParameterServer::PiecewiseAttempt {
 public:
  PiecewiseAttempt(ParameterServer* server,
                   const std::vector<AnyActorHandle>* workers)
      : server_(*server),
        workers_(*workers),
        pieces_(server->pieces_->pieces()),
        id_(NewId("weights")),
        next_(EmptySharedTensors(server->weights_)),
        push_(workers) {
    result_.num_workers = static_cast<int64_t>(workers->size());
    result_.num_pieces = static_cast<int64_t>(pieces_.size());
  }

  // Steps 1 and 2. After an error only the strategy has to be rolled back.
  absl::Status Prepare() {
    PullRequest request = server_.RequestOf(workers_, Pulled::kWeights);
    // A worker that is left out of one piece would have to be left out of all.
    request.min_workers = 0;
    request.drop_non_finite = false;
    request.taken = nullptr;  // Who does not have them has another id.
    PullPieces pull(std::move(request), &server_.weights_, &pieces_,
                    server_.view_->id());
    for (size_t k = 0; k < pieces_.size(); ++k) {
      MR_ASSIGN_OR_RETURN(PulledWeights pulled, Next(&pull));
      MR_RETURN_IF_ERROR(Aggregate(k, std::move(pulled)));
      if (k + 1 < pieces_.size()) MR_RETURN_IF_ERROR(Send(k));
    }
    const Stopwatch stopwatch(&result_.seconds_push);
    const std::vector<absl::Status>& taken = push_.Await(server_.Deadline());
    for (size_t i = 0; i < taken.size(); ++i) {
      if (taken[i].ok()) continue;
      worker_failed_ = true;
      return Annotate(taken[i], WorkerName(i, workers_[i]));
    }
    return absl::OkStatus();
  }

  // Of an error of Prepare: whether the whole model at once might do, where
  // workers can be left out, and new ones are as good as others.
  bool MightDoAtOnce() const {
    const ServerOptions& options = server_.options_;
    return has_new_worker_ ||
           (worker_failed_ &&
            (options.min_workers > 0 ||
             options.non_finite == NonFinitePolicy::kDropWorker));
  }

  // Steps 3 and 4. Errors: as of a push that fails.
  absl::StatusOr<SyncResult> Finish(const std::string& sync_id) {
    SyncStats& stats = server_.stats_;
    {
      const Stopwatch stopwatch(&result_.seconds_aggregate);
      const absl::Status replaced =
          server_.ReplaceInSync(next_, sync_id, Contributors(), id_,
                                [this] { return server_.pieces_->Rollback(); });
      if (replaced.ok() || !sync_id.empty()) server_.pieces_->Commit(next_);
      MR_RETURN_IF_ERROR(replaced);
    }
    auto not_counted = absl::MakeCleanup([this] { server_.CountSync(false); });
    stats.contributions_accepted += result_.num_workers;
    absl::Status pushed;
    {
      const Stopwatch stopwatch(&result_.seconds_push);
      MR_RETURN_IF_ERROR(Send(pieces_.size() - 1));
      const std::vector<absl::Status>& taken = push_.Await(server_.Deadline());
      std::vector<ObjectRef<void>> calls = push_.TakeLast();
      for (size_t i = 0; i < calls.size(); ++i) {
        server_.taken_.NoteSent(workers_[i], calls[i].state());
      }
      std::vector<BehindWorker> behind;
      pushed = server_.Judge(workers_, std::vector<bool>(workers_.size(), true),
                             taken, std::move(calls), &behind);
      pushed.Update(server_.SendAgain(workers_, behind));
      result_.num_behind = static_cast<int64_t>(behind.size());
    }
    result_.version = stats.version;
    result_.bytes = bytes_pulled_ + push_.bytes();
    stats.bytes_pulled += bytes_pulled_;
    stats.bytes_pushed += push_.bytes();
    stats.seconds_pull += result_.seconds_pull;
    stats.seconds_aggregate += result_.seconds_aggregate;
    stats.seconds_push += result_.seconds_push;
    MR_RETURN_IF_ERROR(pushed);
    std::move(not_counted).Cancel();
    return result_;
  }

 private:
  // The next piece of all workers, which all go on from the server's weights.
  absl::StatusOr<PulledWeights> Next(PullPieces* pull) {
    const Stopwatch stopwatch(&result_.seconds_pull);
    absl::StatusOr<PulledWeights> pulled = pull->Next();
    if (!pulled.ok()) {
      worker_failed_ = true;
      return pulled;
    }
    for (size_t i = 0; i < pulled->holds_view.size(); ++i) {
      if (pulled->holds_view[i]) continue;
      has_new_worker_ = true;
      return absl::FailedPreconditionError(
          absl::StrCat(WorkerName(i, workers_[i]),
                       " does not go on from the server's weights: it is new "
                       "or has restarted"));
    }
    bytes_pulled_ += pulled->bytes;
    return pulled;
  }

  absl::Status Aggregate(size_t k, PulledWeights pulled) {
    const Stopwatch stopwatch(&result_.seconds_aggregate);
    std::vector<Contribution>& contributions = pulled.contributions;
    if (k == 0) {
      if (pulled.buffer_names.has_value()) {
        MR_RETURN_IF_ERROR(
            Annotate(server_.SetBufferNames(server_.weights_,
                                            *std::move(pulled.buffer_names)),
                     WorkerName(0, workers_.front())));
      }
      info_ = server_.InfoOfModel(server_.weights_);
      for (const Contribution& contribution : contributions) {
        samples_.push_back(contribution.num_samples);
      }
    }
    const auto info = InfoOfPiece(info_, pieces_[k]);
    for (size_t i = 0; i < contributions.size(); ++i) {
      contributions[i].info = info;
      contributions[i].num_samples = samples_[i];
    }
    server_.SetWeightsInMean(&contributions);
    MR_ASSIGN_OR_RETURN(SyncStrategy* const strategy,
                        server_.pieces_->Begin(k));
    MR_ASSIGN_OR_RETURN(
        const NamedTensors aggregated,
        RunStrategy(
            *strategy, server_.stats_.strategy,
            TensorsOfPart(server_.weights_, pieces_[k]), contributions,
            [&] { return strategy->Aggregate(contributions); },
            NamesOf(workers_)));
    CopyPart(aggregated, pieces_[k], &next_);
    return absl::OkStatus();
  }

  absl::Status Send(size_t k) {
    return push_.Send({.id = id_,
                       .part = static_cast<int64_t>(k),
                       .num_parts = static_cast<int64_t>(pieces_.size()),
                       .tensors = TensorsOfPart(next_, pieces_[k]),
                       .parts = PlacesOfPart(next_, pieces_[k]),
                       .contributors = Contributors()});
  }

  // All of them.
  std::vector<int64_t> Contributors() const {
    std::vector<int64_t> contributors;
    for (size_t i = 0; i < workers_.size(); ++i) {
      contributors.push_back(static_cast<int64_t>(i));
    }
    return contributors;
  }

  ParameterServer& server_;
  const std::vector<AnyActorHandle>& workers_;
  const std::vector<ModelPart>& pieces_;
  const std::string id_;  // Of the new weights.
  NamedTensors next_;     // They, as far as they are aggregated.
  PushPieces push_;
  std::vector<TensorInfo> info_;
  std::vector<std::optional<double>> samples_;  // By worker.
  int64_t bytes_pulled_ = 0;
  bool worker_failed_ = false;
  bool has_new_worker_ = false;
  SyncResult result_;
};

absl::StatusOr<std::optional<SyncResult>> ParameterServer::SyncInPieces(
    const std::vector<AnyActorHandle>& workers, const std::string& sync_id) {
  if (pieces_ == nullptr || weights_.empty() || pieces_->pieces().size() < 2) {
    return std::nullopt;
  }
  for (const AnyActorHandle& worker : workers) {
    const auto late = late_pushes_.find(worker.actor_id());
    if (late != late_pushes_.end() && !late->second.ready()) {
      return std::nullopt;  // It holds older weights.
    }
  }
  PiecewiseAttempt attempt(this, &workers);
  {
    auto undo = absl::MakeCleanup([this] {
      const absl::Status undone =
          Guarded("Rollback", [this] { return pieces_->Rollback(); });
      if (!undone.ok()) LOG(ERROR) << "the strategy starts anew: " << undone;
    });
    const absl::Status prepared = attempt.Prepare();
    if (!prepared.ok()) {
      if (!attempt.MightDoAtOnce()) return prepared;
      LOG(WARNING) << "synchronises the whole model at once: " << prepared;
      return std::nullopt;
    }
    std::move(undo).Cancel();
  }
  MR_ASSIGN_OR_RETURN(SyncResult result, attempt.Finish(sync_id));
  return result;
}

}  // namespace miniray::ps
