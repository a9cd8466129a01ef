#include "runtime/actor/metric_reporter.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/metrics/told.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::IsEmpty;

using Report = std::map<std::string, double>;

constexpr absl::Duration kLong = absl::Seconds(30);

// A daemon that reads, or does not.
class MetricReporterTest : public testing::Test {
 protected:
  // What was told, report by report.
  std::vector<Report> Told() {
    absl::MutexLock lock(&mu_);
    return told_;
  }

  bool AwaitReports(size_t count) {
    const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
      return told_.size() >= count;
    };
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&enough), kLong);
  }
  bool AwaitRefusals(int count) {
    const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
      return refused_ >= count;
    };
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&enough), kLong);
  }

  void SetReads(bool reads) {
    absl::MutexLock lock(&mu_);
    reads_ = reads;
  }

  bool Send(const v1::ActorEvent& event, bool wait) {
    absl::MutexLock lock(&mu_);
    if (!reads_ && !wait) {
      ++refused_;
      return false;
    }
    told_.push_back(miniray::Told(event.metrics()));
    return true;
  }

  // What Update finds: `left_` looks more at which somebody waits.
  bool Update() {
    absl::MutexLock lock(&mu_);
    gauge_.Set(left_);
    if (left_ == 0) return false;
    --left_;
    return true;
  }

  ProcessMetrics metrics_;
  MetricCounter& counter_ = metrics_.Counter("c_total", "C.");
  MetricGauge& gauge_ = metrics_.Gauge("g", "G.");
  absl::Mutex mu_;
  bool reads_ ABSL_GUARDED_BY(mu_) = true;
  int refused_ ABSL_GUARDED_BY(mu_) = 0;
  int left_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Report> told_ ABSL_GUARDED_BY(mu_);
  // The last one to be made, so the first to go.
  std::shared_ptr<MetricReporter> reporter_ = std::make_shared<MetricReporter>(
      &metrics_, [this] { return Update(); },
      [this](const v1::ActorEvent& event, bool wait) {
        return Send(event, wait);
      });
};

TEST_F(MetricReporterTest, TellsAfterATouch) {
  counter_.Add(3);
  reporter_->Touch();
  ASSERT_TRUE(AwaitReports(1));
  EXPECT_EQ(Told()[0], (Report{{"c_total", 3}}));
  counter_.Add();
  reporter_->Touch();
  ASSERT_TRUE(AwaitReports(2));
  EXPECT_EQ(Told()[1], (Report{{"c_total", 4}}));
}

TEST_F(MetricReporterTest, ManyTouchesAreOneReport) {
  for (int i = 0; i < 1000; ++i) {
    counter_.Add();
    reporter_->Touch();
  }
  ASSERT_TRUE(AwaitReports(1));
  // All came within its second.
  EXPECT_EQ(Told(), (std::vector<Report>{{{"c_total", 1000}}}));
}

TEST_F(MetricReporterTest, GoesOnWhileTheFiguresMayChangeByThemselves) {
  {
    absl::MutexLock lock(&mu_);
    left_ = 2;
  }
  reporter_->Touch();  // Once.
  ASSERT_TRUE(AwaitReports(3));
  EXPECT_EQ(Told(), (std::vector<Report>{{{"g", 2}}, {{"g", 1}}, {{"g", 0}}}));
}

TEST_F(MetricReporterTest, WhoDidNotReadIsToldLater) {
  SetReads(false);
  counter_.Add(5);
  reporter_->Touch();
  // It tries by itself again and again.
  ASSERT_TRUE(AwaitRefusals(2));
  EXPECT_THAT(Told(), IsEmpty());
  SetReads(true);
  ASSERT_TRUE(AwaitReports(1));
  EXPECT_EQ(Told()[0], (Report{{"c_total", 5}}));
}

TEST_F(MetricReporterTest, FlushTellsAtOnceAndOnlyIfThereIsSomething) {
  SetReads(false);  // It waits until somebody does.
  reporter_->Flush();
  EXPECT_THAT(Told(), IsEmpty());
  counter_.Add(2);
  reporter_->Flush();
  EXPECT_EQ(Told(), (std::vector<Report>{{{"c_total", 2}}}));
}

}  // namespace
}  // namespace internal
}  // namespace miniray
