// An actor process: what it does with what its worker daemon sends. The actor
// itself is in actor_server.h.

#ifndef MINIRAY_RUNTIME_ACTOR_HOST_H_
#define MINIRAY_RUNTIME_ACTOR_HOST_H_

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "runtime/actor/actor_server.h"

namespace miniray {
namespace internal {

// True in a process that a worker daemon started to host an actor.
bool IsActorProcess();

// Hosts the actor that the daemon asks for over the inherited socket, or the
// actors, where the process is shared (ActorSpec.shared_process); never
// returns. `prepare` runs before the constructor, with what the daemon sent,
// connects the actor's own client and makes its hooks. When the daemon dies,
// the whole process group is killed.
[[noreturn]] void HostActorAndExit(
    std::function<absl::StatusOr<ActorHooks>(const v1::HostActor&)> prepare);

// What a caller is told of an exception: the text, at most 64 KiB of it,
// without the backtrace that LibTorch puts behind it, which goes to the actor's
// log.
absl::Status FromException(const std::exception& error);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_HOST_H_
