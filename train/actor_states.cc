#include "train/actor_states.h"

#include <utility>

#include "proto/head.pb.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {

absl::StatusOr<std::map<std::string, v1::ActorInfo>> ActorStates(
    const Cluster& cluster) {
  MR_ASSIGN_OR_RETURN(v1::GetClusterStateResponse state, cluster.GetState());
  std::map<std::string, v1::ActorInfo> actors;
  for (v1::ActorInfo& actor : *state.mutable_actors()) {
    std::string id = actor.actor_id();
    actors.emplace(std::move(id), std::move(actor));
  }
  return actors;
}

}  // namespace miniray::train
