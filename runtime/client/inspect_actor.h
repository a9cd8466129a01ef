// How an actor fares: what it tells beside all calls that run in it.

#ifndef MINIRAY_RUNTIME_CLIENT_INSPECT_ACTOR_H_
#define MINIRAY_RUNTIME_CLIENT_INSPECT_ACTOR_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/actor.pb.h"
#include "proto/cluster.pb.h"
#include "runtime/client/channel_pool.h"

namespace miniray {
namespace internal {

// Asks the process that `actor` says. Errors: UNAVAILABLE, it has none now, or
// nobody is there. DEADLINE_EXCEEDED, it says nothing. UNAUTHENTICATED.
absl::StatusOr<v1::InspectResponse> InspectActor(const v1::ActorInfo& actor,
                                                 const std::string& token,
                                                 ChannelPool* channels,
                                                 absl::Time deadline);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_INSPECT_ACTOR_H_
