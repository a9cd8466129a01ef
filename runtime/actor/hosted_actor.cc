#include "runtime/actor/hosted_actor.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/actor/host.h"
#include "runtime/base/background.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/wire/value.h"

namespace miniray {
namespace internal {
namespace {

// How long a session without a stream is kept where the head says nothing, and
// how many, with how many bytes of replies, at most.
constexpr absl::Duration kSessionLife = absl::Minutes(5);
constexpr size_t kMaxIdleSessions = 1024;
constexpr uint64_t kMaxIdleBytes = uint64_t{1} << 30;
constexpr size_t kMaxSessions = 65536;

// How long the end of an actor waits for the last replies to leave; internal.
constexpr absl::Duration kFlushTimeout = absl::Seconds(1);

// A result of more bytes stays here until the caller fetches it, if the two
// share no memory: to send it costs more than a caller that wants it spends on
// asking for it, and many pass it on or drop it.
constexpr uint64_t kMaxSentResult = 100'000;

// No message holds more; such results always stay.
constexpr uint64_t kMaxReplyBytes = kMaxMessageBytes - (1 << 20);

// Results with so many bytes stay in this process at most: callers that do not
// fetch them, nor let go of them, must not fill its memory. Beyond, what need
// not stay is sent at once, and what must goes to the node's store. One alone
// may have more.
constexpr char kKeptVariable[] = "MINIRAY_KEPT_RESULTS_MB";
constexpr int64_t kMaxKeptBytes = int64_t{1} << 30;
constexpr int64_t kMostMegabytes = int64_t{1} << 40;

// Replies that wait for one save: a few calls, for a short time.
constexpr size_t kMaxHeldReplies = 1024;
constexpr absl::Duration kMaxHold = absl::Milliseconds(10);

int64_t MaxKeptBytes() {
  const char* const value = std::getenv(kKeptVariable);
  if (value == nullptr) return kMaxKeptBytes;
  int64_t megabytes = 0;
  if (absl::SimpleAtoi(value, &megabytes) && megabytes >= 0 &&
      megabytes <= kMostMegabytes) {
    return megabytes << 20;
  }
  LOG(WARNING) << kKeptVariable << "=" << value << " is not a number from 0 to "
               << kMostMegabytes << "; " << (kMaxKeptBytes >> 20)
               << " is used instead";
  return kMaxKeptBytes;
}

int64_t NowMicros() { return absl::GetCurrentTimeNanos() / 1000; }

}  // namespace

class HostedActor::Lane : public CurrentActor {
 public:
  Lane(HostedActor* actor, Group* group, int index)
      : actor_(actor), group_(group), index_(index) {}

  absl::Status SaveState() override {
    if (actor_->saver_ == nullptr) {
      return absl::FailedPreconditionError(
          "the actor's class has no SaveState and RestoreState");
    }
    return actor_->saver_->Save();
  }
  void Exit() override { exit_ = true; }
  bool CallCancelled() override {
    return running_ != nullptr &&
           (running_->cancelled.load(std::memory_order_relaxed) ||
            running_->expired());
  }

  void Begin(QueuedCall* call) {
    absl::MutexLock lock(&mu_);
    running_ = call;
    start_unix_us_ = NowMicros();
  }
  void Done() {
    absl::MutexLock lock(&mu_);
    running_ = nullptr;
  }
  // What runs now is wanted no more.
  void CancelRunning() {
    absl::MutexLock lock(&mu_);
    if (running_ != nullptr) running_->cancelled = true;
  }
  void Describe(v1::InspectResponse* response) const {
    absl::MutexLock lock(&mu_);
    if (running_ == nullptr) return;
    v1::RunningCall* call = response->add_running();
    call->set_method(running_->message.method);
    call->set_start_unix_us(start_unix_us_);
    call->set_concurrency_group(group_->name);
  }
  bool busy() const {
    absl::MutexLock lock(&mu_);
    return running_ != nullptr;
  }

  Group* group() const { return group_; }
  int index() const { return index_; }
  bool exit_requested() const { return exit_; }
  int64_t start_unix_us() const { return start_unix_us_; }

 private:
  HostedActor* const actor_;
  Group* const group_;
  const int index_;
  bool exit_ = false;  // Of the lane's thread, as is the writing of the rest.
  mutable absl::Mutex mu_;
  QueuedCall* running_ = nullptr;
  int64_t start_unix_us_ = 0;
};

HostedActor::HostedActor(v1::HostActor host, ActorHooks hooks,
                         std::function<void(v1::ActorEvent)> on_event,
                         std::function<void()> on_gone)
    : host_(std::move(host)),
      class_name_(ShortClassName(host_.spec().class_name())),
      session_life_(host_.periods().session_life_ms() > 0
                        ? absl::Milliseconds(host_.periods().session_life_ms())
                        : kSessionLife),
      hooks_(std::move(hooks)),
      on_event_(std::move(on_event)),
      on_gone_(std::move(on_gone)),
      max_kept_bytes_(MaxKeptBytes()) {
  const v1::ActorSpec& spec = host_.spec();
  auto group = std::make_unique<Group>();
  group->max_concurrency = std::max(1, spec.max_concurrency());
  groups_.push_back(std::move(group));
  for (const v1::ConcurrencyGroup& item : spec.concurrency_groups()) {
    group = std::make_unique<Group>();
    group->name = item.name();
    group->max_concurrency = std::max(1, item.max_concurrency());
    for (const std::string& method : item.methods()) {
      group_of_method_.emplace(method, group.get());
    }
    groups_.push_back(std::move(group));
  }
}

HostedActor::~HostedActor() = default;

void HostedActor::Start() {
  absl::MutexLock lock(&threads_mu_);
  StartThread(groups_.front().get());
}

void HostedActor::StartThread(Group* group) {
  const int index = static_cast<int>(lanes_.size());
  lanes_.push_back(std::make_unique<Lane>(this, group, index));
  group->num_threads.fetch_add(1);
  ++running_threads_;
  std::thread([self = shared_from_this(), lane = lanes_.back().get()] {
    self->RunLane(lane);
  }).detach();
}

void HostedActor::RunLane(Lane* lane) {
  if (hooks_.enter_thread) hooks_.enter_thread();
  CurrentActor::Set(lane);
  if (lane->index() == 0) {
    ConstructAndReport();
    constructed_.Notify();
  } else {
    constructed_.WaitForNotification();
  }
  AfterCall(lane);
  // A queue that was closed meanwhile ends these at once.
  if (saver_ == nullptr) {
    Serve(lane);
  } else {
    ServeAndSave(lane);
  }
  CurrentActor::Set(nullptr);
  absl::MutexLock lock(&threads_mu_);
  --running_threads_;
}

void HostedActor::ConstructAndReport() {
  v1::ActorEvent event;
  if (absl::Status status = Construct(); !status.ok()) {
    *event.mutable_construction_failed() = ToProto(status);
    EndWith(status, std::move(event));
    return;
  }
  if (class_->restore != nullptr) {
    if (absl::Status status = Restore(); !status.ok()) {
      // Not the constructor's fault: another try may well succeed.
      *event.mutable_ending()->mutable_status() = ToProto(status);
      EndWith(status, std::move(event));
      return;
    }
    saver_ = std::make_unique<StateSaver>(
        class_, object_, host_.spec().save_state_ms(), hooks_.save_state);
  }
  event.mutable_ready();
  Emit(std::move(event));
}

absl::Status HostedActor::Construct() {
  const v1::ActorSpec& spec = host_.spec();
  MR_ASSIGN_OR_RETURN(class_, ActorRegistry::Get().Find(spec.class_name()));
  CallMeter* const meter = hooks_.meter.get();
  for (const auto& [name, method] : class_->methods) {
    methods_[name] = {&method, meter == nullptr ? nullptr : meter->Find(name)};
  }
  // Callers may name what they like, which must not make series without end.
  if (meter != nullptr) no_method_.meter = meter->Find("(unknown)");
  ArgumentList args;
  for (const v1::Value& value : spec.constructor_args()) {
    args.emplace_back(value.SerializeAsString());
  }
  try {
    MR_ASSIGN_OR_RETURN(object_, class_->construct(args));
  } catch (const std::exception& error) {
    return FromException(error);
  } catch (...) {
    return absl::UnknownError("threw something that is no std::exception");
  }
  return absl::OkStatus();
}

absl::Status HostedActor::Restore() {
  if (host_.incarnation() == 0 || !hooks_.load_state) return absl::OkStatus();
  absl::StatusOr<absl::Cord> state = hooks_.load_state();
  if (absl::IsNotFound(state.status())) return absl::OkStatus();
  MR_RETURN_IF_ERROR(
      Annotate(state.status(), "the saved state could not be loaded"));
  try {
    return Annotate(class_->restore(object_.get(), *state), "RestoreState");
  } catch (const std::exception& error) {
    return Annotate(FromException(error), "RestoreState");
  } catch (...) {
    return absl::UnknownError(
        "RestoreState threw something that is no std::exception");
  }
}

void HostedActor::Serve(Lane* lane) {
  while (std::unique_ptr<QueuedCall> call =
             lane->group()->queue.Pop(absl::InfiniteFuture())) {
    ReplyMessage reply;
    if (RunCall(lane, call.get(), &reply)) Answer(*call, reply);
    AfterCall(lane);
  }
}

void HostedActor::ServeAndSave(Lane* lane) {
  CallQueue& queue = lane->group()->queue;
  std::vector<Held> held;
  absl::Time since;
  while (true) {
    std::unique_ptr<QueuedCall> call =
        queue.Pop(held.empty() ? saver_->due() : absl::InfinitePast());
    const bool idle = call == nullptr;
    Held item{std::move(call), {}};
    if (!idle && RunCall(lane, item.call.get(), &item.reply)) {
      const ActorClass::Method* const method =
          FindMethod(item.call->message.method).method;
      if (method != nullptr && !method->is_const) saver_->OnChange();
      if (saver_->before_replies() && saver_->dirty()) {
        if (held.empty()) since = absl::Now();
        held.push_back(std::move(item));
      } else {
        Answer(*item.call, item.reply);
      }
    }
    if (!held.empty() &&
        (idle || lane->exit_requested() || held.size() >= kMaxHeldReplies ||
         absl::Now() - since >= kMaxHold)) {
      Commit(&held);
    } else if (saver_->due() <= absl::Now() ||
               (lane->exit_requested() && saver_->dirty())) {
      Commit(&held);
    }
    AfterCall(lane);
    if (idle && queue.closed()) break;
  }
}

void HostedActor::Answer(const QueuedCall& call, const ReplyMessage& reply) {
  // What was kept before the session was abandoned went with it.
  if (!call.session->Reply(call, reply)) ReleaseKept(call, reply);
}

void HostedActor::ReleaseKept(const QueuedCall& call,
                              const ReplyMessage& reply) {
  if (!reply.held_id.empty()) kept_.Release(reply.held_id);
  if (!reply.kept && !call.message.keep_result) return;
  v1::Value value;
  if (value.ParseFromString(std::string(reply.result)) && value.has_object()) {
    kept_.Release(value.object().object_id());
  }
}

void HostedActor::Commit(std::vector<Held>* held) {
  const absl::Status status = saver_->Save();
  if (!status.ok()) LOG(ERROR) << host_.spec().actor_id() << ": " << status;
  for (Held& item : *held) {
    if (!status.ok()) {
      ReleaseKept(*item.call, item.reply);
      item.reply.result.Clear();
      item.reply.kept = false;
      item.reply.held_id.clear();
      item.reply.status = absl::Status(
          saver_->superseded() ? absl::StatusCode::kUnavailable : status.code(),
          absl::StrCat("the call ran, but what it did may be lost: ",
                       status.message()));
    }
    Answer(*item.call, item.reply);
  }
  held->clear();
  if (saver_->superseded()) End(status);
}

bool HostedActor::RunCall(Lane* lane, QueuedCall* call, ReplyMessage* reply) {
  if (call->expired()) {
    // The caller's own cancellation may be late, as over a link that broke.
    if (call->Take(QueuedCall::State::kCancelled)) {
      ReplyMessage expired;
      expired.call_id = call->message.call_id;
      expired.status = absl::DeadlineExceededError(
          "its timeout was over while it waited at the actor; it never runs");
      Answer(*call, expired);
    }
    return false;
  }
  if (!call->Take(QueuedCall::State::kRunning)) return false;
  call->session->OnRunning(call);
  const Method& method = FindMethod(call->message.method);
  lane->Begin(call);
  absl::StatusOr<EncodedResult> result = Invoke(call->message, method.method);
  lane->Done();
  call->message.args.clear();  // Received tensors may be large.
  if (result.ok() && result->bytes.size() > kMaxReplyBytes &&
      (!call->session->takes_references() || lane->exit_requested())) {
    result = absl::InvalidArgumentError(absl::StrCat(
        "the result has ", result->bytes.size(),
        " bytes, and a message can hold 2 GiB: it would have to be fetched ",
        lane->exit_requested() ? "from an actor that exits"
                               : "by a caller that fetches nothing"));
  }
  absl::Status status = result.status();
  if (status.ok()) {
    reply->kept = Stays(*lane, *call, result->bytes.size());
    if (reply->kept || call->message.keep_result) {
      absl::StatusOr<absl::Cord> reference = Keep(*call, *std::move(result));
      status = reference.status();
      if (status.ok()) reply->result = *std::move(reference);
    } else {
      reply->result = std::move(result->bytes);
      if (!result->holds.empty()) {
        reply->held_id =
            kept_.Hold(call->session->caller(), std::move(result->holds));
      }
    }
  }
  calls_done_.fetch_add(1, std::memory_order_relaxed);
  if (!status.ok()) calls_failed_.fetch_add(1, std::memory_order_relaxed);
  const int64_t start = lane->start_unix_us();
  const int64_t end = NowMicros();
  if (method.meter != nullptr) {
    hooks_.meter->CountCall(method.meter, start - call->arrival_unix_us,
                            end - start, !status.ok());
  }
  if (hooks_.on_call) {
    hooks_.on_call({.method = call->message.method,
                    .queued_unix_us = call->arrival_unix_us,
                    .start_unix_us = start,
                    .end_unix_us = end,
                    .failed = !status.ok(),
                    .lane = lane->index()});
  }
  reply->call_id = call->message.call_id;
  reply->status = std::move(status);
  return true;
}

bool HostedActor::Stays(const Lane& lane, const QueuedCall& call,
                        uint64_t bytes) const {
  if (call.message.keep_result) return false;
  if (bytes > kMaxReplyBytes) return true;
  return bytes > std::max(kMaxSentResult, call.message.wanted_bytes) &&
         call.session->takes_references() && !call.session->shares_replies() &&
         !lane.exit_requested() && kept_.bytes() < max_kept_bytes_;
}

absl::StatusOr<absl::Cord> HostedActor::Keep(const QueuedCall& call,
                                             EncodedResult result) {
  v1::Value value;
  const std::string& caller = call.session->caller();
  const int64_t kept = kept_.bytes();
  const bool fits =
      kept == 0 ||
      kept + static_cast<int64_t>(result.bytes.size()) <= max_kept_bytes_;
  // What the caller asks to stay it may pass on: others can hold it there.
  if (hooks_.put != nullptr && (call.message.keep_result || !fits)) {
    std::shared_ptr<void> hold;
    absl::StatusOr<absl::Cord> reference = hooks_.put(result.bytes, &hold);
    if (!reference.ok() || !value.ParseFromString(std::string(*reference))) {
      return absl::Status(
          reference.ok() ? absl::StatusCode::kInternal
                         : reference.status().code(),
          absl::StrCat(
              "the call ran, but its node's object store cannot keep its "
              "result of ",
              result.bytes.size(), " bytes: ", reference.status().message()));
    }
    result.holds.push_back(std::move(hold));
    kept_.AddStored(caller, value.object().object_id(),
                    std::move(result.holds));
    return reference;
  }
  v1::ObjectRefValue* object = value.mutable_object();
  object->set_size(static_cast<int64_t>(result.bytes.size()));
  object->mutable_actor()->set_actor_id(host_.spec().actor_id());
  object->mutable_actor()->set_class_name(host_.spec().class_name());
  object->mutable_actor()->set_name(host_.spec().name());
  object->set_incarnation(host_.incarnation());
  object->set_object_id(
      kept_.Add(caller, std::move(result.bytes), std::move(result.holds)));
  return absl::Cord(value.SerializeAsString());
}

const HostedActor::Method& HostedActor::FindMethod(
    absl::string_view name) const {
  const auto it = methods_.find(name);
  return it == methods_.end() ? no_method_ : it->second;
}

// The boundary where exceptions of user code become a status.
absl::StatusOr<EncodedResult> HostedActor::Invoke(
    const CallMessage& call, const ActorClass::Method* method) {
  if (method == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(class_->name, " has no method '", call.method,
                     "' in its MINIRAY_ACTOR"));
  }
  try {
    return method->run(object_.get(), call.args);
  } catch (const std::exception& error) {
    return FromException(error);
  } catch (...) {
    return absl::UnknownError("threw something that is no std::exception");
  }
}

void HostedActor::AfterCall(Lane* lane) {
  if (!lane->exit_requested()) return;
  v1::ActorEvent event;
  event.mutable_ending();
  EndWith(absl::UnavailableError("the actor ended itself (ExitActor)"),
          std::move(event));
}

void HostedActor::End(const absl::Status& reason) {
  v1::ActorEvent event;
  *event.mutable_ending()->mutable_status() = ToProto(reason);
  EndWith(absl::UnavailableError(reason.message()), std::move(event));
  absl::MutexLock lock(&threads_mu_);
  for (const auto& lane : lanes_) lane->CancelRunning();
}

void HostedActor::EndWith(const absl::Status& status, v1::ActorEvent event) {
  {
    absl::MutexLock lock(&threads_mu_);
    if (ending_) return;
    ending_ = true;
  }
  std::vector<std::shared_ptr<CallSession>> sessions;
  {
    absl::MutexLock lock(&sessions_mu_);
    closed_ = status;
    for (auto& [caller, known] : sessions_) sessions.push_back(known.session);
  }
  for (const auto& group : groups_) {
    for (const auto& call : group->queue.Close()) {
      if (!call->Take(QueuedCall::State::kCancelled)) continue;
      ReplyMessage reply;
      reply.call_id = call->message.call_id;
      reply.status = status;
      Answer(*call, reply);
    }
  }
  for (const auto& session : sessions) session->Close(status);
  std::thread([self = shared_from_this(), event = std::move(event)]() mutable {
    self->Finish(std::move(event));
  }).detach();
}

void HostedActor::Finish(v1::ActorEvent event) {
  {
    absl::MutexLock lock(&sessions_mu_);
    auto quiet = [this] {
      sessions_mu_.AssertHeld();
      return num_streams_ == 0;
    };
    sessions_mu_.AwaitWithTimeout(absl::Condition(&quiet), kFlushTimeout);
  }
  if (!host_.spec().shared_process().empty()) {
    // Methods that still run may do so for ever: their callers wait no longer,
    // and find the actor gone.
    on_gone_();
    std::vector<std::shared_ptr<CallSession>> sessions;
    {
      absl::MutexLock lock(&sessions_mu_);
      for (auto& [caller, known] : sessions_) sessions.push_back(known.session);
    }
    for (const auto& session : sessions) session->Cut();
    {
      absl::MutexLock lock(&threads_mu_);
      auto quiet = [this] {
        threads_mu_.AssertHeld();
        return running_threads_ == 0;
      };
      threads_mu_.Await(absl::Condition(&quiet));
    }
    // No thread uses them any more.
    saver_.reset();
    object_.reset();
  } else {
    on_gone_();
  }
  Emit(std::move(event));
}

void HostedActor::Emit(v1::ActorEvent event) {
  event.set_actor_id(host_.spec().actor_id());
  event.set_incarnation(host_.incarnation());
  on_event_(std::move(event));
}

bool HostedActor::Attach(const std::string& caller, bool reads_memory,
                         const std::function<std::shared_ptr<SessionStream>(
                             std::shared_ptr<CallSession>)>& make_stream) {
  absl::MutexLock lock(&sessions_mu_);
  ForgetOldSessions();
  auto it = sessions_.find(caller);
  const bool known = it != sessions_.end();
  if (!known) {
    if (sessions_.size() >= kMaxSessions) return false;
    it = sessions_.emplace(caller, Known()).first;
    it->second.session = std::make_shared<CallSession>(caller, this);
    if (closed_.has_value()) it->second.session->Close(*closed_);
  }
  it->second.detached = absl::InfiniteFuture();
  ++num_streams_;
  it->second.session->Attach(make_stream(it->second.session), known,
                             reads_memory);
  return true;
}

void HostedActor::OnStreamEnded(CallSession* session, SessionStream* stream) {
  absl::MutexLock lock(&sessions_mu_);
  --num_streams_;
  if (!session->OnEnded(stream)) return;  // Another one carries it.
  auto it = sessions_.find(session->caller());
  if (it == sessions_.end() || it->second.session.get() != session) return;
  it->second.detached = absl::Now();
  RunInBackground(
      [weak = weak_from_this()] {
        if (auto self = weak.lock()) {
          absl::MutexLock lock(&self->sessions_mu_);
          self->ForgetOldSessions();
        }
      },
      session_life_ + absl::Seconds(1));
}

void HostedActor::ForgetOldSessions() {
  const absl::Time now = absl::Now();
  std::vector<std::pair<absl::Time, std::string>> idle;
  uint64_t bytes = 0;
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const absl::Time detached = it->second.detached;
    if (detached == absl::InfiniteFuture()) {
      ++it;
    } else if (now - detached > session_life_) {
      it->second.session->Abandon();
      kept_.ReleaseAllOf(it->first);
      it = sessions_.erase(it);
    } else {
      idle.emplace_back(detached, it->first);
      bytes += it->second.session->reply_bytes();
      ++it;
    }
  }
  if (idle.size() <= kMaxIdleSessions && bytes <= kMaxIdleBytes) return;
  std::sort(idle.begin(), idle.end());
  size_t left = idle.size();
  for (const auto& [detached, caller] : idle) {
    if (left <= kMaxIdleSessions && bytes <= kMaxIdleBytes) break;
    auto it = sessions_.find(caller);
    bytes -= it->second.session->reply_bytes();
    it->second.session->Abandon();
    kept_.ReleaseAllOf(caller);
    sessions_.erase(it);
    --left;
  }
}

v1::InspectResponse HostedActor::Inspect() const {
  v1::InspectResponse response;
  response.set_incarnation(host_.incarnation());
  response.set_calls_done(calls_done_.load(std::memory_order_relaxed));
  response.set_calls_failed(calls_failed_.load(std::memory_order_relaxed));
  uint64_t waiting = 0;
  for (const auto& group : groups_) waiting += group->queue.waiting();
  response.set_calls_waiting(waiting);
  response.set_kept_objects(kept_.count());
  response.set_kept_bytes(kept_.bytes());
  absl::MutexLock lock(&threads_mu_);
  for (const auto& lane : lanes_) lane->Describe(&response);
  return response;
}

CallLoad HostedActor::Load() const {
  CallLoad load;
  for (const auto& group : groups_) {
    load.waiting += static_cast<int64_t>(group->queue.size());
  }
  absl::MutexLock lock(&threads_mu_);
  for (const auto& lane : lanes_) load.running += lane->busy() ? 1 : 0;
  return load;
}

absl::StatusOr<CallQueue*> HostedActor::QueueFor(const CallMessage& call) {
  if (!call.concurrency_group.empty()) {
    for (const auto& group : groups_) {
      if (group->name == call.concurrency_group) return &group->queue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "the actor has no concurrency group '", call.concurrency_group, "'"));
  }
  if (!group_of_method_.empty()) {
    auto it = group_of_method_.find(call.method);
    if (it != group_of_method_.end()) return &it->second->queue;
  }
  return &groups_.front()->queue;
}

std::vector<MethodGroup> HostedActor::Groups() const {
  std::vector<MethodGroup> groups;
  for (const v1::ConcurrencyGroup& group : host_.spec().concurrency_groups()) {
    groups.push_back(
        {group.name(), {group.methods().begin(), group.methods().end()}});
  }
  return groups;
}

void HostedActor::OnQueued(CallQueue* queue) {
  if (hooks_.meter != nullptr) hooks_.meter->OnQueued();
  for (const auto& group : groups_) {
    if (&group->queue != queue) continue;
    if (group->num_threads.load() >= group->max_concurrency) return;
    int64_t wanted = static_cast<int64_t>(queue->size()) - queue->idle();
    absl::MutexLock lock(&threads_mu_);
    while (wanted-- > 0 && !ending_ &&
           group->num_threads.load() < group->max_concurrency) {
      StartThread(group.get());
    }
    return;
  }
}

void HostedActor::OnResumed(const CallSession* session) {
  for (const auto& group : groups_) group->queue.Resume(session);
}

void HostedActor::OnReleased(const std::string& object_id) {
  kept_.Release(object_id);
}

void HostedActor::CountBytes(CallPath path, bool sent, uint64_t bytes) {
  if (hooks_.meter != nullptr) hooks_.meter->CountBytes(path, sent, bytes);
}

}  // namespace internal
}  // namespace miniray
