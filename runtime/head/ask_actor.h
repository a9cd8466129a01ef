// How an actor fares, as its own process tells.

#ifndef MINIRAY_RUNTIME_HEAD_ASK_ACTOR_H_
#define MINIRAY_RUNTIME_HEAD_ASK_ACTOR_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/actor.pb.h"
#include "proto/cluster.pb.h"

namespace miniray {

// Asks the process that `actor` says, over a connection of its own. Not for a
// gRPC thread: it waits. Errors: UNAVAILABLE, it has none now, or nobody is
// reached there. DEADLINE_EXCEEDED, it says nothing.
absl::StatusOr<v1::InspectResponse> AskActor(const v1::ActorInfo& actor,
                                             const std::string& token,
                                             absl::Duration timeout);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_ASK_ACTOR_H_
