// Context and RunTrainFunction, without a cluster.

#include "train/functions/context.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "train/functions/run_function.h"
#include "train/functions/train_function.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::Pair;
using ::testing::SizeIs;

// Answers as it is told, and keeps what was reported.
class FakeSink : public ReportSink {
 public:
  absl::StatusOr<ReportReply> Exchange(RankReport report) override {
    reports.push_back(std::move(report));
    if (on_report) on_report();
    return reply;
  }

  std::vector<RankReport> reports;
  absl::StatusOr<ReportReply> reply = ReportReply();
  std::function<void()> on_report;  // May be empty.
};

// The text of what is thrown; "" if nothing is.
template <class Error>
std::string Thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ContextTest, ConfigReturnsWhatIsAskedFor) {
  FakeSink sink;
  const Context ctx({.config = {{"epochs", 7},
                                {"lr", 0.5},
                                {"name", std::string("m")},
                                {"fast", true}}},
                    sink);
  EXPECT_EQ(ctx.config<int>("epochs"), 7);
  EXPECT_EQ(ctx.config<int64_t>("epochs"), 7);
  EXPECT_EQ(ctx.config<uint8_t>("epochs"), 7);
  EXPECT_EQ(ctx.config<double>("epochs"), 7);  // An integer is a number.
  EXPECT_EQ(ctx.config<float>("lr"), 0.5f);
  EXPECT_EQ(ctx.config<std::string>("name"), "m");
  EXPECT_TRUE(ctx.config<bool>("fast"));
  EXPECT_EQ(ctx.config<int>("none", 3), 3);
  EXPECT_EQ(ctx.config<int>("epochs", 3), 7);
}

TEST(ContextTest, ConfigThrowsWithWhatThereIs) {
  FakeSink sink;
  const Context ctx(
      {.config = {{"epochs", 300}, {"big", int64_t{1} << 40}, {"less", -1}}},
      sink);
  using Error = std::invalid_argument;
  EXPECT_THAT(Thrown<Error>([&] { ctx.config<int>("epoch"); }),
              AllOf(HasSubstr("no 'epoch'"), HasSubstr("epochs=300")));
  EXPECT_THAT(Thrown<Error>([&] { ctx.config<std::string>("epochs"); }),
              HasSubstr("epochs"));
  EXPECT_THAT(Thrown<Error>([&] { ctx.config<bool>("epochs", true); }),
              HasSubstr("epochs"));
  EXPECT_THAT(Thrown<Error>([&] { ctx.config<uint8_t>("epochs"); }),
              HasSubstr("within 0 and 255"));
  EXPECT_THAT(Thrown<Error>([&] { ctx.config<int>("big"); }),
              HasSubstr("within"));
  EXPECT_THAT(Thrown<Error>([&] { ctx.config<uint64_t>("less"); }),
              HasSubstr("within 0 and"));
  EXPECT_EQ(ctx.config<int64_t>("big"), int64_t{1} << 40);
}

TEST(ContextTest, ReportsAreNumberedBehindThoseOfEarlierGenerations) {
  FakeSink sink;
  Context ctx({.first_report = 5}, sink);
  ctx.Report({{"loss", 1}});
  ctx.Report({{"loss", 0.5}}, {{"model.pt", "bytes"}});
  ASSERT_THAT(sink.reports, SizeIs(2));
  EXPECT_EQ(sink.reports[0].number, 5);
  EXPECT_EQ(sink.reports[1].number, 6);
  EXPECT_THAT(sink.reports[1].metrics, ElementsAre(Pair("loss", 0.5)));
  EXPECT_THAT(sink.reports[1].checkpoint,
              ElementsAre(Pair("model.pt", "bytes")));
  EXPECT_EQ(ctx.num_reports(), 7);
}

TEST(ContextTest, EveryNthReportIsDueForACheckpoint) {
  FakeSink sink;
  Context ctx({.first_report = 1, .checkpoint_frequency = 3}, sink);
  std::vector<bool> due;
  for (int i = 0; i < 5; ++i) {
    due.push_back(ctx.checkpoint_is_due());
    ctx.Report({});
  }
  // Reports 1 to 5; the third is 2, the sixth 5.
  EXPECT_THAT(due, ElementsAre(false, true, false, false, true));
}

TEST(ContextTest, AReplyMayAskForACheckpoint) {
  FakeSink sink;
  Context ctx({.checkpoint_frequency = 100}, sink);
  sink.reply = ReportReply{.wants_checkpoint = true};
  ctx.Report({});
  EXPECT_TRUE(ctx.checkpoint_is_due());
  sink.reply = ReportReply();
  ctx.Report({});
  EXPECT_FALSE(ctx.checkpoint_is_due());
}

TEST(ContextTest, AFileNameThatCannotBeThrowsAndReportsNothing) {
  FakeSink sink;
  Context ctx({}, sink);
  EXPECT_THAT(Thrown<std::invalid_argument>([&] {
                ctx.Report({}, {{"../etc/passwd", ""}});
              }),
              HasSubstr("passwd"));
  EXPECT_THAT(sink.reports, SizeIs(0));
}

TEST(ContextTest, GetCheckpointIsNullWhereThereIsNone) {
  FakeSink sink;
  EXPECT_THAT(Context({}, sink).GetCheckpoint(), IsNull());
  const Context ctx({.checkpoint = {{"x", "1"}}}, sink);
  EXPECT_THAT(*ctx.GetCheckpoint(), ElementsAre(Pair("x", "1")));
}

TEST(ContextTest, AnAbortedReportThrowsPeerFailure) {
  FakeSink sink;
  sink.reply = absl::AbortedError("rank 3 died");
  Context ctx({.first_report = 4}, sink);
  EXPECT_THAT(Thrown<PeerFailure>([&] { ctx.Report({}); }),
              AllOf(HasSubstr("report 4"), HasSubstr("rank 3 died")));
  EXPECT_EQ(ctx.num_reports(), 4);
}

TEST(ContextTest, HandlersRunOnceOnAbortAndNotOnceTheyAreGone) {
  FakeSink sink;
  Context ctx({}, sink);
  std::vector<std::string> calls;
  auto gone =
      ctx.OnAbort([&](const absl::Status&) { calls.push_back("gone"); });
  const auto stays = ctx.OnAbort([&](const absl::Status& reason) {
    calls.push_back(std::string(reason.message()));
  });
  gone.reset();
  EXPECT_FALSE(ctx.aborted());
  ctx.Abort(absl::AbortedError("why"));
  ctx.Abort(absl::AbortedError("again"));
  EXPECT_TRUE(ctx.aborted());
  EXPECT_THAT(calls, ElementsAre("why"));
  const auto late =
      ctx.OnAbort([&](const absl::Status&) { calls.push_back("late"); });
  EXPECT_THAT(calls, ElementsAre("why", "late"));
}

TEST(ContextTest, TheEndOfAHandlerWaitsForItsRun) {
  FakeSink sink;
  Context ctx({}, sink);
  absl::Notification running, go_on;
  bool done = false;
  auto handler = ctx.OnAbort([&](const absl::Status&) {
    running.Notify();
    go_on.WaitForNotification();
    done = true;
  });
  std::thread aborter([&] { ctx.Abort(absl::AbortedError("why")); });
  running.WaitForNotification();
  std::thread waker([&] { go_on.Notify(); });
  handler.reset();
  EXPECT_TRUE(done);
  waker.join();
  aborter.join();
}

// --- RunTrainFunction

void TwoReports(Context& ctx) {
  ctx.Report({});
  ctx.Report({});
}
MINIRAY_TRAIN_FUNC(TwoReports);

void Throws(Context& ctx) {
  ctx.Report({});
  throw std::range_error("loss went up\nframe #0: some::call() + 0x12");
}
MINIRAY_TRAIN_FUNC(Throws);

absl::Status ReturnsAnError(Context&) {
  return absl::NotFoundError("no images");
}
MINIRAY_TRAIN_FUNC(ReturnsAnError);

absl::Status LosesAConnection(Context&) {
  return absl::UnavailableError("connection reset by peer");
}
MINIRAY_TRAIN_FUNC(LosesAConnection);

void ThrowsAnInt(Context&) { throw 7; }
MINIRAY_TRAIN_FUNC(ThrowsAnInt);

// What training ends with passes by it.
void CatchesExceptions(Context& ctx) {
  while (true) {
    try {
      ctx.Report({});
    } catch (const std::exception&) {
    }
  }
}
MINIRAY_TRAIN_FUNC(CatchesExceptions);

void IsNotRegistered(Context&) {}

RunOutcome RunIt(const std::string& name, FakeSink& sink) {
  Context ctx({}, sink);
  return RunTrainFunction(name, ctx);
}

TEST(RunTrainFunctionTest, TellsHowTheFunctionEnds) {
  FakeSink sink;
  const RunOutcome good = RunIt("TwoReports", sink);
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(good.num_reports, 2);

  const RunOutcome thrown = RunIt("Throws", sink);
  EXPECT_EQ(thrown.code, static_cast<int>(absl::StatusCode::kUnknown));
  EXPECT_EQ(thrown.message,
            "the train function threw std::range_error: loss went up");
  EXPECT_FALSE(thrown.peer_failed);
  EXPECT_EQ(thrown.num_reports, 1);

  const RunOutcome returned = RunIt("ReturnsAnError", sink);
  EXPECT_EQ(returned.code, static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_THAT(returned.message, HasSubstr("no images"));

  EXPECT_THAT(RunIt("ThrowsAnInt", sink).message,
              HasSubstr("no std::exception"));

  const RunOutcome unknown = RunIt("Unknown", sink);
  EXPECT_EQ(unknown.code, static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_THAT(unknown.message,
              AllOf(HasSubstr("Unknown"), HasSubstr("Throws")));
}

TEST(RunTrainFunctionTest, AnotherRanksFailureIsNotItsOwn) {
  FakeSink sink;
  sink.reply = absl::AbortedError("rank 3 died");
  const RunOutcome outcome = RunIt("TwoReports", sink);
  EXPECT_TRUE(outcome.peer_failed);
  EXPECT_EQ(outcome.code, static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_THAT(outcome.message, HasSubstr("rank 3 died"));

  EXPECT_TRUE(RunIt("LosesAConnection", sink).peer_failed);
  EXPECT_FALSE(RunIt("ReturnsAnError", sink).peer_failed);
}

TEST(RunTrainFunctionTest, WhatStopsTheFunctionIsNoFailure) {
  for (const char* name : {"TwoReports", "CatchesExceptions"}) {
    FakeSink sink;
    sink.reply = ReportReply{.stop = true};
    const RunOutcome outcome = RunIt(name, sink);
    EXPECT_EQ(outcome.code, 0) << outcome.message;
    EXPECT_EQ(outcome.num_reports, 1);
    EXPECT_THAT(sink.reports, SizeIs(1));
  }
}

TEST(TrainFunctionsTest, NamesAFunctionThatIsRegistered) {
  const auto& functions = internal::TrainFunctions::Get();
  EXPECT_THAT(functions.NameOf(&TwoReports), IsOkAndHolds("TwoReports"));
  EXPECT_THAT(functions.NameOf(&ReturnsAnError),
              IsOkAndHolds("ReturnsAnError"));
  EXPECT_THAT(functions.NameOf(&IsNotRegistered),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("MINIRAY_TRAIN_FUNC")));
}

TEST(TrainFunctionsTest, OneNameForTwoFunctionsIsAnErrorForBoth) {
  internal::TrainFunctions functions;
  functions.Register("F", &TwoReports);
  functions.Register("F", &TwoReports);
  EXPECT_THAT(functions.NameOf(&TwoReports), IsOk());
  functions.Register("F", &Throws);
  for (auto function : {&TwoReports, &Throws}) {
    EXPECT_THAT(
        functions.NameOf(function),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("several")));
  }
}

}  // namespace
}  // namespace miniray::train
