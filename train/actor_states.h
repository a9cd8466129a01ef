// What the head knows of all actors, as trainers ask for it.

#ifndef MINIRAY_TRAIN_ACTOR_STATES_H_
#define MINIRAY_TRAIN_ACTOR_STATES_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "runtime/api/miniray.h"

namespace miniray::train {

// By actor_id. Errors: of Cluster::GetState.
absl::StatusOr<std::map<std::string, v1::ActorInfo>> ActorStates(
    const Cluster& cluster);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_ACTOR_STATES_H_
