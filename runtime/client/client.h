// A process's link to a cluster: drivers and actor processes have one each. It
// speaks to the head and, straight, to actors. The typed API in runtime/api is
// a thin layer above it.

#ifndef MINIRAY_RUNTIME_CLIENT_CLIENT_H_
#define MINIRAY_RUNTIME_CLIENT_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "runtime/client/call_request.h"
#include "runtime/client/call_state.h"

namespace miniray {

// In proto/head.pb.h and proto/actor.pb.h, which nearly every program would
// otherwise be built with.
namespace v1 {
class GetClusterStateResponse;
class GetPlacementGroupRequest;
class InspectResponse;
}  // namespace v1

namespace internal {

// Thread-safe.
class Client : public ObjectFetcher,
               public std::enable_shared_from_this<Client> {
 public:
  struct Options {
    std::string head_address;
    std::string token;
    // A driver opens a job and keeps its session with the head: when the
    // session ends, the head stops the job's actors. An actor's client works
    // for the job that the actor belongs to.
    bool is_driver = true;
    std::string job_id;         // Drivers: empty, it is made up.
    bool log_to_driver = true;  // Drivers: see ClusterOptions.
    absl::Duration connect_timeout = absl::Seconds(10);
    // Actors on this machine are called through unix sockets where that can be;
    // $MINIRAY_LOCAL_TRANSPORT can forbid it.
    bool local_transport = true;
    // Actors: HOST:PORT of the object store of their node.
    std::string object_address;
    // Actors: names the process, with which goes what it puts.
    std::string object_owner;
    // How long an actor or the head may be out of reach before calls fail.
    // Zero: as the head says, else 60 s.
    absl::Duration reconnect_timeout;
    // Actors: as their daemon says. Drivers hear it from the head.
    v1::ClusterPeriods periods;
  };

  // Errors: INVALID_ARGUMENT, not an address. UNAVAILABLE, nobody answers
  // there. UNAUTHENTICATED, wrong token. UNIMPLEMENTED, a head of another
  // version.
  static absl::StatusOr<std::shared_ptr<Client>> Connect(Options options);

  // The client that handles and references belong to when they arrive in this
  // thread: that of the actor whose thread it is, else the last one that
  // connected. Null before.
  static std::shared_ptr<Client> Current();
  static void SetOfThread(std::weak_ptr<Client> client);

  ~Client() override = default;

  // Registers an actor (`spec` without ids, job and package: they are filled
  // in), after it has made sure that the head has this program's package.
  virtual absl::StatusOr<v1::ActorInfo> CreateActor(v1::ActorSpec spec) = 0;

  virtual absl::StatusOr<v1::ActorInfo> FindActor(
      absl::string_view name, absl::string_view actor_namespace) = 0;

  // Blocks until the actor is ALIVE (OK), DEAD (UNAVAILABLE with the cause) or
  // `timeout` has passed (DEADLINE_EXCEEDED with what it waits for).
  virtual absl::Status WaitUntilAlive(const ActorIdentity& actor,
                                      absl::Duration timeout) = 0;

  // How the actor fares, as it says itself. Errors: UNAVAILABLE, it is not up,
  // or out of reach. DEADLINE_EXCEEDED, no answer within `timeout`. NOT_FOUND,
  // the head has forgotten it.
  virtual absl::StatusOr<v1::InspectResponse> Inspect(
      const ActorIdentity& actor, absl::Duration timeout) = 0;

  // Sends a call; never blocks on the network. max_pending_calls bounds the
  // calls of this process to that actor that have no reply yet: beyond it the
  // call fails with RESOURCE_EXHAUSTED.
  virtual std::shared_ptr<CallState> Call(const ActorIdentity& actor,
                                          CallRequest request) = 0;

  // Puts a serialized Value into a node's object store; see ObjectClient.
  virtual absl::StatusOr<absl::Cord> PutObject(const absl::Cord& value,
                                               std::shared_ptr<void>* hold) = 0;
  // What holds the objects that references refer to; see ObjectClient::Hold.
  virtual std::vector<std::shared_ptr<void>> HoldObjects(
      const std::vector<absl::Cord>& references) = 0;

  // The saved state of an actor of this process. Both block, and try again as
  // long as the head does not answer, at most `reconnect_timeout`. Errors: see
  // proto/head.proto.
  virtual absl::Status SaveActorState(const std::string& actor_id,
                                      int32_t incarnation,
                                      const absl::Cord& state) = 0;
  virtual absl::StatusOr<absl::Cord> LoadActorState(const std::string& actor_id,
                                                    int32_t incarnation) = 0;

  virtual absl::Status KillActor(const ActorIdentity& actor,
                                 bool no_restart) = 0;

  // The group's id and job are filled in.
  virtual absl::StatusOr<v1::PlacementGroupInfo> CreatePlacementGroup(
      v1::PlacementGroupSpec spec) = 0;
  virtual absl::StatusOr<v1::PlacementGroupInfo> GetPlacementGroup(
      const v1::GetPlacementGroupRequest& request) = 0;
  virtual absl::Status RemovePlacementGroup(const std::string& id) = 0;

  virtual absl::StatusOr<v1::GetClusterStateResponse> GetClusterState() = 0;

  // Leaves the cluster: pending calls fail with CANCELLED, a driver's job ends.
  // Idempotent.
  virtual void Shutdown() = 0;

  virtual const std::string& job_id() const = 0;
  virtual const std::string& head_address() const = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_CLIENT_H_
