#include "runtime/actor/call_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/actor/registry.h"
#include "runtime/base/background.h"

namespace miniray {
namespace internal {
namespace {

// In which records are gathered for one message; internal.
constexpr absl::Duration kPeriod = absl::Seconds(1);

}  // namespace

std::function<void(const FinishedCall&)> CallRecorder::HookFor(
    const v1::HostActor& host) {
  const v1::ActorSpec& spec = host.spec();
  return [self = shared_from_this(),
          actor = Actor{spec.actor_id(),
                        std::string(ShortClassName(spec.class_name())),
                        spec.name(), spec.job_id()}](const FinishedCall& call) {
    self->Add(actor, call);
  };
}

bool CallRecorder::Count(int64_t now_unix_us) {
  const int64_t second = now_unix_us / 1000000;
  if (second != second_) {
    // As it was, it will be.
    stride_ = std::max<int64_t>(1, calls_ / kMaxPerSecond);
    second_ = second;
    calls_ = 0;
    kept_ = 0;
  }
  if (calls_++ % stride_ != 0 || kept_ >= kMaxPerSecond) return false;
  ++kept_;
  return true;
}

void CallRecorder::Add(const Actor& actor, const FinishedCall& call) {
  {
    absl::MutexLock lock(&mu_);
    v1::ActorCallRecords* records = event_.mutable_call_records();
    if (Count(call.end_unix_us)) {
      v1::CallRecord* record = records->add_records();
      record->set_actor_id(actor.actor_id);
      record->set_class_name(actor.class_name);
      record->set_actor_name(actor.name);
      record->set_job_id(actor.job_id);
      record->set_pid(getpid());
      record->set_method(call.method);
      record->set_queued_unix_us(call.queued_unix_us);
      record->set_start_unix_us(call.start_unix_us);
      record->set_end_unix_us(call.end_unix_us);
      record->set_failed(call.failed);
      record->set_lane(call.lane);
    } else {
      records->set_dropped(records->dropped() + 1);
    }
    if (std::exchange(scheduled_, true)) return;
  }
  RunInBackground(
      [weak = weak_from_this()] {
        // In a thread that must not block: a daemon that stands still reads
        // nothing.
        if (auto self = weak.lock()) self->TrySend();
      },
      kPeriod);
}

void CallRecorder::TrySend() {
  v1::ActorEvent event;
  {
    absl::MutexLock lock(&mu_);
    scheduled_ = false;
    if (!event_.has_call_records()) return;
    event = std::exchange(event_, {});
  }
  if (send_(event, /*wait=*/false)) return;
  const v1::ActorCallRecords& lost = event.call_records();
  absl::MutexLock lock(&mu_);
  v1::ActorCallRecords* const records = event_.mutable_call_records();
  records->set_dropped(records->dropped() + lost.dropped() +
                       lost.records_size());
}

void CallRecorder::Flush() {
  v1::ActorEvent event;
  {
    absl::MutexLock lock(&mu_);
    scheduled_ = false;
    if (!event_.has_call_records()) return;
    event = std::exchange(event_, {});
  }
  send_(event, /*wait=*/true);
}

}  // namespace internal
}  // namespace miniray
