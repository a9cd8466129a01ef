#include "runtime/actor/call_session.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/shm/shared_bytes.h"
#include "runtime/shm/shared_memory.h"

namespace miniray {
namespace internal {
namespace {

// A stream is not read further while this many calls of its session have no
// reply, for each concurrency group, or this many bytes of calls wait and of
// replies are to be sent: gRPC's flow control then holds the caller back, and
// memory stays bounded. Our own callers stay below (CallBacklog), so that what
// else they send, cancellations say, is always read.
constexpr size_t kMaxPendingCalls = 8192;
constexpr uint64_t kMaxPendingBytes = uint64_t{256} << 20;

// None of a session's calls runs while this much of its replies was not
// acknowledged. The acknowledgements stand behind calls that are on their way
// already, so those are read on, up to kMaxOverrun times the limits; beyond,
// the stream is ended: a new one begins with the acknowledgements.
constexpr size_t kMaxReplies = 65536;
constexpr uint64_t kMaxReplyBytes = uint64_t{256} << 20;
constexpr int kMaxOverrun = 4;

// Replies that are ready travel together up to this size.
constexpr uint64_t kFrameBytes = 1 << 20;

// What smaller calls bring is not worth a lock more.
constexpr uint64_t kLargeCall = 64 << 10;

}  // namespace

void CallSession::Attach(std::shared_ptr<SessionStream> stream, bool known,
                         bool reads_memory) {
  SessionMessage message;
  message.known = known;
  message.reads_memory = reads_memory;
  message.groups = owner_->Groups();
  if (const Segment* probe = SharedMemory::Get().probe(); probe != nullptr) {
    message.shared_memory = probe->name().ToString();
  }
  absl::MutexLock lock(&mu_);
  if (stream_ != nullptr) stream_->Cancel();
  stream_ = std::move(stream);
  writing_ = false;
  outbox_.clear();
  message.last_call_id = last_call_id_;
  outbox_.push_back(EncodeSession(message));
  std::vector<uint64_t> ids;
  for (const auto& [id, reply] : replies_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const uint64_t id : ids) outbox_.push_back(replies_[id].bytes);
  outbox_bytes_ = 0;
  for (const absl::Cord& item : outbox_) outbox_bytes_ += item.size();
  reading_ = true;
  stream_->Read();
  WriteMore();
}

void CallSession::OnFrame(SessionStream* from, const absl::Cord& bytes) {
  uint64_t shared_bytes = 0;
  absl::StatusOr<CallFrame> frame =
      DecodeCallFrame(bytes, [&](const absl::Cord& encoded) {
        absl::StatusOr<absl::Cord> shared = DecodeSharedBytes(encoded);
        if (shared.ok()) shared_bytes += shared->size();
        return shared;
      });
  absl::MutexLock lock(&mu_);
  if (from != stream_.get()) return;
  reading_ = false;
  owner_->CountBytes(from->path(), /*sent=*/false, bytes.size());
  if (shared_bytes > 0) {
    owner_->CountBytes(CallPath::kSharedMemory, /*sent=*/false, shared_bytes);
  }
  std::vector<Batch> batches;
  const absl::Status status =
      frame.ok() ? Accept(&*frame, bytes.size(), &batches) : frame.status();
  if (status.ok()) {
    UpdateStalled();
    // Before the calls run: gRPC serializes what is asked of a connection, and
    // the first reply would wait for this, or go through one more thread.
    ReadMore();
  }
  for (Batch& batch : batches) Push(std::move(batch));
  if (!status.ok()) return stream_->Finish(status);
  for (const uint64_t id : frame->cancelled) CancelCall(id);
  WriteMore();
}

void CallSession::Push(Batch batch) {
  for (const auto& call : batch.queue->Push(std::move(batch.calls))) {
    pending_bytes_ -= call->bytes;
    pending_.erase(call->message.call_id);
    Refuse(call->message.call_id,
           absl::UnavailableError("the actor is ending"));
  }
  owner_->OnQueued(batch.queue);
}

absl::Status CallSession::Accept(CallFrame* frame, uint64_t bytes,
                                 std::vector<Batch>* batches) {
  if (frame->reads_memory) shares_replies_.store(true);
  if (frame->takes_references) takes_references_.store(true);
  for (const uint64_t id : frame->acknowledged) {
    auto it = replies_.find(id);
    if (it == replies_.end()) continue;
    reply_bytes_ -= it->second.size();
    replies_.erase(it);
  }
  for (const std::string& id : frame->released) owner_->OnReleased(id);
  // Shared arguments are not in the frame, but take memory all the same.
  const uint64_t each = bytes / std::max<size_t>(frame->calls.size(), 1);
  const int64_t now = absl::GetCurrentTimeNanos() / 1000;
  for (CallMessage& message : frame->calls) {
    const uint64_t id = message.call_id;
    if (id <= last_call_id_) continue;  // It came with an earlier stream.
    if (id != last_call_id_ + 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("call ", id, " follows call ", last_call_id_));
    }
    last_call_id_ = id;
    absl::StatusOr<CallQueue*> next = owner_->QueueFor(message);
    if (!message.broken.ok()) {
      next = Annotate(message.broken, "the arguments could not be read");
    }
    if (closing_.has_value() || !next.ok()) {
      Refuse(id, closing_.has_value() ? *closing_ : next.status());
      continue;
    }
    auto call = std::make_unique<QueuedCall>();
    call->session = shared_from_this();
    call->queue = *next;
    call->bytes = each;
    for (const absl::Cord& arg : message.args) {
      call->bytes = std::max<uint64_t>(call->bytes, arg.size());
    }
    call->message = std::move(message);
    call->arrival_unix_us = now;
    if (const uint64_t left = call->message.time_left_us; left != 0) {
      constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
      call->deadline =
          absl::FromUnixMicros(now) +
          absl::Microseconds(static_cast<int64_t>(std::min(left, kMost)));
    }
    pending_.emplace(id, call.get());
    pending_bytes_ += call->bytes;
    if (batches->empty() || batches->back().queue != *next) {
      batches->push_back({*next, {}});
    }
    batches->back().calls.push_back(std::move(call));
  }
  return absl::OkStatus();
}

void CallSession::CancelCall(uint64_t call_id) {
  auto it = pending_.find(call_id);
  if (it == pending_.end()) return;
  QueuedCall* const call = it->second;
  CallQueue* const queue = call->queue;
  const uint64_t bytes = call->bytes;
  if (!call->Take(QueuedCall::State::kCancelled)) {
    call->cancelled.store(true, std::memory_order_relaxed);
    return;
  }
  pending_bytes_ -= bytes;
  pending_.erase(it);
  queue->OnCancelled(bytes);
  Refuse(call_id, absl::CancelledError("cancelled before it ran"));
}

void CallSession::Refuse(uint64_t call_id, absl::Status status) {
  ReplyMessage reply;
  reply.call_id = call_id;
  reply.status = std::move(status);
  AddReply(call_id, {EncodeReply(reply), {}});
}

void CallSession::OnRunning(QueuedCall* call) {
  if (call->bytes < kLargeCall) return;
  absl::MutexLock lock(&mu_);
  pending_bytes_ -= std::exchange(call->bytes, 0);
  ReadMore();
}

bool CallSession::Reply(const QueuedCall& call, const ReplyMessage& reply) {
  KeptReply kept;
  if (reply.status.ok() && reply.result.size() >= kMinSharedBytes &&
      shares_replies_.load()) {
    kept.result = MoveToSharedMemory(reply.result);
    const absl::Cord shared = EncodeSharedBytes(kept.result);
    if (shared.empty()) {
      kept.result.Clear();
    } else {
      kept.bytes = EncodeReply(reply, shared);
      owner_->CountBytes(CallPath::kSharedMemory, /*sent=*/true,
                         kept.result.size());
    }
  }
  if (kept.bytes.empty()) kept.bytes = EncodeReply(reply);
  absl::MutexLock lock(&mu_);
  if (pending_.erase(call.message.call_id) > 0) pending_bytes_ -= call.bytes;
  AddReply(call.message.call_id, std::move(kept));
  UpdateStalled();
  WriteMore();
  ReadMore();
  return !abandoned_;
}

void CallSession::AddReply(uint64_t call_id, KeptReply reply) {
  if (abandoned_) return;
  reply_bytes_ += reply.size();
  if (stream_ != nullptr) {
    outbox_bytes_ += reply.bytes.size();
    outbox_.push_back(reply.bytes);
  }
  replies_.insert_or_assign(call_id, std::move(reply));
}

void CallSession::OnWritten(SessionStream* from, bool ok) {
  absl::MutexLock lock(&mu_);
  if (from != stream_.get()) return;
  writing_ = false;
  if (!ok) return;  // The stream is about to end.
  WriteMore();
  ReadMore();
}

bool CallSession::OnEnded(SessionStream* from) {
  absl::MutexLock lock(&mu_);
  if (from != stream_.get()) return false;
  stream_.reset();
  outbox_.clear();
  outbox_bytes_ = 0;
  return true;
}

void CallSession::WriteMore() {
  while (stream_ != nullptr && !writing_ && !outbox_.empty()) {
    absl::Cord frame;
    do {
      outbox_bytes_ -= outbox_.front().size();
      frame.Append(std::move(outbox_.front()));
      outbox_.pop_front();
    } while (!outbox_.empty() &&
             frame.size() + outbox_.front().size() <= kFrameBytes);
    owner_->CountBytes(stream_->path(), /*sent=*/true, frame.size());
    // Where more calls run or wait, their replies may go together.
    writing_ = !stream_->Write(frame, pending_.empty() && outbox_.empty());
  }
  if (stream_ != nullptr && !writing_ && closing_.has_value() &&
      pending_.empty()) {
    stream_->Finish(*closing_);
  }
}

void CallSession::ReadMore() {
  if (stream_ == nullptr || reading_) return;
  // All was sent, and the caller is to acknowledge it.
  const bool overrun = reply_bytes_ >= outbox_bytes_ + kMaxReplyBytes ||
                       replies_.size() >= outbox_.size() + kMaxReplies;
  const size_t factor = num_queues_ * (overrun ? kMaxOverrun : 1);
  if (pending_.size() >= kMaxPendingCalls * factor ||
      pending_bytes_ + outbox_bytes_ >= kMaxPendingBytes * factor) {
    if (overrun) {
      stream_->Finish(absl::AbortedError(
          "too many replies were not acknowledged; resume the session"));
    }
    return;
  }
  reading_ = true;
  stream_->Read();
}

void CallSession::UpdateStalled() {
  const bool stalled =
      reply_bytes_ >= kMaxReplyBytes || replies_.size() >= kMaxReplies;
  // Only changed here, under the lock.
  if (stalled_.load(std::memory_order_relaxed) == stalled) return;
  stalled_.store(stalled, std::memory_order_release);
  if (!stalled) owner_->OnResumed(this);
}

void CallSession::Close(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  if (!closing_.has_value()) closing_ = status;
  WriteMore();
}

void CallSession::Cut() {
  absl::MutexLock lock(&mu_);
  if (stream_ != nullptr && closing_.has_value()) stream_->Finish(*closing_);
}

void CallSession::Abandon() {
  absl::MutexLock lock(&mu_);
  abandoned_ = true;
  replies_.clear();
  reply_bytes_ = 0;
  UpdateStalled();
}

bool CallSession::attached() const {
  absl::MutexLock lock(&mu_);
  return stream_ != nullptr;
}

uint64_t CallSession::reply_bytes() const {
  absl::MutexLock lock(&mu_);
  return reply_bytes_;
}

}  // namespace internal
}  // namespace miniray
