#include "runtime/client/head_requests.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/background.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace internal {
namespace {

// What a head that is there may take to answer, however short a time its asker
// has.
constexpr absl::Duration kLeastAnswer = absl::Seconds(2);
// Of the last try, which is for the reason: mostly it fails at once.
constexpr absl::Duration kLastTry = absl::Milliseconds(100);
// Without an answer for so long, stderr says so, not more often than this.
constexpr absl::Duration kSilenceTime = absl::Seconds(5);
constexpr absl::Duration kTellPeriod = absl::Seconds(10);
// Between two looks at whether to go on waiting for a connection.
constexpr absl::Duration kDialPeriod = absl::Milliseconds(500);
// For asking why a connection broke, beyond the time that the head itself may
// wait for the answer: calls wait to fail, and a dead head never answers.
constexpr absl::Duration kPostMortemTimeout = absl::Seconds(2);

}  // namespace

HeadRequests::HeadRequests(std::string address, std::string token)
    : address_(std::move(address)),
      token_(std::move(token)),
      channel_(MakeDialledChannel(address_)),
      redialler_(channel_.get()),
      stub_(v1::Head::NewStub(channel_)) {}

HeadRequests::~HeadRequests() {
  // We may be inside a callback here: see ActorStream.
  RunInBackground([channel = channel_] {});
}

void HeadRequests::SetPeriods(absl::Duration reconnect_timeout,
                              absl::Duration max_pause) {
  reconnect_timeout_ = reconnect_timeout;
  if (max_pause > absl::ZeroDuration()) redialler_.SetMaxPause(max_pause);
}

absl::Duration HeadRequests::AtMost(absl::Duration limit) const {
  return std::min(limit, reconnect_timeout_);
}

HeadRequests::Patience HeadRequests::Within(absl::Duration left,
                                            int64_t wait_ms) const {
  const absl::Duration wait = absl::Milliseconds(wait_ms);
  return {.away = AtMost(left),
          .answer = wait + std::min(std::max(left - wait, kLeastAnswer),
                                    SilenceTimeout())};
}

bool HeadRequests::IsTooLate(const absl::Status& status,
                             absl::Duration left) const {
  return absl::IsUnavailable(status) && left < reconnect_timeout_;
}

void HeadRequests::Prepare(grpc::ClientContext* context,
                           const Patience& patience, absl::Time begin,
                           absl::Time deadline) {
  const bool connected = AwaitHead(begin, deadline);
  PrepareContext(
      context, token_,
      connected ? std::max(deadline - absl::Now(), patience.answer) : kLastTry);
}

absl::StatusOr<bool> HeadRequests::Pause(Backoff* backoff,
                                         absl::Time deadline) {
  const absl::Duration pause = backoff->Next();
  if (absl::Now() + pause > deadline) return false;
  absl::MutexLock lock(&mu_);
  if (mu_.AwaitWithTimeout(absl::Condition(&closed_), pause)) {
    return absl::CancelledError("the cluster connection was shut down");
  }
  return true;
}

bool HeadRequests::AwaitHead(absl::Time begin, absl::Time deadline) {
  while (!redialler_.AwaitConnected(
      std::min(deadline, absl::Now() + kDialPeriod))) {
    if (absl::Now() >= deadline) return false;
    if (absl::Now() - begin >= kSilenceTime) TellSilence(deadline);
    absl::MutexLock lock(&mu_);
    if (closed_) return false;
  }
  return true;
}

// Nobody at a terminal should have to guess what a program waits for.
void HeadRequests::TellSilence(absl::Time deadline) {
  {
    absl::MutexLock lock(&mu_);
    if (absl::Now() < next_telling_) return;
    next_telling_ = absl::Now() + kTellPeriod;
  }
  fprintf(stderr, "miniray: the head at %s does not answer; waiting %s more\n",
          address_.c_str(),
          absl::FormatDuration(
              absl::Trunc(deadline - absl::Now(), absl::Seconds(1)))
              .c_str());
}

absl::Status HeadRequests::ToStatus(const grpc::Status& status,
                                    absl::Time begin) const {
  const absl::Status result = ToStatus(status);
  if (!absl::IsUnavailable(result)) return result;
  return absl::UnavailableError(absl::StrCat(
      result.message(), "; waited for ",
      absl::FormatDuration(
          absl::Trunc(absl::Now() - begin, absl::Milliseconds(100))),
      ". 'miniray status --address ", address_,
      "' says whether it lives, and how to go on with its cluster where it "
      "was killed"));
}

absl::Status HeadRequests::ToStatus(const grpc::Status& status) const {
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
      status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(absl::StrCat(
        "the head at ", address_, " does not answer (", status.error_message(),
        TlsAdvice(status.error_message()), ")"));
  }
  return FromGrpcStatus(status);
}

void HeadRequests::LookUp(
    v1::GetActorRequest request,
    std::function<void(absl::StatusOr<v1::ActorInfo>)> done) {
  struct Pending {
    grpc::ClientContext context;
    v1::GetActorRequest request;
    v1::GetActorResponse response;
  };
  auto pending = std::make_shared<Pending>();
  pending->request = std::move(request);
  PrepareContext(&pending->context, token_,
                 (pending->request.min_version() > 0
                      ? kPostMortemTimeout
                      : std::clamp(reconnect_timeout_, kPostMortemTimeout,
                                   SilenceTimeout())) +
                     absl::Milliseconds(pending->request.wait_ms()));
  pending->context.set_wait_for_ready(true);
  {
    // Lock order: a connection's, then ours. Nothing here calls a connection
    // with mu_ held.
    absl::MutexLock lock(&mu_);
    lookups_.push_back(&pending->context);
    if (closed_) pending->context.TryCancel();
  }
  stub_->async()->GetActor(
      &pending->context, &pending->request, &pending->response,
      [this, pending, done = std::move(done)](grpc::Status status) {
        // Nothing of ours may be touched after this: see AwaitLookUps.
        absl::StatusOr<v1::ActorInfo> result;
        if (status.ok()) {
          result = std::move(*pending->response.mutable_actor());
        } else {
          result = ToStatus(status);
        }
        {
          absl::MutexLock lock(&mu_);
          std::erase(lookups_, &pending->context);
        }
        done(std::move(result));
      });
}

void HeadRequests::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  for (grpc::ClientContext* context : lookups_) context->TryCancel();
}

void HeadRequests::AwaitLookUps() {
  absl::MutexLock lock(&mu_);
  auto quiet = [this] {
    mu_.AssertHeld();
    return lookups_.empty();
  };
  mu_.Await(absl::Condition(&quiet));
}

}  // namespace internal
}  // namespace miniray
