#include "train/functions/worker_group.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "proto/head.pb.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "train/actor_states.h"
#include "train/wait_for_start.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

// So long a worker beyond the least number may wait before that tells that
// there is no room for it: the processes of those before it may still be
// ending.
constexpr absl::Duration kPlaceGrace = absl::Seconds(1);

// Who does not answer within it is not waited for: the head hears of the loss
// of a node later.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(2);

// Between two looks for room, at least; and at least so many times what the
// last one took.
constexpr absl::Duration kLookPeriod = absl::Seconds(1);
constexpr int kLookShare = 10;

bool HasStarted(const AnyActorHandle& actor) {
  return actor.WaitReady(absl::ZeroDuration()).ok();
}

}  // namespace

WorkerGroup::WorkerGroup(Cluster cluster, ScalingConfig scaling,
                         std::function<bool()> cancelled)
    : cluster_(std::move(cluster)),
      scaling_(std::move(scaling)),
      resources_(WorkerResources(scaling_)),
      cancelled_(std::move(cancelled)),
      workers_(scaling_.num_workers.max),
      names_(scaling_.num_workers.max) {}

WorkerGroup::~WorkerGroup() { Shutdown(); }

absl::Status WorkerGroup::Start(bool* is_final) {
  *is_final = false;
  MR_RETURN_IF_ERROR(ForgetDead());
  // Names of workers that have just ended may still live.
  const std::string actor_namespace = NewId("train");
  MR_RETURN_IF_ERROR(StartLeast(actor_namespace, is_final));
  const int before = std::exchange(size_, least());
  if (most() > least()) MR_RETURN_IF_ERROR(StartFurther(actor_namespace));
  TellSize(before);
  asked_for_all_.reset();
  scout_pauses_.Reset();
  return absl::OkStatus();
}

absl::Status WorkerGroup::Make(int rank, const std::string& actor_namespace) {
  ActorOptions options;
  options.name = absl::StrCat("rank-", rank);
  options.actor_namespace = actor_namespace;
  options.resources = resources_;
  options.concurrency_groups = TrainFunctionWorker::Groups();
  places_.Place(rank, &options);
  MR_ASSIGN_OR_RETURN(workers_[rank],
                      cluster_.CreateActor<TrainFunctionWorker>(options));
  names_[rank].clear();
  return absl::OkStatus();
}

absl::Status WorkerGroup::StartLeast(const std::string& actor_namespace,
                                     bool* is_final) {
  const absl::Time begin = absl::Now();
  MR_RETURN_IF_ERROR(places_.Reserve(cluster_, least(), resources_,
                                     scaling_.placement_strategy,
                                     actor_namespace));
  const auto lacks =
      std::find(workers_.begin(), workers_.begin() + least(), std::nullopt);
  if (lacks != workers_.begin() + least()) {
    // Those beyond may have the room that the lost ones need now.
    for (int rank = least(); rank < most(); ++rank) {
      MR_RETURN_IF_ERROR(End(rank));
    }
  }
  NamedActors actors;
  for (int rank = 0; rank < least(); ++rank) {
    if (!workers_[rank].has_value()) {
      MR_RETURN_IF_ERROR(Make(rank, actor_namespace));
    }
    actors.emplace_back(absl::StrCat("rank ", rank), *workers_[rank]);
  }
  const auto await_places = [&] {
    const absl::Status placed =
        places_.Await(begin, scaling_.start_timeout, cancelled_);
    *is_final =
        absl::IsDeadlineExceeded(placed) || absl::IsFailedPrecondition(placed);
    return placed;
  };
  MR_RETURN_IF_ERROR(await_places());
  const absl::Status started =
      WaitForStart(cluster_, actors, begin, scaling_.start_timeout, cancelled_);
  if (!absl::IsDeadlineExceeded(started)) return started;
  // A node may have been lost since, and places with it.
  MR_RETURN_IF_ERROR(await_places());
  *is_final = true;
  return started;
}

absl::Status WorkerGroup::StartFurther(const std::string& actor_namespace) {
  absl::Duration grace =
      asked_for_all_.has_value() ? absl::ZeroDuration() : kPlaceGrace;
  for (int rank = least(); rank < most(); ++rank) {
    if (workers_[rank].has_value()) continue;
    MR_RETURN_IF_ERROR(Make(rank, actor_namespace));
    grace = kPlaceGrace;
  }
  AwaitFurther(grace);
  for (int rank = least(); rank < most(); ++rank) {
    if (!HasStarted(*workers_[rank])) {
      MR_RETURN_IF_ERROR(End(rank));
      continue;
    }
    if (rank > size_) {
      workers_[size_] = std::exchange(workers_[rank], std::nullopt);
    }
    ++size_;
  }
  return absl::OkStatus();
}

void WorkerGroup::AwaitFurther(absl::Duration grace) {
  const absl::Time begin = absl::Now();
  while (absl::Now() < begin + scaling_.start_timeout && !cancelled_()) {
    const auto states = ActorStates(cluster_);
    if (!states.ok()) return;
    const bool may_wait = absl::Now() < begin + grace;
    const auto awaited = std::find_if(
        workers_.begin() + least(), workers_.end(), [&](const auto& worker) {
          const auto it = states->find(worker->actor_id());
          if (it == states->end()) return false;
          const v1::ActorState state = it->second.state();
          return state == v1::ACTOR_STATE_STARTING ||
                 (may_wait && state == v1::ACTOR_STATE_PENDING);
        });
    if (awaited == workers_.end()) return;
    (*awaited)->WaitReady(kSignalTurn).IgnoreError();
  }
}

void WorkerGroup::TellSize(int before) const {
  if (before > 0 && size_ != before) {
    LOG(INFO) << "the group " << (size_ > before ? "grows" : "shrinks")
              << " from " << before << " to " << size_ << " ranks";
  } else if (before == 0 && size_ < most()) {
    LOG(INFO) << "there is room for " << size_ << " of " << most() << " ranks; "
              << least() << " are enough";
  }
}

void WorkerGroup::LookForRoom() {
  const absl::Time now = absl::Now();
  if (size_ == most() || asked_for_all_.has_value() || now < next_look_) return;
  Scout();
  // A head that is slow, or away, shall not keep the driver from its ranks.
  next_look_ =
      absl::Now() + std::max(kLookPeriod, kLookShare * (absl::Now() - now));
}

void WorkerGroup::Scout() {
  if (!workers_[size_].has_value()) {
    if (absl::Now() < next_scout_) return;
    const absl::Status made = Make(size_, NewId("train"));
    LOG_IF(WARNING, !made.ok())
        << "no room is looked for, for now: " << made.message();
    if (!made.ok()) next_scout_ = absl::Now() + scout_pauses_.Next();
    return;
  }
  const absl::Status ready = workers_[size_]->WaitReady(absl::ZeroDuration());
  if (absl::IsDeadlineExceeded(ready)) return;
  if (ready.ok()) return AskForAll();
  // No node could hold it for long, or it has died; or the head is away, and
  // it may live.
  if (!End(size_).ok()) return;
  const absl::Duration pause = scout_pauses_.Next();
  LOG(WARNING) << "a further worker could not start: " << ready.message()
               << "; the next is made in " << absl::FormatDuration(pause);
  next_scout_ = absl::Now() + pause;
}

void WorkerGroup::AskForAll() {
  asked_for_all_ = absl::Now();
  const std::string actor_namespace = NewId("train");
  for (int rank = size_ + 1; rank < most(); ++rank) {
    if (workers_[rank].has_value()) continue;
    const absl::Status made = Make(rank, actor_namespace);
    if (made.ok()) continue;
    LOG(WARNING) << "fewer further workers are made than there may be: "
                 << made.message();
    return;
  }
}

bool WorkerGroup::CanGrow() {
  LookForRoom();
  if (!asked_for_all_.has_value()) return false;
  const auto states = ActorStates(cluster_);
  if (!states.ok()) return false;
  const bool may_wait = absl::Now() < *asked_for_all_ + kPlaceGrace;
  std::vector<int> alive;
  for (int rank = size_; rank < most(); ++rank) {
    if (!workers_[rank].has_value()) continue;
    const auto it = states->find(workers_[rank]->actor_id());
    if (it == states->end()) continue;
    const v1::ActorState state = it->second.state();
    if (state == v1::ACTOR_STATE_STARTING ||
        (may_wait && state == v1::ACTOR_STATE_PENDING)) {
      return false;  // Soon there are more.
    }
    if (state == v1::ACTOR_STATE_ALIVE) alive.push_back(rank);
  }
  if (KeepAnswering(alive)) return true;
  // They are lost: who waits behind them is no scout.
  for (int rank = size_; rank < most(); ++rank) {
    if (!End(rank).ok()) return false;
  }
  asked_for_all_.reset();
  next_scout_ = absl::Now() + scout_pauses_.Next();
  return false;
}

bool WorkerGroup::KeepAnswering(const std::vector<int>& ranks) {
  std::vector<ObjectRef<std::string>> stages;
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls;
  for (const int rank : ranks) {
    stages.push_back(workers_[rank]->Call<&TrainFunctionWorker::Stage>(0));
    calls.push_back(stages.back().state());
  }
  miniray::internal::WaitForCalls(calls, calls.size(), kAnswerTimeout);
  bool any = false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto stage = stages[i].Get(absl::ZeroDuration());
    if (stage.ok()) {
      any = true;
      continue;
    }
    LOG(WARNING) << "a further worker is lost before it has a rank: "
                 << stage.status().message();
    if (!End(ranks[i]).ok()) return false;
  }
  return any;
}

absl::Status WorkerGroup::ForgetDead() {
  MR_ASSIGN_OR_RETURN(const auto states, ActorStates(cluster_));
  for (auto& worker : workers_) {
    if (!worker.has_value()) continue;
    const auto it = states.find(worker->actor_id());
    if (it == states.end() || it->second.state() == v1::ACTOR_STATE_DEAD) {
      worker.reset();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GenerationStart>> WorkerGroup::Places() {
  MR_ASSIGN_OR_RETURN(const auto states, ActorStates(cluster_));
  std::vector<GenerationStart> starts(size());
  std::vector<std::string> addresses;
  std::map<std::string, int> node_ranks;  // By node_id.
  std::map<std::string, int> ranks_on;    // So far.
  std::vector<std::string> nodes;         // By rank.
  for (int rank = 0; rank < size(); ++rank) {
    const auto it = states.find(worker(rank).actor_id());
    if (it == states.end()) {
      return absl::UnavailableError(
          absl::StrCat("the head does not know rank ", rank));
    }
    const v1::ActorInfo& info = it->second;
    nodes.push_back(info.node_id());
    addresses.push_back(info.address());
    node_ranks.try_emplace(info.node_id(), static_cast<int>(node_ranks.size()));
    starts[rank].rank = rank;
    starts[rank].world_size = size();
    starts[rank].local_rank = ranks_on[info.node_id()]++;
    starts[rank].node_rank = node_ranks[info.node_id()];
    names_[rank] = absl::StrCat("rank ", rank, " (process ", info.pid(), " on ",
                                info.node_id(), ")");
  }
  for (int rank = 0; rank < size(); ++rank) {
    starts[rank].local_world_size = ranks_on[nodes[rank]];
    starts[rank].addresses = addresses;
  }
  return starts;
}

std::string WorkerGroup::NameOf(int rank) const {
  return names_[rank].empty() ? absl::StrCat("rank ", rank) : names_[rank];
}

absl::Status WorkerGroup::End(int rank) {
  if (!workers_[rank].has_value()) return absl::OkStatus();
  const absl::Time deadline = absl::Now() + scaling_.start_timeout;
  while (true) {
    const absl::Status killed = workers_[rank]->Kill();
    const bool silent =
        absl::IsUnavailable(killed) || absl::IsDeadlineExceeded(killed);
    if (!silent) break;  // Ended; or the head knows it no more.
    if (absl::Now() >= deadline || cancelled_()) {
      return Annotate(killed, absl::StrCat("ending ", NameOf(rank)));
    }
    absl::SleepFor(kSignalTurn);
  }
  workers_[rank].reset();
  return absl::OkStatus();
}

void WorkerGroup::Shutdown() {
  for (int rank = 0; rank < most(); ++rank) {
    if (!workers_[rank].has_value()) continue;
    const absl::Status killed = workers_[rank]->Kill();
    LOG_IF(WARNING, absl::IsUnavailable(killed))
        << NameOf(rank) << " may live until this program leaves the cluster: "
        << killed.message();
    workers_[rank].reset();
  }
  places_.Release();
}

}  // namespace miniray::train
