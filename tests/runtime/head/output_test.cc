// What processes print, on its way to drivers, and where it lies.

#include <memory>
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

class FakeDriver : public DriverLink {
 public:
  void Send(v1::DriverEvent event) override {}
  void Output(v1::ProcessOutput output) override {
    seen.push_back(output.text());
  }
  void End(const absl::Status& status) override {
    seen.push_back(status.ok() ? "(end)" : std::string(status.message()));
  }
  std::vector<std::string> seen;
};

class OutputTest : public ClusterStateTest {
 protected:
  std::shared_ptr<FakeDriver> AttachDriver(const std::string& job,
                                           bool wants_output = true) {
    auto driver = std::make_shared<FakeDriver>();
    v1::RegisterDriver request;
    request.set_job_id(job);
    request.set_session_id(job + "-session");
    request.set_wants_output(wants_output);
    EXPECT_THAT(state_.RegisterDriver(request, driver.get(), driver), IsOk());
    return driver;
  }
  void Print(const std::string& job, const std::string& text) {
    v1::ProcessOutput output;
    output.set_job_id(job);
    output.set_text(text);
    state_.Output(output);
  }

  std::shared_ptr<FakeLink> link_ = AddNode("n", 10);
};

TEST_F(OutputTest, GoesToTheJobsOwnDriver) {
  const auto one = AttachDriver("one");
  const auto two = AttachDriver("two");
  const auto deaf = AttachDriver("deaf", false);
  Print("one", "a");
  Print("two", "b");
  Print("deaf", "c");
  Print("unknown", "d");
  EXPECT_THAT(one->seen, ElementsAre("a"));
  EXPECT_THAT(two->seen, ElementsAre("b"));
  EXPECT_THAT(deaf->seen, IsEmpty());
  state_.DriverDisconnected("one", one.get());
  Print("one", "e");
  EXPECT_THAT(one->seen, ElementsAre("a"));
}

TEST_F(OutputTest, NodesAreToldWhetherItIsWanted) {
  for (const bool wanted : {true, false}) {
    const std::string job = wanted ? "wanted" : "unwanted";
    AttachDriver(job, wanted);
    link_->Take();
    v1::ActorSpec spec = Spec(job + "-actor");
    spec.set_job_id(job);
    Create(spec);
    ASSERT_EQ(link_->sent.size(), 1);
    EXPECT_EQ(link_->sent[0].start_actor().stream_output(), wanted);
  }
}

TEST_F(OutputTest, ALeavingDriverGetsWhatItsActorsStillPrint) {
  const auto driver = AttachDriver("job");
  Create("a");
  Create("b");
  v1::ActorSpec detached = Spec("detached");
  detached.set_detached(true);
  Create(detached);
  link_->Take();
  state_.DriverLeft("job", driver.get());
  EXPECT_THAT(link_->Take(), ElementsAre("stop a.0", "stop b.0"));
  Print("job", "last of a");
  Exited("n", "a");
  Print("job", "last of b");
  EXPECT_THAT(driver->seen, ElementsAre("last of a", "last of b"));
  Exited("n", "b");
  EXPECT_THAT(driver->seen, ElementsAre("last of a", "last of b", "(end)"));
}

TEST_F(OutputTest, WithoutActorsItLeavesAtOnce) {
  const auto driver = AttachDriver("job");
  state_.DriverLeft("job", driver.get());
  EXPECT_THAT(driver->seen, ElementsAre("(end)"));
  const auto second = AttachDriver("second");
  v1::ActorSpec waits = Spec("waits", 100);
  waits.set_job_id("second");
  Create(waits);
  state_.DriverLeft("second", second.get());
  EXPECT_THAT(second->seen, ElementsAre("(end)"));
}

TEST_F(OutputTest, ADriverWhoseJobIsStoppedIsTold) {
  const auto driver = AttachDriver("job");
  Create("a");
  state_.StopJob("job", [](const absl::Status&) {});
  Print("job", "last of a");
  Exited("n", "a");
  EXPECT_THAT(driver->seen,
              ElementsAre("last of a", HasSubstr("job job was stopped by")));
}

TEST_F(OutputTest, ActorsThatDoNotEndHoldItUpForSecondsAlone) {
  const auto driver = AttachDriver("job");
  Create("a");
  state_.DriverLeft("job", driver.get());
  state_.RenewLease("n").IgnoreError();
  Advance(absl::Seconds(4));
  EXPECT_THAT(driver->seen, IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_THAT(driver->seen, ElementsAre("(end)"));
  Exited("n", "a");
  EXPECT_THAT(driver->seen, ElementsAre("(end)"));
}

class FindLogTest : public OutputTest {
 protected:
  absl::StatusOr<ClusterState::LogPlace> Find(const std::string& any) {
    v1::ReadLogRequest request;
    request.set_any_id(any);
    request.set_tail_lines(-3);
    return state_.FindLog(request);
  }
  void SubmitJob(const std::string& job, double cpus = 0) {
    v1::JobSpec spec;
    spec.set_job_id(job);
    spec.add_command("x");
    spec.set_package_id("p");
    (*spec.mutable_resources()->mutable_quantity())["CPU"] = cpus;
    state_.SubmitJob(spec, [](auto info) { EXPECT_THAT(info, IsOk()); });
  }
};

TEST_F(FindLogTest, ByIdNameAndPrefix) {
  v1::ActorSpec spec = Spec("actor-12");
  spec.set_name("c");
  Create(spec);
  Create("actor-13");
  SubmitJob("job-2");
  SubmitJob("job-21");
  EXPECT_EQ(Find("actor-12")->request.actor_id(), "actor-12");
  EXPECT_EQ(Find("c")->request.actor_id(), "actor-12");
  EXPECT_EQ(Find("actor-13")->request.actor_id(), "actor-13");
  EXPECT_EQ(Find("job-2")->request.job_id(), "job-2");
  EXPECT_EQ(Find("job-21")->request.job_id(), "job-21");
  EXPECT_EQ(Find("actor-12")->request.tail_lines(), 0);
  EXPECT_EQ(Find("actor-12")->link.get(), link_.get());
  EXPECT_THAT(Find("actor-1"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("may be 2 things"),
                             HasSubstr("actor actor-12, actor actor-13"))));
  EXPECT_THAT(Find("job"), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("job job-2, job job-21")));
  EXPECT_THAT(Find("nobody"), StatusIs(absl::StatusCode::kNotFound,
                                       HasSubstr("no actor or job is called")));
  EXPECT_THAT(Find(""), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(FindLogTest, TheDeadTooAndAmongNamesakesTheLiving) {
  v1::ActorSpec spec = Spec("x");
  spec.set_name("c");
  Create(spec);
  Exited("n", "x");
  EXPECT_EQ(Find("c")->request.actor_id(), "x");
  spec.set_actor_id("a");
  Create(spec);
  EXPECT_EQ(Find("c")->request.actor_id(), "a");
  Advance(absl::Seconds(1));
  Exited("n", "a");
  EXPECT_EQ(Find("c")->request.actor_id(), "a");
  EXPECT_EQ(Find("x")->request.actor_id(), "x");
}

TEST_F(FindLogTest, WhereThereIsNone) {
  Create("big", 100);
  EXPECT_THAT(Find("big"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("waits for CPU 100")));
  SubmitJob("large", 100);
  EXPECT_THAT(Find("large"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("has not run yet")));
  // Who follows may wait.
  for (const char* id : {"big", "large"}) {
    v1::ReadLogRequest request;
    request.set_any_id(id);
    request.set_follow(true);
    const auto place = state_.FindLog(request);
    ASSERT_THAT(place, IsOk());
    EXPECT_EQ(place->link, nullptr);
  }
  ASSERT_THAT(state_.KillActor("big", true), IsOk());
  EXPECT_THAT(Find("big"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("has never run: killed by")));
  Attach("plain");
  EXPECT_THAT(Find("plain"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("was not submitted")));
}

TEST_F(FindLogTest, ALostNodeIsNamedWithTheFile) {
  Create("a");
  v1::ActorExited exited;
  exited.set_actor_id("a");
  exited.set_log_file("/logs/a.log");
  state_.ActorExited("n", exited);
  EXPECT_THAT(Find("a"), IsOk());
  state_.NodeLeft("n");
  EXPECT_THAT(Find("a"), StatusIs(absl::StatusCode::kNotFound,
                                  AllOf(HasSubstr("the log of actor a is on "
                                                  "node n (host-n, 10.0.0.1)"),
                                        HasSubstr("which is gone"),
                                        HasSubstr("/logs/a.log"))));
}

TEST_F(FindLogTest, ANodeThatIsCutOffMayComeBack) {
  const auto link = AddNode("m", 4);
  v1::ActorSpec spec = Spec("b");
  spec.set_node_id("m");
  Create(spec);
  state_.NodeDisconnected("m", link.get());
  EXPECT_THAT(Find("b"), StatusIs(absl::StatusCode::kUnavailable,
                                  AllOf(HasSubstr("the log of actor b is on "),
                                        HasSubstr("cut from the head"))));
}

TEST_F(FindLogTest, WhoFollowsWaitsForTheNextProcessOnAnotherNode) {
  AddNode("m", 4);
  v1::ActorSpec spec = Spec("b");
  (*spec.mutable_resources()->mutable_quantity())["CPU"] = 3;
  spec.set_node_id("m");
  spec.set_max_restarts(1);
  Create(spec);
  Started("m", "b");
  state_.NodeLeft("m");
  ASSERT_NE(StateOf("b"), v1::ACTOR_STATE_DEAD);
  EXPECT_THAT(Find("b"), StatusIs(absl::StatusCode::kNotFound));
  v1::ReadLogRequest request;
  request.set_any_id("b");
  request.set_follow(true);
  const auto place = state_.FindLog(request);
  ASSERT_THAT(place, IsOk());
  EXPECT_EQ(place->link, nullptr);
}

}  // namespace
}  // namespace miniray
