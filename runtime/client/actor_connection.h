// The calls of this process to one actor: finds the actor at the head, keeps a
// session with its process, and gives every call exactly one outcome.
//
// kIdle (no stream, nothing to do) -> kLooking (asks the head) -> kConnecting
// (the stream is being made; the session's state is awaited) -> kConnected. A
// stream that breaks is made again, at first at once, later after asking the
// head and with back-off (kPausing); the session goes on where it was. It ends
// when the head says that the actor's process died: calls that were sent fail
// then, or wait for the next process if they have retries left. Calls made
// meanwhile wait and are sent in order. kDead is for good.
//
// If actor or head cannot be reached for `reconnect_timeout`, all calls fail.

#ifndef MINIRAY_RUNTIME_CLIENT_ACTOR_CONNECTION_H_
#define MINIRAY_RUNTIME_CLIENT_ACTOR_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/head.pb.h"
#include "runtime/client/actor_stream.h"
#include "runtime/client/call_backlog.h"
#include "runtime/client/call_request.h"
#include "runtime/client/call_state.h"
#include "runtime/client/channel_pool.h"
#include "runtime/client/link_fallback.h"
#include "runtime/link/transport.h"
#include "runtime/wire/call_messages.h"

namespace miniray {
namespace internal {

// Thread-safe. Held by shared_ptr.
class ActorConnection : public CallOwner,
                        public ActorStreamUser,
                        public std::enable_shared_from_this<ActorConnection> {
 public:
  // Asks the head for the actor's record, without blocking; `done` runs in
  // another thread, once.
  using Lookup = std::function<void(
      v1::GetActorRequest request,
      std::function<void(absl::StatusOr<v1::ActorInfo>)> done)>;

  struct Options {
    std::string token;
    std::string head_address;  // For messages.
    absl::Duration reconnect_timeout = absl::Seconds(60);
    std::shared_ptr<ChannelPool> channels;
    // The first way to try to the actor.
    Transport transport = Transport::kAuto;
    Lookup lookup;
    // For results that stay with the actor. May be null.
    std::weak_ptr<ObjectFetcher> fetcher;
    // Holds for this process what an actor put into a store for it; see
    // ObjectClient::HoldSoon. May be null.
    std::function<void(const absl::Cord& reference,
                       std::function<void(std::shared_ptr<void>)> done)>
        hold;
  };

  ActorConnection(ActorIdentity actor, Options options);
  ~ActorConnection() override;

  std::shared_ptr<CallState> Call(CallRequest request);

  // Takes no lock: whoever asks holds one that comes after ours.
  bool dead() const { return dead_; }

  // The actor's record, if this process is connected to that process of it, or
  // to any.
  std::optional<v1::ActorInfo> ConnectedInfo(
      std::optional<int32_t> incarnation) const ABSL_LOCKS_EXCLUDED(mu_);

  // A result that stayed with the actor is needed no more.
  void Release(const std::string& session, const std::string& object_id)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Fails all calls, now and later, with `status`.
  void Close(absl::Status status);

  // CallOwner.
  void CancelCall(const CallState* call) override;
  std::string DescribeCall(const CallState* call) override;

  // ActorStreamUser.
  void OnWritable(ActorStream* stream) override;
  void OnFrame(ActorStream* stream, const absl::Cord& frame) override;
  void OnStreamEnded(ActorStream* stream, const absl::Status& status) override;

 private:
  enum class State {
    kIdle,
    kLooking,
    kConnecting,
    kConnected,
    kPausing,
    kDead
  };
  // What is to be done once the lock is released.
  struct Outcome {
    std::shared_ptr<CallState> state;
    absl::StatusOr<absl::Cord> result;
    std::string where;
    // See CallState::Complete.
    std::shared_ptr<FetchHabit> stayed;
    std::optional<int32_t> process;
    // What the actor keeps for the result.
    std::shared_ptr<void> kept;
    // Of the call.
    absl::Time deadline = absl::InfiniteFuture();
    // Dies unlocked: what it holds may have things to do.
    std::vector<std::shared_ptr<CallState>> holds;
  };
  using Outcomes = std::vector<Outcome>;

  // --- The way to the actor.
  void Look(int64_t min_version, absl::Duration wait)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnLookup(uint64_t epoch, absl::StatusOr<v1::ActorInfo> info)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnInfo(v1::ActorInfo info, Outcomes* outcomes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Connect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The first way to try now.
  Transport WayToActor() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Goes on with `step` after the present back-off.
  void Pause(std::function<void()> step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GoIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnSession(const SessionMessage& session, Outcomes* outcomes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // --- News of the actor while its stream is silent: one whose machine or
  // process stands still breaks no stream for a while, though the head may have
  // given it up.
  void WatchIfSilent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Watch() ABSL_LOCKS_EXCLUDED(mu_);
  void OnNews(absl::StatusOr<v1::ActorInfo> info) ABSL_LOCKS_EXCLUDED(mu_);
  void GiveUpStream(const ActorStream* stream, v1::ActorInfo info)
      ABSL_LOCKS_EXCLUDED(mu_);

  // --- Time without contact.
  void BeginTrouble(const absl::Status& error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndTrouble() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnTroubleTimeout(uint64_t trouble) ABSL_LOCKS_EXCLUDED(mu_);
  void TellTrouble(uint64_t trouble) ABSL_LOCKS_EXCLUDED(mu_);

  // --- Calls.
  // Puts the arguments that have come into the call's message. Errors: of an
  // argument.
  static absl::Status Complete(CallDraft* draft);
  // Arguments that lie elsewhere must live until the call is done.
  static void HoldArguments(const CallDraft& draft, PendingCall* call);
  std::shared_ptr<FetchHabit> HabitOf(const std::string& method)
      ABSL_LOCKS_EXCLUDED(habits_mu_);
  // An argument of the call has come.
  void OnArgument(const CallState* call) ABSL_LOCKS_EXCLUDED(mu_);
  // What has the result that the actor keeps released when it dies.
  std::shared_ptr<void> HoldResult(const absl::Cord& reference)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Releases a result that stayed with the actor and that nobody waits for.
  void DropResult(const absl::Cord& reference)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // As HoldResult, for what the actor keeps under this id.
  std::shared_ptr<void> HoldAtActor(std::string id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes in a frame.
  void Accept(ActorStream* stream, const absl::Cord& bytes, Outcomes* outcomes)
      ABSL_LOCKS_EXCLUDED(mu_);
  // True for a reply whose result went with the process that made it: it counts
  // as not received, so that the call ends as its actor does. From a process
  // that lives it comes again, and is an error the second time.
  bool LoseReply(const ReplyMessage& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Cord NextFrame() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The session is over, and with it what the actor knew of it. Calls that were
  // sent wait again if they have retries left, else fail with `status`.
  void EndSession(const absl::Status& status, Outcomes* outcomes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes out all calls that were sent, in their order.
  std::vector<std::unique_ptr<PendingCall>> TakeSent()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Puts calls that were sent, in their order, before those that were not.
  void Requeue(std::vector<std::unique_ptr<PendingCall>> calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fails the calls that wait: all, or those without retries.
  void FailUnsent(const absl::Status& status, bool all, Outcomes* outcomes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailAll(const absl::Status& status, Outcomes* outcomes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail(std::unique_ptr<PendingCall> call, const absl::Status& status,
            Outcomes* outcomes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What DescribeCall says.
  std::string Describe(const PendingCall* call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // --- Calls with a timeout.
  void WatchDeadline(const PendingCall& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The call has its outcome.
  void ForgetDeadline(const PendingCall& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sees to it that OnTimer runs at the first deadline.
  void SetTimer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnTimer(absl::Time due) ABSL_LOCKS_EXCLUDED(mu_);
  // Fails the call. One that was sent stays in the session until its reply.
  void Expire(const CallState* state, Outcomes* outcomes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static std::string NotDone(const PendingCall& call);
  absl::Status ExpiredStatus(const PendingCall& call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Status CheckRoom(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Waiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !unsent_.empty() || !sent_.empty();
  }
  // The session is needed: by calls, or by results that stay with the actor.
  bool Needed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return Waiting() || held_results_ > 0;
  }
  absl::Status RestartingStatus() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Where() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run(Outcomes outcomes);

  const ActorIdentity actor_;
  const Options options_;

  std::atomic<bool> results_stay_ = false;  // One has done so.
  absl::Mutex habits_mu_;                   // Below mu_.
  // By method.
  absl::flat_hash_map<std::string, std::shared_ptr<FetchHabit>> habits_
      ABSL_GUARDED_BY(habits_mu_);

  mutable absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  std::atomic<bool> dead_ = false;  // state_ is kDead.
  // The actor reads this process's memory.
  std::atomic<bool> shares_calls_ = false;
  // Grows with every step: a lookup or pause of an earlier one is void.
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status death_ ABSL_GUARDED_BY(mu_);
  v1::ActorInfo info_ ABSL_GUARDED_BY(mu_);  // As last heard from the head.
  std::shared_ptr<ActorStream> stream_ ABSL_GUARDED_BY(mu_);
  bool stream_is_link_ ABSL_GUARDED_BY(mu_) = false;
  LinkFallback fallback_ ABSL_GUARDED_BY(mu_);

  // The session. Its id is empty before the first stream to a process.
  std::string session_id_ ABSL_GUARDED_BY(mu_);
  int32_t incarnation_ ABSL_GUARDED_BY(mu_) = 0;   // Of that process.
  bool established_ ABSL_GUARDED_BY(mu_) = false;  // Calls may have been sent.
  absl::Time connected_at_ ABSL_GUARDED_BY(mu_);
  uint64_t next_call_id_ ABSL_GUARDED_BY(mu_) = 1;
  CallBacklog unsent_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, std::unique_ptr<PendingCall>> sent_
      ABSL_GUARDED_BY(mu_);
  uint64_t pending_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Those that have a deadline and no outcome.
  std::set<std::pair<absl::Time, const CallState*>> deadlines_
      ABSL_GUARDED_BY(mu_);
  // When OnTimer will run: each was the first deadline once.
  std::set<absl::Time> timers_ ABSL_GUARDED_BY(mu_);
  // The actor is to know that this process reads its memory.
  bool tell_reads_memory_ ABSL_GUARDED_BY(mu_) = false;
  // ... or that large results may stay with it.
  bool tell_takes_references_ ABSL_GUARDED_BY(mu_) = false;
  // To go with the next frame.
  std::vector<uint64_t> acknowledged_ ABSL_GUARDED_BY(mu_);
  uint64_t acknowledged_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint64_t> cancelled_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> released_ ABSL_GUARDED_BY(mu_);
  // That stay with the actor, in this session.
  int64_t held_results_ ABSL_GUARDED_BY(mu_) = 0;
  // Sent lately; sent again after a break, since they get no answer.
  std::deque<std::string> recently_released_ ABSL_GUARDED_BY(mu_);

  bool watching_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time last_reply_ ABSL_GUARDED_BY(mu_);

  // Trouble: since when neither replies nor news come. Infinite: there is none.
  absl::Time trouble_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  uint64_t trouble_ ABSL_GUARDED_BY(mu_) = 0;  // Counts them.
  absl::Status last_error_ ABSL_GUARDED_BY(mu_);
  int attempts_ ABSL_GUARDED_BY(mu_) = 0;  // To connect, since it began.
  absl::Duration backoff_ ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_ACTOR_CONNECTION_H_
