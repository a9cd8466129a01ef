// Random histories of placement groups: nodes come and are lost, groups and
// actors in them come and go, processes end late. After each step the tables
// must be consistent, and in the end everything is free.

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using Units = std::map<std::string, int64_t>;  // In 1/10000; no zeros.

Units ToUnits(const v1::Resources& resources) {
  Units units;
  for (const auto& [name, quantity] : resources.quantity()) {
    const int64_t count = std::llround(quantity * 10000);
    if (count != 0) units[name] = count;
  }
  return units;
}

void Add(Units* sum, const Units& other, int64_t sign = 1) {
  for (const auto& [name, units] : other) {
    if (((*sum)[name] += sign * units) == 0) sum->erase(name);
  }
}

// A daemon's link: keeps the processes that the head has ordered.
class ProcessLink : public NodeLink {
 public:
  struct Process {
    Units resources;
    std::string group;
    bool stopping = false;
  };
  void Send(v1::NodeCommand command) override {
    if (command.has_start_actor()) {
      const v1::ActorSpec& spec = command.start_actor().spec();
      EXPECT_TRUE(
          processes
              .emplace(
                  std::make_pair(spec.actor_id(),
                                 command.start_actor().incarnation()),
                  Process{ToUnits(spec.resources()), spec.placement_group_id()})
              .second);
    } else if (command.has_stop_actor()) {
      const auto it = processes.find({command.stop_actor().actor_id(),
                                      command.stop_actor().incarnation()});
      if (it != processes.end()) it->second.stopping = true;
    }
  }
  std::map<std::pair<std::string, int>, Process> processes;
};

class GroupModelTest : public ClusterStateTest,
                       public ::testing::WithParamInterface<uint64_t> {
 protected:
  GroupModelTest() { StartHead(); }

  size_t Below(size_t limit) { return static_cast<size_t>(random_() % limit); }
  bool Chance(size_t one_in) { return Below(one_in) == 0; }

  template <class Map>
  auto Any(Map& map) {
    auto it = map.begin();
    std::advance(it, static_cast<ptrdiff_t>(Below(map.size())));
    return it;
  }

  void StartHead() {
    head_.reset();
    store_.reset();
    auto store = StateStore::Open(folder_.path());
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
    head_ = std::make_unique<DirectClusterState>(
        ClusterState::Options{.lease = absl::Hours(1000),
                              .infeasible_timeout = kInfeasible,
                              .clock = [this] { return now_; },
                              .store = store_.get()});
    ASSERT_THAT(head_->Restore(), IsOk());
  }

  // --- What may happen.

  void Register(const std::string& node) {
    v1::RegisterNode request;
    request.set_node_id(node);
    request.set_hostname("host");
    *request.mutable_total() = totals_[node];
    for (const auto& [who, process] : links_[node]->processes) {
      v1::LiveActor* entry = request.add_live_actors();
      entry->set_actor_id(who.first);
      entry->set_incarnation(who.second);
    }
    ASSERT_THAT(head_->RegisterNode(request, links_[node]), IsOk());
  }

  void AddNode() {
    if (links_.size() >= 6) return;
    const std::string node = absl::StrCat("node", next_++);
    auto& quantity = *totals_[node].mutable_quantity();
    quantity["CPU"] = static_cast<double>(Below(40) + 1) / 10;
    if (Chance(2)) quantity["GPU"] = static_cast<double>(Below(3));
    links_[node] = std::make_shared<ProcessLink>();
    Register(node);
  }

  void LoseNode() {
    const auto it = Any(links_);
    head_->NodeLeft(it->first);
    links_.erase(it);
  }

  void RestartHead() {
    StartHead();
    for (const auto& [node, link] : links_) Register(node);
  }

  void CreateGroup() {
    v1::PlacementGroupSpec spec;
    spec.set_placement_group_id(absl::StrCat("group", next_++));
    spec.set_job_id("job");
    spec.set_strategy(static_cast<v1::PlacementStrategy>(Below(4) + 1));
    for (size_t i = Below(4) + 1; i > 0; --i) {
      auto& quantity = *spec.add_bundles()->mutable_quantity();
      quantity["CPU"] = static_cast<double>(Below(20) + 1) / 10;
      if (Chance(5)) quantity["GPU"] = static_cast<double>(Below(3)) / 2;
    }
    ASSERT_THAT(head_->CreatePlacementGroup(spec), IsOk());
    groups_[spec.placement_group_id()] = spec;
  }

  void RemoveGroup() {
    if (groups_.empty()) return;
    const auto it = Any(groups_);
    ASSERT_THAT(head_->RemovePlacementGroup(it->first), IsOk());
    groups_.erase(it);
  }

  void CreateActor() {
    v1::ActorSpec spec = Spec(absl::StrCat("actor", next_++),
                              static_cast<double>(Below(10)) / 10);
    spec.set_max_restarts(static_cast<int>(Below(4)) - 1);
    if (!groups_.empty() && !Chance(3)) {
      const auto& [id, group] = *Any(groups_);
      spec.set_placement_group_id(id);
      if (Chance(2)) {
        spec.set_bundle_index(
            static_cast<int>(Below(static_cast<size_t>(group.bundles_size()))));
      }
    }
    if (head_->CreateActor(spec).ok()) actors_.push_back(spec.actor_id());
  }

  void KillActor() {
    if (actors_.empty()) return;
    ASSERT_THAT(head_->KillActor(actors_[Below(actors_.size())], Chance(2)),
                IsOk());
  }

  void EndProcess() {
    const auto& [node, link] = *Any(links_);
    if (link->processes.empty()) return;
    const auto it = Any(link->processes);
    if (!it->second.stopping && !Chance(4)) return;
    v1::ActorExited exited;
    exited.set_actor_id(it->first.first);
    exited.set_incarnation(it->first.second);
    exited.set_cause("ended");
    exited.set_may_restart(!Chance(4));
    link->processes.erase(it);
    head_->ActorExited(node, exited);
  }

  void PassTime() {
    now_ += absl::Milliseconds(Below(8000));
    head_->Tick();
  }

  void Step() {
    const size_t what = Below(100);
    if (links_.empty() || what < 6) return AddNode();
    if (what < 10) return LoseNode();
    if (what < 12) return RestartHead();
    if (what < 26) return groups_.size() < 8 ? CreateGroup() : RemoveGroup();
    if (what < 36) return RemoveGroup();
    if (what < 60) return CreateActor();
    if (what < 68) return KillActor();
    if (what < 72) return PassTime();
    EndProcess();
  }

  // --- What must hold.

  void Check() {
    const v1::GetClusterStateResponse state = head_->Snapshot();
    std::map<std::string, Units> used;  // What leaves nodes' own room, by node.
    std::map<std::string, Units> in_bundles;  // By group: what is in use.
    std::map<std::string, v1::NodeState> nodes;
    for (const v1::NodeInfo& node : state.nodes()) {
      nodes[node.node_id()] = node.state();
    }
    std::set<std::string> live_groups;
    for (const v1::PlacementGroupInfo& group : state.placement_groups()) {
      SCOPED_TRACE(group.placement_group_id());
      CheckGroup(group, nodes);
      if (group.state() == v1::PLACEMENT_GROUP_STATE_REMOVED) {
        groups_.erase(group.placement_group_id());
        continue;
      }
      live_groups.insert(group.placement_group_id());
      for (const v1::BundleInfo& bundle : group.bundles()) {
        if (bundle.node_id().empty()) continue;
        Add(&used[bundle.node_id()], ToUnits(bundle.total()));
        Units taken = ToUnits(bundle.total());
        Add(&taken, ToUnits(bundle.available()), -1);
        Add(&in_bundles[group.placement_group_id()], taken);
      }
    }
    std::map<std::string, Units> expected;
    for (const auto& [node, link] : links_) {
      for (const auto& [who, process] : link->processes) {
        if (live_groups.contains(process.group)) {
          Add(&expected[process.group], process.resources);
        } else {
          Add(&used[node], process.resources);
        }
      }
    }
    for (const std::string& group : live_groups) {
      ASSERT_EQ(in_bundles[group], expected[group]) << group;
    }
    for (const v1::NodeInfo& node : state.nodes()) {
      Units sum = ToUnits(node.available());
      for (const auto& [name, units] : sum) {
        ASSERT_GE(units, 0) << node.node_id() << " " << name;
      }
      Add(&sum, used[node.node_id()]);
      ASSERT_EQ(sum, ToUnits(node.total())) << node.node_id();
    }
    for (const v1::ActorInfo& actor : state.actors()) {
      if (actor.state() == v1::ACTOR_STATE_DEAD) continue;
      SCOPED_TRACE(actor.actor_id());
      const bool in_group = !actor.placement_group_id().empty();
      ASSERT_TRUE(!in_group ||
                  live_groups.contains(actor.placement_group_id()));
      if (actor.node_id().empty()) continue;
      ASSERT_EQ(nodes.at(actor.node_id()), v1::NODE_STATE_ALIVE);
    }
  }

  void CheckGroup(const v1::PlacementGroupInfo& group,
                  const std::map<std::string, v1::NodeState>& nodes) {
    std::set<std::string> on;
    int placed = 0;
    for (const v1::BundleInfo& bundle : group.bundles()) {
      for (const auto& [name, units] : ToUnits(bundle.available())) {
        ASSERT_GE(units, 0) << name;
      }
      if (bundle.node_id().empty()) continue;
      ASSERT_EQ(nodes.at(bundle.node_id()), v1::NODE_STATE_ALIVE);
      on.insert(bundle.node_id());
      ++placed;
    }
    switch (group.state()) {
      case v1::PLACEMENT_GROUP_STATE_PENDING:
        ASSERT_NE(group.cause(), "");
        [[fallthrough]];
      case v1::PLACEMENT_GROUP_STATE_REMOVED:
        ASSERT_EQ(placed, 0);
        break;
      case v1::PLACEMENT_GROUP_STATE_CREATED:
        ++created_;
        ASSERT_EQ(group.cause(), "");
        ASSERT_EQ(placed, group.bundles_size());
        break;
      default:
        ASSERT_EQ(group.state(), v1::PLACEMENT_GROUP_STATE_RESCHEDULING);
        ++rescheduling_;
        ASSERT_LT(placed, group.bundles_size());
    }
    if (group.strategy() == v1::PLACEMENT_STRATEGY_STRICT_PACK) {
      ASSERT_LE(on.size(), 1);
    } else if (group.strategy() == v1::PLACEMENT_STRATEGY_STRICT_SPREAD) {
      ASSERT_EQ(on.size(), static_cast<size_t>(placed));
    }
  }

  // All is removed and killed, all processes end.
  void WindUp() {
    while (!groups_.empty()) RemoveGroup();
    for (const std::string& actor : actors_) {
      ASSERT_THAT(head_->KillActor(actor, true), IsOk());
    }
    for (int i = 0; i < 3000 && !links_.empty(); ++i) EndProcess();
    Check();
    const v1::GetClusterStateResponse state = head_->Snapshot();
    for (const v1::NodeInfo& node : state.nodes()) {
      EXPECT_EQ(ToUnits(node.available()), ToUnits(node.total()));
    }
  }

  std::mt19937_64 random_{GetParam()};
  TempFolder folder_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<DirectClusterState> head_;
  std::map<std::string, std::shared_ptr<ProcessLink>> links_;
  std::map<std::string, v1::Resources> totals_;
  std::map<std::string, v1::PlacementGroupSpec> groups_;
  std::vector<std::string> actors_;
  int next_ = 0;
  int created_ = 0;
  int rescheduling_ = 0;
};

TEST_P(GroupModelTest, TablesStayConsistent) {
  for (int step = 0; step < 800; ++step) {
    SCOPED_TRACE(absl::StrCat("step ", step));
    Step();
    Check();
    if (HasFatalFailure()) return;
  }
  WindUp();
  // The history was worth something.
  EXPECT_GT(created_, 100);
  EXPECT_GT(rescheduling_, 5);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GroupModelTest,
                         ::testing::Range<uint64_t>(1, 9));

}  // namespace
}  // namespace miniray
