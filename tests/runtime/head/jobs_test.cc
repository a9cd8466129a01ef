// Drivers and their jobs, and waiting for changes of an actor's record.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/version.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class JobsTest : public ClusterStateTest {
 protected:
  // Creates an actor of `job`.
  void CreateIn(const std::string& job, const std::string& actor,
                bool detached = false) {
    v1::ActorSpec spec = Spec(actor);
    spec.set_job_id(job);
    spec.set_detached(detached);
    Create(spec);
  }
  absl::Status TryRegister(const std::string& job, const std::string& session) {
    v1::RegisterDriver request;
    request.set_job_id(job);
    request.set_session_id(session);
    return state_.RegisterDriver(request, this);
  }

  // Of whose ends the node was told.
  static std::vector<std::string> EndedJobs(const FakeLink& link) {
    std::vector<std::string> ids;
    for (const v1::NodeCommand& command : link.sent) {
      if (command.has_job_ended()) ids.push_back(command.job_ended().job_id());
    }
    return ids;
  }

  std::shared_ptr<FakeLink> link_ = AddNode("n", 10);
};

TEST_F(JobsTest, ADriversRecord) {
  Attach("job");
  const v1::JobInfo job = Job("job");
  EXPECT_EQ(job.program(), "driver");
  EXPECT_EQ(job.hostname(), "host");
  EXPECT_EQ(job.pid(), 7);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.start_unix_ms(), absl::ToUnixMillis(now_));
  EXPECT_EQ(job.end_unix_ms(), 0);
}

TEST_F(JobsTest, WhoAsksIsToldOnceThatAJobHasEnded) {
  std::vector<std::string> ended;
  ClusterState::Options options;
  options.job_ended = [&](const std::string& id) { ended.push_back(id); };
  ClusterState state(options);
  for (const char* job : {"a", "b"}) {
    v1::RegisterDriver request;
    request.set_job_id(job);
    request.set_session_id("session");
    ASSERT_THAT(state.RegisterDriver(request, this), IsOk());
  }
  EXPECT_THAT(ended, IsEmpty());
  state.DriverLeft("a", this);
  state.DriverLeft("a", this);
  EXPECT_THAT(ended, ElementsAre("a"));
  absl::Status stopped = absl::UnknownError("no answer");
  state.StopJob("b", [&](const absl::Status& status) { stopped = status; });
  EXPECT_THAT(stopped, IsOk());
  EXPECT_THAT(ended, ElementsAre("a", "b"));
}

TEST_F(JobsTest, AGoodbyeEndsTheJobsActors) {
  const auto driver = Attach("job");
  CreateIn("job", "a");
  CreateIn("job", "detached", true);
  CreateIn("other", "b");
  CreateIn("job", "big");
  link_->Take();
  now_ += absl::Seconds(5);
  state_.DriverLeft("job", driver);
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Job("job").end_unix_ms(), absl::ToUnixMillis(now_));
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Info("a").cause(), "its driver has ended");
  EXPECT_EQ(StateOf("detached"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_STARTING);
  EXPECT_THAT(link_->Take(), UnorderedElementsAre("stop a.0", "stop big.0"));
}

TEST_F(JobsTest, ActorsThatWaitForRoomEndToo) {
  const auto driver = Attach("job");
  CreateIn("job", "a");
  v1::ActorSpec large = Spec("large", 10);
  Create(large);
  state_.DriverLeft("job", driver);
  EXPECT_EQ(StateOf("large"), v1::ACTOR_STATE_DEAD);
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 10);
}

TEST_F(JobsTest, ALostDriverHasAGrace) {
  const auto driver = Attach("job");
  CreateIn("job", "a");
  CreateIn("job", "detached", true);
  state_.DriverDisconnected("job", driver);
  Advance(kGrace - absl::Milliseconds(1));
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_STARTING);
  Advance(absl::Milliseconds(1));
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Info("a").cause(), "its driver vanished");
  EXPECT_EQ(StateOf("detached"), v1::ACTOR_STATE_STARTING);
}

TEST_F(JobsTest, ADriverThatReturnsInTimeKeepsItsActors) {
  const auto first = Attach("job");
  CreateIn("job", "a");
  state_.DriverDisconnected("job", first);
  Advance(kGrace / 2);
  const auto second = Attach("job");
  EXPECT_EQ(Job("job").start_unix_ms(), absl::ToUnixMillis(now_ - kGrace / 2));
  Advance(kGrace * 2);
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_STARTING);
  // The first stream's end, told late, is not the second's.
  state_.DriverDisconnected("job", first);
  state_.DriverLeft("job", first);
  Advance(kGrace * 2);
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_RUNNING);
  state_.DriverLeft("job", second);
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobsTest, AfterTheGoodbyeTheEndOfTheStreamIsNoFailure) {
  const auto driver = Attach("job");
  state_.DriverLeft("job", driver);
  state_.DriverDisconnected("job", driver);
  Advance(kGrace * 2);
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobsTest, AnotherDriverMayNotTakeARunningJob) {
  Attach("job", "session-1");
  EXPECT_THAT(TryRegister("job", "session-2"),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("'job'"), HasSubstr("pid 7 on host"),
                             HasSubstr("another job id"))));
  EXPECT_EQ(Job("job").program(), "driver");
}

TEST_F(JobsTest, NorOneWhoseDriverMayStillReturn) {
  const auto driver = Attach("job", "session-1");
  state_.DriverDisconnected("job", driver);
  EXPECT_THAT(TryRegister("job", "session-2"),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(JobsTest, TheIdOfAnEndedJobMayBeUsedAgain) {
  const auto first = Attach("job", "session-1");
  CreateIn("job", "a");
  state_.DriverLeft("job", first);
  const auto second = Attach("job", "session-2");
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job("job").end_unix_ms(), 0);
  CreateIn("job", "b");
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_STARTING);
  state_.DriverDisconnected("job", first);
  Advance(kGrace * 2);
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_STARTING);
  state_.DriverLeft("job", second);
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_DEAD);
}

TEST_F(JobsTest, AnEndedJobGetsNoActors) {
  const auto driver = Attach("job");
  state_.DriverDisconnected("job", driver);
  Advance(kGrace);
  EXPECT_THAT(state_.CreateActor(Spec("a")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("job job has ended")));
  // Not even if its driver comes back too late, which is told so.
  EXPECT_THAT(TryRegister("job", "s"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("job job has ended: its driver "
                                       "vanished"),
                             HasSubstr("start the program again"))));
  EXPECT_EQ(Job("job").state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(state_.CreateActor(Spec("a")),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(JobsTest, WhatADetachedActorCreatesEndsWithIt) {
  const auto driver = Attach("job");
  CreateIn("job", "keeper", true);
  CreateIn("keeper", "child");
  CreateIn("keeper", "detached", true);
  v1::PlacementGroupSpec group;
  group.set_placement_group_id("group");
  group.set_job_id("keeper");
  group.set_strategy(v1::PLACEMENT_STRATEGY_PACK);
  (*group.add_bundles()->mutable_quantity())["CPU"] = 1;
  ASSERT_THAT(state_.CreatePlacementGroup(group), IsOk());
  state_.DriverLeft("job", driver);
  CreateIn("keeper", "late child");
  for (const char* actor : {"keeper", "child", "detached", "late child"}) {
    EXPECT_EQ(StateOf(actor), v1::ACTOR_STATE_STARTING) << actor;
  }
  link_->sent.clear();
  ASSERT_THAT(state_.KillActor("keeper", true), IsOk());
  for (const char* actor : {"child", "late child"}) {
    EXPECT_EQ(StateOf(actor), v1::ACTOR_STATE_DEAD) << actor;
    EXPECT_EQ(Info(actor).cause(),
              "the detached actor that created it has ended: killed by request "
              "(Kill)");
  }
  EXPECT_EQ(StateOf("detached"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(Group("group").state(), v1::PLACEMENT_GROUP_STATE_REMOVED);
  EXPECT_EQ(EndedJobs(*link_), std::vector<std::string>{"keeper"});
  v1::ActorSpec orphan = Spec("orphan");
  orphan.set_job_id("keeper");
  EXPECT_THAT(state_.CreateActor(orphan),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the detached actor keeper")));
  group.set_placement_group_id("orphan group");
  EXPECT_THAT(state_.CreatePlacementGroup(group),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(JobsTest, ADetachedActorsRestartEndsNothing) {
  v1::ActorSpec spec = Spec("keeper");
  spec.set_detached(true);
  spec.set_max_restarts(1);
  Create(spec);
  CreateIn("keeper", "child");
  Exited("n", "keeper");
  EXPECT_EQ(StateOf("child"), v1::ACTOR_STATE_STARTING);
  Exited("n", "keeper", 1);
  EXPECT_EQ(StateOf("child"), v1::ACTOR_STATE_DEAD);
}

TEST_F(JobsTest, ANodeThatWasCutLearnsWhoseObjectsMayGo) {
  const auto ended = Attach("ended");
  Attach("running");
  CreateIn("ended", "living keeper", true);
  CreateIn("ended", "dead keeper", true);
  state_.NodeDisconnected("n", link_.get());
  state_.DriverLeft("ended", ended);
  ASSERT_THAT(state_.KillActor("dead keeper", true), IsOk());
  v1::RegisterNode back =
      Registration("n", 10, {{"living keeper", 0}, {"dead keeper", 0}});
  for (const char* job :
       {"ended", "running", "living keeper", "dead keeper", "unknown"}) {
    back.add_object_jobs(job);
  }
  const auto link = std::make_shared<FakeLink>();
  ASSERT_THAT(state_.RegisterNode(back, link), IsOk());
  EXPECT_THAT(EndedJobs(*link),
              UnorderedElementsAre("ended", "dead keeper", "unknown"));
}

TEST_F(JobsTest, NodesLearnThatAnIdIsUsedAgain) {
  const auto first = Attach("job", "session-1");
  state_.DriverLeft("job", first);
  link_->sent.clear();
  Attach("job", "session-2");
  ASSERT_EQ(link_->sent.size(), 1);
  EXPECT_EQ(link_->sent[0].job_began().job_id(), "job");
  // Also those that were cut off then.
  state_.NodeDisconnected("n", link_.get());
  const auto back = AddNode("n", 10);
  ASSERT_EQ(back->sent.size(), 2);
  EXPECT_EQ(back->sent[1].job_began().job_id(), "job");
}

TEST_F(JobsTest, UnknownJobsAreIgnored) {
  state_.DriverLeft("x", this);
  state_.DriverDisconnected("x", this);
  EXPECT_EQ(state_.Snapshot().jobs_size(), 0);
}

TEST_F(JobsTest, TheSnapshotNamesTheVersion) {
  EXPECT_EQ(state_.Snapshot().head_version(), kVersion);
}

// --- GetActor.

class GetActorTest : public ClusterStateTest {
 protected:
  // Asks for a record; the answer goes to answers_.
  void Ask(const std::string& actor, int64_t min_version, int64_t wait_ms) {
    v1::GetActorRequest request;
    request.set_actor_id(actor);
    request.set_min_version(min_version);
    request.set_wait_ms(wait_ms);
    state_.GetActor(request, [this](absl::StatusOr<v1::ActorInfo> info) {
      answers_.push_back(std::move(info));
    });
  }
  // The states of the answers so far; -1 for an error.
  std::vector<int> Answers() const {
    std::vector<int> states;
    for (const auto& answer : answers_) {
      states.push_back(answer.ok() ? answer->state() : -1);
    }
    return states;
  }

  std::vector<absl::StatusOr<v1::ActorInfo>> answers_;
};

TEST_F(GetActorTest, AnswersAtOnceWithoutAMinimum) {
  AddNode("n", 1);
  Create("a");
  Ask("a", 0, 1000);
  Ask("a", Info("a").version(), 1000);
  EXPECT_THAT(Answers(),
              ElementsAre(v1::ACTOR_STATE_STARTING, v1::ACTOR_STATE_STARTING));
  Ask("x", 5, 1000);
  EXPECT_THAT(answers_.back(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("x")));
}

TEST_F(GetActorTest, EveryChangeRaisesTheVersion) {
  v1::ActorSpec spec = Spec("a");
  spec.set_max_restarts(1);
  int64_t version = Create(spec).version();
  EXPECT_EQ(version, 1);
  const auto grown = [&] {
    const int64_t now = Info("a").version();
    const bool grew = now > version;
    version = now;
    return grew;
  };
  AddNode("n", 1);
  EXPECT_TRUE(grown());  // STARTING
  Started("n", "a");
  EXPECT_TRUE(grown());  // ALIVE
  Exited("n", "a");
  EXPECT_TRUE(grown());  // RESTARTING
  Started("n", "a", 1);
  EXPECT_TRUE(grown());
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_TRUE(grown());  // DEAD
}

TEST_F(GetActorTest, WaitsForANewerVersion) {
  AddNode("n", 1);
  Create("a");
  const int64_t version = Info("a").version();
  Ask("a", version + 1, 1000);
  Ask("a", version + 2, 1000);
  EXPECT_THAT(Answers(), IsEmpty());
  Started("n", "a");
  EXPECT_THAT(Answers(), ElementsAre(v1::ACTOR_STATE_ALIVE));
  // The other one is answered by the death, though its version came no nearer.
  Exited("n", "a");
  EXPECT_THAT(Answers(),
              ElementsAre(v1::ACTOR_STATE_ALIVE, v1::ACTOR_STATE_DEAD));
  Advance(absl::Seconds(2));
  EXPECT_EQ(answers_.size(), 2u);
}

TEST_F(GetActorTest, TheDeadAreNotWaitedFor) {
  AddNode("n", 1);
  Create("a");
  Exited("n", "a");
  Ask("a", 1000, 100000);
  EXPECT_THAT(Answers(), ElementsAre(v1::ACTOR_STATE_DEAD));
}

TEST_F(GetActorTest, WhenTheTimeIsUpTheOldRecordIsTheAnswer) {
  Create("a");
  Ask("a", 100, 1000);
  Advance(absl::Milliseconds(999));
  EXPECT_THAT(Answers(), IsEmpty());
  Advance(absl::Milliseconds(1));
  EXPECT_THAT(Answers(), ElementsAre(v1::ACTOR_STATE_PENDING));
  Ask("a", 100, 0);
  Ask("a", 100, -5);
  Ask("a", 100, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(answers_.size(), 4u);
  Ask("a", std::numeric_limits<int64_t>::max(),
      std::numeric_limits<int64_t>::max());
  Advance(absl::Hours(24));
  EXPECT_EQ(answers_.size(), 5u);  // Infeasible by now.
  EXPECT_THAT(Answers().back(), v1::ACTOR_STATE_DEAD);
}

TEST_F(GetActorTest, EveryWayToDieAnswersThoseWhoWait) {
  AddNode("n", 10);
  const auto driver = Attach("job");
  for (const char* actor : {"exit", "kill", "node", "job"}) {
    v1::ActorSpec spec = Spec(actor);
    spec.set_job_id(actor == std::string("job") ? "job" : "");
    Create(spec);
    Ask(actor, 100, 100000);
  }
  Exited("n", "exit");
  EXPECT_EQ(answers_.size(), 1u);
  ASSERT_THAT(state_.KillActor("kill", true), IsOk());
  EXPECT_EQ(answers_.size(), 2u);
  state_.DriverLeft("job", driver);
  EXPECT_EQ(answers_.size(), 3u);
  state_.NodeLeft("n");
  EXPECT_EQ(answers_.size(), 4u);
  v1::ActorSpec infeasible = Spec("infeasible");
  infeasible.set_job_id("");
  Create(infeasible);
  Ask("infeasible", 100, 100000);
  Advance(kInfeasible);
  EXPECT_EQ(answers_.size(), 5u);
}

TEST_F(GetActorTest, ANewNodeAnswersThoseWhoWait) {
  Create("a");
  Ask("a", 2, 1000);
  AddNode("n", 1);
  EXPECT_THAT(Answers(), ElementsAre(v1::ACTOR_STATE_STARTING));
}

TEST_F(GetActorTest, RoomThatSomebodyLeavesAnswersThoseWhoWaitForIt) {
  AddNode("n", 1);
  Create("a");
  Create("b");
  Ask("b", 2, 1000);
  Exited("n", "a");
  EXPECT_THAT(Answers(), ElementsAre(v1::ACTOR_STATE_STARTING));
}

TEST_F(GetActorTest, CallbacksRunOutsideTheLock) {
  AddNode("n", 1);
  Create("a");
  v1::GetActorRequest request;
  request.set_actor_id("a");
  request.set_min_version(100);
  request.set_wait_ms(1000);
  bool called = false;
  state_.GetActor(request, [&](absl::StatusOr<v1::ActorInfo>) {
    EXPECT_EQ(state_.Snapshot().actors_size(), 1);
    v1::KillActorRequest kill;
    kill.set_actor_id("a");
    kill.set_no_restart(true);
    state_.KillActor(kill,
                     [&](absl::Status status) { EXPECT_THAT(status, IsOk()); });
    called = true;
  });
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_TRUE(called);
}

TEST_F(GetActorTest, StopWaitingAnswersEverybodyNowAndLater) {
  Create("a");
  Ask("a", 100, 100000);
  Ask("a", 200, 100000);
  state_.StopWaiting();
  EXPECT_EQ(answers_.size(), 2u);
  Ask("a", 100, 100000);
  EXPECT_EQ(answers_.size(), 3u);
  EXPECT_THAT(Answers(),
              ElementsAre(v1::ACTOR_STATE_PENDING, v1::ACTOR_STATE_PENDING,
                          v1::ACTOR_STATE_PENDING));
}

TEST_F(GetActorTest, ByNameOnlyTheLivingAreFound) {
  AddNode("n", 1);
  v1::ActorSpec spec = Spec("a");
  spec.set_name("counter");
  spec.set_actor_namespace("space");
  Create(spec);
  EXPECT_EQ(FindByName("counter", "space")->actor_id(), "a");
  Exited("n", "a");
  EXPECT_THAT(FindByName("counter", "space"),
              StatusIs(absl::StatusCode::kNotFound,
                       "no living actor has the name 'counter' in the "
                       "namespace 'space'"));
}

}  // namespace
}  // namespace miniray
