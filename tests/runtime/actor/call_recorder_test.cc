#include "runtime/actor/call_recorder.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::IsEmpty;

class CallRecorderTest : public ::testing::Test {
 protected:
  static v1::HostActor Host() {
    v1::HostActor host;
    host.mutable_spec()->set_actor_id("actor-1");
    host.mutable_spec()->set_class_name("shop::Counter");
    host.mutable_spec()->set_name("c");
    host.mutable_spec()->set_job_id("job-1");
    return host;
  }
  static FinishedCall Call(const std::string& method, int64_t end_us) {
    return {.method = method,
            .queued_unix_us = end_us - 20,
            .start_unix_us = end_us - 10,
            .end_unix_us = end_us,
            .failed = true,
            .lane = 2};
  }

  std::vector<v1::ActorEvent> sent_;
  std::shared_ptr<CallRecorder> recorder_ = std::make_shared<CallRecorder>(
      [this](const v1::ActorEvent& event, bool wait) {
        if (!wait && !reads_) {
          tried_.Notify();
          return false;
        }
        sent_.push_back(event);
        return true;
      });
  bool reads_ = true;
  absl::Notification tried_;
  std::function<void(const FinishedCall&)> hook_ = recorder_->HookFor(Host());
};

TEST_F(CallRecorderTest, WhoDoesNotReadIsToldHowMuchItMissed) {
  reads_ = false;
  hook_(Call("Add", 1000100));
  tried_.WaitForNotification();  // By itself, after its period.
  // Counted a moment later.
  while (sent_.empty()) recorder_->Flush();
  EXPECT_EQ(sent_[0].call_records().records_size(), 0);
  EXPECT_EQ(sent_[0].call_records().dropped(), 1);
}

TEST_F(CallRecorderTest, TellsWhoDidWhat) {
  recorder_->Flush();
  EXPECT_THAT(sent_, IsEmpty());
  hook_(Call("Add", 1000100));
  recorder_->Flush();
  ASSERT_EQ(sent_.size(), 1);
  ASSERT_EQ(sent_[0].call_records().records_size(), 1);
  const v1::CallRecord& record = sent_[0].call_records().records(0);
  EXPECT_EQ(record.actor_id(), "actor-1");
  EXPECT_EQ(record.class_name(), "Counter");
  EXPECT_EQ(record.actor_name(), "c");
  EXPECT_EQ(record.job_id(), "job-1");
  EXPECT_EQ(record.method(), "Add");
  EXPECT_EQ(record.queued_unix_us(), 1000080);
  EXPECT_EQ(record.start_unix_us(), 1000090);
  EXPECT_EQ(record.end_unix_us(), 1000100);
  EXPECT_TRUE(record.failed());
  EXPECT_EQ(record.lane(), 2);
  EXPECT_EQ(sent_[0].call_records().dropped(), 0);
  recorder_->Flush();
  EXPECT_EQ(sent_.size(), 1);
}

TEST_F(CallRecorderTest, KeepsSoManyASecondAndCountsTheOthers) {
  constexpr int64_t kCalls = 10 * CallRecorder::kMaxPerSecond;
  for (int second = 1; second <= 2; ++second) {
    for (int64_t i = 0; i < kCalls; ++i) {
      hook_(Call("Add", second * 1000000 + i * 1000000 / kCalls));
    }
    recorder_->Flush();
  }
  ASSERT_EQ(sent_.size(), 2);
  for (const v1::ActorEvent& event : sent_) {
    EXPECT_EQ(event.call_records().records_size(), CallRecorder::kMaxPerSecond);
    EXPECT_EQ(event.call_records().dropped(),
              kCalls - CallRecorder::kMaxPerSecond);
  }
  // Warned by the first second, the next is covered evenly.
  const auto& records = sent_[1].call_records().records();
  EXPECT_EQ(records[1].end_unix_us() - records[0].end_unix_us(), 1000);
  EXPECT_GT(records[records.size() - 1].end_unix_us(), 2990000);
}

}  // namespace
}  // namespace internal
}  // namespace miniray
