// One actor inside a process: its object, the threads that run its methods, the
// sessions of its callers, and how it ends.

#ifndef MINIRAY_RUNTIME_ACTOR_HOSTED_ACTOR_H_
#define MINIRAY_RUNTIME_ACTOR_HOSTED_ACTOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "proto/actor.pb.h"
#include "proto/worker.pb.h"
#include "runtime/actor/actor_server.h"
#include "runtime/actor/call_meter.h"
#include "runtime/actor/call_queue.h"
#include "runtime/actor/call_session.h"
#include "runtime/actor/current_call.h"
#include "runtime/actor/kept_results.h"
#include "runtime/actor/registry.h"
#include "runtime/actor/state_saver.h"

namespace miniray {
namespace internal {

// Thread-safe. Its threads hold it.
class HostedActor : public SessionOwner,
                    public std::enable_shared_from_this<HostedActor> {
 public:
  // `on_event` gets the events of ActorServer::AddActor, without address;
  // `on_gone` runs before the last of them.
  HostedActor(v1::HostActor host, ActorHooks hooks,
              std::function<void(v1::ActorEvent)> on_event,
              std::function<void()> on_gone);
  ~HostedActor() override;

  // Starts the thread that constructs the object and then serves calls.
  void Start();

  // Queued calls fail with `reason`; so do those of sessions that come later.
  // ActorEnding follows once no method runs any more.
  void End(const absl::Status& reason);

  int32_t incarnation() const { return host_.incarnation(); }
  const std::string& class_name() const { return class_name_; }  // Short.

  // A new stream of the caller's session. False: too many sessions.
  // reads_memory: see CallSession::Attach.
  bool Attach(const std::string& caller, bool reads_memory,
              const std::function<std::shared_ptr<SessionStream>(
                  std::shared_ptr<CallSession>)>& make_stream);
  // Its session may be forgotten some time after its last stream.
  void OnStreamEnded(CallSession* session, SessionStream* stream);

  v1::InspectResponse Inspect() const;
  // What it is at. Waiting: with cancelled calls that are not taken out yet.
  CallLoad Load() const;

  // A result that stayed here. Errors: NOT_FOUND.
  absl::StatusOr<absl::Cord> FindResult(const std::string& id) const {
    return kept_.Find(id);
  }

  // SessionOwner.
  absl::StatusOr<CallQueue*> QueueFor(const CallMessage& call) override;
  std::vector<MethodGroup> Groups() const override;
  void OnQueued(CallQueue* queue) override;
  void OnResumed(const CallSession* session) override;
  void OnReleased(const std::string& object_id) override;
  void CountBytes(CallPath path, bool sent, uint64_t bytes) override;

 private:
  struct Group {
    std::string name;
    int max_concurrency = 1;
    CallQueue queue;
    std::atomic<int> num_threads = 0;
  };
  // A thread that runs methods.
  class Lane;
  // A method of the class, with where its calls are counted.
  struct Method {
    const ActorClass::Method* method = nullptr;  // Null: there is none.
    CallMeter::Method* meter = nullptr;          // Null: it is not counted.
  };
  struct Held {
    std::unique_ptr<QueuedCall> call;
    ReplyMessage reply;
  };

  void StartThread(Group* group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(threads_mu_);
  void RunLane(Lane* lane);
  void ConstructAndReport();
  absl::Status Construct();
  absl::Status Restore();
  void Serve(Lane* lane);
  void ServeAndSave(Lane* lane);
  // Runs the call; false if it was cancelled, or came too late: then it has its
  // reply.
  bool RunCall(Lane* lane, QueuedCall* call, ReplyMessage* reply);
  const Method& FindMethod(absl::string_view name) const;
  absl::StatusOr<EncodedResult> Invoke(const CallMessage& call,
                                       const ActorClass::Method* method);
  // Sends the reply. What is kept for one that nobody will get is let go of.
  void Answer(const QueuedCall& call, const ReplyMessage& reply);
  // Lets go of what is kept here for the reply.
  void ReleaseKept(const QueuedCall& call, const ReplyMessage& reply);
  // Saves, and sends the replies that wait for it.
  void Commit(std::vector<Held>* held);
  // Ends the actor if its method asked for it, now that the reply is sent.
  void AfterCall(Lane* lane);
  // Calls fail with `status`; `event` follows.
  void EndWith(const absl::Status& status, v1::ActorEvent event);
  void Finish(v1::ActorEvent event);
  void Emit(v1::ActorEvent event);
  void ForgetOldSessions() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sessions_mu_);

  const v1::HostActor host_;
  const std::string class_name_;
  const absl::Duration session_life_;
  const ActorHooks hooks_;
  const std::function<void(v1::ActorEvent)> on_event_;
  const std::function<void()> on_gone_;
  const ActorClass* class_ = nullptr;
  // Set by the thread that constructs, before others run a call.
  std::map<std::string, Method, std::less<>> methods_;
  Method no_method_;
  std::shared_ptr<void> object_;
  std::unique_ptr<StateSaver> saver_;  // Null: nothing to save.

  // Fixed once Start was called; the first is of calls outside any group.
  std::vector<std::unique_ptr<Group>> groups_;
  std::map<std::string, Group*, std::less<>> group_of_method_;

  // Whether the call's result stays here though nobody asked for that.
  bool Stays(const Lane& lane, const QueuedCall& call, uint64_t bytes) const;
  // Leaves the result here, or in the node's store if the caller has asked for
  // that or much is here, and makes the reference that is sent instead. Errors:
  // of the store.
  absl::StatusOr<absl::Cord> Keep(const QueuedCall& call, EncodedResult result);

  KeptResults kept_;
  const int64_t max_kept_bytes_;
  std::atomic<uint64_t> calls_done_ = 0;
  std::atomic<uint64_t> calls_failed_ = 0;

  absl::Notification constructed_;  // Or failed.
  mutable absl::Mutex threads_mu_;
  std::vector<std::unique_ptr<Lane>> lanes_ ABSL_GUARDED_BY(threads_mu_);
  int running_threads_ ABSL_GUARDED_BY(threads_mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(threads_mu_) = false;

  struct Known {
    std::shared_ptr<CallSession> session;
    absl::Time detached = absl::InfiniteFuture();  // Its last stream's end.
  };
  mutable absl::Mutex sessions_mu_;  // Above the sessions'.
  std::map<std::string, Known, std::less<>> sessions_
      ABSL_GUARDED_BY(sessions_mu_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(sessions_mu_);
  int num_streams_ ABSL_GUARDED_BY(sessions_mu_) = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_HOSTED_ACTOR_H_
