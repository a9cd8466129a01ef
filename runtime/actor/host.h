// The actor's side of an actor process: constructs the object, serves its
// methods and runs them one at a time.

#ifndef MINIRAY_RUNTIME_ACTOR_HOST_H_
#define MINIRAY_RUNTIME_ACTOR_HOST_H_

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "runtime/actor/registry.h"

namespace miniray {
namespace internal {

// True in a process that a worker daemon started to host an actor.
bool IsActorProcess();

// Hosts the actor that the daemon asks for over the inherited socket; never
// returns. `prepare` runs before the constructor, with what the daemon sent,
// and connects the actor's own client. When the daemon dies, the whole process
// group is killed.
[[noreturn]] void HostActorAndExit(
    std::function<absl::Status(const v1::HostActor&)> prepare);

// What a caller is told of an exception: the text without the backtrace that
// LibTorch puts behind it, which goes to the actor's log.
absl::Status FromException(const std::exception& error);

// The part that has no process around it, for tests: serves calls on `object`
// at HOST:0, with methods run by Run in the calling thread.
class ActorServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    std::string token;
    std::string actor_id;
    // What errors call the actor: "Counter 'c'".
    std::string display_name;
  };
  // Errors: UNAVAILABLE, cannot listen.
  static absl::StatusOr<std::unique_ptr<ActorServer>> Start(
      Options options, const ActorClass* actor_class,
      std::shared_ptr<void> object);

  virtual ~ActorServer() = default;
  virtual const std::string& address() const = 0;  // HOST:PORT

  // Runs calls as they come, until Stop.
  virtual void Run() = 0;
  virtual void Stop() = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_HOST_H_
