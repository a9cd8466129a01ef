// What a head finds again after it was killed, and what happens while nothing
// can be written.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/head/state_store.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Passes on to a real one, or fails.
class FlakyStore : public StateStore {
 public:
  explicit FlakyStore(std::unique_ptr<StateStore> store)
      : store_(std::move(store)) {}

  absl::Status Write(const std::vector<Change>& changes) override {
    ++writes;
    for (const Change& change : changes) {
      if (change.row.has_value()) bytes += change.row->size();
    }
    if (before_write) before_write();
    if (full) {
      return absl::ResourceExhaustedError("the head cannot write /state");
    }
    return store_->Write(changes);
  }
  absl::Status Read(
      Table table,
      const std::function<absl::Status(int64_t, absl::string_view)>& row)
      override {
    return store_->Read(table, row);
  }
  const std::string& path() const override { return store_->path(); }

  bool full = false;
  int writes = 0;
  size_t bytes = 0;
  std::function<void()> before_write;

 private:
  const std::unique_ptr<StateStore> store_;
};

class PersistenceTest : public ClusterStateTest {
 protected:
  void SetUp() override { Restart(); }

  // As if the head had been killed and started again.
  void Restart() {
    store_.reset();
    auto store = StateStore::Open(folder_.path());
    ASSERT_THAT(store, IsOk());
    store_ = std::make_unique<FlakyStore>(*std::move(store));
    RestartWith(store_.get());
    ASSERT_THAT(state_.Restore(), IsOk());
  }

  TempFolder folder_;
  std::unique_ptr<FlakyStore> store_;
};

TEST_F(PersistenceTest, ActorsNamesAndNodesComeBack) {
  AddNode("n", 4);
  v1::ActorSpec spec = Spec("a", 2);
  spec.set_name("name");
  spec.set_max_restarts(3);
  spec.add_constructor_args()->set_int_value(7);
  Create(spec);
  Started("n", "a");
  Exited("n", "a");
  Started("n", "a", 1);
  Create("waits", 5);
  const v1::ActorInfo before = Info("a");

  Restart();
  const v1::ActorInfo after = Info("a");
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
  EXPECT_EQ(after.state(), v1::ACTOR_STATE_ALIVE);
  EXPECT_EQ(FindByName("name")->actor_id(), "a");
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DISCONNECTED);
  EXPECT_EQ(Available("n"), 2);
  EXPECT_EQ(StateOf("waits"), v1::ACTOR_STATE_PENDING);

  auto link = AddNode("n", 4, {{"a", 1}});
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_ALIVE);
  EXPECT_THAT(link->Take(), ElementsAre("registered"));
  // It restarts with the arguments that it was created with.
  Exited("n", "a", 1);
  ASSERT_EQ(link->sent.size(), 1);
  EXPECT_EQ(link->sent[0].start_actor().incarnation(), 2);
  EXPECT_EQ(link->sent[0].start_actor().spec().constructor_args(0).int_value(),
            7);
}

// Its driver wants to see what it prints, and has not said so to this head yet.
TEST_F(PersistenceTest, AnActorThatRestartsBeforeItsDriverIsBackIsStillHeard) {
  AddNode("n", 4);
  Attach("j");
  v1::ActorSpec spec = Spec("a");
  spec.set_job_id("j");
  spec.set_max_restarts(1);
  Create(spec);
  Started("n", "a");
  Restart();
  const auto link = AddNode("n", 4, {{"a", 0}});
  Exited("n", "a");
  ASSERT_TRUE(link->sent.back().has_start_actor());
  EXPECT_TRUE(link->sent.back().start_actor().stream_output());
}

TEST_F(PersistenceTest, AnOrderThatGotLostIsGivenAgain) {
  AddNode("n", 4);
  Create("a");
  Restart();  // Before the daemon heard of it.
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_STARTING);
  auto link = AddNode("n", 4);
  EXPECT_THAT(link->Take(), ElementsAre("registered", "start a.0"));
  EXPECT_EQ(Available("n"), 3);
}

TEST_F(PersistenceTest, AnActorThatCameUpMeanwhileIsAlive) {
  AddNode("n", 4);
  Create("a");
  Restart();
  v1::RegisterNode request = Registration("n", 4, {{"a", 0}});
  request.mutable_live_actors(0)->set_address("10.0.0.1:5001");
  request.mutable_live_actors(0)->set_pid(77);
  ASSERT_THAT(state_.RegisterNode(request, std::make_shared<FakeLink>()),
              IsOk());
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  EXPECT_EQ(Info("a").address(), "10.0.0.1:5001");
  EXPECT_EQ(Info("a").pid(), 77);
}

TEST_F(PersistenceTest, AnActorThatEndedMeanwhileIsDead) {
  AddNode("n", 4);
  Create("a");
  Started("n", "a");
  Restart();
  AddNode("n", 4);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(PersistenceTest, AStopThatGotLostIsGivenAgain) {
  AddNode("n", 4);
  Create("a");
  Started("n", "a");
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  Restart();
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Available("n"), 3);
  auto link = AddNode("n", 4, {{"a", 0}});
  EXPECT_THAT(link->StopReasons(), ElementsAre("killed by request (Kill)"));
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(PersistenceTest, NodesAndDriversHaveALeaseToComeBack) {
  AddNode("n", 4);
  Attach("job");
  Create("a");
  Started("n", "a");
  Restart();
  Advance(kLease / 2);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_RUNNING);
  Advance(kLease / 2);
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
}

TEST_F(PersistenceTest, ADriverComesBackToItsJob) {
  Attach("job", "session");
  Restart();
  Attach("job", "session");
  Advance(kLease * 2);
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_RUNNING);
  v1::RegisterDriver other;
  other.set_job_id("job");
  other.set_session_id("other");
  EXPECT_THAT(state_.RegisterDriver(other, this),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(PersistenceTest, TheQueueKeepsItsOrder) {
  // Created in another order than that of their ids.
  for (const std::string actor : {"c", "a", "b"}) Create(actor, 2);
  Restart();
  AddNode("n", 2);
  EXPECT_EQ(StateOf("c"), v1::ACTOR_STATE_STARTING);
  Exited("n", "c");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_STARTING);
}

TEST_F(PersistenceTest, PlacementGroupsKeepWhatTheyReserved) {
  AddNode("a", 2);
  AddNode("b", 2);
  v1::PlacementGroupSpec spec;
  spec.set_placement_group_id("g");
  spec.set_strategy(v1::PLACEMENT_STRATEGY_STRICT_SPREAD);
  for (int i = 0; i < 2; ++i) {
    (*spec.add_bundles()->mutable_quantity())["CPU"] = 1.5;
  }
  state_.CreatePlacementGroup(spec, [](auto info) {
    EXPECT_EQ(info->state(), v1::PLACEMENT_GROUP_STATE_CREATED);
  });
  v1::ActorSpec actor = Spec("x", 1);
  actor.set_placement_group_id("g");
  Create(actor);
  const std::string node = Info("x").node_id();
  Started(node, "x");
  const auto before = state_.Snapshot().placement_groups(0);
  Restart();
  EXPECT_EQ(state_.Snapshot().placement_groups(0).SerializeAsString(),
            before.SerializeAsString());
  EXPECT_EQ(Available("a"), 0.5);
  EXPECT_EQ(Available("b"), 0.5);
  AddNode(node, 2, {{"x", 0}});
  state_.RemovePlacementGroup("g",
                              [](auto status) { EXPECT_THAT(status, IsOk()); });
  EXPECT_EQ(Available(node), 1);
  Exited(node, "x");
  EXPECT_EQ(Available(node), 2);
}

TEST_F(PersistenceTest, SubmittedJobsComeBack) {
  auto link = AddNode("n", 4);
  link->Take();
  v1::JobSpec spec;
  spec.set_job_id("submitted");
  spec.add_command("trainer");
  spec.set_package_id("package");
  (*spec.mutable_resources()->mutable_quantity())["CPU"] = 3;
  v1::JobSpec second = spec;
  second.set_job_id("waiting");
  for (const v1::JobSpec& job : {spec, second}) {
    state_.SubmitJob(job, [](auto info) { EXPECT_THAT(info, IsOk()); });
  }
  v1::JobStarted started;
  started.set_job_id("submitted");
  started.set_pid(5);
  state_.JobStarted("n", started);
  Restart();
  EXPECT_EQ(Job("submitted").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job("submitted").pid(), 5);
  EXPECT_EQ(Job("waiting").state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Available("n"), 1);
  v1::RegisterNode request = Registration("n", 4);
  request.add_live_jobs("submitted");
  auto again = std::make_shared<FakeLink>();
  ASSERT_THAT(state_.RegisterNode(request, again), IsOk());
  v1::JobExited exited;
  exited.set_job_id("submitted");
  state_.JobExited("n", exited);
  EXPECT_EQ(Job("submitted").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(again->sent.back().start_job().spec().job_id(), "waiting");
}

TEST_F(PersistenceTest, OldRecordsLeaveTheDatabaseToo) {
  auto link = AddNode("n", 4);
  Create("a");
  Started("n", "a");
  Exited("n", "a");
  Restart();
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(), HasSubstr("exited with code 3"));
  EXPECT_EQ(Info("a").class_name(), "shop::Counter");
}

// --- What leaves the head, and when.

TEST_F(PersistenceTest, NothingLeavesBeforeItIsWritten) {
  auto link = AddNode("n", 4);
  link->Take();
  bool answered = false;
  store_->before_write = [&] {
    EXPECT_FALSE(answered);
    EXPECT_THAT(link->sent, IsEmpty());
  };
  state_.ClusterState::CreateActor(Spec("a"), [&](auto info) {
    EXPECT_THAT(info, IsOk());
    answered = true;
  });
  EXPECT_TRUE(answered);
  EXPECT_THAT(link->Take(), ElementsAre("start a.0"));
  store_->before_write = nullptr;
}

TEST_F(PersistenceTest, LargeArgumentsAreWrittenOnce) {
  AddNode("n", 4);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(-1);
  spec.add_constructor_args()->set_bytes_value(std::string(1 << 20, 'x'));
  Create(spec);
  const size_t created = store_->bytes;
  EXPECT_GT(created, size_t{1} << 20);
  for (int i = 0; i < 20; ++i) {
    Started("n", "a", i);
    Exited("n", "a", i);
  }
  EXPECT_LT(store_->bytes - created, size_t{1} << 16);
}

TEST_F(PersistenceTest, WithAFullDiskNothingIsCreated) {
  auto link = AddNode("n", 4);
  link->Take();
  store_->full = true;
  v1::ActorSpec spec = Spec("a");
  spec.set_name("name");
  EXPECT_THAT(
      state_.CreateActor(spec),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("/state")));
  v1::PlacementGroupSpec group;
  group.set_placement_group_id("g");
  group.set_strategy(v1::PLACEMENT_STRATEGY_PACK);
  (*group.add_bundles()->mutable_quantity())["CPU"] = 1;
  state_.CreatePlacementGroup(group, [](auto info) {
    EXPECT_THAT(info, StatusIs(absl::StatusCode::kResourceExhausted));
  });
  v1::JobSpec job;
  job.set_job_id("submitted");
  job.add_command("trainer");
  job.set_package_id("package");
  state_.SubmitJob(job, [](auto info) {
    EXPECT_THAT(info, StatusIs(absl::StatusCode::kResourceExhausted));
  });
  // No trace is left.
  EXPECT_THAT(link->sent, IsEmpty());
  EXPECT_EQ(Available("n"), 4);
  EXPECT_EQ(state_.Snapshot().actors_size(), 0);
  EXPECT_EQ(state_.Snapshot().placement_groups_size(), 0);
  EXPECT_EQ(state_.Snapshot().jobs_size(), 0);
  EXPECT_THAT(FindByName("name"), StatusIs(absl::StatusCode::kNotFound));

  store_->full = false;
  EXPECT_THAT(state_.CreateActor(spec), IsOk());
  EXPECT_THAT(link->Take(), ElementsAre("start a.0"));
}

TEST_F(PersistenceTest, WithAFullDiskTheRestGoesOnAndIsWrittenLater) {
  auto link = AddNode("n", 4);
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(1);
  Create(spec);
  link->Take();
  store_->full = true;
  Started("n", "a");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  Exited("n", "a");
  EXPECT_THAT(link->Take(), ElementsAre("start a.1"));
  // Not tried again with every change.
  const int writes = store_->writes;
  Started("n", "a", 1);
  EXPECT_EQ(store_->writes, writes);
  store_->full = false;
  Advance(absl::Seconds(1));
  EXPECT_GT(store_->writes, writes);
  Restart();
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  EXPECT_EQ(Info("a").restarts(), 1);
}

TEST_F(PersistenceTest, RowsThatMakeNoSenseAreAnErrorThatNamesTheFile) {
  ASSERT_THAT(store_->Write({{StateStore::Table::kActors, 1, "\xff\xff"}}),
              IsOk());
  RestartWith(store_.get());
  EXPECT_THAT(state_.Restore(), StatusIs(absl::StatusCode::kDataLoss,
                                         AllOf(HasSubstr(folder_ / "head.db"),
                                               HasSubstr("move it away"))));
}

}  // namespace
}  // namespace miniray
