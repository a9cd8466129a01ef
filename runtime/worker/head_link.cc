#include "runtime/worker/head_link.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/background.h"
#include "runtime/base/ids.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
// Between looks at whether to go on; Stop waits as long. Internal.
constexpr absl::Duration kDialTime = absl::Milliseconds(500);
constexpr absl::Duration kCancelPeriod = absl::Milliseconds(50);
constexpr size_t kMaxToldExits = 1000;
// For what is still to be said to a head that reads. Internal.
constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(1);

bool IsExit(const v1::NodeMessage& message) {
  return message.has_actor_exited() || message.has_job_exited();
}

}  // namespace

// One try to have a stream.
struct HeadLink::Dial {
  grpc::ClientContext context;
  absl::Mutex mu;
  bool answered ABSL_GUARDED_BY(mu) = false;
  bool given_up ABSL_GUARDED_BY(mu) = false;
};

HeadLink::HeadLink(Options options, v1::Head::Stub* stub, Callbacks callbacks)
    : options_(std::move(options)),
      stub_(stub),
      callbacks_(std::move(callbacks)),
      redialler_(options_.channel),
      node_id_(NewId("node")) {}

absl::Status HeadLink::Start(absl::Duration timeout,
                             const std::function<bool()>& cancelled) {
  dialler_ = std::thread([this] { DialLoop(); });
  writer_ = std::thread([this] { WriteLoop(); });
  absl::MutexLock lock(&mu_);
  auto settled = [this] {
    mu_.AssertHeld();
    return registered_ || !fatal_.ok();
  };
  const absl::Time deadline = absl::Now() + timeout;
  while (
      !mu_.AwaitWithDeadline(absl::Condition(&settled),
                             std::min(deadline, absl::Now() + kCancelPeriod))) {
    if (cancelled != nullptr && cancelled()) {
      return absl::CancelledError("told to stop before the head answered");
    }
    if (absl::Now() < deadline) continue;
    return absl::UnavailableError(absl::StrCat(
        "no head answers at ", options_.head_address, " within ",
        absl::FormatDuration(timeout),
        last_error_.empty() ? "" : absl::StrCat(" (", last_error_, ")"),
        "; is it running, and is the port open?"));
  }
  return registered_ ? absl::OkStatus() : fatal_;
}

void HeadLink::DialLoop() {
  Backoff backoff(kFirstPause, kMaxRedialPause);
  while (!stopping_.HasBeenNotified()) {
    const absl::Status status = RunStream(&backoff);
    if (stopping_.HasBeenNotified()) return;
    if (status.code() == absl::StatusCode::kFailedPrecondition) {
      LOG(ERROR) << status.message();
      callbacks_.on_given_up();
      continue;
    }
    {
      absl::MutexLock lock(&mu_);
      if (ended_) return;
      last_error_ = std::string(status.message());
      if (!registered_ &&
          (IsRefusal(status) || absl::IsInvalidArgument(status))) {
        fatal_ = status;
        return;
      }
    }
    LOG(WARNING) << "lost the head at " << options_.head_address << ": "
                 << status.message() << "; trying again";
    if (stopping_.WaitForNotificationWithTimeout(backoff.Next())) return;
    // A head that was just started again is not to wait for us. Before it ever
    // answered, the reason why not is of interest.
    bool registered = false;
    {
      absl::MutexLock lock(&mu_);
      registered = registered_;
    }
    while (!redialler_.AwaitConnected(absl::Now() + kDialTime) && registered) {
      if (stopping_.HasBeenNotified()) return;
    }
  }
}

absl::Status HeadLink::RunStream(Backoff* backoff) {
  {
    absl::MutexLock lock(&mu_);
    auto may_speak = [this] {
      mu_.AssertHeld();
      return !silent_ || ended_;
    };
    mu_.Await(absl::Condition(&may_speak));
  }
  const auto dial = std::make_shared<Dial>();
  grpc::ClientContext* const context = &dial->context;
  AddToken(context, options_.token);
  v1::NodeMessage registration;
  v1::RegisterNode* const node = registration.mutable_register_node();
  callbacks_.describe(node);
  int told = 0;
  {
    absl::MutexLock lock(&mu_);
    if (ended_) return absl::CancelledError("stopping");
    if (silent_) return absl::CancelledError("the node starts anew");
    context_ = context;
    // A call that fails at once hardly gives a connection the time to come
    // about: only waiting calls drive it. At first the reason is of interest.
    context->set_wait_for_ready(registered_);
    node->set_node_id(node_id_);
    for (const std::string& id : replaced_ids_) {
      node->add_replaced_node_ids(id);
    }
    told = AddExits(node);
  }
  // May take as long as a connection takes; Stop cancels the context.
  std::unique_ptr<Stream> stream = stub_->AttachNode(context);
  if (stream->Write(registration)) {
    RunInBackground(
        [weak = std::weak_ptr<Dial>(dial)] {
          const auto unanswered = weak.lock();
          if (unanswered == nullptr) return;
          absl::MutexLock lock(&unanswered->mu);
          if (unanswered->answered) return;
          unanswered->given_up = true;
          unanswered->context.TryCancel();
        },
        options_.answer_timeout);
    absl::MutexLock lock(&mu_);
    // The registration told of these.
    for (size_t i = 0; i < outbox_.size() && told > 0;) {
      if (!IsExit(outbox_[i])) {
        ++i;
        continue;
      }
      Remember(Dequeue(i));
      --told;
    }
    if (!silent_) stream_ = stream.get();
  }
  v1::NodeCommand command;
  while (stream->Read(&command)) {
    if (!command.has_registered()) {
      {
        absl::MutexLock lock(&mu_);
        if (silent_) continue;  // It is for the node that is no more.
      }
      callbacks_.on_command(command);
      continue;
    }
    {
      absl::MutexLock lock(&dial->mu);
      dial->answered = true;
    }
    const v1::ClusterPeriods& periods = command.registered().periods();
    if (const int64_t pause = periods.max_reconnect_pause_ms(); pause > 0) {
      redialler_.SetMaxPause(absl::Milliseconds(pause));
      backoff->SetMax(absl::Milliseconds(pause));
    }
    backoff->Reset();
    absl::MutexLock lock(&mu_);
    registered_ = true;
    attachment_ = ++attachments_;
    replaced_ids_.clear();
    lease_ = absl::Milliseconds(command.registered().lease_ms());
    periods_ = periods;
    LOG(INFO) << "joined the cluster at " << options_.head_address << " as "
              << node_id_;
  }
  {
    absl::MutexLock lock(&mu_);
    attachment_ = 0;
    stream_ = nullptr;
    context_ = nullptr;
    auto idle = [this] {
      mu_.AssertHeld();
      return !writing_;
    };
    mu_.Await(absl::Condition(&idle));
  }
  const grpc::Status status = stream->Finish();
  {
    absl::MutexLock lock(&dial->mu);
    if (dial->given_up) {
      return absl::UnavailableError(absl::StrCat(
          "the head took the connection, but has not answered the registration "
          "of this node for ",
          absl::FormatDuration(options_.answer_timeout)));
    }
  }
  if (status.ok()) return absl::UnavailableError("the head closed the stream");
  return FromGrpcStatus(status);
}

int HeadLink::AddExits(v1::RegisterNode* node) {
  auto add = [node](const v1::NodeMessage& message) {
    if (message.has_actor_exited()) {
      *node->add_exited_actors() = message.actor_exited();
    } else if (message.has_job_exited()) {
      *node->add_exited_jobs() = message.job_exited();
    }
  };
  for (const v1::NodeMessage& message : told_exits_) add(message);
  for (const v1::NodeMessage& message : outbox_) add(message);
  return static_cast<int>(
      std::count_if(outbox_.begin(), outbox_.end(), &IsExit));
}

void HeadLink::WriteLoop() {
  while (true) {
    v1::NodeMessage message;
    Stream* stream = nullptr;
    {
      absl::MutexLock lock(&mu_);
      auto work = [this] {
        mu_.AssertHeld();
        return ended_ || (stream_ != nullptr && !outbox_.empty());
      };
      mu_.Await(absl::Condition(&work));
      if (ended_) return;
      message = Dequeue(0);
      stream = stream_;
      writing_ = true;
    }
    const bool written = stream->Write(message);
    absl::MutexLock lock(&mu_);
    writing_ = false;
    // Read fails too, and the loop dials again.
    if (!written && stream_ == stream) stream_ = nullptr;
    if (IsExit(message)) {
      Remember(std::move(message));
    } else if (!written) {
      outbox_bytes_ += message.ByteSizeLong();
      outbox_.push_front(std::move(message));
    }
  }
}

void HeadLink::Enqueue(v1::NodeMessage message) {
  outbox_bytes_ += message.ByteSizeLong();
  outbox_.push_back(std::move(message));
}

v1::NodeMessage HeadLink::Dequeue(size_t index) {
  v1::NodeMessage message = std::move(outbox_[index]);
  outbox_.erase(outbox_.begin() + static_cast<std::ptrdiff_t>(index));
  outbox_bytes_ -= message.ByteSizeLong();
  return message;
}

void HeadLink::Remember(v1::NodeMessage message) {
  told_exits_.push_back(std::move(message));
  if (told_exits_.size() > kMaxToldExits) told_exits_.pop_front();
}

void HeadLink::Send(v1::NodeMessage message) {
  absl::MutexLock lock(&mu_);
  Enqueue(std::move(message));
}

bool HeadLink::TrySend(v1::NodeMessage message) {
  absl::MutexLock lock(&mu_);
  if (outbox_bytes_ >= kMaxQueuedBytes) return false;
  Enqueue(std::move(message));
  return true;
}

void HeadLink::Redial(int64_t attachment) {
  absl::MutexLock lock(&mu_);
  if (attachment == 0 || attachment != attachment_) return;
  context_->TryCancel();
}

void HeadLink::FallSilent() {
  absl::MutexLock lock(&mu_);
  silent_ = true;
  stream_ = nullptr;
  if (context_ != nullptr) context_->TryCancel();
  auto written = [this] {
    mu_.AssertHeld();
    return !writing_;
  };
  mu_.Await(absl::Condition(&written));
}

void HeadLink::StartAnew() {
  absl::MutexLock lock(&mu_);
  silent_ = false;
  outbox_.clear();
  outbox_bytes_ = 0;
  told_exits_.clear();
  replaced_ids_.push_back(std::exchange(node_id_, NewId("node")));
  // What the head orders in the present stream is for the old node.
  if (context_ != nullptr) context_->TryCancel();
}

void HeadLink::Stop() {
  if (!dialler_.joinable()) return;
  {
    absl::MutexLock lock(&mu_);
    auto sent = [this] {
      mu_.AssertHeld();
      return stream_ == nullptr || (outbox_.empty() && !writing_);
    };
    mu_.AwaitWithTimeout(absl::Condition(&sent), absl::Seconds(1));
    ended_ = true;
    if (stream_ != nullptr && !writing_) {
      stream_->WritesDone();
      // The head ends the stream of a node that has said goodbye.
      auto over = [this] {
        mu_.AssertHeld();
        return context_ == nullptr;
      };
      mu_.AwaitWithTimeout(absl::Condition(&over), kGoodbyeTimeout);
    }
    if (context_ != nullptr) context_->TryCancel();
  }
  if (!stopping_.HasBeenNotified()) stopping_.Notify();
  dialler_.join();
  writer_.join();
}

std::string HeadLink::node_id() const {
  absl::MutexLock lock(&mu_);
  return node_id_;
}

int64_t HeadLink::attachment() const {
  absl::MutexLock lock(&mu_);
  return attachment_;
}

absl::Duration HeadLink::lease() const {
  absl::MutexLock lock(&mu_);
  return lease_;
}

v1::ClusterPeriods HeadLink::periods() const {
  absl::MutexLock lock(&mu_);
  return periods_;
}

}  // namespace miniray
