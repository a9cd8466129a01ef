#include "proto/head.pb.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "train/collective/process_group.h"

namespace miniray::train {

absl::StatusOr<std::string> CollectiveAddress(const Cluster& cluster) {
  const ActorContext* actor = ActorContext::Current();
  if (actor == nullptr) {
    MR_ASSIGN_OR_RETURN(const HostPort head, ParseHostPort(cluster.address()));
    return LocalAddressTowards(head);
  }
  MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                      cluster.GetState());
  for (const v1::NodeInfo& node : state.nodes()) {
    if (node.node_id() == actor->node_id()) return node.address();
  }
  return absl::UnavailableError(
      absl::StrCat("the head at ", cluster.address(), " does not know node ",
                   actor->node_id(), ", on which this actor runs"));
}

}  // namespace miniray::train
