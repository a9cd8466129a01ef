// Reporters and a real head.

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/run.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/runs/run_reporter.h"
#include "runtime/runs/run_table.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/head/head_service_testutil.h"
#include "tests/runtime/runs/run_events.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

class RunCollectorTest : public HeadServiceTest {
 protected:
  std::string address() const {
    return absl::StrCat("127.0.0.1:", head_->port());
  }

  RunReporter::Options ReporterOptions(const std::string& run_id) const {
    RunReporter::Options options;
    options.head_address = address();
    options.token = token_;
    options.run_id = run_id;
    options.period = absl::Milliseconds(5);
    options.idle_period = absl::Milliseconds(20);
    return options;
  }

  static std::unique_ptr<RunReporter> Start(RunReporter::Options options) {
    auto reporter = RunReporter::Start(std::move(options));
    EXPECT_THAT(reporter, IsOk());
    return reporter.ok() ? *std::move(reporter) : nullptr;
  }

  // Flush gives up soon while the head is away; this does not.
  static bool FlushAll(RunReporter& reporter) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!reporter.Flush(kPatience)) {
      if (absl::Now() > deadline) return false;
    }
    return true;
  }

  void StopHead() {
    port_ = head_->port();
    head_->Shutdown();
    head_.reset();
  }
  // At the same port, in the same folder.
  void StartHeadAgain() { StartHead({.port = port_}); }

  bool EventuallyRun(const std::string& id,
                     const std::function<bool(const v1::GetRunResponse&)>& is) {
    return Eventually([&](const v1::GetClusterStateResponse&) {
      const auto run = head_->runs().Get(GetOf(id, 100000));
      return run.ok() && is(*run);
    });
  }

  int port_ = 0;
};

TEST_F(RunCollectorTest, AReporterTellsTheHead) {
  const auto reporter = Start(ReporterOptions("gan"));
  reporter->Report(Started(3));
  for (int epoch = 1; epoch <= 3; ++epoch) {
    reporter->Report(Point(epoch, 1.0 / epoch));
    reporter->Report(Point(epoch, 2.0 / epoch, 0));
  }
  reporter->Report(Image(2, PngOf(100000)));
  reporter->Report(Ended());
  EXPECT_TRUE(FlushAll(*reporter));
  const auto run = head_->runs().Get(GetOf("gan"));
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->run().state(), v1::RUN_STATE_FINISHED);
  EXPECT_EQ(run->run().dropped_events(), 0);
  ASSERT_EQ(run->curves_size(), 2);
  EXPECT_EQ(run->curves(1).epochs_size(), 3);
  EXPECT_EQ(run->images_size(), 1);
  const RunReporter::Counts counts = reporter->counts();
  EXPECT_EQ(counts.reported, 9);
  EXPECT_EQ(counts.delivered, 9);
  EXPECT_EQ(counts.dropped, 0);
  EXPECT_EQ(counts.waiting, 0u);
  EXPECT_EQ(counts.waiting_bytes, 0u);
}

// Over the network: what the dashboard gets from the table itself.
TEST_F(RunCollectorTest, TheServiceAnswersWhoHasTheToken) {
  const auto channel = MakeChannel(address());
  const auto runs = v1::RunCollector::NewStub(channel);
  v1::ReportRunResponse reported;
  ASSERT_THAT(
      FromGrpcStatus(runs->ReportRun(
          Context(token_).get(),
          ReportOf("gan", 1, {Started(3), Image(0, PngOf(50))}), &reported)),
      IsOk());
  v1::ListRunsResponse listed;
  ASSERT_THAT(
      FromGrpcStatus(runs->ListRuns(Context(token_).get(), {}, &listed)),
      IsOk());
  ASSERT_EQ(listed.runs_size(), 1);
  EXPECT_EQ(listed.runs(0).run_id(), "gan");
  v1::GetRunResponse got;
  ASSERT_THAT(
      FromGrpcStatus(runs->GetRun(Context(token_).get(), GetOf("gan"), &got)),
      IsOk());
  ASSERT_EQ(got.images_size(), 1);
  v1::GetRunImageRequest get;
  get.set_run_id("gan");
  get.set_image_id(got.images(0).image_id());
  v1::GetRunImageResponse image;
  ASSERT_THAT(
      FromGrpcStatus(runs->GetRunImage(Context(token_).get(), get, &image)),
      IsOk());
  EXPECT_EQ(image.png(), PngOf(50));
  EXPECT_THAT(
      FromGrpcStatus(runs->GetRun(Context(token_).get(), GetOf("other"), &got)),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("other")));
  v1::StopRunRequest stop;
  stop.set_run_id("gan");
  v1::StopRunResponse stopped;

  const int64_t version = head_->runs().AwaitChange(0, absl::ZeroDuration());
  for (const std::string& token : {std::string(), std::string("wrong")}) {
    std::vector<absl::Status> refused;
    v1::ReportRunResponse r1;
    refused.push_back(FromGrpcStatus(runs->ReportRun(
        Context(token).get(), ReportOf("x", 1, {Started(1)}), &r1)));
    v1::ListRunsResponse r2;
    refused.push_back(
        FromGrpcStatus(runs->ListRuns(Context(token).get(), {}, &r2)));
    v1::GetRunResponse r3;
    refused.push_back(
        FromGrpcStatus(runs->GetRun(Context(token).get(), GetOf("gan"), &r3)));
    v1::GetRunImageResponse r4;
    refused.push_back(
        FromGrpcStatus(runs->GetRunImage(Context(token).get(), get, &r4)));
    refused.push_back(
        FromGrpcStatus(runs->StopRun(Context(token).get(), stop, &stopped)));
    for (const absl::Status& status : refused) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnauthenticated,
                                   HasSubstr("MINIRAY_TOKEN")));
    }
    EXPECT_EQ(r2.ByteSizeLong() + r3.ByteSizeLong() + r4.ByteSizeLong(), 0u);
  }
  EXPECT_EQ(head_->runs().AwaitChange(version, absl::ZeroDuration()), version);

  ASSERT_THAT(
      FromGrpcStatus(runs->StopRun(Context(token_).get(), stop, &stopped)),
      IsOk());
  EXPECT_TRUE(head_->runs().Get(GetOf("gan"))->run().stop_requested());
}

TEST_F(RunCollectorTest, AReporterHearsOfAStop) {
  const auto reporter = Start(ReporterOptions("gan"));
  reporter->Report(Started(3));
  ASSERT_TRUE(FlushAll(*reporter));
  EXPECT_FALSE(reporter->stop_requested());
  v1::StopRunRequest stop;
  stop.set_run_id("gan");
  ASSERT_THAT(head_->runs().Stop(stop), IsOk());
  // It has nothing to report, and asks all the same.
  EXPECT_TRUE(Eventually([&](const v1::GetClusterStateResponse&) {
    return reporter->stop_requested();
  }));
}

TEST_F(RunCollectorTest, NothingIsMissingOverARestartOfTheHead) {
  const auto reporter = Start(ReporterOptions("gan"));
  reporter->Report(Started(1000));
  int next = 1;
  const auto report = [&](int count) {
    for (int i = 0; i < count; ++i, ++next) {
      reporter->Report(Point(next, next));
    }
  };
  report(100);
  ASSERT_TRUE(FlushAll(*reporter));
  report(100);  // On their way.
  StopHead();
  report(100);
  EXPECT_FALSE(reporter->Flush(absl::ZeroDuration()));
  StartHeadAgain();
  report(100);
  reporter->Report(Image(1, PngOf(1000)));
  reporter->Report(Ended());
  ASSERT_TRUE(FlushAll(*reporter));
  const auto run = head_->runs().Get(GetOf("gan", 100000));
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->run().state(), v1::RUN_STATE_FINISHED);
  EXPECT_EQ(run->run().num_starts(), 1);
  EXPECT_EQ(run->run().dropped_events(), 0);
  EXPECT_EQ(run->images_size(), 1);
  ASSERT_EQ(run->curves_size(), 1);
  ASSERT_EQ(run->curves(0).epochs_size(), 400);
  for (int i = 0; i < 400; ++i) {
    ASSERT_EQ(run->curves(0).epochs(i), i + 1);
    ASSERT_EQ(run->curves(0).values(i), i + 1);
  }
  // And it stays, over another one.
  StopHead();
  StartHeadAgain();
  EXPECT_EQ(head_->runs().Get(GetOf("gan", 100000))->curves(0).epochs_size(),
            400);
}

TEST_F(RunCollectorTest, WhileTheHeadIsAwayMemoryIsBoundedAndPointsGoFirst) {
  RunReporter::Options options = ReporterOptions("gan");
  StopHead();
  options.max_events = 1000;
  options.max_bytes = 3 << 20;
  // More than a thousand batches of calls that would each wait for the head.
  const auto reporter = Start(options);
  const absl::Time begin = absl::Now();
  reporter->Report(Started(100000));
  for (int i = 1; i <= 100000; ++i) {
    reporter->Report(Point(i, i));
    if (i % 10000 != 0) continue;
    const RunReporter::Counts counts = reporter->counts();
    EXPECT_LE(counts.waiting, 1000u);
    EXPECT_LE(counts.waiting_bytes, size_t{3} << 20);
    EXPECT_EQ(counts.delivered, 0);
  }
  // Two pictures of 1 MiB: there is no room for a third, nor for all points.
  for (int i = 0; i < 3; ++i) reporter->Report(Image(i, PngOf(1 << 20, i)));
  reporter->Report(Ended());
  // A call of the reporter's to the head takes seconds to fail.
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
  const RunReporter::Counts away = reporter->counts();
  EXPECT_EQ(away.reported, 100005);
  EXPECT_LE(away.waiting, 1000u);
  EXPECT_LE(away.waiting_bytes, size_t{3} << 20);
  EXPECT_EQ(away.dropped + static_cast<int64_t>(away.waiting), away.reported);
  EXPECT_FALSE(reporter->Flush(absl::Milliseconds(1)));

  StartHeadAgain();
  ASSERT_TRUE(FlushAll(*reporter));
  const auto run = head_->runs().Get(GetOf("gan", 100000));
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->run().kind(), "DataParallelTrainer");
  EXPECT_EQ(run->run().state(), v1::RUN_STATE_FINISHED);
  EXPECT_EQ(run->run().dropped_events(), reporter->counts().dropped);
  EXPECT_EQ(reporter->counts().dropped, away.dropped);
  // The last of all.
  ASSERT_EQ(run->images_size(), 2);
  EXPECT_EQ(run->images(0).epoch(), 1);
  EXPECT_EQ(run->images(1).epoch(), 2);
  // Pictures pushed the points out.
  EXPECT_EQ(run->curves_size(), 0);
}

TEST_F(RunCollectorTest, TheOldestPointsGoAndTheNewestStay) {
  RunReporter::Options options = ReporterOptions("gan");
  StopHead();
  options.max_events = 100;
  const auto reporter = Start(options);
  reporter->Report(Started(1000));
  reporter->Report(Sync(0, 1));
  for (int i = 1; i <= 1000; ++i) reporter->Report(Point(i, i));
  StartHeadAgain();
  ASSERT_TRUE(FlushAll(*reporter));
  const auto run = head_->runs().Get(GetOf("gan", 100000));
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->syncs_size(), 1);
  ASSERT_EQ(run->curves_size(), 1);
  // 98 with the beginning and the synchronisation.
  ASSERT_EQ(run->curves(0).epochs_size(), 98);
  EXPECT_EQ(run->curves(0).epochs(0), 903);
  EXPECT_EQ(run->curves(0).epochs(97), 1000);
  EXPECT_EQ(run->run().dropped_events(), 902);
  EXPECT_EQ(reporter->counts().dropped, 902);
  EXPECT_EQ(reporter->counts().delivered, 100);
}

TEST_F(RunCollectorTest, WhatTheHeadWouldRefuseIsDroppedAlone) {
  const auto reporter = Start(ReporterOptions("gan"));
  reporter->Report(Started(3));
  reporter->Report(Point(-1, 1));
  reporter->Report(Image(0, "no picture"));
  reporter->Report(Point(1, 1));
  ASSERT_TRUE(FlushAll(*reporter));
  EXPECT_EQ(reporter->counts().dropped, 2);
  EXPECT_EQ(reporter->counts().delivered, 2);
  const auto run = head_->runs().Get(GetOf("gan"));
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->run().dropped_events(), 2);
  EXPECT_EQ(run->curves_size(), 1);
}

// Pictures of 2 MiB make requests of their own.
TEST_F(RunCollectorTest, LargePicturesArrive) {
  const auto reporter = Start(ReporterOptions("gan"));
  reporter->Report(Started(3));
  for (int i = 0; i < 3; ++i) reporter->Report(Image(i, PngOf(2 << 20, i)));
  ASSERT_TRUE(FlushAll(*reporter));
  EXPECT_EQ(head_->runs().Get(GetOf("gan"))->images_size(), 3);
  EXPECT_EQ(head_->runs().Get(GetOf("gan"))->run().dropped_events(), 0);
}

TEST_F(RunCollectorTest, AHeadThatRefusesIsNotWaitedFor) {
  RunReporter::Options options = ReporterOptions("gan");
  options.token = "wrong";
  const auto reporter = Start(options);
  reporter->Report(Started(3));
  // At once, and not after the ten minutes that it might.
  EXPECT_FALSE(reporter->Flush(absl::Minutes(10)));
  EXPECT_EQ(reporter->counts().waiting, 1u);
  EXPECT_THAT(head_->runs().Get(GetOf("gan")),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(RunCollectorTest, WhatIsNoAddressAndNoRunIdIsSaid) {
  RunReporter::Options options = ReporterOptions("a run");
  EXPECT_THAT(RunReporter::Start(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'a run' cannot name a run")));
  options = ReporterOptions("run");
  options.head_address = "nowhere";
  EXPECT_THAT(
      RunReporter::Start(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nowhere")));
}

TEST_F(RunCollectorTest, PollsInItsThread) {
  RunReporter::Options options = ReporterOptions("gan");
  options.poll_period = absl::Milliseconds(5);
  RunReporter* reporter = nullptr;
  absl::Mutex mu;
  int polls = 0;
  options.poll = [&] {
    absl::MutexLock lock(&mu);
    if (reporter != nullptr) reporter->Report(Point(++polls, 1));
  };
  const auto owner = Start(options);
  {
    absl::MutexLock lock(&mu);
    reporter = owner.get();
  }
  EXPECT_TRUE(EventuallyRun("gan", [](const v1::GetRunResponse& run) {
    return run.curves_size() == 1 && run.curves(0).epochs_size() >= 3;
  }));
  absl::MutexLock lock(&mu);
  reporter = nullptr;
}

// A driver that dies tells of no end.
TEST_F(RunCollectorTest, TheEndOfAJobIsThatOfItsRuns) {
  StopHead();
  StartHead({.port = port_, .driver_grace = absl::Milliseconds(10)});
  const auto context = Context(token_);
  const auto driver = stub_->AttachDriver(context.get());
  ASSERT_TRUE(driver->Write(Hello("job-1")));
  v1::DriverEvent event;
  ASSERT_TRUE(driver->Read(&event));
  {
    const auto reporter = Start(ReporterOptions("gan"));
    reporter->Report(Started(3));
    ASSERT_TRUE(FlushAll(*reporter));
  }
  EXPECT_EQ(head_->runs().Get(GetOf("gan"))->run().state(),
            v1::RUN_STATE_RUNNING);
  context->TryCancel();
  (void)driver->Finish();
  EXPECT_TRUE(EventuallyRun("gan", [](const v1::GetRunResponse& run) {
    return run.run().state() == v1::RUN_STATE_LOST;
  }));
  EXPECT_THAT(head_->runs().Get(GetOf("gan"))->run().error(),
              HasSubstr("its job ended"));
}

}  // namespace
}  // namespace miniray
