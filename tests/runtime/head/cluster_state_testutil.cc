#include "tests/runtime/head/cluster_state_testutil.h"

#include "absl/strings/str_cat.h"

namespace miniray {

std::vector<std::string> FakeLink::Take() {
  std::vector<std::string> result;
  for (const v1::NodeCommand& command : std::exchange(sent, {})) {
    if (command.has_registered()) {
      result.push_back("registered");
    } else if (command.has_start_actor()) {
      result.push_back(absl::StrCat("start ",
                                    command.start_actor().spec().actor_id(),
                                    ".", command.start_actor().incarnation()));
    } else if (command.has_stop_actor()) {
      result.push_back(absl::StrCat("stop ", command.stop_actor().actor_id(),
                                    ".", command.stop_actor().incarnation()));
    } else if (command.has_start_job()) {
      result.push_back("start job " + command.start_job().spec().job_id());
    } else if (command.has_stop_job()) {
      result.push_back("stop job " + command.stop_job().job_id());
    } else if (command.has_job_ended() || command.has_job_began()) {
      continue;  // Follows from the rest.
    } else {
      result.push_back("nothing");
    }
  }
  return result;
}

std::vector<std::string> FakeLink::StopReasons() const {
  std::vector<std::string> reasons;
  for (const v1::NodeCommand& command : sent) {
    if (command.has_stop_actor()) {
      reasons.push_back(command.stop_actor().reason());
    }
  }
  return reasons;
}

v1::RegisterNode ClusterStateTest::Registration(const std::string& node,
                                                double cpus, const Live& live) {
  v1::RegisterNode request;
  request.set_node_id(node);
  request.set_hostname("host-" + node);
  request.set_address("10.0.0.1");
  request.set_pid(100);
  (*request.mutable_total()->mutable_quantity())["CPU"] = cpus;
  for (const auto& [actor, incarnation] : live) {
    v1::LiveActor* entry = request.add_live_actors();
    entry->set_actor_id(actor);
    entry->set_incarnation(incarnation);
  }
  return request;
}

std::shared_ptr<FakeLink> ClusterStateTest::AddNode(const std::string& node,
                                                    double cpus,
                                                    const Live& live) {
  auto link = std::make_shared<FakeLink>();
  const absl::Status status =
      state_.RegisterNode(Registration(node, cpus, live), link);
  EXPECT_TRUE(status.ok()) << status;
  return link;
}

v1::ActorSpec ClusterStateTest::Spec(const std::string& actor, double cpus) {
  v1::ActorSpec spec;
  spec.set_actor_id(actor);
  spec.set_class_name("shop::Counter");
  spec.set_package_id("package");
  spec.set_job_id("job");
  (*spec.mutable_resources()->mutable_quantity())["CPU"] = cpus;
  return spec;
}

v1::ActorInfo ClusterStateTest::Create(const v1::ActorSpec& spec) {
  const absl::StatusOr<v1::ActorInfo> info = state_.CreateActor(spec);
  EXPECT_TRUE(info.ok()) << info.status();
  return info.ok() ? *info : v1::ActorInfo();
}

void ClusterStateTest::Started(const std::string& node,
                               const std::string& actor, int incarnation) {
  v1::ActorStarted event;
  event.set_actor_id(actor);
  event.set_incarnation(incarnation);
  event.set_address("10.0.0.1:5000");
  event.set_pid(4242);
  state_.ActorStarted(node, event);
}

void ClusterStateTest::Exited(const std::string& node, const std::string& actor,
                              int incarnation, bool may_restart) {
  v1::ActorExited event;
  event.set_actor_id(actor);
  event.set_incarnation(incarnation);
  event.set_cause("exited with code 3");
  event.set_may_restart(may_restart);
  state_.ActorExited(node, event);
}

ClusterState::Session ClusterStateTest::Attach(const std::string& job,
                                               const std::string& session) {
  v1::RegisterDriver request;
  request.set_job_id(job);
  request.set_session_id(session);
  request.set_program("driver");
  request.set_hostname("host");
  request.set_pid(7);
  const ClusterState::Session result = &next_session_[sessions_++];
  const absl::Status status = state_.RegisterDriver(request, result);
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

v1::ActorInfo ClusterStateTest::Info(const std::string& actor) const {
  const v1::GetClusterStateResponse snapshot = state_.Snapshot();
  for (const v1::ActorInfo& info : snapshot.actors()) {
    if (info.actor_id() == actor) return info;
  }
  ADD_FAILURE() << "no actor " << actor;
  return v1::ActorInfo();
}

v1::NodeInfo ClusterStateTest::Node(const std::string& node) const {
  const v1::GetClusterStateResponse snapshot = state_.Snapshot();
  for (const v1::NodeInfo& info : snapshot.nodes()) {
    if (info.node_id() == node) return info;
  }
  ADD_FAILURE() << "no node " << node;
  return v1::NodeInfo();
}

v1::JobInfo ClusterStateTest::Job(const std::string& job) const {
  const v1::GetClusterStateResponse snapshot = state_.Snapshot();
  for (const v1::JobInfo& info : snapshot.jobs()) {
    if (info.job_id() == job) return info;
  }
  ADD_FAILURE() << "no job " << job;
  return v1::JobInfo();
}

v1::PlacementGroupInfo ClusterStateTest::Group(const std::string& group) const {
  const v1::GetClusterStateResponse snapshot = state_.Snapshot();
  for (const v1::PlacementGroupInfo& info : snapshot.placement_groups()) {
    if (info.placement_group_id() == group) return info;
  }
  ADD_FAILURE() << "no placement group " << group;
  return v1::PlacementGroupInfo();
}

double ClusterStateTest::Available(const std::string& node,
                                   const std::string& resource) const {
  const v1::NodeInfo info = Node(node);
  const auto it = info.available().quantity().find(resource);
  return it == info.available().quantity().end() ? 0 : it->second;
}

absl::StatusOr<v1::ActorInfo> ClusterStateTest::FindByName(
    const std::string& name, const std::string& space) {
  v1::GetActorRequest request;
  request.set_name(name);
  request.set_actor_namespace(space);
  absl::StatusOr<v1::ActorInfo> result =
      absl::FailedPreconditionError("GetActor waits");
  state_.GetActor(request, [&](auto info) { result = std::move(info); });
  return result;
}

}  // namespace miniray
