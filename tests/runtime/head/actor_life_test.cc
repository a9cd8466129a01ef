// Restarts, kills, late messages, and who holds which resources meanwhile.

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ActorLifeTest : public ClusterStateTest {
 protected:
  v1::ActorSpec Restartable(const std::string& actor, int max_restarts) {
    v1::ActorSpec spec = Spec(actor);
    spec.set_max_restarts(max_restarts);
    return spec;
  }
  std::shared_ptr<FakeLink> link_ = AddNode("n", 4);
};

TEST_F(ActorLifeTest, ASnapshotKeepsTheActorsThatAreWanted) {
  Create("a");
  Started("n", "a");
  Create("starts");
  Create("waits", 4);
  using Keep = std::function<bool(const v1::ActorInfo&)>;
  const auto names = [this](const Keep& keep) {
    const v1::GetClusterStateResponse state =
        state_.Snapshot({v1::TABLE_ACTORS}, keep);
    std::vector<std::string> names;
    for (const v1::ActorInfo& actor : state.actors()) {
      names.push_back(actor.actor_id());
    }
    return names;
  };
  EXPECT_THAT(names([](const v1::ActorInfo& actor) {
                return actor.state() == v1::ACTOR_STATE_ALIVE;
              }),
              ElementsAre("a"));
  // As it is told, with the reason why it waits.
  EXPECT_THAT(
      names([](const v1::ActorInfo& actor) { return !actor.cause().empty(); }),
      ElementsAre("waits"));
  EXPECT_THAT(names(nullptr), ElementsAre("a", "starts", "waits"));
}

// --- Restarts.

TEST_F(ActorLifeTest, WithoutRestartsTheFirstExitIsTheEnd) {
  Create("a");
  Started("n", "a");
  Exited("n", "a");
  const v1::ActorInfo info = Info("a");
  EXPECT_EQ(info.state(), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(info.cause(), "exited with code 3 on node n (host-n, 10.0.0.1)");
  EXPECT_THAT(info.address(), IsEmpty());
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, RestartsAreCounted) {
  Create(Restartable("a", 2));
  link_->Take();
  for (int restart = 1; restart <= 2; ++restart) {
    Started("n", "a", restart - 1);
    Exited("n", "a", restart - 1);
    Advance(absl::Milliseconds(100));  // What the second one waits for.
    EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
    EXPECT_EQ(Info("a").restarts(), restart);
    EXPECT_THAT(Info("a").address(), IsEmpty());
    EXPECT_THAT(Info("a").cause(), HasSubstr("exited with code 3"));
    EXPECT_THAT(link_->Take(),
                ElementsAre("start a." + std::to_string(restart)));
    EXPECT_EQ(Available("n"), 3);
  }
  Started("n", "a", 2);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  Exited("n", "a", 2);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Info("a").restarts(), 2);
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, MinusOneRestartsForEver) {
  Create(Restartable("a", -1));
  for (int i = 0; i < 50; ++i) {
    Exited("n", "a", i);
    for (int part = 0; part < 6; ++part) {
      Advance(absl::Seconds(5));
      ASSERT_THAT(state_.RenewLease("n"), IsOk());
    }
  }
  Exited("n", "a", 50);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  EXPECT_EQ(Info("a").restarts(), 51);
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, RestartsInARowComeMoreAndMoreSlowly) {
  Create(Restartable("a", -1));
  link_->Take();
  Exited("n", "a", 0);
  EXPECT_THAT(link_->Take(), ElementsAre("start a.1"));  // At once.
  absl::Duration delay = absl::Milliseconds(100);
  for (int i = 1; i <= 12; ++i) {
    Exited("n", "a", i);
    EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
    EXPECT_EQ(Available("n"), 4);
    EXPECT_THAT(Info("a").cause(), HasSubstr("it is started again in " +
                                             absl::FormatDuration(delay)));
    // In parts shorter than a lease.
    const absl::Time due = now_ + delay;
    while (now_ + absl::Seconds(5) < due) {
      Advance(absl::Seconds(5));
      ASSERT_THAT(state_.RenewLease("n"), IsOk());
    }
    Advance(due - now_ - absl::Milliseconds(1));
    EXPECT_THAT(link_->Take(), IsEmpty());
    Advance(absl::Milliseconds(1));
    ASSERT_THAT(state_.RenewLease("n"), IsOk());
    EXPECT_THAT(link_->Take(), ElementsAre("start a." + std::to_string(i + 1)));
    delay = std::min(delay * 2, absl::Duration(absl::Seconds(30)));
  }
  // One that lived for a minute is started again at once.
  Started("n", "a", 13);
  for (int i = 0; i < 12; ++i) {
    Advance(absl::Seconds(5));
    ASSERT_THAT(state_.RenewLease("n"), IsOk());
  }
  Exited("n", "a", 13);
  EXPECT_THAT(link_->Take(), ElementsAre("start a.14"));
}

TEST_F(ActorLifeTest, TheTablesInWireFormatAreTheTables) {
  Create(Restartable("runs", -1));
  Started("n", "runs");
  Create(Restartable("delayed", -1));
  Exited("n", "delayed", 0);
  Exited("n", "delayed", 1);
  Create("waits", 4);
  Create("dead");
  ASSERT_THAT(state_.KillActor("dead", true), IsOk());
  Attach("job");
  ASSERT_THAT(Info("delayed").cause(), HasSubstr("it is started again in"));
  ASSERT_THAT(Info("waits").cause(), HasSubstr("waits for CPU 4"));
  const auto parsed = [this](const std::set<v1::Table>& tables) {
    v1::GetClusterStateResponse state;
    EXPECT_TRUE(state.ParseFromString(state_.SerializedSnapshot(tables)));
    return state.DebugString();
  };
  for (const std::set<v1::Table>& tables :
       {std::set<v1::Table>{},
        {v1::TABLE_ACTORS},
        {v1::TABLE_NODES},
        {v1::TABLE_ACTORS, v1::TABLE_JOBS}}) {
    EXPECT_EQ(parsed(tables), state_.Snapshot(tables).DebugString());
  }
  EXPECT_EQ(state_.Snapshot({v1::TABLE_ACTORS}).actors_size(), 4);
}

TEST_F(ActorLifeTest, AnActorThatWaitsForItsDelayCanBeKilled) {
  Create(Restartable("a", -1));
  Exited("n", "a", 0);
  Exited("n", "a", 1);
  link_->Take();
  EXPECT_THAT(state_.KillActor("a", /*no_restart=*/true), IsOk());
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  Advance(absl::Seconds(1));
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(link_->Take(), IsEmpty());
}

TEST_F(ActorLifeTest, AFailedConstructorIsNotRetried) {
  Create(Restartable("a", -1));
  Exited("n", "a", 0, /*may_restart=*/false);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Info("a").restarts(), 0);
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, TheLastOutputIsPartOfTheCause) {
  Create("a");
  v1::ActorExited event;
  event.set_actor_id("a");
  event.set_cause("killed by signal 6 (SIGABRT)");
  event.set_last_output("; its last output (/logs/a): help");
  state_.ActorExited("n", event);
  EXPECT_EQ(Info("a").cause(),
            "killed by signal 6 (SIGABRT) on node n (host-n, 10.0.0.1); its "
            "last output (/logs/a): help");
}

// Or the head would keep it, write it and send it with every answer.
TEST_F(ActorLifeTest, OfALongCauseTheBeginningIsKept) {
  Create("a");
  v1::ActorExited event;
  event.set_actor_id("a");
  event.set_cause("its constructor failed: " + std::string(20 << 20, 'x'));
  event.set_last_output(std::string(1 << 20, 'y'));
  state_.ActorExited("n", event);
  EXPECT_THAT(Info("a").cause(), AllOf(HasSubstr("its constructor failed: xxx"),
                                       HasSubstr(" bytes more) on node n (")));
  EXPECT_LT(Info("a").cause().size(), 64u << 10);
}

TEST_F(ActorLifeTest, NamesAreNotEndless) {
  v1::ActorSpec spec = Spec("a");
  spec.set_name(std::string(256, 'n'));
  spec.set_actor_namespace(std::string(256, 's'));
  Create(spec);
  for (const bool name : {true, false}) {
    spec = Spec("b");
    (name ? spec.mutable_name() : spec.mutable_actor_namespace())
        ->assign(257, 'n');
    EXPECT_THAT(state_.CreateActor(spec).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(name ? "name" : "namespace"),
                               HasSubstr("at most 256 bytes, not 257"))));
  }
}

TEST_F(ActorLifeTest, ARestartWaitsForRoomInTheQueue) {
  Create(Restartable("a", 1));
  Create("big", 3);
  Create("next", 1);
  Exited("n", "a");
  // Whoever waited longer is served first.
  EXPECT_EQ(StateOf("next"), v1::ACTOR_STATE_STARTING);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  EXPECT_THAT(Info("a").node_id(), IsEmpty());
  Exited("n", "next");
  EXPECT_EQ(Info("a").node_id(), "n");
  EXPECT_EQ(Available("n"), 0);
}

TEST_F(ActorLifeTest, TheArgumentsAreKeptForRestartsAndDroppedAtDeath) {
  v1::ActorSpec spec = Restartable("a", 1);
  spec.add_constructor_args()->set_int_value(7);
  Create(spec);
  link_->sent.clear();
  Exited("n", "a");
  ASSERT_EQ(link_->sent.size(), 1u);
  EXPECT_EQ(link_->sent[0].start_actor().spec().constructor_args(0).int_value(),
            7);
}

// --- Late messages.

TEST_F(ActorLifeTest, MessagesOfAnEarlierProcessAreIgnored) {
  Create(Restartable("a", -1));
  Exited("n", "a", 0);
  Started("n", "a", 1);
  const std::string before = Info("a").SerializeAsString();
  Started("n", "a", 0);
  Exited("n", "a", 0);
  Started("n", "a", 2);  // Nor does the future count.
  Exited("n", "a", 2);
  EXPECT_EQ(Info("a").SerializeAsString(), before);
  EXPECT_EQ(Available("n"), 3);
}

TEST_F(ActorLifeTest, MessagesOfAnotherNodeAreIgnored) {
  AddNode("other", 4);
  Create("a");
  ASSERT_EQ(Info("a").node_id(), "n");
  Started("other", "a");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_STARTING);
  Exited("other", "a");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_STARTING);
  Started("n", "nobody");
  Exited("n", "nobody");
  EXPECT_EQ(Available("n") + Available("other"), 7);
}

TEST_F(ActorLifeTest, ASecondExitChangesNothing) {
  Create("a");
  Exited("n", "a");
  const std::string before = Info("a").SerializeAsString();
  Exited("n", "a");
  Started("n", "a");
  EXPECT_EQ(Info("a").SerializeAsString(), before);
  EXPECT_EQ(Available("n"), 4);
}

// --- Kill.

TEST_F(ActorLifeTest, KillWithoutRestartIsDeathAtOnceAndRoomAtTheExit) {
  Create(Restartable("a", -1));
  Started("n", "a");
  link_->Take();
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(), HasSubstr("killed by request"));
  EXPECT_THAT(link_->StopReasons(), ElementsAre("killed by request (Kill)"));
  EXPECT_THAT(link_->Take(), ElementsAre("stop a.0"));
  EXPECT_EQ(Available("n"), 3);  // The process still ends.
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 4);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, KillWhileStarting) {
  Create("a");
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_THAT(link_->Take(),
              ElementsAre("registered", "start a.0", "stop a.0"));
  Started("n", "a");  // It came up all the same.
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Available("n"), 3);
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, KillWithRestartComesBack) {
  Create(Restartable("a", 1));
  Started("n", "a");
  link_->Take();
  ASSERT_THAT(state_.KillActor("a", false), IsOk());
  EXPECT_THAT(link_->Take(), ElementsAre("stop a.0"));
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);  // Until it has ended.
  Exited("n", "a");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  EXPECT_THAT(link_->Take(), ElementsAre("start a.1"));
  Started("n", "a", 1);
  ASSERT_THAT(state_.KillActor("a", false), IsOk());
  EXPECT_THAT(link_->Take(), ElementsAre("stop a.1"));
  Exited("n", "a", 1);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, KillOfOneThatWaits) {
  Create("a", 4);
  Create("b", 4);
  ASSERT_THAT(state_.KillActor("b", false), IsOk());
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_DEAD);
  Exited("n", "a");
  EXPECT_EQ(StateOf("b"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, AKillWithRestartFindsNothingToEndInOneThatWaits) {
  Create("big", 4);
  Create(Restartable("a", 1));
  ASSERT_THAT(state_.KillActor("a", false), IsOk());
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_PENDING);
  Exited("n", "big");
  Started("n", "a");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
  // Nor in one that waits for its restart, even for the last.
  Create("next", 4);
  Exited("n", "a");
  ASSERT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  ASSERT_THAT(state_.KillActor("a", false), IsOk());
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  Exited("n", "next");
  Started("n", "a", 1);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_ALIVE);
}

TEST_F(ActorLifeTest, AKillThatComesAgainDoesNotEndTheNextProcess) {
  Create(Restartable("a", 5));
  Started("n", "a");
  ASSERT_THAT(state_.KillActor("a", false, 0), IsOk());
  Exited("n", "a");
  Started("n", "a", 1);
  link_->Take();
  ASSERT_THAT(state_.KillActor("a", false, 0), IsOk());
  EXPECT_THAT(link_->Take(), IsEmpty());
  ASSERT_THAT(state_.KillActor("a", false, 1), IsOk());
  EXPECT_THAT(link_->Take(), ElementsAre("stop a.1"));
}

TEST_F(ActorLifeTest, KillOfOneThatWaitsForItsRestart) {
  Create(Restartable("a", -1));
  Create("b", 3);
  Create("c", 1);
  Exited("n", "a");
  ASSERT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
  ASSERT_THAT(Info("a").node_id(), IsEmpty());
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  Exited("n", "b");
  Exited("n", "c");
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, KillTwiceAndOfTheDead) {
  Create("a");
  EXPECT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_THAT(state_.KillActor("a", false), IsOk());
  EXPECT_THAT(link_->Take(),
              ElementsAre("registered", "start a.0", "stop a.0"));
  EXPECT_THAT(state_.KillActor("x", true),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("x")));
}

TEST_F(ActorLifeTest, ExitAfterKillGivesTheRoomToTheNext) {
  Create("a", 4);
  Create("b", 4);
  link_->Take();
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_THAT(link_->Take(), ElementsAre("stop a.0"));
  Exited("n", "a");
  EXPECT_THAT(link_->Take(), ElementsAre("start b.0"));
}

TEST_F(ActorLifeTest, NodeLostAfterKill) {
  Create("a");
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  state_.NodeLeft("n");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(), HasSubstr("killed by request"));
  EXPECT_EQ(Available("n"), 4);
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 4);
}

// --- Kill while the actor's node is cut off.

TEST_F(ActorLifeTest, AKillWithRestartReachesANodeThatIsCutOffWhenItReturns) {
  Create(Restartable("a", 1));
  Started("n", "a");
  state_.NodeDisconnected("n", link_.get());
  ASSERT_THAT(state_.KillActor("a", false), IsOk());
  const auto back = AddNode("n", 4, {{"a", 0}});
  EXPECT_THAT(back->Take(), ElementsAre("registered", "stop a.0"));
  Exited("n", "a");
  EXPECT_THAT(back->Take(), ElementsAre("start a.1"));
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_RESTARTING);
}

TEST_F(ActorLifeTest, AKillWithoutRestartDoesToo) {
  Create("a");
  Started("n", "a");
  state_.NodeDisconnected("n", link_.get());
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  const auto back = AddNode("n", 4, {{"a", 0}});
  EXPECT_THAT(back->Take(), ElementsAre("registered", "stop a.0"));
  EXPECT_EQ(Available("n"), 3);
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, AStopThatWasLostWithTheStreamIsRepeated) {
  Create(Restartable("a", 1));
  Started("n", "a");
  ASSERT_THAT(state_.KillActor("a", false), IsOk());
  state_.NodeDisconnected("n", link_.get());  // With the stop on its way.
  const auto back = AddNode("n", 4, {{"a", 0}});
  EXPECT_THAT(back->Take(), ElementsAre("registered", "stop a.0"));
}

TEST_F(ActorLifeTest, OneThatObeyedWhileCutOffEndedByTheKill) {
  Create("a");
  Started("n", "a");
  ASSERT_THAT(state_.KillActor("a", false), IsOk());
  state_.NodeDisconnected("n", link_.get());  // With the exit on its way.
  AddNode("n", 4);
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(),
              AllOf(HasSubstr("killed by request (Kill)"),
                    HasSubstr("while its node was cut from the head")));
}

TEST_F(ActorLifeTest, OneThatWasToldToStopNamesThatWhenItsNodeIsLost) {
  Create("a");
  Started("n", "a");
  ASSERT_THAT(state_.KillActor("a", false), IsOk());
  state_.NodeLeft("n");
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Info("a").cause(), AllOf(HasSubstr("killed by request (Kill)"),
                                       HasSubstr("was lost")));
}

TEST_F(ActorLifeTest, AKilledActorThatEndedWhileCutOffGivesItsRoomBack) {
  Create("a");
  Started("n", "a");
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  EXPECT_EQ(Available("n"), 3);
  state_.NodeDisconnected("n", link_.get());  // With the exit on its way.
  const auto back = AddNode("n", 4);
  EXPECT_THAT(back->Take(), ElementsAre("registered"));
  EXPECT_EQ(Available("n"), 4);
  Exited("n", "a");  // Should the message still come.
  EXPECT_EQ(Available("n"), 4);
}

// --- The graveyard.

TEST_F(ActorLifeTest, DeadActorsAreForgottenInTheEnd) {
  for (int i = 0; i < 10050; ++i) {
    const std::string actor = "a" + std::to_string(i);
    Create(actor);
    Exited("n", actor);
  }
  EXPECT_EQ(state_.Snapshot().actors_size(), 10000);
  v1::GetActorRequest request;
  request.set_actor_id("a0");
  absl::Status status;
  state_.GetActor(request, [&](auto info) { status = info.status(); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("a0")));
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(ActorLifeTest, OneWhoseProcessHasNotEndedIsNotForgotten) {
  Create("a");
  ASSERT_THAT(state_.KillActor("a", true), IsOk());
  for (int i = 0; i < 10050; ++i) {
    const std::string actor = "b" + std::to_string(i);
    Create(actor);
    Exited("n", actor);
  }
  EXPECT_EQ(StateOf("a"), v1::ACTOR_STATE_DEAD);
  EXPECT_EQ(Available("n"), 3);
  Exited("n", "a");
  EXPECT_EQ(Available("n"), 4);
}

}  // namespace
}  // namespace miniray
