// The gRPC side of an actor process: serves the calls of a set of actors at one
// address. Each actor has threads of its own; see hosted_actor.h.

#ifndef MINIRAY_RUNTIME_ACTOR_ACTOR_SERVER_H_
#define MINIRAY_RUNTIME_ACTOR_ACTOR_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "proto/cluster.pb.h"
#include "proto/worker.pb.h"
#include "runtime/actor/registry.h"

namespace miniray {
namespace internal {

class CallMeter;
struct CallLoad;

struct FinishedCall {
  const std::string& method;
  int64_t queued_unix_us = 0;
  int64_t start_unix_us = 0;
  int64_t end_unix_us = 0;
  bool failed = false;
  int lane = 0;  // Thread of the actor, from 0.
};

// What an actor gets from the layers above. Any may be null.
struct ActorHooks {
  // The first thing in each of the actor's threads.
  std::function<void()> enter_thread;
  // Sends state to the head, and reads back what was saved last. They block,
  // and try again as long as the head does not answer. Errors of save_state:
  // FAILED_PRECONDITION, another process of the actor has taken over. Of
  // load_state: NOT_FOUND, nothing was saved.
  std::function<absl::Status(absl::Cord state)> save_state;
  std::function<absl::StatusOr<absl::Cord>()> load_state;
  // Hands a serialized Value to the node's object store; returns one that
  // refers to it, and what frees it. Blocks. Errors: RESOURCE_EXHAUSTED, the
  // store is full. UNAVAILABLE, it does not answer.
  std::function<absl::StatusOr<absl::Cord>(const absl::Cord& value,
                                           std::shared_ptr<void>* hold)>
      put;
  // Runs in the thread that ran the call, after it: must not block.
  std::function<void(const FinishedCall& call)> on_call;
  // Counts the calls, with those of the class's other actors here.
  std::shared_ptr<CallMeter> meter;
};

// Thread-safe.
class ActorServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    std::string token;
  };
  // Serves at HOST:0. Errors: see GrpcListener.
  static absl::StatusOr<std::unique_ptr<ActorServer>> Start(Options options);

  virtual ~ActorServer() = default;
  virtual const std::string& address() const = 0;  // HOST:PORT

  // Constructs the actor in a thread of its own, with the state of the process
  // before it if it had one, and serves it from there; returns at once.
  //
  // `on_event` is called from the actor's threads, one event at a time: first
  // ActorReady, or construction_failed; at last ActorEnding, without a status
  // if it was ExitActor, else with why it ended itself or was removed. After
  // construction_failed or ActorEnding the server has forgotten the actor. With
  // ActorSpec.shared_process set, ActorEnding waits until no method of the
  // actor runs; without, it does not: the process is about to end.
  virtual void AddActor(const v1::HostActor& host, ActorHooks hooks,
                        std::function<void(v1::ActorEvent)> on_event) = 0;

  // Ends an actor: calls that wait fail with UNAVAILABLE and `reason`; running
  // methods go on, and ActorEnding follows. Nothing happens if it is not here.
  virtual void RemoveActor(absl::string_view actor_id, int32_t incarnation,
                           absl::string_view reason) = 0;

  // What the actors are at, by the short names of their classes.
  virtual std::map<std::string, CallLoad> Load() const = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_ACTOR_SERVER_H_
