// `miniray run`, `list runs` and `timeline`, with a head that knows runs and
// one that does not.

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.grpc.pb.h"
#include "proto/run.grpc.pb.h"
#include "runtime/base/files.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

// As many calls as a test wants.
class FakeHead : public v1::Head::Service {
 public:
  grpc::Status GetCallRecords(grpc::ServerContext*,
                              const v1::GetCallRecordsRequest* request,
                              v1::GetCallRecordsResponse* response) override {
    absl::MutexLock lock(&mu_);
    asked_for_ = request->job_id();
    *response = calls_;
    return grpc::Status::OK;
  }

  void SetCalls(const v1::GetCallRecordsResponse& calls) {
    absl::MutexLock lock(&mu_);
    calls_ = calls;
  }
  // The job of the last question.
  std::string asked_for() const {
    absl::MutexLock lock(&mu_);
    return asked_for_;
  }

 private:
  mutable absl::Mutex mu_;
  v1::GetCallRecordsResponse calls_ ABSL_GUARDED_BY(mu_);
  std::string asked_for_ ABSL_GUARDED_BY(mu_) = "nothing yet";
};

// Two runs: "gan-1" goes on until it is told to stop, "old" has failed.
class FakeCollector : public v1::RunCollector::Service {
 public:
  FakeCollector() {
    v1::RunInfo running;
    running.set_run_id("gan-1");
    running.set_kind("GanTrainer");
    running.set_job_id("job-1");
    running.set_state(v1::RUN_STATE_RUNNING);
    running.set_epochs(10);
    running.set_epoch(2);
    running.set_progress(0.25);
    running.set_eta_seconds(83);
    running.set_start_unix_ms(2000);
    running.set_hostname("box");
    (*running.mutable_metrics())["loss"] = 0.5;
    v1::RunInfo failed;
    failed.set_run_id("old");
    failed.set_job_id("job-0");
    failed.set_state(v1::RUN_STATE_FAILED);
    failed.set_error("worker 1 died");
    failed.set_start_unix_ms(1000);
    failed.set_end_unix_ms(1500);
    runs_ = {running, failed};  // The newest first.
  }

  grpc::Status ListRuns(grpc::ServerContext*, const v1::ListRunsRequest*,
                        v1::ListRunsResponse* response) override {
    absl::MutexLock lock(&mu_);
    for (const v1::RunInfo& run : runs_) *response->add_runs() = run;
    return grpc::Status::OK;
  }

  grpc::Status GetRun(grpc::ServerContext*, const v1::GetRunRequest* request,
                      v1::GetRunResponse* response) override {
    absl::MutexLock lock(&mu_);
    v1::RunInfo* const run = Find(request->run_id());
    if (run == nullptr) return NoSuchRun(request->run_id());
    // It takes a while to stop.
    if (run->stop_requested() && ++looks_ > 2) {
      run->set_state(v1::RUN_STATE_STOPPED);
    }
    *response->mutable_run() = *run;
    if (!request->with_spans()) return grpc::Status::OK;
    v1::RunSpan* span = response->add_spans();
    span->set_name("epoch 0");
    span->set_track("trainer");
    span->set_start_unix_us(2000000);
    span->set_end_unix_us(2500000);
    return grpc::Status::OK;
  }

  grpc::Status StopRun(grpc::ServerContext*, const v1::StopRunRequest* request,
                       v1::StopRunResponse*) override {
    absl::MutexLock lock(&mu_);
    v1::RunInfo* const run = Find(request->run_id());
    if (run == nullptr) return NoSuchRun(request->run_id());
    if (run->state() != v1::RUN_STATE_RUNNING) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          "it has ended");
    }
    run->set_stop_requested(true);
    return grpc::Status::OK;
  }

 private:
  static grpc::Status NoSuchRun(const std::string& id) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND,
                        absl::StrCat("there is no run '", id, "'"));
  }

  v1::RunInfo* Find(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto it = std::find_if(
        runs_.begin(), runs_.end(),
        [&id](const v1::RunInfo& run) { return run.run_id() == id; });
    return it == runs_.end() ? nullptr : &*it;
  }

  absl::Mutex mu_;
  std::vector<v1::RunInfo> runs_ ABSL_GUARDED_BY(mu_);
  int looks_ ABSL_GUARDED_BY(mu_) = 0;
};

class RunsTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    StartServer(/*with_runs=*/true);
  }

  void TearDown() override {
    server_->Shutdown();
    CommandTest::TearDown();
  }

  void StartServer(bool with_runs) {
    if (server_ != nullptr) server_->Shutdown();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&head_);
    if (with_runs) builder.RegisterService(&runs_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  CommandResult Ask(std::vector<std::string> args) {
    args.push_back("--address=" + address_);
    return Run(args);
  }

  static v1::GetCallRecordsResponse OneCall() {
    v1::GetCallRecordsResponse calls;
    v1::CallRecord* call = calls.add_records();
    call->set_actor_id("a");
    call->set_class_name("Counter");
    call->set_method("Add");
    call->set_node_id("n");
    call->set_start_unix_us(2100000);
    call->set_end_unix_us(2200000);
    v1::NodeClock* clock = calls.add_clocks();
    clock->set_node_id("n");
    clock->set_hostname("box");
    clock->mutable_reading()->set_ahead_us(1000);
    return calls;
  }

  // The slices of a trace by name.
  static Json Slice(const Json& trace, const std::string& name) {
    for (const Json& event : trace["traceEvents"]) {
      if (event["ph"] == "X" && event["name"] == name) return event;
    }
    return {};
  }

  FakeHead head_;
  FakeCollector runs_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(RunsTest, TheList) {
  const CommandResult list = Ask({"run", "list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, StartsWith("ID "));
  EXPECT_THAT(list.out, HasSubstr("3/10   25 %"));
  EXPECT_THAT(list.out, HasSubstr(" 1:23 "));
  EXPECT_LT(list.out.find("old"), list.out.find("gan-1"));
  EXPECT_EQ(Ask({"list", "runs"}).out, list.out);
  const Json json = Json::parse(Ask({"list", "runs", "--format=json"}).out,
                                nullptr, /*allow_exceptions=*/false);
  ASSERT_EQ(json.size(), 2);
  EXPECT_EQ(json[1]["run_id"], "gan-1");
  EXPECT_EQ(json[1]["metrics"]["loss"], 0.5);
}

TEST_F(RunsTest, OnlyThoseThatPass) {
  const CommandResult list = Ask({"run", "list", "--filter", "state=failed"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out,
              AllOf(HasSubstr("worker 1 died"), Not(HasSubstr("gan-1"))));
}

TEST_F(RunsTest, OneOfThem) {
  const CommandResult run = Ask({"run", "status", "gan-1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("State:      running\n"),
                             HasSubstr("Epoch:      3/10\n"),
                             HasSubstr("Metrics:    loss 0.5\n")));
  const Json json =
      Json::parse(Ask({"run", "status", "old", "--format=json"}).out, nullptr,
                  /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["run"]["error"], "worker 1 died");
  const CommandResult none = Ask({"run", "status", "other"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("there is no run 'other'"));
}

TEST_F(RunsTest, StopReturnsAtOnce) {
  const CommandResult stopped = Ask({"run", "stop", "gan-1"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("Run gan-1 is told to stop"));
  EXPECT_THAT(Ask({"run", "list"}).out, HasSubstr(" stopping "));
}

TEST_F(RunsTest, StopWaitsIfItIsTold) {
  const CommandResult stopped = Ask({"run", "stop", "gan-1", "--wait"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.out, "Run gan-1 has ended: stopped.\n");
}

TEST_F(RunsTest, StopOfWhatHasEndedSaysHow) {
  const CommandResult stopped = Ask({"run", "stop", "old"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.out, "Run old had already ended: failed.\n");
}

TEST_F(RunsTest, TheTimelineHasTheRunsThatWentOnMeanwhile) {
  head_.SetCalls(OneCall());
  const CommandResult timeline = Ask({"timeline"});
  EXPECT_EQ(timeline.exit_code, 0) << timeline.err;
  EXPECT_THAT(timeline.err, IsEmpty());
  const Json trace = Json::parse(timeline.out);
  EXPECT_EQ(head_.asked_for(), "");
  // Both by the head's clock: the node's is 1 ms ahead.
  EXPECT_EQ(Slice(trace, "Add")["ts"], 2099000);
  EXPECT_EQ(Slice(trace, "epoch 0")["ts"], 1999000);
  EXPECT_EQ(Slice(trace, "epoch 0")["dur"], 500000);
  EXPECT_EQ(Slice(trace, "epoch 0")["args"]["run"], "gan-1");
  EXPECT_THAT(timeline.out, Not(HasSubstr("run 'old'")));
}

TEST_F(RunsTest, TheTimelineOfOneRunHasTheCallsOfItsJob) {
  head_.SetCalls(OneCall());
  const CommandResult timeline = Ask({"timeline", "--run=gan-1"});
  EXPECT_EQ(timeline.exit_code, 0) << timeline.err;
  EXPECT_EQ(head_.asked_for(), "job-1");
  const Json trace = Json::parse(timeline.out);
  EXPECT_FALSE(Slice(trace, "epoch 0").is_null());
  EXPECT_FALSE(Slice(trace, "Add").is_null());
  EXPECT_EQ(Ask({"timeline", "--run=gan-1", "--job=j"}).exit_code, 0);
  EXPECT_EQ(head_.asked_for(), "j");
  const CommandResult none = Ask({"timeline", "--run=other"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("there is no run 'other'"));
}

TEST_F(RunsTest, TheTimelineIntoAFileAndAsSums) {
  head_.SetCalls(OneCall());
  const std::string file = runtime_dir() + "/trace.json";
  const CommandResult written = Ask({"timeline", "--output", file});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_EQ(written.out,
            absl::StrCat("1 calls and 1 runs are in ", file,
                         "; open it in ui.perfetto.dev or chrome://tracing\n"));
  EXPECT_FALSE(Slice(Json::parse(ReadFile(file).value()), "epoch 0").is_null());
  const CommandResult sums = Ask({"timeline", "--format=table"});
  EXPECT_EQ(sums.exit_code, 0) << sums.err;
  // Half a second, then a tenth.
  EXPECT_THAT(sums.out, HasSubstr("run gan-1: epoch  1      0       500.0ms"));
  EXPECT_THAT(sums.out, HasSubstr("Counter.Add       1      0       100.0ms"));
}

TEST_F(RunsTest, AHeadWithoutRunsSaysSo) {
  StartServer(/*with_runs=*/false);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"run", "list"},
        {"list", "runs"},
        {"run", "status", "r"},
        {"run", "stop", "r"},
        {"timeline", "--run=r"}}) {
    const CommandResult result = Ask(args);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("the head at ", address_,
                                                   " collects no runs")));
  }
  // Its calls are worth showing all the same.
  head_.SetCalls(OneCall());
  const CommandResult timeline = Ask({"timeline"});
  EXPECT_EQ(timeline.exit_code, 0);
  EXPECT_THAT(timeline.err, AllOf(StartsWith("miniray: warning: the head at"),
                                  HasSubstr("here are the calls alone")));
  EXPECT_FALSE(Slice(Json::parse(timeline.out), "Add").is_null());
}

}  // namespace
}  // namespace miniray
