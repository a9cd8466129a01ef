// Placement groups: room for several actors, reserved together or not at all.

#ifndef MINIRAY_RUNTIME_API_PLACEMENT_GROUP_H_
#define MINIRAY_RUNTIME_API_PLACEMENT_GROUP_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "runtime/client/client.h"

namespace miniray {

enum class PlacementStrategy {
  kPack,          // On as few nodes as possible.
  kSpread,        // On as many as possible.
  kStrictPack,    // On one node, or not at all.
  kStrictSpread,  // Each on a node of its own, or not at all.
};

// A handle; copies name the same group. Actors are put into it by
// ActorOptions::placement_group. If a node is lost, the bundles that were there
// are reserved anew elsewhere, and actors with restarts left follow. The group
// ends with Remove, or with its driver unless it is detached. Thread-safe.
class PlacementGroup {
 public:
  PlacementGroup() = default;  // None.
  PlacementGroup(std::shared_ptr<internal::Client> client, std::string id)
      : client_(std::move(client)), id_(std::move(id)) {}

  const std::string& id() const { return id_; }
  bool empty() const { return id_.empty(); }

  // Blocks until all bundles are reserved. Errors: DEADLINE_EXCEEDED, with what
  // it waits for. FAILED_PRECONDITION, it was removed, or no nodes could ever
  // hold it; with the cause.
  absl::Status WaitReady(
      absl::Duration timeout = absl::InfiniteDuration()) const;

  // Ends the actors in it and frees its room. Idempotent.
  absl::Status Remove() const;

  // Its record at the head: state, and where the bundles are.
  absl::StatusOr<v1::PlacementGroupInfo> GetInfo() const;

 private:
  std::shared_ptr<internal::Client> client_;
  std::string id_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_API_PLACEMENT_GROUP_H_
