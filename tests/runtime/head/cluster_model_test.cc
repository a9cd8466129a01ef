// Random histories of a cluster: nodes that come, break, return and die,
// messages that are late or lost, drivers that create, kill and vanish,
// placement groups, and a head that is killed and started again. After
// each step the head's tables must be consistent, and in the end nothing may
// still run or hold resources.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
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
#include "runtime/head/state_store.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using Incarnation = std::pair<std::string, int>;  // Actor id and incarnation.
using Units = std::map<std::string, int64_t>;     // In 1/10000.
constexpr int64_t kOne = 10000;

// What a node has left.
struct Room {
  Units available;
  std::map<int, int64_t> gpus;  // By device.
};

Units ToUnits(const v1::Resources& resources) {
  Units units;
  for (const auto& [name, quantity] : resources.quantity()) {
    const int64_t count = std::llround(quantity * 10000);
    if (count != 0) units[name] = count;
  }
  return units;
}

// Notes who got resources where, at the moment when the head gives them.
class Ledger {
 public:
  void Give(const std::string& node, const Incarnation& who,
            const Units& amount) {
    EXPECT_TRUE(holders_[node].emplace(who, amount).second)
        << who.first << "." << who.second << " started twice on " << node;
  }
  void Return(const std::string& node, const Incarnation& who) {
    holders_[node].erase(who);
  }
  void KeepOnly(const std::string& node, const std::set<Incarnation>& live) {
    std::erase_if(holders_[node],
                  [&](const auto& item) { return !live.contains(item.first); });
  }
  Units Held(const std::string& node) {
    Units sum;
    for (const auto& [who, amount] : holders_[node]) {
      for (const auto& [name, units] : amount) sum[name] += units;
    }
    return sum;
  }

 private:
  std::map<std::string, std::map<Incarnation, Units>> holders_;
};

// A worker daemon: its processes, and what is on its way in both directions.
struct Daemon {
  class Link : public NodeLink {
   public:
    Link(Daemon* daemon, Ledger* ledger) : daemon_(daemon), ledger_(ledger) {}
    void Send(v1::NodeCommand command) override {
      if (command.has_start_actor()) {
        const v1::StartActor& start = command.start_actor();
        ledger_->Give(daemon_->node_id,
                      {start.spec().actor_id(), start.incarnation()},
                      ToUnits(start.spec().resources()));
      }
      daemon_->commands.push_back(std::move(command));
    }

   private:
    Daemon* const daemon_;
    Ledger* const ledger_;
  };

  struct Process {
    bool ready = false;
    bool stopping = false;
  };

  std::string node_id;
  v1::Resources total;
  std::shared_ptr<Link> link;  // Null: cut off.
  std::deque<v1::NodeCommand> commands;
  std::deque<v1::NodeMessage> messages;
  std::map<Incarnation, Process> processes;
  bool frozen = false;  // Neither renews its lease nor does anything.
};

class ClusterModelTest : public ClusterStateTest,
                         public ::testing::WithParamInterface<uint64_t> {
 protected:
  size_t Below(size_t limit) { return static_cast<size_t>(random_() % limit); }
  bool Chance(size_t one_in) { return Below(one_in) == 0; }

  // --- What may happen.

  void AddDaemon() {
    if (daemons_.size() >= 6) return;
    auto daemon = std::make_unique<Daemon>();
    auto& quantity = *daemon->total.mutable_quantity();
    quantity["CPU"] = static_cast<double>(Below(40) + 1) / 10;
    if (Chance(2)) quantity["GPU"] = static_cast<double>(Below(3));
    daemon->node_id = NewNodeId();
    Register(daemon.get());
    daemons_.push_back(std::move(daemon));
  }

  std::string NewNodeId() { return absl::StrCat("node", next_node_++); }

  void Register(Daemon* daemon) {
    v1::RegisterNode request;
    request.set_node_id(daemon->node_id);
    request.set_hostname("host");
    *request.mutable_total() = daemon->total;
    std::set<Incarnation> live;
    for (const auto& [who, process] : daemon->processes) {
      v1::LiveActor* entry = request.add_live_actors();
      entry->set_actor_id(who.first);
      entry->set_incarnation(who.second);
      live.insert(who);
    }
    daemon->commands.clear();
    auto link = std::make_shared<Daemon::Link>(daemon, &ledger_);
    ledger_.KeepOnly(daemon->node_id, live);
    const absl::Status status = state_.RegisterNode(request, link);
    if (status.ok()) {
      daemon->link = std::move(link);
      return;
    }
    ASSERT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
    daemon->processes.clear();
    daemon->messages.clear();
    daemon->node_id = NewNodeId();
    Register(daemon);
  }

  void Deliver(Daemon* daemon) {
    if (daemon->frozen || daemon->link == nullptr || daemon->commands.empty()) {
      return;
    }
    const v1::NodeCommand command = std::move(daemon->commands.front());
    daemon->commands.pop_front();
    if (command.has_start_actor()) {
      const v1::StartActor& start = command.start_actor();
      EXPECT_TRUE(daemon->processes
                      .emplace(Incarnation(start.spec().actor_id(),
                                           start.incarnation()),
                               Daemon::Process())
                      .second);
    } else if (command.has_stop_actor()) {
      const auto it =
          daemon->processes.find({command.stop_actor().actor_id(),
                                  command.stop_actor().incarnation()});
      if (it != daemon->processes.end()) it->second.stopping = true;
    }
  }

  // A process gets ready, or ends.
  void Live(Daemon* daemon) {
    if (daemon->frozen || daemon->processes.empty()) return;
    auto it = daemon->processes.begin();
    std::advance(it, static_cast<ptrdiff_t>(Below(daemon->processes.size())));
    v1::NodeMessage message;
    if (!it->second.ready && !it->second.stopping && !Chance(4)) {
      it->second.ready = true;
      message.mutable_actor_started()->set_actor_id(it->first.first);
      message.mutable_actor_started()->set_incarnation(it->first.second);
      message.mutable_actor_started()->set_address("10.0.0.1:1");
    } else if (it->second.stopping || Chance(3)) {
      message.mutable_actor_exited()->set_actor_id(it->first.first);
      message.mutable_actor_exited()->set_incarnation(it->first.second);
      message.mutable_actor_exited()->set_cause("ended");
      message.mutable_actor_exited()->set_may_restart(!Chance(5));
      daemon->processes.erase(it);
    } else {
      return;
    }
    daemon->messages.push_back(std::move(message));
  }

  void Hear(Daemon* daemon) {
    if (daemon->link == nullptr || daemon->messages.empty()) return;
    const v1::NodeMessage message = std::move(daemon->messages.front());
    daemon->messages.pop_front();
    if (message.has_actor_started()) {
      state_.ActorStarted(daemon->node_id, message.actor_started());
    } else {
      const v1::ActorExited& exited = message.actor_exited();
      ledger_.Return(daemon->node_id,
                     {exited.actor_id(), exited.incarnation()});
      state_.ActorExited(daemon->node_id, exited);
    }
  }

  // The stream breaks: what is on its way to the node is lost, what is on its
  // way to the head may be.
  void Break(Daemon* daemon) {
    if (daemon->link == nullptr) return;
    daemon->commands.clear();
    if (Chance(2)) daemon->messages.clear();
    if (!Chance(3)) {
      state_.NodeDisconnected(daemon->node_id, daemon->link.get());
    }  // Otherwise the head notices only when the node is back.
    daemon->link = nullptr;
  }

  void Leave(size_t i) {
    if (daemons_[i]->link == nullptr || daemons_[i]->frozen) return;
    state_.NodeLeft(daemons_[i]->node_id);
    daemons_.erase(daemons_.begin() + static_cast<ptrdiff_t>(i));
  }

  void PassTime() {
    for (auto& daemon : daemons_) {
      if (!daemon->frozen) state_.RenewLease(daemon->node_id).IgnoreError();
    }
    Advance(absl::Milliseconds(Below(4000)));
  }

  void CreateSome() {
    v1::ActorSpec spec;
    spec.set_actor_id(absl::StrCat("actor", next_actor_++));
    spec.set_class_name("C");
    spec.set_package_id("p");
    if (Chance(2)) spec.set_name(absl::StrCat("name", Below(5)));
    if (Chance(2)) spec.set_actor_namespace("space");
    spec.set_job_id(absl::StrCat("job", Below(3)));
    spec.set_detached(Chance(3));
    spec.set_max_restarts(static_cast<int>(Below(4)) - 1);
    auto& quantity = *spec.mutable_resources()->mutable_quantity();
    quantity["CPU"] = static_cast<double>(Below(12)) / 10;
    if (Chance(5)) quantity["GPU"] = static_cast<double>(Below(3)) / 2;
    if (Chance(40)) quantity["CPU"] = 1000;
    if (Chance(4) && next_group_ > 0) {
      spec.set_placement_group_id(absl::StrCat("group", Below(next_group_)));
      if (Chance(2)) spec.set_bundle_index(static_cast<int>(Below(3)));
    }
    if (state_.CreateActor(spec).ok()) actors_.push_back(spec.actor_id());
  }

  void CreateGroup() {
    v1::PlacementGroupSpec spec;
    spec.set_placement_group_id(absl::StrCat("group", next_group_++));
    spec.set_job_id(absl::StrCat("job", Below(3)));
    spec.set_detached(Chance(3));
    spec.set_strategy(static_cast<v1::PlacementStrategy>(1 + Below(4)));
    const size_t bundles = 1 + Below(3);
    for (size_t i = 0; i < bundles; ++i) {
      (*spec.add_bundles()->mutable_quantity())["CPU"] =
          static_cast<double>(Below(12)) / 10;
    }
    state_.CreatePlacementGroup(spec, [](const auto&) {});
  }

  void RemoveGroup(size_t i) {
    state_.RemovePlacementGroup(absl::StrCat("group", i), [](auto) {});
  }

  // The head is killed: what it has written is all that stays, and every stream
  // is broken.
  void RestartHead() {
    for (auto& daemon : daemons_) {
      daemon->commands.clear();
      if (Chance(2)) daemon->messages.clear();
      daemon->link = nullptr;
    }
    sessions_.clear();
    store_.reset();
    auto store = StateStore::Open(folder_.path());
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
    RestartWith(store_.get());
    ASSERT_THAT(state_.Restore(), IsOk());
  }

  void Driver() {
    const std::string job = absl::StrCat("job", Below(3));
    const auto session = sessions_.find(job);
    if (session == sessions_.end()) {
      v1::RegisterDriver request;
      request.set_job_id(job);
      request.set_session_id(absl::StrCat("session", next_session_++));
      const ClusterState::Session address =
          reinterpret_cast<ClusterState::Session>(++next_session_);
      if (state_.RegisterDriver(request, address).ok())
        sessions_[job] = address;
    } else {
      if (Chance(2)) {
        state_.DriverLeft(job, session->second);
      } else {
        state_.DriverDisconnected(job, session->second);
      }
      sessions_.erase(session);
    }
  }

  void KillSome() {
    if (actors_.empty()) return;
    EXPECT_THAT(state_.KillActor(actors_[Below(actors_.size())], Chance(2)),
                IsOk());
  }

  void Step() {
    Daemon* daemon =
        daemons_.empty() ? nullptr : daemons_[Below(daemons_.size())].get();
    const size_t what = Below(100);
    if (daemon == nullptr || what < 4) return AddDaemon();
    if (what == 4) return CreateGroup();
    if (what == 5 && next_group_ > 0) return RemoveGroup(Below(next_group_));
    if (what == 6 && store_ != nullptr && Chance(2)) return RestartHead();
    if (what < 22) return CreateSome();
    if (what < 30) return KillSome();
    if (what < 33) return Driver();
    if (what < 36) return Break(daemon);
    if (what < 41) {
      if (daemon->link == nullptr) Register(daemon);
      return;
    }
    if (what < 43) return PassTime();
    if (what == 43) return Leave(Below(daemons_.size()));
    if (what == 44) {
      daemon->frozen = !daemon->frozen;
      return;
    }
    if (what < 60) return Deliver(daemon);
    if (what < 84) return Live(daemon);
    return Hear(daemon);
  }

  // --- What must hold.

  void Check() {
    const v1::GetClusterStateResponse snapshot = state_.Snapshot();
    // By node: what bundles there keep for actors to come.
    std::map<std::string, Units> kept;
    bool groups_wait = false;
    for (const auto& group : snapshot.placement_groups()) {
      groups_wait = groups_wait ||
                    group.state() == v1::PLACEMENT_GROUP_STATE_PENDING ||
                    group.state() == v1::PLACEMENT_GROUP_STATE_RESCHEDULING;
      CheckGroup(group, &kept);
      if (HasFatalFailure()) return;
    }
    std::map<std::string, const v1::NodeInfo*> nodes;
    std::vector<Room> room;
    for (const v1::NodeInfo& node : snapshot.nodes()) {
      nodes[node.node_id()] = &node;
      if (node.state() == v1::NODE_STATE_DEAD) {
        ledger_.KeepOnly(node.node_id(), {});
      }
      const Units available = ToUnits(node.available());
      Units sum = ledger_.Held(node.node_id());
      for (const auto& [name, units] : kept[node.node_id()]) sum[name] += units;
      for (const auto& [name, units] : available) {
        ASSERT_GE(units, 0) << node.node_id() << " " << name;
        sum[name] += units;
      }
      std::erase_if(sum, [](const auto& item) { return item.second == 0; });
      ASSERT_EQ(sum, ToUnits(node.total())) << node.node_id();
      if (node.state() == v1::NODE_STATE_DEAD) continue;
      const std::map<int, int64_t> gpus = FreeGpus(node, snapshot);
      int64_t free_gpus = 0;
      for (const auto& [device, units] : gpus) {
        ASSERT_GE(units, 0) << node.node_id() << " GPU " << device;
        free_gpus += units;
      }
      const auto gpu = available.find("GPU");
      ASSERT_EQ(free_gpus, gpu == available.end() ? 0 : gpu->second)
          << node.node_id();
      // It may be held for a group.
      if (node.state() == v1::NODE_STATE_ALIVE && !groups_wait) {
        room.push_back({available, gpus});
      }
    }
    std::map<std::pair<std::string, std::string>, std::string> names;
    for (const v1::ActorInfo& actor : snapshot.actors()) {
      CheckActor(actor, nodes, room);
      if (actor.state() == v1::ACTOR_STATE_DEAD || actor.name().empty()) {
        continue;
      }
      ASSERT_TRUE(
          names
              .emplace(std::make_pair(actor.actor_namespace(), actor.name()),
                       actor.actor_id())
              .second)
          << "two living actors have the name " << actor.name();
    }
    for (const char* space : {"", "space"}) {
      for (int i = 0; i < 5; ++i) {
        const std::string name = absl::StrCat("name", i);
        const auto found = FindByName(name, space);
        const auto expected = names.find({space, name});
        ASSERT_EQ(found.ok(), expected != names.end()) << name;
        if (found.ok()) {
          ASSERT_EQ(found->actor_id(), expected->second);
        }
      }
    }
  }

  // Of each of the node's GPUs, what neither an actor nor a bundle has.
  static std::map<int, int64_t> FreeGpus(
      const v1::NodeInfo& node, const v1::GetClusterStateResponse& snapshot) {
    std::map<int, int64_t> free;
    const auto total = ToUnits(node.total());
    const auto gpus = total.find("GPU");
    for (int i = 0; gpus != total.end() && i < gpus->second / kOne; ++i) {
      free[i] = kOne;
    }
    auto take = [&](const auto& devices, const v1::Resources& resources) {
      const Units units = ToUnits(resources);
      const auto it = units.find("GPU");
      ASSERT_TRUE(devices.empty() || it != units.end());
      for (const int device : devices) {
        ASSERT_TRUE(free.contains(device));
        free[device] -= std::min(it->second, kOne);
      }
    };
    std::set<std::string> live_groups;
    for (const auto& group : snapshot.placement_groups()) {
      if (group.state() == v1::PLACEMENT_GROUP_STATE_REMOVED) continue;
      live_groups.insert(group.placement_group_id());
      for (const v1::BundleInfo& bundle : group.bundles()) {
        if (bundle.node_id() == node.node_id()) {
          take(bundle.gpus(), bundle.total());
        }
      }
    }
    for (const v1::ActorInfo& actor : snapshot.actors()) {
      // Those in groups take from their bundles.
      if (actor.node_id() == node.node_id() &&
          !live_groups.contains(actor.placement_group_id())) {
        take(actor.gpus(), actor.resources());
      }
    }
    return free;
  }

  void CheckGroup(const v1::PlacementGroupInfo& group,
                  std::map<std::string, Units>* kept) {
    SCOPED_TRACE(group.placement_group_id());
    std::set<std::string> nodes;
    int placed = 0;
    for (const v1::BundleInfo& bundle : group.bundles()) {
      if (bundle.node_id().empty()) continue;
      ++placed;
      nodes.insert(bundle.node_id());
      for (const auto& [name, units] : ToUnits(bundle.available())) {
        ASSERT_GE(units, 0);
        (*kept)[bundle.node_id()][name] += units;
      }
    }
    switch (group.state()) {
      case v1::PLACEMENT_GROUP_STATE_CREATED:
        ASSERT_EQ(placed, group.bundles_size());
        break;
      case v1::PLACEMENT_GROUP_STATE_RESCHEDULING:
        ASSERT_LT(placed, group.bundles_size());
        break;
      default:
        ASSERT_EQ(placed, 0);  // All or none.
    }
    if (group.strategy() == v1::PLACEMENT_STRATEGY_STRICT_PACK) {
      ASSERT_LE(nodes.size(), 1);
    }
    if (group.strategy() == v1::PLACEMENT_STRATEGY_STRICT_SPREAD) {
      ASSERT_EQ(nodes.size(), placed);
    }
  }

  void CheckActor(const v1::ActorInfo& actor,
                  const std::map<std::string, const v1::NodeInfo*>& nodes,
                  const std::vector<Room>& room) {
    SCOPED_TRACE(actor.actor_id());
    v1::ActorInfo& last = seen_[actor.actor_id()];
    ASSERT_GE(actor.version(), last.version());
    if (last.state() == v1::ACTOR_STATE_DEAD) {
      ASSERT_EQ(actor.version(), last.version());
    }
    last = actor;
    if (actor.max_restarts() >= 0) {
      ASSERT_LE(actor.restarts(), actor.max_restarts());
    }
    const bool waits = actor.state() == v1::ACTOR_STATE_PENDING ||
                       (actor.state() == v1::ACTOR_STATE_RESTARTING &&
                        actor.node_id().empty());
    const bool put_off =
        actor.cause().find("is started again in") != std::string::npos;
    if (waits && !put_off && actor.placement_group_id().empty()) {
      // Nobody waits while there is room.
      for (const Room& node : room) {
        bool fits = true;
        for (const auto& [name, units] : ToUnits(actor.resources())) {
          const auto it = node.available.find(name);
          fits = fits && it != node.available.end() && it->second >= units;
          // A share, or the whole, of one device.
          if (name != "GPU") continue;
          ASSERT_LE(units, kOne);
          fits = fits && std::any_of(node.gpus.begin(), node.gpus.end(),
                                     [units = units](const auto& gpu) {
                                       return gpu.second >= units;
                                     });
        }
        ASSERT_FALSE(fits);
      }
    } else if (!waits && actor.state() != v1::ACTOR_STATE_DEAD) {
      const auto node = nodes.find(actor.node_id());
      ASSERT_TRUE(node != nodes.end());
      ASSERT_NE(node->second->state(), v1::NODE_STATE_DEAD);
    }
    ASSERT_EQ(!actor.address().empty(), actor.state() == v1::ACTOR_STATE_ALIVE);
  }

  // Everybody comes back, all actors are killed, all messages arrive.
  void WindUp() {
    for (auto& daemon : daemons_) daemon->frozen = false;
    for (size_t i = 0; i < next_group_; ++i) RemoveGroup(i);
    for (const std::string& actor : actors_) {
      ASSERT_THAT(state_.KillActor(actor, true), IsOk());
    }
    for (auto& daemon : daemons_) Register(daemon.get());
    for (int round = 0; round < 1000; ++round) {
      for (auto& daemon : daemons_) {
        Deliver(daemon.get());
        Live(daemon.get());
        Hear(daemon.get());
      }
    }
    Check();
    for (const auto& daemon : daemons_) {
      EXPECT_TRUE(daemon->processes.empty()) << daemon->node_id;
      EXPECT_TRUE(ledger_.Held(daemon->node_id).empty()) << daemon->node_id;
    }
    const v1::GetClusterStateResponse snapshot = state_.Snapshot();
    for (const auto& actor : snapshot.actors()) {
      EXPECT_EQ(actor.state(), v1::ACTOR_STATE_DEAD);
    }
  }

  std::mt19937_64 random_{GetParam()};
  Ledger ledger_;
  std::vector<std::unique_ptr<Daemon>> daemons_;
  std::vector<std::string> actors_;
  std::map<std::string, ClusterState::Session> sessions_;
  std::map<std::string, v1::ActorInfo> seen_;
  int next_node_ = 0;
  int next_actor_ = 0;
  size_t next_group_ = 0;
  TempFolder folder_;
  std::unique_ptr<StateStore> store_;  // Null: the head is never killed.
  uintptr_t next_session_ = 0;
};

TEST_P(ClusterModelTest, TablesStayConsistent) {
  for (int step = 0; step < 1200; ++step) {
    SCOPED_TRACE(absl::StrCat("step ", step));
    Step();
    Check();
    if (HasFatalFailure()) return;
  }
  WindUp();
}

TEST_P(ClusterModelTest, TheySurviveTheHead) {
  RestartHead();
  for (int step = 0; step < 600; ++step) {
    SCOPED_TRACE(absl::StrCat("step ", step));
    Step();
    Check();
    if (HasFatalFailure()) return;
  }
  WindUp();
}

INSTANTIATE_TEST_SUITE_P(Seeds, ClusterModelTest,
                         ::testing::Range<uint64_t>(1, 13));

}  // namespace
}  // namespace miniray
