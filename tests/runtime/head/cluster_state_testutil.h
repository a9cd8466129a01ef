// ClusterState with a clock that stands still and links that only remember.

#ifndef MINIRAY_TESTS_RUNTIME_HEAD_CLUSTER_STATE_TESTUTIL_H_
#define MINIRAY_TESTS_RUNTIME_HEAD_CLUSTER_STATE_TESTUTIL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "runtime/head/cluster_state.h"
#include "runtime/head/state_store.h"

namespace miniray {

// Keeps what the head has sent. Not thread-safe.
class FakeLink : public NodeLink {
 public:
  void Send(v1::NodeCommand command) override {
    sent.push_back(std::move(command));
  }

  // "start A.0", "stop A.0", "registered": what has been sent since the last
  // call.
  std::vector<std::string> Take();
  // The reasons of the stops among `sent`.
  std::vector<std::string> StopReasons() const;

  std::vector<v1::NodeCommand> sent;
};

// ClusterState whose answers come at once, as they do in one thread.
class DirectClusterState : public ClusterState {
 public:
  using ClusterState::ClusterState;
  absl::StatusOr<v1::ActorInfo> CreateActor(const v1::ActorSpec& spec) {
    absl::StatusOr<v1::ActorInfo> result = absl::UnknownError("no answer");
    ClusterState::CreateActor(spec, [&](auto info) { result = info; });
    return result;
  }
  using ClusterState::KillActor;
  absl::Status KillActor(const std::string& actor_id, bool no_restart,
                         std::optional<int32_t> incarnation = std::nullopt) {
    v1::KillActorRequest request;
    request.set_actor_id(actor_id);
    request.set_no_restart(no_restart);
    if (incarnation.has_value()) request.set_incarnation(*incarnation);
    absl::Status result = absl::UnknownError("no answer");
    ClusterState::KillActor(request,
                            [&](absl::Status status) { result = status; });
    return result;
  }
  using ClusterState::CreatePlacementGroup;
  absl::StatusOr<v1::PlacementGroupInfo> CreatePlacementGroup(
      const v1::PlacementGroupSpec& spec) {
    absl::StatusOr<v1::PlacementGroupInfo> result =
        absl::UnknownError("no answer");
    ClusterState::CreatePlacementGroup(spec, [&](auto info) { result = info; });
    return result;
  }
  using ClusterState::RemovePlacementGroup;
  absl::Status RemovePlacementGroup(const std::string& group_id) {
    absl::Status result = absl::UnknownError("no answer");
    ClusterState::RemovePlacementGroup(
        group_id, [&](absl::Status status) { result = status; });
    return result;
  }
};

class ClusterStateTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kLease = absl::Seconds(10);
  static constexpr absl::Duration kGrace = absl::Seconds(2);
  static constexpr absl::Duration kInfeasible = absl::Seconds(30);

  using Live = std::vector<std::pair<std::string, int>>;

  static v1::RegisterNode Registration(const std::string& node, double cpus,
                                       const Live& live = {});
  // Registers a node; the link has sent "registered".
  std::shared_ptr<FakeLink> AddNode(const std::string& node, double cpus,
                                    const Live& live = {});

  // An actor of `cpus` CPUs.
  static v1::ActorSpec Spec(const std::string& actor, double cpus = 1);
  v1::ActorInfo Create(const v1::ActorSpec& spec);
  v1::ActorInfo Create(const std::string& actor, double cpus = 1) {
    return Create(Spec(actor, cpus));
  }

  void Started(const std::string& node, const std::string& actor,
               int incarnation = 0);
  void Exited(const std::string& node, const std::string& actor,
              int incarnation = 0, bool may_restart = true);

  // A driver's session. Returns what tells it apart.
  ClusterState::Session Attach(const std::string& job,
                               const std::string& session = "s");

  void Advance(absl::Duration time) {
    now_ += time;
    state_.Tick();
  }

  // REQUIRES: the head knows it.
  v1::ActorInfo Info(const std::string& actor) const;
  v1::NodeInfo Node(const std::string& node) const;
  v1::PlacementGroupInfo Group(const std::string& group) const;
  v1::JobInfo Job(const std::string& job) const;
  v1::ActorState StateOf(const std::string& actor) const {
    return Info(actor).state();
  }
  double Available(const std::string& node,
                   const std::string& resource = "CPU") const;

  // What GetActor answers at once; FAILED_PRECONDITION if it waits.
  absl::StatusOr<v1::ActorInfo> FindByName(const std::string& name,
                                           const std::string& space = "");

  // Puts another ClusterState in place of state_, with nothing in it.
  void RestartWith(StateStore* store) {
    std::destroy_at(&state_);
    std::construct_at(&state_, OptionsWith(store));
  }

  int64_t max_waiting_ = 100000;  // See RestartWith.
  absl::Time now_ = absl::FromUnixSeconds(1700000000);
  DirectClusterState state_{OptionsWith(nullptr)};

 private:
  ClusterState::Options OptionsWith(StateStore* store) {
    return {.lease = kLease,
            .driver_grace = kGrace,
            .infeasible_timeout = kInfeasible,
            .max_waiting = max_waiting_,
            .clock = [this] { return now_; },
            .store = store};
  }

  int next_session_[64] = {};
  int sessions_ = 0;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_HEAD_CLUSTER_STATE_TESTUTIL_H_
