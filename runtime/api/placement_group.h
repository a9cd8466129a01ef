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

// A handle; copies name the same group, which does not end with them. Of use as
// long as the connection that it came from. Actors are put into the group by
// ActorOptions::placement_group.
//
// If a node is lost, the bundles that were there are reserved anew elsewhere
// (the state is RESCHEDULING meanwhile), and actors with restarts left follow;
// the others are not disturbed. The group ends with Remove, or with its driver
// unless it is detached, and the actors in it (detached ones too) end with it.
// Thread-safe.
class PlacementGroup {
 public:
  PlacementGroup(std::shared_ptr<internal::Client> client, std::string id)
      : client_(std::move(client)), id_(std::move(id)) {}

  const std::string& id() const { return id_; }

  // Blocks until all bundles are reserved. Errors: DEADLINE_EXCEEDED, with what
  // it waits for. FAILED_PRECONDITION, it was removed, or no nodes could ever
  // hold it; with the cause. UNAVAILABLE, the head does not answer.
  absl::Status WaitReady(
      absl::Duration timeout = absl::InfiniteDuration()) const;

  // Kills the actors in it and frees its room. Idempotent. Errors: UNAVAILABLE,
  // the head does not answer.
  absl::Status Remove() const;

  // Its record at the head: state, and where the bundles are. Errors:
  // NOT_FOUND, it ended so long ago that the head has forgotten it.
  // UNAVAILABLE.
  absl::StatusOr<v1::PlacementGroupInfo> GetInfo() const;

 private:
  std::shared_ptr<internal::Client> client_;
  std::string id_;
};

// As which both a group and its id pass (an id may come from another process).
class PlacementGroupId {
 public:
  PlacementGroupId() = default;  // None.
  // NOLINTBEGIN(google-explicit-constructor): see above.
  PlacementGroupId(std::string id) : value_(std::move(id)) {}
  PlacementGroupId(const char* id) : value_(id) {}
  PlacementGroupId(const PlacementGroup& group) : value_(group.id()) {}
  // NOLINTEND(google-explicit-constructor)

  const std::string& value() const { return value_; }

 private:
  std::string value_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_API_PLACEMENT_GROUP_H_
