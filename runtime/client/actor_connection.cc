#include "runtime/client/actor_connection.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/background.h"
#include "runtime/base/ids.h"
#include "runtime/rpc/channel.h"
#include "runtime/wire/call_messages.h"

namespace miniray {
namespace internal {
namespace {

// Calls that queued while a frame was on its way share the next one up to here.
constexpr uint64_t kFrameBytes = 1 << 20;

// Replies are acknowledged with the next calls, or once there are so many.
constexpr size_t kMaxUnacknowledged = 1024;
constexpr uint64_t kMaxUnacknowledgedBytes = 1 << 20;

// Calls to one actor that have no reply yet, unless its creator said otherwise.
constexpr size_t kMaxPendingCalls = 100000;
// Their bytes: they are kept until the reply, to be sent again after a break.
// One call may be larger.
constexpr uint64_t kMaxPendingBytes = uint64_t{4} << 30;

// How long the head may take to learn why an actor's connection broke before
// the actor is tried again. A daemon reports a death within milliseconds; the
// rest is for a busy machine.
constexpr absl::Duration kNewsWait = absl::Milliseconds(500);
constexpr absl::Duration kStartWait = absl::Seconds(20);

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(10);
constexpr absl::Duration kMaxBackoff = absl::Seconds(1);

// So long without a reply, the head is asked how the actor fares.
constexpr absl::Duration kSilence = absl::Seconds(2);
// What the last replies of a process that the head holds for dead may take.
constexpr absl::Duration kLastReplies = absl::Seconds(1);

// A stream that held this long was a good one.
constexpr absl::Duration kGoodStream = absl::Seconds(5);

}  // namespace

ActorConnection::ActorConnection(ActorIdentity actor, Options options)
    : actor_(std::move(actor)),
      options_(std::move(options)),
      backoff_(kFirstBackoff) {}

ActorConnection::~ActorConnection() = default;

std::shared_ptr<CallState> ActorConnection::Call(CallRequest request) {
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
  PendingCall call;
  call.state = state;
  call.body = EncodeCallBody(message);
  call.retries_left = request.max_retries;
  call.patient = request.max_retries != 0;
  absl::Status refused;
  {
    absl::MutexLock lock(&mu_);
    refused = CheckRoom(call.body.size());
    // Such calls do not wait for news.
    if (refused.ok() && !call.patient && state_ == State::kLooking &&
        info_.state() == v1::ACTOR_STATE_RESTARTING) {
      refused = RestartingStatus();
    }
    if (refused.ok()) {
      pending_bytes_ += call.body.size();
      unsent_.push_back(std::move(call));
      if (state_ == State::kConnected) {
        Pump();
      } else if (state_ == State::kIdle) {
        Look(0, absl::ZeroDuration());
      }
    }
  }
  if (!refused.ok()) state->Complete(std::move(refused));
  return state;
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
    return absl::ResourceExhaustedError(
        absl::StrCat(limit,
                     " calls to this actor have no reply yet; wait for some "
                     "before making more"));
  }
  if (pending_bytes_ > 0 && pending_bytes_ + bytes > kMaxPendingBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "calls of ", pending_bytes_,
        " bytes to this actor have no reply yet; wait for some before making "
        "more"));
  }
  return absl::OkStatus();
}

// --- The way to the actor.

void ActorConnection::Look(int64_t min_version, absl::Duration wait) {
  state_ = State::kLooking;
  v1::GetActorRequest request;
  request.set_actor_id(actor_.actor_id);
  request.set_min_version(min_version);
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  options_.lookup(std::move(request),
                  [self = shared_from_this(),
                   epoch = ++epoch_](absl::StatusOr<v1::ActorInfo> info) {
                    self->OnLookup(epoch, std::move(info));
                  });
}

void ActorConnection::OnLookup(uint64_t epoch,
                               absl::StatusOr<v1::ActorInfo> info) {
  Outcomes outcomes;
  {
    absl::MutexLock lock(&mu_);
    if (epoch != epoch_ || state_ != State::kLooking) return;
    if (info.ok()) {
      OnInfo(*std::move(info), &outcomes);
    } else if (info.status().code() == absl::StatusCode::kNotFound) {
      death_ = absl::UnavailableError(
          absl::StrCat("the head at ", options_.head_address,
                       " knows the actor no more; was the head restarted?"));
      state_ = State::kDead;
      dead_ = true;
      FailAll(death_, &outcomes);
    } else if (info.status().code() == absl::StatusCode::kUnauthenticated) {
      FailAll(info.status(), &outcomes);
      GoIdle();
    } else {
      BeginTrouble(info.status());
      // The actor itself may be there, and answer.
      if (established_) {
        Pause([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { Connect(); });
      } else {
        Pause([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
          Look(0, absl::ZeroDuration());
        });
      }
    }
  }
  Run(std::move(outcomes));
}

void ActorConnection::OnInfo(v1::ActorInfo info, Outcomes* outcomes) {
  const bool moved = info.restarts() != incarnation_ ||
                     info.state() == v1::ACTOR_STATE_RESTARTING;
  if (moved && !session_id_.empty()) {
    // info_ still says where it was.
    EndSession(absl::UnavailableError(absl::StrCat(
                   "the actor's process died: ",
                   info.cause().empty() ? "no cause is known" : info.cause())),
               outcomes);
  }
  info_ = std::move(info);
  switch (info_.state()) {
    case v1::ACTOR_STATE_DEAD:
      state_ = State::kDead;
      dead_ = true;
      death_ = absl::UnavailableError(
          absl::StrCat("the actor is dead: ", info_.cause()));
      EndTrouble();
      FailAll(death_, outcomes);
      return;
    case v1::ACTOR_STATE_RESTARTING:
      EndTrouble();
      FailUnsent(absl::UnavailableError(absl::StrCat(
                     "the actor is being restarted (restart ", info_.restarts(),
                     info_.max_restarts() < 0
                         ? ""
                         : absl::StrCat(" of ", info_.max_restarts()),
                     "): ", info_.cause())),
                 /*all=*/false, outcomes);
      if (unsent_.empty()) return GoIdle();
      return Look(info_.version() + 1, kStartWait);
    case v1::ACTOR_STATE_ALIVE:
      if (!Waiting()) return GoIdle();
      if (moved) EndTrouble();
      if (trouble_since_ == absl::InfiniteFuture()) return Connect();
      return Pause([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { Connect(); });
    default:  // It is still coming up.
      EndTrouble();
      if (!Waiting()) return GoIdle();
      return Look(info_.version() + 1, kStartWait);
  }
}

absl::Status ActorConnection::RestartingStatus() const {
  return absl::UnavailableError(absl::StrCat(
      "the actor is being restarted (restart ", info_.restarts(),
      info_.max_restarts() < 0 ? ""
                               : absl::StrCat(" of ", info_.max_restarts()),
      "): ", info_.cause()));
}

void ActorConnection::Connect() {
  ++epoch_;
  if (session_id_.empty()) {
    session_id_ = NewId("caller");
    incarnation_ = info_.restarts();
    established_ = false;
    next_call_id_ = 1;
  }
  state_ = State::kConnecting;
  ActorStream::Metadata metadata = {
      {kActorKey, actor_.actor_id},
      {kIncarnationKey, absl::StrCat(incarnation_)},
      {kCallerKey, session_id_}};
  if (established_) metadata.emplace_back(kResumeKey, "1");
  stream_ = ActorStream::Start(shared_from_this(),
                               options_.channels->Get(info_.address()),
                               options_.token, metadata);
}

void ActorConnection::Pause(std::function<void()> step) {
  state_ = State::kPausing;
  RunInBackground(
      [self = shared_from_this(), step = std::move(step), epoch = ++epoch_] {
        absl::MutexLock lock(&self->mu_);
        if (self->epoch_ != epoch || self->state_ != State::kPausing) return;
        if (!self->Waiting()) return self->GoIdle();
        step();
      },
      backoff_);
  backoff_ = std::min(backoff_ * 2, kMaxBackoff);
}

void ActorConnection::GoIdle() {
  ++epoch_;
  state_ = State::kIdle;
  EndTrouble();
}

void ActorConnection::OnStreamEnded(ActorStream* stream,
                                    const absl::Status& status) {
  Outcomes outcomes;
  {
    absl::MutexLock lock(&mu_);
    if (stream_.get() != stream) return;
    stream_.reset();
    const bool was_connected = state_ == State::kConnected;
    if (!was_connected && state_ != State::kConnecting) return;
    if (status.code() == absl::StatusCode::kUnauthenticated) {
      FailAll(status, &outcomes);
      EndSession(status, &outcomes);
      GoIdle();
    } else if (!Waiting()) {
      GoIdle();
    } else {
      if (was_connected && absl::Now() - connected_at_ >= kGoodStream) {
        EndTrouble();
      }
      BeginTrouble(status.ok() ? absl::UnavailableError("the actor closed it")
                               : status);
      ++attempts_;
      if (was_connected && attempts_ == 1) {
        Connect();  // The link broke; the actor may well be there.
      } else if (was_connected || (established_ && attempts_ == 2)) {
        // gRPC may have used the broken connection once more.
        Pause([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { Connect(); });
      } else {
        // The head learns of a death from the actor's daemon, perhaps later
        // than we did.
        Look(info_.version() + 1, kNewsWait);
      }
    }
  }
  Run(std::move(outcomes));
}

void ActorConnection::OnSession(const SessionMessage& session,
                                Outcomes* outcomes) {
  state_ = State::kConnected;
  connected_at_ = absl::Now();
  if (established_ && !session.known) {
    const std::string id = session_id_;
    EndSession(absl::UnavailableError(
                   "the connection broke, and the actor has forgotten what "
                   "became of the call"),
               outcomes);
    session_id_ = id;  // It goes on, from the beginning.
  }
  established_ = true;
  // What did not arrive is sent again, what was not wanted by then not.
  std::vector<std::pair<uint64_t, PendingCall>> missing;
  for (auto& [id, call] : sent_) {
    if (id > session.last_call_id) {
      missing.emplace_back(id, std::move(call));
    } else if (call.cancelled) {
      cancelled_.push_back(id);
    }
  }
  for (auto& item : missing) sent_.erase(item.first);
  std::erase_if(missing, [&](auto& item) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!item.second.cancelled) return false;
    Fail(std::move(item.second), absl::CancelledError("cancelled"), outcomes);
    return true;
  });
  Requeue(std::move(missing));
  next_call_id_ = session.last_call_id + 1;
  Pump();
}

// --- News while the stream is silent.

void ActorConnection::WatchIfSilent() {
  if (watching_ || state_ != State::kConnected || sent_.empty()) return;
  watching_ = true;
  RunInBackground([self = shared_from_this()] { self->Watch(); }, kSilence);
}

void ActorConnection::Watch() {
  absl::MutexLock lock(&mu_);
  watching_ = false;
  if (state_ != State::kConnected || sent_.empty()) return;
  if (absl::Now() - last_reply_ < kSilence) return WatchIfSilent();
  watching_ = true;
  v1::GetActorRequest request;
  request.set_actor_id(actor_.actor_id);
  request.set_min_version(info_.version() + 1);
  request.set_wait_ms(absl::ToInt64Milliseconds(kStartWait));
  options_.lookup(std::move(request), [self = shared_from_this()](
                                          absl::StatusOr<v1::ActorInfo> info) {
    self->OnNews(std::move(info));
  });
}

void ActorConnection::OnNews(absl::StatusOr<v1::ActorInfo> info) {
  absl::MutexLock lock(&mu_);
  watching_ = false;
  if (state_ != State::kConnected) return;
  const bool gone = info.ok() && (info->restarts() != incarnation_ ||
                                  info->state() != v1::ACTOR_STATE_ALIVE);
  if (!gone) return WatchIfSilent();
  // Replies may be on their way, and a process that died ends the stream: only
  // one that does neither is given up.
  RunInBackground(
      [self = shared_from_this(), stream = stream_,
       info = *std::move(info)]() mutable {
        self->GiveUpStream(stream.get(), std::move(info));
      },
      kLastReplies);
}

void ActorConnection::GiveUpStream(const ActorStream* stream,
                                   v1::ActorInfo info) {
  Outcomes outcomes;
  std::shared_ptr<ActorStream> given_up;
  {
    absl::MutexLock lock(&mu_);
    if (stream_.get() != stream || state_ != State::kConnected) return;
    given_up = std::move(stream_);
    OnInfo(std::move(info), &outcomes);
  }
  given_up->Cancel();
  Run(std::move(outcomes));
}

// --- Time without contact.

void ActorConnection::BeginTrouble(const absl::Status& error) {
  last_error_ = error;
  if (trouble_since_ != absl::InfiniteFuture()) return;
  trouble_since_ = absl::Now();
  attempts_ = 0;
  backoff_ = kFirstBackoff;
  RunInBackground([self = shared_from_this(),
                   trouble = ++trouble_] { self->OnTroubleTimeout(trouble); },
                  options_.reconnect_timeout);
}

void ActorConnection::EndTrouble() {
  trouble_since_ = absl::InfiniteFuture();
  last_error_ = absl::OkStatus();
  backoff_ = kFirstBackoff;
}

void ActorConnection::OnTroubleTimeout(uint64_t trouble) {
  Outcomes outcomes;
  std::shared_ptr<ActorStream> stream;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kDead || trouble != trouble_ ||
        trouble_since_ == absl::InfiniteFuture()) {
      return;
    }
    if (state_ == State::kConnected) {
      if (absl::Now() - connected_at_ >= kGoodStream) return EndTrouble();
      RunInBackground([self = shared_from_this(),
                       trouble] { self->OnTroubleTimeout(trouble); },
                      kGoodStream);
      return;
    }
    const std::string waited = absl::FormatDuration(
        absl::Trunc(absl::Now() - trouble_since_, absl::Milliseconds(100)));
    const absl::Status status = absl::UnavailableError(
        info_.address().empty()
            ? absl::StrCat(
                  "the head at ", options_.head_address,
                  " could not be reached for ", waited,
                  ", so the actor was not found: ", last_error_.message())
            : absl::StrCat("the actor at ", info_.address(), " (", Where(),
                           ") could not be reached for ", waited,
                           ", though the head last held it for alive: ",
                           last_error_.message()));
    FailAll(status, &outcomes);
    EndSession(status, &outcomes);
    GoIdle();
    stream = std::move(stream_);
  }
  if (stream != nullptr) stream->Cancel();
  Run(std::move(outcomes));
}

// --- Calls.

void ActorConnection::OnWritable(ActorStream* stream) {
  absl::MutexLock lock(&mu_);
  if (stream_.get() == stream) Pump();
}

void ActorConnection::Pump() {
  if (state_ != State::kConnected || !stream_->writable()) return;
  const absl::Cord frame = NextFrame();
  if (!frame.empty()) stream_->Write(frame);
}

absl::Cord ActorConnection::NextFrame() {
  WireWriter frame;
  const absl::Time now = absl::Now();
  while (!unsent_.empty() &&
         (frame.size() == 0 ||
          frame.size() + unsent_.front().body.size() <= kFrameBytes)) {
    PendingCall& call = unsent_.front();
    const uint64_t id = next_call_id_++;
    AppendCall(id, call.body, &frame);
    call.sent = now;
    sent_.emplace(id, std::move(call));
    unsent_.pop_front();
  }
  WatchIfSilent();
  if (frame.size() > 0 || acknowledged_.size() >= kMaxUnacknowledged ||
      acknowledged_bytes_ >= kMaxUnacknowledgedBytes) {
    AppendAcknowledged(acknowledged_, &frame);
    acknowledged_.clear();
    acknowledged_bytes_ = 0;
  }
  AppendCancelled(cancelled_, &frame);
  cancelled_.clear();
  return std::move(frame).Take();
}

void ActorConnection::OnFrame(ActorStream* stream, const absl::Cord& bytes) {
  absl::StatusOr<ReplyFrame> frame = DecodeReplyFrame(bytes);
  if (!frame.ok()) {
    LOG(ERROR) << actor_.ToString()
               << " sent a malformed reply: " << frame.status();
    stream->Cancel();
    return;
  }
  Outcomes outcomes;
  {
    absl::MutexLock lock(&mu_);
    if (stream_.get() != stream) return;
    if (frame->session.has_value() && state_ == State::kConnecting) {
      OnSession(*frame->session, &outcomes);
    }
    if (state_ != State::kConnected) return;
    last_reply_ = absl::Now();
    for (ReplyMessage& reply : frame->replies) {
      acknowledged_.push_back(reply.call_id);
      acknowledged_bytes_ += reply.result.size();
      auto it = sent_.find(reply.call_id);
      if (it == sent_.end()) continue;  // It came before.
      pending_bytes_ -= it->second.body.size();
      if (trouble_since_ != absl::InfiniteFuture()) EndTrouble();
      Outcome& outcome = outcomes.emplace_back();
      outcome.state = std::move(it->second.state);
      if (reply.status.ok()) {
        outcome.result = std::move(reply.result);
      } else {
        outcome.result = std::move(reply.status);
        outcome.where = Where();
      }
      sent_.erase(it);
    }
    if (acknowledged_.size() >= kMaxUnacknowledged ||
        acknowledged_bytes_ >= kMaxUnacknowledgedBytes) {
      Pump();
    }
  }
  Run(std::move(outcomes));
}

void ActorConnection::EndSession(const absl::Status& status,
                                 Outcomes* outcomes) {
  std::vector<std::pair<uint64_t, PendingCall>> again;
  for (auto& [id, call] : sent_) {
    if (call.cancelled) {
      Fail(std::move(call), absl::CancelledError("cancelled"), outcomes);
    } else if (call.retries_left == 0) {
      Fail(std::move(call), status, outcomes);
    } else {
      if (call.retries_left > 0) --call.retries_left;
      again.emplace_back(id, std::move(call));
    }
  }
  sent_.clear();
  Requeue(std::move(again));
  session_id_.clear();
  established_ = false;
  next_call_id_ = 1;
  acknowledged_.clear();
  acknowledged_bytes_ = 0;
  cancelled_.clear();
}

void ActorConnection::Requeue(
    std::vector<std::pair<uint64_t, PendingCall>> calls) {
  std::sort(calls.begin(), calls.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [id, call] : calls) {
    call.sent = absl::InfiniteFuture();
    unsent_.push_front(std::move(call));
  }
}

void ActorConnection::FailUnsent(const absl::Status& status, bool all,
                                 Outcomes* outcomes) {
  std::deque<PendingCall> kept;
  for (PendingCall& call : unsent_) {
    if (!all && call.patient) {
      kept.push_back(std::move(call));
    } else {
      Fail(std::move(call), status, outcomes);
    }
  }
  unsent_ = std::move(kept);
}

void ActorConnection::FailAll(const absl::Status& status, Outcomes* outcomes) {
  std::vector<std::pair<uint64_t, PendingCall>> sent;
  for (auto& [id, call] : sent_) sent.emplace_back(id, std::move(call));
  sent_.clear();
  Requeue(std::move(sent));
  FailUnsent(status, /*all=*/true, outcomes);
}

void ActorConnection::Fail(PendingCall call, const absl::Status& status,
                           Outcomes* outcomes) {
  pending_bytes_ -= call.body.size();
  outcomes->push_back({std::move(call.state), status, ""});
}

void ActorConnection::CancelCall(const CallState* state) {
  Outcomes outcomes;
  {
    absl::MutexLock lock(&mu_);
    for (auto it = unsent_.begin(); it != unsent_.end(); ++it) {
      if (it->state.get() != state) continue;
      Fail(std::move(*it), absl::CancelledError("cancelled before it was sent"),
           &outcomes);
      unsent_.erase(it);
      break;
    }
    if (outcomes.empty()) {
      for (auto& [id, call] : sent_) {
        if (call.state.get() != state || call.cancelled) continue;
        call.cancelled = true;
        cancelled_.push_back(id);
        Pump();
        break;
      }
    }
  }
  Run(std::move(outcomes));
}

std::string ActorConnection::DescribeCall(const CallState* state) {
  absl::MutexLock lock(&mu_);
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
  for (const auto& [id, call] : sent_) {
    if (call.state.get() != state) continue;
    return absl::StrCat("it was sent to the actor (", Where(), ") ",
                        ago(call.sent), " ago, and waits or runs there");
  }
  switch (info_.state()) {
    case v1::ACTOR_STATE_PENDING:
      return absl::StrCat("the actor waits: ", info_.cause());
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

void ActorConnection::Close(absl::Status status) {
  Outcomes outcomes;
  std::shared_ptr<ActorStream> stream;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kDead) return;
    state_ = State::kDead;
    dead_ = true;
    ++epoch_;
    death_ = std::move(status);
    FailAll(death_, &outcomes);
    stream = std::move(stream_);
  }
  if (stream != nullptr) stream->Cancel();
  Run(std::move(outcomes));
}

void ActorConnection::Run(Outcomes outcomes) {
  for (Outcome& outcome : outcomes) {
    outcome.state->Complete(std::move(outcome.result), outcome.where);
  }
}

}  // namespace internal
}  // namespace miniray
