// Jobs whose drivers the cluster runs.

#include <memory>
#include <string>

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

class SubmittedJobsTest : public ClusterStateTest {
 protected:
  static v1::JobSpec JobSpecOf(const std::string& job, double cpus = 1) {
    v1::JobSpec spec;
    spec.set_job_id(job);
    spec.add_command("./bin/trainer");
    spec.add_command("--epochs=3");
    spec.set_package_id("package");
    spec.set_submitter("me@here");
    spec.set_submission_id("submission-" + job);
    (*spec.mutable_resources()->mutable_quantity())["CPU"] = cpus;
    return spec;
  }
  absl::StatusOr<v1::JobInfo> Submit(const v1::JobSpec& spec) {
    absl::StatusOr<v1::JobInfo> result = absl::InternalError("no answer");
    state_.SubmitJob(spec, [&](auto info) { result = std::move(info); });
    return result;
  }
  absl::StatusOr<v1::JobInfo> Submit(const std::string& job, double cpus = 1) {
    return Submit(JobSpecOf(job, cpus));
  }
  absl::Status Stop(const std::string& job) {
    absl::Status result = absl::InternalError("no answer");
    state_.StopJob(job, [&](absl::Status status) { result = status; });
    return result;
  }
  void JobStarted(const std::string& node, const std::string& job) {
    v1::JobStarted event;
    event.set_job_id(job);
    event.set_pid(77);
    event.set_log_file("/logs/" + job);
    state_.JobStarted(node, event);
  }
  void JobExited(const std::string& node, const std::string& job, int code,
                 const std::string& cause = "") {
    v1::JobExited event;
    event.set_job_id(job);
    event.set_exit_code(code);
    event.set_cause(cause);
    state_.JobExited(node, event);
  }
  v1::JobState JobStateOf(const std::string& job) { return Job(job).state(); }
  absl::Status Register(const std::string& job, const std::string& session) {
    v1::RegisterDriver request;
    request.set_job_id(job);
    request.set_session_id(session);
    return state_.RegisterDriver(request, &session_);
  }

  int session_ = 0;
};

TEST_F(SubmittedJobsTest, RunsAndSucceeds) {
  const auto link = AddNode("n", 4);
  link->Take();
  const auto submitted = Submit("j", 2);
  ASSERT_THAT(submitted, IsOk());
  EXPECT_EQ(submitted->state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(submitted->program(), "trainer");
  EXPECT_THAT(submitted->command(), ElementsAre("./bin/trainer", "--epochs=3"));
  EXPECT_EQ(submitted->submitter(), "me@here");
  EXPECT_TRUE(submitted->submitted());
  EXPECT_EQ(submitted->submit_unix_ms(), absl::ToUnixMillis(now_));
  EXPECT_THAT(link->Take(), ElementsAre("start job j"));
  EXPECT_EQ(Available("n"), 2);

  JobStarted("n", "j");
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Job("j").pid(), 77);
  EXPECT_EQ(Job("j").node_id(), "n");
  EXPECT_EQ(Job("j").log_file(), "/logs/j");

  JobExited("n", "j", 0);
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Available("n"), 4);
  EXPECT_NE(Job("j").end_unix_ms(), 0);
}

TEST_F(SubmittedJobsTest, FailsWithExitCodeAndCause) {
  AddNode("n", 4);
  Submit("j").IgnoreError();
  JobStarted("n", "j");
  JobExited("n", "j", 139, "killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job("j").exit_code(), 139);
  EXPECT_THAT(Job("j").cause(), HasSubstr("SIGSEGV) on node n (host-n"));
}

TEST_F(SubmittedJobsTest, LostOutputIsTheCauseWhateverTheState) {
  AddNode("n", 4);
  const auto exits = [this](const std::string& job, int code,
                            const std::string& cause) {
    v1::JobExited event;
    event.set_job_id(job);
    event.set_exit_code(code);
    event.set_cause(cause);
    event.set_last_output(
        "; output lost: No space left on device in /l, 9 "
        "bytes");
    state_.JobExited("n", event);
  };
  for (const char* job : {"good", "bad", "stopped"}) {
    Submit(job).IgnoreError();
    JobStarted("n", job);
  }
  exits("good", 0, "");
  EXPECT_EQ(JobStateOf("good"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Job("good").cause(),
            "output lost: No space left on device in /l, 9 bytes");
  exits("bad", 3, "exited with code 3");
  EXPECT_EQ(JobStateOf("bad"), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job("bad").cause(), HasSubstr("(host-n, 10.0.0.1); output lost"));
  EXPECT_THAT(Stop("stopped"), IsOk());
  exits("stopped", 0, "");
  EXPECT_EQ(JobStateOf("stopped"), v1::JOB_STATE_STOPPED);
  EXPECT_THAT(Job("stopped").cause(),
              HasSubstr("(miniray job stop); output lost: "));
}

TEST_F(SubmittedJobsTest, OneThatAsksForNothingWaitsForANode) {
  Submit("j", 0).IgnoreError();
  EXPECT_EQ(Job("j").cause(), "waits for a node: no node is alive");
  Advance(kInfeasible);
  EXPECT_EQ(Job("j").cause(),
            "cannot be placed: it asks for a node, but the cluster has no "
            "nodes");
  auto link = AddNode("n", 1);
  state_.NodeDisconnected("n", link.get());
  Submit("k", 0).IgnoreError();
  EXPECT_EQ(Job("k").cause(),
            "waits for a node: every such node is cut from the head");
}

TEST_F(SubmittedJobsTest, WaitsForRoomAndSaysSo) {
  const auto link = AddNode("n", 4);
  Submit("a", 3).IgnoreError();
  Submit("b", 2).IgnoreError();
  EXPECT_EQ(JobStateOf("b"), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Job("b").cause(), "waits for CPU 2: all of it is in use");
  Submit("c", 5).IgnoreError();
  EXPECT_EQ(Job("c").cause(), "waits for CPU 5: no node has that much");
  link->Take();
  JobExited("n", "a", 0);
  EXPECT_THAT(link->Take(), ElementsAre("start job b"));
  EXPECT_EQ(Job("b").cause(), "");
  for (absl::Duration time; time < kInfeasible; time += kLease / 2) {
    ASSERT_THAT(state_.RenewLease("n"), IsOk());
    Advance(kLease / 2);
  }
  EXPECT_EQ(JobStateOf("c"), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job("c").cause(),
              HasSubstr("asks for CPU 5, but host-n (n) has"));
  EXPECT_EQ(JobStateOf("b"), v1::JOB_STATE_PENDING);
}

TEST_F(SubmittedJobsTest, WhatTakesNothingRunsOnAFullNode) {
  const auto link = AddNode("n", 1);
  Create("a");
  link->Take();
  Submit("j", 0).IgnoreError();
  EXPECT_THAT(link->Take(), ElementsAre("start job j"));
}

TEST_F(SubmittedJobsTest, AskingAgainChangesNothing) {
  const auto link = AddNode("n", 4);
  link->Take();
  ASSERT_THAT(Submit("j"), IsOk());
  ASSERT_THAT(Submit("j"), IsOk());
  EXPECT_THAT(link->Take(), ElementsAre("start job j"));
  v1::JobSpec other = JobSpecOf("j");
  other.set_submission_id("another");
  EXPECT_THAT(Submit(other), StatusIs(absl::StatusCode::kAlreadyExists,
                                      HasSubstr("not ended")));
  JobExited("n", "j", 0);
  EXPECT_THAT(Submit(other), StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_THAT(Submit("j"), IsOk());  // Still the same request.
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(SubmittedJobsTest, WrongRequests) {
  v1::JobSpec spec = JobSpecOf("../x");
  EXPECT_THAT(Submit(spec), StatusIs(absl::StatusCode::kInvalidArgument));
  spec = JobSpecOf("j");
  spec.clear_command();
  EXPECT_THAT(Submit(spec), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Submit("j", -1), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Stop("no"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(state_.Snapshot().jobs(), IsEmpty());
}

TEST_F(SubmittedJobsTest, APendingOneIsStoppedAtOnce) {
  const auto link = AddNode("n", 1);
  Submit("a", 1).IgnoreError();
  Submit("b", 1).IgnoreError();
  link->Take();
  ASSERT_THAT(Stop("b"), IsOk());
  EXPECT_EQ(JobStateOf("b"), v1::JOB_STATE_STOPPED);
  EXPECT_THAT(Job("b").cause(), HasSubstr("by request"));
  JobExited("n", "a", 0);
  EXPECT_THAT(link->Take(), IsEmpty());
  ASSERT_THAT(Stop("b"), IsOk());  // Again.
}

TEST_F(SubmittedJobsTest, ARunningOneIsStoppedByItsNode) {
  const auto link = AddNode("n", 4);
  Submit("j").IgnoreError();
  JobStarted("n", "j");
  link->Take();
  ASSERT_THAT(Stop("j"), IsOk());
  EXPECT_THAT(link->Take(), ElementsAre("stop job j"));
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_RUNNING);
  JobExited("n", "j", 143, "killed by signal 15 (SIGTERM)");
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(Job("j").exit_code(), 143);
  EXPECT_THAT(Job("j").cause(), HasSubstr("by request"));
}

TEST_F(SubmittedJobsTest, ADriversJobCanBeStoppedToo) {
  const auto link = AddNode("n", 4);
  Attach("job");
  Create("a");
  link->Take();
  ASSERT_THAT(Stop("job"), IsOk());
  EXPECT_EQ(JobStateOf("job"), v1::JOB_STATE_STOPPED);
  EXPECT_THAT(link->Take(), ElementsAre("stop a.0"));
  // Its driver dials again, and learns of it.
  EXPECT_THAT(Register("job", "s"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("stopped by request")));
}

TEST_F(SubmittedJobsTest, ItsDriverAttachesAndItsActorsEndWithTheProcess) {
  const auto link = AddNode("n", 4);
  EXPECT_THAT(Register("job", "x"), IsOk());  // An unknown job: a driver's own.
  ASSERT_THAT(Submit("j", 0), IsOk());
  ASSERT_THAT(Register("j", "s"), IsOk());
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(Register("j", "other"),
              StatusIs(absl::StatusCode::kAlreadyExists));
  v1::ActorSpec spec = Spec("a");
  spec.set_job_id("j");
  Create(spec);
  link->Take();
  // A broken connection ends nothing, however long it lasts.
  state_.DriverDisconnected("j", &session_);
  Advance(kGrace * 3);
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(link->Take(), IsEmpty());
  // It may also leave and come back.
  ASSERT_THAT(Register("j", "second"), IsOk());
  state_.DriverLeft("j", &session_);
  EXPECT_THAT(link->Take(), ElementsAre("stop a.0"));
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_RUNNING);
  ASSERT_THAT(Register("j", "third"), IsOk());
  spec = Spec("b");
  spec.set_job_id("j");
  Create(spec);
  link->Take();
  JobExited("n", "j", 0);
  EXPECT_THAT(link->Take(), ElementsAre("stop b.0"));
  EXPECT_EQ(Info("b").cause(), "its driver has ended");
  EXPECT_THAT(
      Register("j", "third"),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has ended")));
}

TEST_F(SubmittedJobsTest, ADriverCannotAttachBeforeItsJobStarts) {
  Submit("j").IgnoreError();
  EXPECT_THAT(Register("j", "s"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("has not started yet")));
}

TEST_F(SubmittedJobsTest, ALostNodeFailsItsJobs) {
  AddNode("n", 4);
  Submit("j", 4).IgnoreError();
  JobStarted("n", "j");
  Advance(kLease);
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job("j").cause(),
              HasSubstr("node n (host-n, 10.0.0.1) was lost"));
  // Told late.
  JobExited("n", "j", 0);
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_FAILED);
}

TEST_F(SubmittedJobsTest, OneThatWaitsForACutNodeFailsOnceTheNodeIsLost) {
  const auto link = AddNode("n", 4);
  AddNode("small", 1);
  state_.NodeDisconnected("n", link.get());
  Submit("j", 3).IgnoreError();
  EXPECT_EQ(Job("j").cause(),
            "waits for CPU 3: the nodes that have that much are cut from the "
            "head");
  const auto advance = [this](absl::Duration time) {
    state_.RenewLease("small").IgnoreError();
    Advance(time);
  };
  advance(kLease / 2);
  EXPECT_EQ(Node("n").state(), v1::NODE_STATE_DEAD);
  EXPECT_EQ(Job("j").cause(), "waits for CPU 3: no node has that much");
  for (absl::Duration time; time < kInfeasible; time += kLease / 2) {
    EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_PENDING);
    advance(kLease / 2);
  }
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job("j").cause(), HasSubstr("it asks for CPU 3, but host-small"));
}

TEST_F(SubmittedJobsTest, TheReasonChangesWhenANodeIsCutAndReturns) {
  const auto link = AddNode("n", 4);
  Submit("a", 3).IgnoreError();
  JobStarted("n", "a");
  Submit("b", 2).IgnoreError();
  EXPECT_EQ(Job("b").cause(), "waits for CPU 2: all of it is in use");
  state_.NodeDisconnected("n", link.get());
  EXPECT_EQ(Job("b").cause(),
            "waits for CPU 2: the nodes that have that much are cut from the "
            "head");
  v1::RegisterNode back = Registration("n", 4);
  back.add_live_jobs("a");
  ASSERT_THAT(state_.RegisterNode(back, std::make_shared<FakeLink>()), IsOk());
  EXPECT_EQ(Job("b").cause(), "waits for CPU 2: all of it is in use");
}

TEST_F(SubmittedJobsTest, OneThatWasToldToStopIsStoppedWhenItsNodeIsLost) {
  AddNode("n", 4);
  Submit("j").IgnoreError();
  JobStarted("n", "j");
  ASSERT_THAT(Stop("j"), IsOk());
  Advance(kLease);
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_STOPPED);
  EXPECT_THAT(Job("j").cause(),
              AllOf(HasSubstr("stopped by request (miniray job stop)"),
                    HasSubstr("node n (host-n, 10.0.0.1) was lost")));
}

class RejoiningNodeTest : public SubmittedJobsTest {
 protected:
  // Cuts the node off and lets it register with `live` and `exited`.
  std::shared_ptr<FakeLink> Rejoin(const std::vector<std::string>& live,
                                   const std::vector<std::string>& exited) {
    v1::RegisterNode request = Registration("n", 4);
    for (const std::string& job : live) request.add_live_jobs(job);
    for (const std::string& job : exited) {
      v1::JobExited* event = request.add_exited_jobs();
      event->set_job_id(job);
      event->set_exit_code(5);
      event->set_cause("exited with code 5");
    }
    state_.NodeDisconnected("n", link_.get());
    link_ = std::make_shared<FakeLink>();
    EXPECT_THAT(state_.RegisterNode(request, link_), IsOk());
    return link_;
  }
  std::shared_ptr<FakeLink> link_ = AddNode("n", 4);
};

TEST_F(RejoiningNodeTest, WhatStillRunsGoesOn) {
  Submit("j").IgnoreError();
  JobStarted("n", "j");
  EXPECT_THAT(Rejoin({"j"}, {})->Take(), ElementsAre("registered"));
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_RUNNING);
}

TEST_F(RejoiningNodeTest, WhatEndedMeanwhileIsTold) {
  Submit("j").IgnoreError();
  JobStarted("n", "j");
  Rejoin({}, {"j"});
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Job("j").exit_code(), 5);
}

TEST_F(RejoiningNodeTest, WhatIsMissingHasFailed) {
  Submit("j").IgnoreError();
  JobStarted("n", "j");
  Rejoin({}, {});
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job("j").cause(), HasSubstr("cut from the head"));
  EXPECT_EQ(Available("n"), 4);
}

TEST_F(RejoiningNodeTest, ALostStartIsSentAgain) {
  Submit("j").IgnoreError();
  EXPECT_THAT(Rejoin({}, {})->Take(), ElementsAre("registered", "start job j"));
  EXPECT_EQ(JobStateOf("j"), v1::JOB_STATE_PENDING);
}

TEST_F(RejoiningNodeTest, ALostStopIsSentAgain) {
  Submit("j").IgnoreError();
  JobStarted("n", "j");
  state_.NodeDisconnected("n", link_.get());
  ASSERT_THAT(Stop("j"), IsOk());
  EXPECT_THAT(Rejoin({"j"}, {})->Take(),
              ElementsAre("registered", "stop job j"));
  // One that had not started is not started any more.
  ASSERT_THAT(Submit("k"), IsOk());
  ASSERT_THAT(Stop("k"), IsOk());
  EXPECT_THAT(Rejoin({"j"}, {})->Take(),
              ElementsAre("registered", "stop job j"));
  EXPECT_EQ(JobStateOf("k"), v1::JOB_STATE_STOPPED);
}

TEST_F(RejoiningNodeTest, WhatTheHeadDoesNotKnowIsStopped) {
  EXPECT_THAT(Rejoin({"stranger"}, {})->Take(),
              ElementsAre("registered", "stop job stranger"));
}

TEST_F(SubmittedJobsTest, WaitingForAChange) {
  AddNode("n", 4);
  Submit("j").IgnoreError();
  v1::GetJobRequest request;
  request.set_job_id("j");
  request.set_min_version(Job("j").version() + 1);
  request.set_wait_ms(5000);
  absl::StatusOr<v1::JobInfo> answer = absl::InternalError("no answer");
  state_.GetJob(request, [&](auto info) { answer = std::move(info); });
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kInternal));
  JobStarted("n", "j");
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->state(), v1::JOB_STATE_RUNNING);

  answer = absl::InternalError("no answer");
  request.set_min_version(answer.ok() ? 0 : Job("j").version() + 1);
  state_.GetJob(request, [&](auto info) { answer = std::move(info); });
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kInternal));
  Advance(absl::Seconds(5));
  EXPECT_THAT(answer, IsOk());  // Nothing has changed.

  request.set_job_id("no");
  state_.GetJob(request, [&](auto info) { answer = std::move(info); });
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(SubmittedJobsTest, AsManyAsTheLimitMayWait) {
  max_waiting_ = 1;
  RestartWith(nullptr);
  ASSERT_THAT(Submit("j"), IsOk());
  EXPECT_THAT(Submit("k"), StatusIs(absl::StatusCode::kResourceExhausted,
                                    AllOf(HasSubstr("1 submitted jobs wait"),
                                          HasSubstr("--max_waiting"))));
  EXPECT_THAT(Submit("j"), IsOk());  // It is not new.
  AddNode("n", 1);                   // And runs there.
  EXPECT_THAT(Submit("k"), IsOk());
}

}  // namespace
}  // namespace miniray
