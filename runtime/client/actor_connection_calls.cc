// ActorConnection: the calls themselves.

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/background.h"
#include "runtime/base/status_macros.h"
#include "runtime/client/actor_connection.h"
#include "runtime/rpc/channel.h"
#include "runtime/shm/shared_bytes.h"
#include "runtime/wire/call_messages.h"

namespace miniray {
namespace internal {
namespace {

// Calls that queued while a frame was on its way share the next one up to here.
constexpr uint64_t kFrameBytes = 1 << 20;

// Replies are acknowledged with the next calls, or once there are so many.
constexpr size_t kMaxUnacknowledged = 1024;
constexpr size_t kMaxRecentlyReleased = 4096;
constexpr uint64_t kMaxUnacknowledgedBytes = 1 << 20;

// A result of up to so many bytes comes with the reply where this process wants
// it at once anyway; beyond, a fetch in ranges is faster than the stream.
constexpr uint64_t kWantedBytes = uint64_t{4} << 20;

// Calls to one actor that have no reply yet, unless its creator said otherwise.
constexpr size_t kMaxPendingCalls = 100000;
// Their bytes: they are kept until the reply, to be sent again after a break.
// One call may be larger.
constexpr uint64_t kMaxPendingBytes = uint64_t{4} << 30;

// See Call.time_left_us.
uint64_t TimeLeft(const PendingCall& call, absl::Time now) {
  if (call.deadline == absl::InfiniteFuture()) return 0;
  return std::max<int64_t>(absl::ToInt64Microseconds(call.deadline - now), 1);
}

}  // namespace

std::shared_ptr<CallState> ActorConnection::Call(CallRequest request) {
  const absl::Time deadline = request.timeout == absl::InfiniteDuration()
                                  ? absl::InfiniteFuture()
                                  : absl::Now() + request.timeout;
  auto state = std::make_shared<CallState>(absl::StrCat(
      ShortClassName(actor_.class_name), ".", request.method, " on ",
      actor_.name.empty() ? actor_.actor_id
                          : absl::StrCat("'", actor_.name, "'")));
  state->set_owner(weak_from_this());
  CallMessage message;
  message.method = std::move(request.method);
  message.args = std::move(request.args);
  message.concurrency_group = std::move(request.concurrency_group);
  message.keep_result = request.keep_result;
  if (request.keep_result) {
    state->set_by_reference(options_.fetcher);
  } else {
    state->set_fetcher(options_.fetcher);
    if (results_stay_) {
      std::shared_ptr<FetchHabit> habit = HabitOf(message.method);
      if (habit->fetches) {
        message.wanted_bytes = kWantedBytes;
        state->set_asked_by(std::move(habit));
      }
    }
  }
  auto call = std::make_unique<PendingCall>();
  call->state = state;
  call->method = message.method;
  call->group = message.concurrency_group;
  call->holds = std::move(request.holds);
  std::vector<std::shared_ptr<CallState>> missing;
  for (const auto& [index, ref] : request.refs) {
    if (!ref->done()) missing.push_back(ref);
  }
  absl::Status refused;
  if (missing.empty()) {
    CallDraft draft{std::move(message), std::move(request.refs)};
    refused = Complete(&draft);
    HoldArguments(draft, call.get());
    if (refused.ok()) call->body = EncodeCallBody(draft.message);
  } else {
    call->draft = std::make_unique<CallDraft>(
        CallDraft{std::move(message), std::move(request.refs)});
  }
  // Outside the lock: this copies.
  if (shares_calls_ && call->body.size() >= kMinSharedBytes) {
    call->body = MoveToSharedMemory(std::move(call->body));
  }
  call->retries_left = request.max_retries;
  call->patient = request.max_retries != 0;
  call->keeps_result = request.keep_result;
  call->timeout = request.timeout;
  call->deadline = deadline;
  {
    absl::MutexLock lock(&mu_);
    if (refused.ok()) refused = CheckRoom(call->body.size());
    if (refused.ok() && request.timeout <= absl::ZeroDuration()) {
      refused = ExpiredStatus(*call);
    }
    // Such calls do not wait for news.
    if (refused.ok() && !call->patient && state_ == State::kLooking &&
        info_.state() == v1::ACTOR_STATE_RESTARTING) {
      refused = RestartingStatus();
    }
    if (refused.ok()) {
      pending_bytes_ += call->body.size();
      state->set_owner_data(call.get());
      WatchDeadline(*call);
      unsent_.Add(std::move(call));
      if (state_ == State::kConnected) {
        Pump();
      } else if (state_ == State::kIdle) {
        Look(0, absl::ZeroDuration());
      }
    }
  }
  if (!refused.ok()) {
    state->Complete(std::move(refused));
    return state;
  }
  for (const auto& ref : missing) {
    // The call may have failed before, and be forgotten by everybody.
    ref->OnDone(
        [weak = weak_from_this(), weak_call = std::weak_ptr<CallState>(state)] {
          const auto call = weak_call.lock();
          if (call == nullptr) return;
          if (auto self = weak.lock()) self->OnArgument(call.get());
        });
  }
  return state;
}

absl::Status ActorConnection::Complete(CallDraft* draft) {
  for (auto& [index, ref] : draft->refs) {
    absl::StatusOr<absl::Cord> value = ref->Wait(absl::ZeroDuration());
    MR_RETURN_IF_ERROR(
        Annotate(value.status(), absl::StrCat("argument ", index + 1)));
    draft->message.args[index] = *std::move(value);
  }
  return absl::OkStatus();
}

void ActorConnection::HoldArguments(const CallDraft& draft, PendingCall* call) {
  for (const auto& [index, ref] : draft.refs) {
    if (ref->lies_elsewhere() || ref->holds()) call->holds.push_back(ref);
  }
}

std::shared_ptr<FetchHabit> ActorConnection::HabitOf(
    const std::string& method) {
  absl::MutexLock lock(&habits_mu_);
  std::shared_ptr<FetchHabit>& habit = habits_[method];
  if (habit == nullptr) habit = std::make_shared<FetchHabit>();
  return habit;
}

void ActorConnection::OnArgument(const CallState* state) {
  Outcomes outcomes;
  std::unique_ptr<CallDraft> done;  // Dies unlocked.
  {
    absl::MutexLock lock(&mu_);
    auto* const call = static_cast<PendingCall*>(state->owner_data());
    if (call == nullptr || call->draft == nullptr) return;
    for (const auto& [index, ref] : call->draft->refs) {
      if (!ref->done()) return;
    }
    done = std::move(call->draft);
    absl::Status status = Complete(done.get());
    HoldArguments(*done, call);
    if (status.ok()) {
      call->body = EncodeCallBody(done->message);
      pending_bytes_ += call->body.size();
      if (call->body.size() > kMaxMessageBytes - 1024) {
        status = absl::InvalidArgumentError(
            "the arguments do not fit into a message of 2 GiB");
      }
    }
    if (!status.ok()) {
      Fail(unsent_.Remove(call), status, &outcomes);
    }
    Pump();
  }
  Run(std::move(outcomes));
}

std::shared_ptr<void> ActorConnection::HoldResult(const absl::Cord& reference) {
  v1::Value value;
  if (!value.ParseFromString(std::string(reference)) || !value.has_object()) {
    return nullptr;
  }
  return HoldAtActor(value.object().object_id());
}

std::shared_ptr<void> ActorConnection::HoldAtActor(std::string id) {
  ++held_results_;
  return std::shared_ptr<void>(nullptr,
                               [weak = weak_from_this(), session = session_id_,
                                id = std::move(id)](void*) {
                                 // Wherever the last reference dies: perhaps
                                 // under somebody's lock.
                                 RunInBackground([weak, session, id] {
                                   if (auto self = weak.lock())
                                     self->Release(session, id);
                                 });
                               });
}

void ActorConnection::DropResult(const absl::Cord& reference) {
  v1::Value value;
  if (value.ParseFromString(std::string(reference)) && value.has_object()) {
    released_.push_back(value.object().object_id());
  }
}

void ActorConnection::Release(const std::string& session,
                              const std::string& object_id) {
  absl::MutexLock lock(&mu_);
  // With its session, the actor forgot it.
  if (session != session_id_ || state_ == State::kDead) return;
  --held_results_;
  released_.push_back(object_id);
  Pump();
}

absl::Status ActorConnection::CheckRoom(size_t bytes) const {
  if (state_ == State::kDead) return death_;
  if (bytes > kMaxMessageBytes - 1024) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the arguments have ", bytes,
        " bytes, and a message can hold 2 GiB; send them in several calls"));
  }
  const size_t limit = actor_.max_pending_calls > 0
                           ? static_cast<size_t>(actor_.max_pending_calls)
                           : kMaxPendingCalls;
  if (unsent_.size() + sent_.size() >= limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        limit,
        " calls of this process to the actor have no reply yet, which is the "
        "limit: wait for some before making more, or create the actor with a "
        "larger ActorOptions::max_pending_calls"));
  }
  const uint64_t byte_limit =
      actor_.max_pending_bytes > 0
          ? static_cast<uint64_t>(actor_.max_pending_bytes)
          : kMaxPendingBytes;
  if (pending_bytes_ == 0 || pending_bytes_ + bytes <= byte_limit) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "calls of this process to the actor with ", pending_bytes_,
      " bytes of arguments have no reply yet, and with ", bytes,
      " more they are over the limit of ", byte_limit,
      " bytes: wait for some before making more, Put what several calls are "
      "given, or create the actor with a larger "
      "ActorOptions::max_pending_bytes"));
}

void ActorConnection::OnWritable(ActorStream* stream) {
  absl::MutexLock lock(&mu_);
  if (stream_.get() == stream) Pump();
}

void ActorConnection::Pump() {
  while (state_ == State::kConnected && stream_->writable()) {
    const absl::Cord frame = NextFrame();
    if (frame.empty()) return;
    // Where calls are under way, more may follow and go together.
    stream_->Write(frame, sent_.size() <= 1 && unsent_.empty());
  }
}

absl::Cord ActorConnection::NextFrame() {
  WireWriter frame;
  const absl::Time now = absl::Now();
  // A call whose time is over is not sent, and waits for OnTimer, which goes on
  // from here.
  for (const PendingCall* next = unsent_.Next();
       next != nullptr && next->deadline > now &&
       (frame.size() == 0 || frame.size() + next->body.size() <= kFrameBytes);
       next = unsent_.Next()) {
    std::unique_ptr<PendingCall> call = unsent_.TakeNext();
    call->id = next_call_id_++;
    AppendCall(call->id, call->body, &frame,
               shares_calls_ && call->body.size() >= kMinSharedBytes
                   ? EncodeSharedBytes(call->body)
                   : absl::Cord(),
               TimeLeft(*call, now));
    call->sent = now;
    sent_.emplace(call->id, std::move(call));
  }
  WatchIfSilent();
  if (frame.size() > 0 || acknowledged_.size() >= kMaxUnacknowledged ||
      acknowledged_bytes_ >= kMaxUnacknowledgedBytes) {
    AppendAcknowledged(acknowledged_, &frame);
    acknowledged_.clear();
    acknowledged_bytes_ = 0;
  }
  if (std::exchange(tell_reads_memory_, false)) AppendReadsMemory(&frame);
  if (std::exchange(tell_takes_references_, false)) {
    AppendTakesReferences(&frame);
  }
  AppendCancelled(cancelled_, &frame);
  cancelled_.clear();
  for (std::string& id : released_) {
    AppendReleased(id, &frame);
    recently_released_.push_back(std::move(id));
  }
  released_.clear();
  while (recently_released_.size() > kMaxRecentlyReleased) {
    recently_released_.pop_front();
  }
  return std::move(frame).Take();
}

void ActorConnection::OnFrame(ActorStream* stream, const absl::Cord& bytes) {
  Outcomes outcomes;
  Accept(stream, bytes, &outcomes);
  Run(std::move(outcomes));
  stream->Read();
}

void ActorConnection::Accept(ActorStream* stream, const absl::Cord& bytes,
                             Outcomes* outcomes) {
  absl::StatusOr<ReplyFrame> frame =
      DecodeReplyFrame(bytes, &DecodeSharedBytes);
  if (!frame.ok()) {
    LOG(ERROR) << actor_.ToString()
               << " sent a malformed reply: " << frame.status();
    stream->Cancel();
    return;
  }
  absl::MutexLock lock(&mu_);
  if (stream_.get() != stream) return;
  if (frame->session.has_value() && state_ == State::kConnecting) {
    OnSession(*frame->session, outcomes);
  }
  if (state_ != State::kConnected) return;
  last_reply_ = absl::Now();
  for (ReplyMessage& reply : frame->replies) {
    if (LoseReply(reply)) {
      stream->Cancel();
      continue;
    }
    acknowledged_.push_back(reply.call_id);
    // The actor keeps the texts of errors, too.
    acknowledged_bytes_ += reply.result.size() + reply.status.message().size();
    auto it = sent_.find(reply.call_id);
    if (it == sent_.end()) continue;  // It came before.
    PendingCall& call = *it->second;
    pending_bytes_ -= call.body.size();
    unsent_.Done(call);
    if (trouble_since_ != absl::InfiniteFuture()) EndTrouble();
    if (stream_is_link_) fallback_.OnReply();
    Outcome& outcome = outcomes->emplace_back();
    outcome.holds = std::move(call.holds);
    if (call.state == nullptr) {
      if (reply.status.ok() && (reply.kept || call.keeps_result)) {
        DropResult(reply.result);
      } else if (!reply.held_id.empty()) {
        released_.push_back(std::move(reply.held_id));
      }
      sent_.erase(it);
      continue;
    }
    ForgetDeadline(call);
    outcome.deadline = call.deadline;
    if (absl::IsDeadlineExceeded(reply.status) &&
        call.deadline <= last_reply_) {
      reply.status = Annotate(reply.status, NotDone(call));
    }
    outcome.state = std::move(call.state);
    outcome.state->set_owner_data(nullptr);
    outcome.process = incarnation_;
    if (reply.status.ok()) {
      if (reply.kept) {
        results_stay_ = true;
        outcome.stayed = HabitOf(call.method);
      }
      if (outcome.state->by_reference() || reply.kept) {
        outcome.kept = HoldResult(reply.result);
      } else if (!reply.held_id.empty()) {
        outcome.kept = HoldAtActor(std::move(reply.held_id));
      }
      outcome.result = std::move(reply.result);
    } else {
      outcome.result = std::move(reply.status);
      outcome.where = Where();
    }
    sent_.erase(it);
  }
  // What waited for these replies may follow.
  if (acknowledged_.size() >= kMaxUnacknowledged ||
      acknowledged_bytes_ >= kMaxUnacknowledgedBytes || !unsent_.empty() ||
      !released_.empty()) {
    Pump();
  }
}

bool ActorConnection::LoseReply(const ReplyMessage& reply) {
  if (!reply.lost) return false;
  auto it = sent_.find(reply.call_id);
  return it != sent_.end() && !std::exchange(it->second->reply_lost, true);
}

void ActorConnection::EndSession(const absl::Status& status,
                                 Outcomes* outcomes) {
  std::vector<std::unique_ptr<PendingCall>> again;
  for (auto& call : TakeSent()) {
    if (!call->cancelled && call->retries_left != 0) {
      if (call->retries_left > 0) --call->retries_left;
      again.push_back(std::move(call));
      continue;
    }
    unsent_.Done(*call);
    const absl::Status failure =
        call->cancelled ? absl::CancelledError("cancelled") : status;
    Fail(std::move(call), failure, outcomes);
  }
  Requeue(std::move(again));
  held_results_ = 0;
  session_id_.clear();
  established_ = false;
  next_call_id_ = 1;
  acknowledged_.clear();
  acknowledged_bytes_ = 0;
  cancelled_.clear();
  released_.clear();
  recently_released_.clear();
}

std::vector<std::unique_ptr<PendingCall>> ActorConnection::TakeSent() {
  std::vector<std::unique_ptr<PendingCall>> calls;
  for (auto& [id, call] : sent_) calls.push_back(std::move(call));
  sent_.clear();
  std::sort(calls.begin(), calls.end(),
            [](const auto& a, const auto& b) { return a->id < b->id; });
  return calls;
}

void ActorConnection::Requeue(std::vector<std::unique_ptr<PendingCall>> calls) {
  // From the last to the first: each goes to the very front.
  for (; !calls.empty(); calls.pop_back()) {
    unsent_.Return(std::move(calls.back()));
  }
}

void ActorConnection::FailUnsent(const absl::Status& status, bool all,
                                 Outcomes* outcomes) {
  for (auto& call : unsent_.RemoveIf(
           [all](const PendingCall& call) { return all || !call.patient; })) {
    Fail(std::move(call), status, outcomes);
  }
}

void ActorConnection::FailAll(const absl::Status& status, Outcomes* outcomes) {
  Requeue(TakeSent());
  FailUnsent(status, /*all=*/true, outcomes);
}

void ActorConnection::Fail(std::unique_ptr<PendingCall> call,
                           const absl::Status& status, Outcomes* outcomes) {
  pending_bytes_ -= call->body.size();
  if (call->state != nullptr) {
    ForgetDeadline(*call);
    call->state->set_owner_data(nullptr);
  }
  outcomes->push_back({.state = std::move(call->state),
                       .result = status,
                       .holds = std::move(call->holds)});
  if (call->draft != nullptr) {
    for (auto& [index, ref] : call->draft->refs) {
      outcomes->back().holds.push_back(std::move(ref));
    }
  }
}

void ActorConnection::CancelCall(const CallState* state) {
  Outcomes outcomes;
  {
    absl::MutexLock lock(&mu_);
    auto* const call = static_cast<PendingCall*>(state->owner_data());
    if (call == nullptr || call->cancelled) return;
    if (call->id == 0) {
      Fail(unsent_.Remove(call),
           absl::CancelledError("cancelled before it was sent"), &outcomes);
    } else {
      call->cancelled = true;
      cancelled_.push_back(call->id);
      Pump();
    }
  }
  Run(std::move(outcomes));
}

std::string ActorConnection::DescribeCall(const CallState* state) {
  absl::MutexLock lock(&mu_);
  return Describe(static_cast<const PendingCall*>(state->owner_data()));
}

std::string ActorConnection::Describe(const PendingCall* call) const {
  const absl::Time now = absl::Now();
  auto ago = [&](absl::Time time) {
    return absl::FormatDuration(absl::Trunc(now - time, absl::Milliseconds(1)));
  };
  if (trouble_since_ != absl::InfiniteFuture()) {
    return absl::StrCat(
        info_.address().empty()
            ? absl::StrCat("the head at ", options_.head_address)
            : absl::StrCat("the actor at ", info_.address()),
        " has not been reachable for ", ago(trouble_since_), " (",
        last_error_.message(), ")");
  }
  if (call != nullptr && call->draft != nullptr) {
    for (const auto& [index, ref] : call->draft->refs) {
      if (ref->done()) continue;
      return absl::StrCat("it waits for its argument ", index + 1, ", ",
                          ref->description());
    }
  }
  if (call != nullptr && call->id != 0) {
    return absl::StrCat("it was sent to the actor (", Where(), ") ",
                        ago(call->sent), " ago, and waits or runs there");
  }
  switch (info_.state()) {
    case v1::ACTOR_STATE_PENDING:
      if (info_.cause().empty()) return "the actor waits to be placed";
      // "waits for CPU 1: ...", or first why it has to be placed again.
      return absl::StrCat(absl::StartsWith(info_.cause(), "waits ")
                              ? "the actor "
                              : "the actor waits: ",
                          info_.cause());
    case v1::ACTOR_STATE_STARTING:
      return absl::StrCat("the actor's process starts on ", info_.hostname());
    case v1::ACTOR_STATE_RESTARTING:
      return absl::StrCat("the actor is being restarted: ", info_.cause());
    default:
      return "it has not been sent yet";
  }
}

std::string ActorConnection::Where() const {
  return absl::StrCat(info_.node_id(), " on ", info_.hostname());
}

void ActorConnection::Run(Outcomes outcomes) {
  for (Outcome& outcome : outcomes) {
    if (outcome.state == nullptr) continue;
    if (!outcome.result.ok() || !outcome.state->by_reference() ||
        options_.hold == nullptr) {
      if (outcome.kept.use_count() > 0) {
        outcome.state->Hold(std::move(outcome.kept));
      }
      outcome.state->Complete(std::move(outcome.result), outcome.where,
                              std::move(outcome.stayed), outcome.process);
      continue;
    }
    // It is this process's own before anybody here hears of it. What it refers
    // to in turn goes on being held by the actor.
    if (outcome.deadline != absl::InfiniteFuture()) {
      RunInBackground(
          [weak = std::weak_ptr<CallState>(outcome.state)] {
            const auto state = weak.lock();
            if (state == nullptr) return;
            state->Complete(absl::DeadlineExceededError(
                "the call is done, but the object store that has its result "
                "has not answered within the call's timeout"));
          },
          outcome.deadline - absl::Now());
    }
    const absl::Cord reference = *outcome.result;
    options_.hold(reference, [state = std::move(outcome.state),
                              kept = std::move(outcome.kept), reference,
                              process = outcome.process](
                                 std::shared_ptr<void> hold) mutable {
      using Both = std::pair<std::shared_ptr<void>, std::shared_ptr<void>>;
      state->Hold(std::make_shared<Both>(std::move(kept), std::move(hold)));
      state->Complete(std::move(reference), /*where=*/"", /*stayed=*/nullptr,
                      process);
    });
  }
}

}  // namespace internal
}  // namespace miniray
