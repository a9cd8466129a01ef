#include "runtime/head/log_reading.h"

#include <algorithm>
#include <utility>

#include "runtime/base/background.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

// For news of what is followed; then the head is asked again.
constexpr int64_t kWaitMs = 60'000;

}  // namespace

void LogReading::Begin(ClusterState::LogPlace place) {
  absl::MutexLock lock(&mu_);
  request_.set_actor_id(place.request.actor_id());
  request_.set_job_id(place.request.job_id());
  request_.set_tail_lines(place.request.tail_lines());
  request_.set_follow(place.request.follow());
  request_.set_skip_bytes(place.request.skip_bytes());
  request_.set_min_incarnation(place.request.min_incarnation());
  // The reader learns that it is connected, however long nothing is there to be
  // read.
  v1::LogChunk nothing;
  nothing.set_incarnation(request_.min_incarnation());
  Push(std::move(nothing), 0);
  if (place.link != nullptr) return Open(std::move(place));
  Await(0);
}

void LogReading::Close() {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
    relay_->Close(id_);
  }
  out_.End(grpc::Status::CANCELLED);
}

void LogReading::Written(bool ok) {
  std::pair<uint64_t, int64_t> written;
  {
    absl::MutexLock lock(&queue_mu_);
    written = queued_.front();
    queued_.pop_front();
  }
  out_.Written(ok);
  if (ok && written.second > 0) relay_->Grant(written.first, written.second);
}

void LogReading::Data(v1::LogChunk chunk) {
  const auto size = static_cast<int64_t>(chunk.data().size());
  Push(std::move(chunk), size);
}

void LogReading::End(absl::Status status, int32_t incarnation) {
  RunInBackground([self = shared_from_this(), status, incarnation] {
    self->GoOn(status, incarnation);
  });
}

void LogReading::Push(v1::LogChunk chunk, int64_t size) {
  absl::MutexLock lock(&queue_mu_);
  queued_.emplace_back(open_id_, size);
  out_.Push(std::move(chunk));
}

void LogReading::Finish(const absl::Status& status) {
  out_.End(ToGrpcStatus(status), /*drain=*/true);
}

void LogReading::Open(ClusterState::LogPlace place) {
  // A new one, so that nothing that is late is taken for it.
  id_ = relay_->NewId();
  {
    absl::MutexLock lock(&queue_mu_);
    open_id_ = id_;
  }
  const absl::Status status = relay_->Open(
      id_, std::move(place.link), std::move(place.request), shared_from_this());
  if (!status.ok()) Finish(status);
}

void LogReading::GoOn(const absl::Status& status, int32_t incarnation) {
  absl::MutexLock lock(&mu_);
  if (closed_) return;
  if (!status.ok() || !request_.follow() || request_.actor_id().empty() ||
      ended_) {
    return Finish(status);
  }
  request_.set_min_incarnation(
      std::max(request_.min_incarnation(), incarnation + 1));
  request_.clear_skip_bytes();
  request_.clear_tail_lines();
  Await(0);
}

void LogReading::Await(int64_t min_version) {
  // The answer comes with locks of the state.
  if (!request_.actor_id().empty()) {
    v1::GetActorRequest request;
    request.set_actor_id(request_.actor_id());
    request.set_min_version(min_version);
    request.set_wait_ms(kWaitMs);
    return state_->GetActor(request, [self = shared_from_this()](
                                         absl::StatusOr<v1::ActorInfo> info) {
      RunInBackground([self, info = std::move(info)] {
        absl::MutexLock lock(&self->mu_);
        if (self->closed_) return;
        if (!info.ok()) return self->Finish(info.status());
        const bool dead = info->state() == v1::ACTOR_STATE_DEAD;
        const bool news =
            info->restarts() >= self->request_.min_incarnation() &&
            (dead || HasProcess(*info));
        self->Look(news, dead, info->version());
      });
    });
  }
  v1::GetJobRequest request;
  request.set_job_id(request_.job_id());
  request.set_min_version(min_version);
  request.set_wait_ms(kWaitMs);
  state_->GetJob(
      request, [self = shared_from_this()](absl::StatusOr<v1::JobInfo> info) {
        RunInBackground([self, info = std::move(info)] {
          absl::MutexLock lock(&self->mu_);
          if (self->closed_) return;
          if (!info.ok()) return self->Finish(info.status());
          const bool ended = HasEnded(*info);
          self->Look(ended || !info->node_id().empty(), ended, info->version());
        });
      });
}

void LogReading::Look(bool news, bool ended, int64_t version) {
  ended_ = ended;
  if (!news) return ended ? Finish(absl::OkStatus()) : Await(version + 1);
  absl::StatusOr<ClusterState::LogPlace> place = state_->FindLog(request_);
  if (!place.ok()) return Finish(place.status());
  if (place->link == nullptr) return Await(version + 1);
  Open(*std::move(place));
}

}  // namespace miniray
