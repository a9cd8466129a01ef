// What ClusterState keeps of each node, actor and job.

#ifndef MINIRAY_RUNTIME_HEAD_CLUSTER_RECORDS_H_
#define MINIRAY_RUNTIME_HEAD_CLUSTER_RECORDS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/head.pb.h"
#include "runtime/head/resources.h"

namespace miniray {

// The way to one worker daemon. Send queues the command and returns at once; it
// is called under the lock of ClusterState and must not call back.
class NodeLink {
 public:
  virtual ~NodeLink() = default;
  virtual void Send(v1::NodeCommand command) = 0;
};

struct NodeRecord {
  v1::NodeInfo info;
  ResourceSet total;
  ResourceSet available;
  std::shared_ptr<NodeLink> link;
  absl::Time lease_end;
};

struct ActorRecord {
  v1::ActorSpec spec;
  v1::ActorInfo info;
  ResourceSet request;
  int32_t incarnation = 0;
  bool holds_resources = false;  // Of info.node_id.
  // Why this incarnation was ordered to stop; empty: it was not.
  std::string stop_reason;
  absl::Time infeasible_since = absl::InfiniteFuture();
};

struct JobRecord {
  v1::JobInfo info;
  std::string session_id;
  const void* session = nullptr;
  absl::Time grace_end = absl::InfiniteFuture();
};

inline std::string NodeName(const v1::NodeInfo& node) {
  return absl::StrCat(node.node_id(), " (", node.hostname(), ", ",
                      node.address(), ")");
}

inline bool IsLive(const v1::ActorInfo& info) {
  return info.state() != v1::ACTOR_STATE_DEAD;
}

// True if a node runs it, or was ordered to.
inline bool HasProcess(const v1::ActorInfo& info) {
  return info.state() == v1::ACTOR_STATE_STARTING ||
         info.state() == v1::ACTOR_STATE_ALIVE ||
         (info.state() == v1::ACTOR_STATE_RESTARTING &&
          !info.node_id().empty());
}

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_CLUSTER_RECORDS_H_
