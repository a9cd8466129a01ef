#include "runtime/client/actor_connection.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "runtime/rpc/byte_buffer.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/wire/call_messages.h"

namespace miniray {
namespace internal {
namespace {

constexpr char kChannelMethod[] = "/miniray.v1.ActorService/Channel";

// Calls that queued while a frame was on its way share the next one up to here.
constexpr uint64_t kFrameBytes = 1 << 20;

// Calls to one actor that have no reply yet.
constexpr size_t kMaxPendingCalls = 100000;
// Bytes of calls that wait to be sent: an actor that is slow to read them must
// not fill its caller's memory. One call may be larger.
constexpr uint64_t kMaxUnsentBytes = uint64_t{4} << 30;

// How long the head may take to learn why an actor's connection broke. The
// daemon reports a death within milliseconds; the rest is for a busy machine.
constexpr absl::Duration kDeathReportWait = absl::Seconds(5);
constexpr absl::Duration kStartWait = absl::Seconds(20);

// Streams to a living actor that may break one after the other before its calls
// are given up.
constexpr int kMaxBreaks = 3;

}  // namespace

// One stream. gRPC calls it until OnDone; it tells the connection, which it
// keeps alive. Writes come from any thread, hence the hold: see AddHold in
// gRPC.
class ActorConnection::Stream
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(std::shared_ptr<ActorConnection> owner, const std::string& address)
      : owner_(std::move(owner)),
        channel_(MakeChannel(address)),
        stub_(channel_) {}

  // REQUIRES: held by `self`.
  void Start(std::shared_ptr<Stream> self, const std::string& token,
             const std::string& actor_id) {
    self_ = std::move(self);
    AddToken(&context_, token);
    context_.AddMetadata(kActorKey, actor_id);
    stub_.PrepareBidiStreamingCall(&context_, kChannelMethod, {}, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  // Writes what waits, unless a write is on its way (its end writes the rest).
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(owner_->mu_) {
    if (writing_ || ended_) return;
    const absl::Cord frame = owner_->NextFrame();
    if (frame.empty()) return;
    outgoing_ = ToByteBuffer(frame);
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void Cancel() { context_.TryCancel(); }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&owner_->mu_);
    writing_ = false;
    outgoing_.Clear();  // Lets go of the tensors that were sent.
    if (ok) Pump();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        absl::MutexLock lock(&owner_->mu_);
        ended_ = true;
      }
      RemoveHold();
      return;
    }
    absl::StatusOr<absl::Cord> frame = ToCord(incoming_);
    incoming_.Clear();
    if (frame.ok()) {
      owner_->OnReplies(this, *frame);
    } else {
      Cancel();  // Whose replies were in it is not known.
    }
    StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& status) override {
    owner_->OnStreamEnded(this, FromGrpcStatus(status));
    self_.reset();
  }

 private:
  const std::shared_ptr<ActorConnection> owner_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Stream> self_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  // Under owner_->mu_.
  bool writing_ = false;
  bool ended_ = false;
};

ActorConnection::ActorConnection(ActorIdentity actor, std::string token,
                                 std::string head_address, Lookup lookup)
    : actor_(std::move(actor)),
      token_(std::move(token)),
      head_address_(std::move(head_address)),
      lookup_(std::move(lookup)) {}

ActorConnection::~ActorConnection() = default;

std::shared_ptr<CallState> ActorConnection::Call(absl::string_view method,
                                                 ArgumentList args) {
  auto state = std::make_shared<CallState>(
      absl::StrCat(ShortClassName(actor_.class_name), ".", method, " on ",
                   actor_.name.empty() ? actor_.actor_id
                                       : absl::StrCat("'", actor_.name, "'")));
  CallMessage message;
  message.method = std::string(method);
  message.args = std::move(args);
  Failures failures;
  {
    absl::MutexLock lock(&mu_);
    message.call_id = next_call_id_++;
    absl::Cord bytes = EncodeCall(message);
    if (state_ == State::kDead) {
      failures.emplace_back(state, death_);
    } else if (bytes.size() > kMaxMessageBytes) {
      failures.emplace_back(
          state, absl::InvalidArgumentError(absl::StrCat(
                     "the arguments have ", bytes.size(),
                     " bytes, and a message can hold 2 GiB; send them in "
                     "several calls")));
    } else if (unsent_.size() + sent_.size() >= kMaxPendingCalls) {
      failures.emplace_back(
          state, absl::ResourceExhaustedError(absl::StrCat(
                     kMaxPendingCalls,
                     " calls to this actor have no reply yet; wait for some "
                     "before making more")));
    } else if (unsent_bytes_ > 0 &&
               unsent_bytes_ + bytes.size() > kMaxUnsentBytes) {
      failures.emplace_back(
          state, absl::ResourceExhaustedError(absl::StrCat(
                     "calls of ", unsent_bytes_,
                     " bytes wait to be sent to this actor; wait for some "
                     "before making more")));
    } else {
      unsent_bytes_ += bytes.size();
      unsent_.push_back({message.call_id, state, std::move(bytes)});
      if (state_ == State::kConnected) {
        stream_->Pump();
      } else if (state_ == State::kIdle) {
        Look(0, absl::ZeroDuration());
      }
    }
  }
  Run(std::move(failures));
  return state;
}

void ActorConnection::Look(int64_t min_version, absl::Duration wait) {
  state_ = State::kLooking;
  v1::GetActorRequest request;
  request.set_actor_id(actor_.actor_id);
  request.set_min_version(min_version);
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  lookup_(std::move(request),
          [self = shared_from_this()](absl::StatusOr<v1::ActorInfo> info) {
            self->OnLookup(std::move(info));
          });
}

void ActorConnection::OnLookup(absl::StatusOr<v1::ActorInfo> info) {
  Failures failures;
  {
    absl::MutexLock lock(&mu_);
    if (state_ != State::kLooking) return;  // Closed meanwhile.
    if (!info.ok()) {
      absl::Status status = info.status();
      if (info.status().code() == absl::StatusCode::kNotFound) {
        status = absl::UnavailableError(
            absl::StrCat("the head at ", head_address_,
                         " knows the actor no more; was the head restarted?"));
      } else if (!break_.ok()) {
        status = absl::UnavailableError(absl::StrCat(
            "the connection to the actor broke (", break_.message(),
            "), and the head could not be asked why: ", status.message()));
      }
      FailLost(status, &failures);
      FailUnsent(status, &failures);
      state_ = State::kIdle;
      if (info.status().code() == absl::StatusCode::kNotFound) {
        state_ = State::kDead;
        death_ = status;
      }
    } else {
      const bool news = info->version() > info_.version();
      info_ = *std::move(info);
      if (news) breaks_ = 0;
      switch (info_.state()) {
        case v1::ACTOR_STATE_DEAD:
          state_ = State::kDead;
          death_ = DeathStatus(info_);
          FailLost(death_, &failures);
          FailUnsent(death_, &failures);
          break;
        case v1::ACTOR_STATE_RESTARTING: {
          const absl::Status status = absl::UnavailableError(absl::StrCat(
              "the actor is being restarted (restart ", info_.restarts(),
              info_.max_restarts() < 0
                  ? ""
                  : absl::StrCat(" of ", info_.max_restarts()),
              "): ", info_.cause()));
          FailLost(status, &failures);
          FailUnsent(status, &failures);
          state_ = State::kIdle;
          break;
        }
        case v1::ACTOR_STATE_ALIVE: {
          const absl::Status status = absl::UnavailableError(absl::StrCat(
              "the connection to the actor at ", info_.address(), " on ",
              info_.hostname(), " broke (", break_.message(),
              "), though the head holds the actor for alive"));
          FailLost(status, &failures);
          if (breaks_ >= kMaxBreaks) {
            FailUnsent(status, &failures);
            breaks_ = 0;
            state_ = State::kIdle;
            break;
          }
          if (unsent_.empty()) {
            state_ = State::kIdle;
            break;
          }
          state_ = State::kConnected;
          stream_ =
              std::make_shared<Stream>(shared_from_this(), info_.address());
          stream_->Start(stream_, token_, actor_.actor_id);
          stream_->Pump();
          break;
        }
        default:  // It is still coming up.
          Look(info_.version() + 1, kStartWait);
          break;
      }
    }
  }
  Run(std::move(failures));
}

absl::Cord ActorConnection::NextFrame() {
  absl::Cord frame;
  while (!unsent_.empty() &&
         (frame.empty() ||
          frame.size() + unsent_.front().bytes.size() <= kFrameBytes)) {
    PendingCall& call = unsent_.front();
    unsent_bytes_ -= call.bytes.size();
    frame.Append(std::move(call.bytes));
    sent_.emplace(call.call_id, std::move(call.state));
    unsent_.pop_front();
  }
  return frame;
}

void ActorConnection::OnReplies(Stream* stream, const absl::Cord& frame) {
  absl::StatusOr<std::vector<ReplyMessage>> replies = DecodeReplyFrame(frame);
  if (!replies.ok()) {
    LOG(ERROR) << actor_.ToString()
               << " sent a malformed reply: " << replies.status();
    stream->Cancel();
    return;
  }
  std::vector<std::pair<std::shared_ptr<CallState>, ReplyMessage>> done;
  {
    absl::MutexLock lock(&mu_);
    if (stream_.get() != stream) return;
    breaks_ = 0;
    break_ = absl::OkStatus();
    for (ReplyMessage& reply : *replies) {
      auto it = sent_.find(reply.call_id);
      if (it == sent_.end()) continue;
      done.emplace_back(std::move(it->second), std::move(reply));
      sent_.erase(it);
    }
  }
  for (auto& [state, reply] : done) {
    if (reply.status.ok()) {
      state->Complete(std::move(reply.result));
    } else {
      state->Complete(std::move(reply.status));
    }
  }
}

void ActorConnection::OnStreamEnded(Stream* stream,
                                    const absl::Status& status) {
  Failures failures;
  {
    absl::MutexLock lock(&mu_);
    if (stream_.get() != stream) return;
    stream_.reset();
    if (state_ != State::kConnected) return;
    for (auto& [id, state] : sent_) lost_.push_back(std::move(state));
    sent_.clear();
    if (status.code() == absl::StatusCode::kUnauthenticated) {
      FailLost(status, &failures);
      FailUnsent(status, &failures);
      state_ = State::kIdle;
    } else {
      break_ =
          status.ok() ? absl::UnavailableError("the actor closed it") : status;
      ++breaks_;
      // The head learns of a death from the actor's daemon, perhaps later than
      // we did.
      Look(info_.version() + 1, kDeathReportWait);
    }
  }
  Run(std::move(failures));
}

void ActorConnection::Close(absl::Status status) {
  Failures failures;
  std::shared_ptr<Stream> stream;
  {
    absl::MutexLock lock(&mu_);
    if (state_ == State::kDead) return;
    state_ = State::kDead;
    death_ = std::move(status);
    for (auto& [id, state] : sent_) lost_.push_back(std::move(state));
    sent_.clear();
    FailLost(death_, &failures);
    FailUnsent(death_, &failures);
    stream = std::move(stream_);
  }
  if (stream != nullptr) stream->Cancel();
  Run(std::move(failures));
}

void ActorConnection::FailLost(const absl::Status& status, Failures* failures) {
  for (auto& state : lost_) failures->emplace_back(std::move(state), status);
  lost_.clear();
}

void ActorConnection::FailUnsent(const absl::Status& status,
                                 Failures* failures) {
  for (PendingCall& call : unsent_) {
    failures->emplace_back(std::move(call.state), status);
  }
  unsent_.clear();
  unsent_bytes_ = 0;
}

void ActorConnection::Run(Failures failures) {
  for (auto& [state, status] : failures) state->Complete(std::move(status));
}

absl::Status ActorConnection::DeathStatus(const v1::ActorInfo& info) const {
  return absl::UnavailableError(
      absl::StrCat("the actor is dead: ", info.cause()));
}

}  // namespace internal
}  // namespace miniray
