// TrainFunctionWorker as an object, its methods called from threads as its
// actor's groups call them.

#include "train/functions/worker.h"

#include <future>
#include <optional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "train/functions/train_function.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

void ThreeReports(Context& ctx) {
  for (int i = 0; i < 3; ++i) {
    ctx.Report({{"i", i}}, {{"file", std::string(1, 'a' + i)}});
  }
}
MINIRAY_TRAIN_FUNC(ThreeReports);

// Runs until the group is told to stop, and not through Report.
void UntilAborted(Context& ctx) {
  absl::Notification told;
  const auto handler = ctx.OnAbort([&](const absl::Status&) { told.Notify(); });
  ctx.SetStage("waits to be told");
  told.WaitForNotification();
}
MINIRAY_TRAIN_FUNC(UntilAborted);

GenerationStart Start(const std::string& function, int generation = 0) {
  GenerationStart start;
  start.function = function;
  start.generation = generation;
  return start;
}

class TrainFunctionWorkerTest : public ::testing::Test {
 protected:
  std::future<RunOutcome> Run(const GenerationStart& start) {
    return std::async(std::launch::async,
                      [this, start] { return worker_.Run(start, {}); });
  }
  TrainFunctionWorker worker_;
};

TEST_F(TrainFunctionWorkerTest, HandsOverReportsOneByOne) {
  auto first = std::async(std::launch::async,
                          [this] { return worker_.NextReport(0, 0); });
  auto run = Run(Start("ThreeReports"));  // After who asks for its report.
  for (int i = 0; i < 3; ++i) {
    const auto report = i == 0 ? first.get() : worker_.NextReport(0, i);
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->number, i);
    EXPECT_THAT(report->metrics, ElementsAre(Pair("i", i)));
    EXPECT_THAT(report->checkpoint,
                ElementsAre(Pair("file", std::string(1, 'a' + i))));
    EXPECT_EQ(worker_.Stage(0), "waits in report " + std::to_string(i));
    worker_.Release(0, i + 1, {});  // Not this one: no effect.
    worker_.Release(0, i, {});
  }
  EXPECT_EQ(worker_.NextReport(0, 3), std::nullopt);
  EXPECT_EQ(run.get().num_reports, 3);
  EXPECT_EQ(worker_.Stage(0), "has ended");
  EXPECT_EQ(worker_.Stage(1), "has not begun");
}

TEST_F(TrainFunctionWorkerTest, AbortEndsAReportAndAllThatWait) {
  auto run = Run(Start("ThreeReports"));
  ASSERT_TRUE(worker_.NextReport(0, 0).has_value());
  auto next = std::async(std::launch::async,
                         [this] { return worker_.NextReport(0, 1); });
  worker_.Abort(0, "rank 1 died");
  const RunOutcome outcome = run.get();
  EXPECT_TRUE(outcome.peer_failed);
  EXPECT_THAT(outcome.message, HasSubstr("rank 1 died"));
  EXPECT_EQ(next.get(), std::nullopt);
}

TEST_F(TrainFunctionWorkerTest, AbortCallsHandlers) {
  auto run = Run(Start("UntilAborted"));
  while (worker_.Stage(0) != "waits to be told") std::this_thread::yield();
  worker_.Abort(0, "why");
  EXPECT_EQ(run.get().code, 0);
}

TEST_F(TrainFunctionWorkerTest, AGenerationThatWasAbortedBeforeDoesNotBegin) {
  worker_.Abort(3, "too late");
  const RunOutcome outcome = worker_.Run(Start("UntilAborted", 3), {});
  EXPECT_TRUE(outcome.peer_failed);
  EXPECT_EQ(outcome.message, "too late");
  EXPECT_EQ(worker_.NextReport(3, 0), std::nullopt);
}

TEST_F(TrainFunctionWorkerTest, TheNextGenerationBeginsAnew) {
  auto run = Run(Start("ThreeReports", 0));
  ASSERT_TRUE(worker_.NextReport(0, 0).has_value());
  worker_.Abort(0, "rank 1 died");
  run.get();

  auto again = Run(Start("ThreeReports", 1));
  ASSERT_TRUE(worker_.NextReport(1, 0).has_value());
  worker_.Abort(0, "an old one");         // Has no effect,
  worker_.Release(0, 0, {.stop = true});  // and neither has this.
  worker_.Release(1, 0, {});
  ASSERT_TRUE(worker_.NextReport(1, 1).has_value());
  worker_.Release(1, 1, {.stop = true});
  const RunOutcome outcome = again.get();
  EXPECT_EQ(outcome.code, 0) << outcome.message;
  EXPECT_EQ(outcome.num_reports, 2);
}

}  // namespace
}  // namespace miniray::train
