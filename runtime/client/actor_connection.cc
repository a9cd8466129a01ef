#include "runtime/client/actor_connection.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/background.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/fault_injector.h"
#include "runtime/rpc/tls.h"
#include "runtime/shm/borrowed_memory.h"
#include "runtime/shm/shared_memory.h"
#include "runtime/wire/call_messages.h"

namespace miniray {
namespace internal {
namespace {

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

// Nobody at a terminal should have to guess what a program waits for.
constexpr absl::Duration kTellAfter = absl::Seconds(5);

// A stream that held this long was a good one.
constexpr absl::Duration kGoodStream = absl::Seconds(5);

}  // namespace

ActorConnection::ActorConnection(ActorIdentity actor, Options options)
    : actor_(std::move(actor)),
      options_(std::move(options)),
      backoff_(kFirstBackoff) {}

ActorConnection::~ActorConnection() = default;

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
    } else if (IsRefusal(info.status())) {
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
      if (!Needed()) return GoIdle();
      if (moved) EndTrouble();
      if (trouble_since_ == absl::InfiniteFuture()) return Connect();
      return Pause([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { Connect(); });
    default:  // It is still coming up.
      EndTrouble();
      if (!Waiting()) return GoIdle();
      return Look(info_.version() + 1, kStartWait);
  }
}

std::optional<v1::ActorInfo> ActorConnection::ConnectedInfo(
    std::optional<int32_t> incarnation) const {
  absl::MutexLock lock(&mu_);
  if (state_ != State::kConnected ||
      incarnation.value_or(incarnation_) != incarnation_) {
    return std::nullopt;
  }
  return info_;
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
  if (const Segment* probe = SharedMemory::Get().probe(); probe != nullptr) {
    metadata.emplace_back(kSharedMemoryKey, probe->name().ToString());
  }
  stream_ = nullptr;
  const Transport way = WayToActor();
  if (way == Transport::kAuto) {
    stream_ = StartUnixActorStream(shared_from_this(), info_.address(),
                                   options_.token, metadata);
  }
  if (stream_ == nullptr && way != Transport::kGrpc) {
    stream_ = StartTcpActorStream(shared_from_this(), info_.address(),
                                  options_.token, metadata);
  }
  stream_is_link_ = stream_ != nullptr;
  if (stream_is_link_) return;
  stream_ = GrpcActorStream::Start(shared_from_this(),
                                   options_.channels->Get(info_.address()),
                                   options_.token, metadata);
}

Transport ActorConnection::WayToActor() const {
  // Only TLS proves who a user is, and only channels have faults.
  return fallback_.Avoids(info_.address(), absl::Now()) || !TlsDir().empty() ||
                 !FaultInterceptors().empty()
             ? Transport::kGrpc
             : options_.transport;
}

void ActorConnection::Pause(std::function<void()> step) {
  state_ = State::kPausing;
  RunInBackground(
      [self = shared_from_this(), step = std::move(step), epoch = ++epoch_] {
        absl::MutexLock lock(&self->mu_);
        if (self->epoch_ != epoch || self->state_ != State::kPausing) return;
        if (!self->Needed()) return self->GoIdle();
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
    if (IsRefusal(status)) {
      FailAll(status, &outcomes);
      EndSession(status, &outcomes);
      GoIdle();
    } else if (!Needed()) {
      GoIdle();
    } else if (stream_is_link_ && !was_connected &&
               status.code() == absl::StatusCode::kUnavailable) {
      fallback_.OnNoSession(info_.address(), status);
      Connect();
    } else {
      if (!was_connected && !stream_is_link_) fallback_.OnGrpcFailed();
      if (was_connected && stream_is_link_ && !sent_.empty()) {
        fallback_.OnBroken(info_.address(), absl::Now(), status);
      }
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
  if (!stream_is_link_ && fallback_.Avoids(info_.address(), connected_at_)) {
    LOG_FIRST_N(WARNING, 10)
        << actor_.ToString() << " at " << info_.address()
        << " is called through gRPC: " << fallback_.reason().message();
  }
  fallback_.OnSession(connected_at_);
  shares_calls_ = session.reads_memory;
  const absl::StatusOr<SegmentName> probe =
      SegmentName::Parse(session.shared_memory);
  tell_reads_memory_ = probe.ok() && BorrowedMemory::CanRead(*probe);
  tell_takes_references_ = !options_.fetcher.expired();
  if (established_ && !session.known) {
    const std::string id = session_id_;
    EndSession(absl::UnavailableError(
                   "the connection broke, and the actor has forgotten what "
                   "became of the call"),
               outcomes);
    session_id_ = id;  // It goes on, from the beginning.
  }
  established_ = true;
  // What did not arrive is sent again, what was not wanted by then not. The
  // numbers of what did not arrive are given anew, so none of them may stay
  // among those to be cancelled.
  cancelled_.clear();
  std::vector<std::unique_ptr<PendingCall>> missing;
  for (auto& call : TakeSent()) {
    const uint64_t id = call->id;
    if (id > session.last_call_id) {
      if (!call->cancelled) {
        missing.push_back(std::move(call));
        continue;
      }
      unsent_.Done(*call);
      Fail(std::move(call), absl::CancelledError("cancelled"), outcomes);
      continue;
    }
    if (call->cancelled) cancelled_.push_back(id);
    sent_.emplace(id, std::move(call));
  }
  Requeue(std::move(missing));
  std::map<std::string, std::string, std::less<>> groups;
  for (const MethodGroup& group : session.groups) {
    for (const std::string& method : group.methods) {
      groups.emplace(method, group.name);
    }
  }
  unsent_.SetGroups(std::move(groups));
  released_.insert(released_.end(), recently_released_.begin(),
                   recently_released_.end());
  recently_released_.clear();
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
  if (options_.reconnect_timeout > kTellAfter) {
    RunInBackground([self = shared_from_this(),
                     trouble = trouble_] { self->TellTrouble(trouble); },
                    kTellAfter);
  }
}

void ActorConnection::TellTrouble(uint64_t trouble) {
  std::string text;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kDead || state_ == State::kConnected ||
        trouble != trouble_ || trouble_since_ == absl::InfiniteFuture() ||
        !Waiting()) {
      return;
    }
    text = absl::StrCat(
        "miniray: ", actor_.ToString(),
        info_.address().empty()
            ? absl::StrCat(" is not found: the head at ", options_.head_address)
            : absl::StrCat(" at ", info_.address(), " (", Where(), ")"),
        " does not answer; its calls wait ",
        absl::FormatDuration(options_.reconnect_timeout - kTellAfter),
        " more\n");
  }
  std::fputs(text.c_str(), stderr);
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

}  // namespace internal
}  // namespace miniray
