// A daemon's stream to the head, seen by its head.

#include "runtime/worker/head_link.h"

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/background.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Accepts streams, and notes on which of them messages come.
class FakeHead : public v1::Head::Service {
 public:
  FakeHead() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeHead() override { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

  grpc::Status AttachNode(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::NodeCommand, v1::NodeMessage>* stream)
      override {
    v1::NodeMessage message;
    if (!stream->Read(&message)) return grpc::Status::CANCELLED;
    int number = 0;
    bool answers = false;
    {
      absl::MutexLock lock(&mu_);
      number = ++streams_;
      answers = number > unanswered_;
      context_ = context;
    }
    if (answers) {
      v1::NodeCommand registered;
      registered.mutable_registered()->set_lease_ms(10000);
      stream->Write(registered);
    }
    while (stream->Read(&message)) {
      absl::MutexLock lock(&mu_);
      message_stream_ = number;
    }
    absl::MutexLock lock(&mu_);
    if (context_ == context) context_ = nullptr;
    return grpc::Status::CANCELLED;
  }

  // The first `count` registrations get no answer.
  void LeaveUnanswered(int count) {
    absl::MutexLock lock(&mu_);
    unanswered_ = count;
  }
  // The one that there is.
  void BreakStream() {
    absl::MutexLock lock(&mu_);
    if (context_ != nullptr) context_->TryCancel();
  }
  int streams() const {
    absl::MutexLock lock(&mu_);
    return streams_;
  }
  // The number of the stream on which the first message came.
  int AwaitMessage() {
    absl::MutexLock lock(&mu_);
    auto came = [this] {
      mu_.AssertHeld();
      return message_stream_ > 0;
    };
    mu_.AwaitWithTimeout(absl::Condition(&came), kPatience);
    return message_stream_;
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int port_ = 0;
  mutable absl::Mutex mu_;
  int unanswered_ ABSL_GUARDED_BY(mu_) = 0;
  int streams_ ABSL_GUARDED_BY(mu_) = 0;
  int message_stream_ ABSL_GUARDED_BY(mu_) = 0;
  grpc::ServerContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::unique_ptr<grpc::Server> server_;
};

class HeadLinkTest : public testing::Test {
 protected:
  HeadLinkTest()
      : channel_(MakeDialledChannel(head_.address())),
        stub_(v1::Head::NewStub(channel_)) {}

  std::unique_ptr<HeadLink> MakeLink(
      absl::Duration answer_timeout = absl::Seconds(20)) {
    return std::make_unique<HeadLink>(
        HeadLink::Options{.head_address = head_.address(),
                          .channel = channel_.get(),
                          .answer_timeout = answer_timeout},
        stub_.get(),
        HeadLink::Callbacks{.describe = [](v1::RegisterNode*) {},
                            .on_command = [](const v1::NodeCommand&) {},
                            .on_given_up = [] {}});
  }

  // The number of a stream that came after `last`; 0: none does.
  static int64_t AwaitAttachment(const HeadLink& link, int64_t last) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      const int64_t now = link.attachment();
      if (now > last) return now;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return 0;
  }

  FakeHead head_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Head::Stub> stub_;
};

// What is said of an earlier stream does not cut the one that came after it.
TEST_F(HeadLinkTest, OnlyTheStreamThatIsMeantIsCut) {
  const auto link = MakeLink();
  EXPECT_EQ(link->attachment(), 0);
  ASSERT_THAT(link->Start(kPatience), IsOk());
  const int64_t first = AwaitAttachment(*link, 0);
  ASSERT_GT(first, 0);
  head_.BreakStream();
  const int64_t second = AwaitAttachment(*link, first);
  ASSERT_GT(second, 0);
  link->Redial(first);
  link->Redial(0);
  v1::NodeMessage stats;
  stats.mutable_stats()->set_memory_used_bytes(1);
  link->Send(stats);
  EXPECT_EQ(head_.AwaitMessage(), 2);
  EXPECT_EQ(link->attachment(), second);
  link->Redial(second);
  EXPECT_GT(AwaitAttachment(*link, second), second);
  EXPECT_EQ(head_.streams(), 3);
}

// A connection on which the head says nothing is not waited for without end.
TEST_F(HeadLinkTest, ARegistrationWithoutAnAnswerIsTriedAgain) {
  head_.LeaveUnanswered(2);
  const auto link = MakeLink(absl::Milliseconds(300));
  ASSERT_THAT(link->Start(kPatience), IsOk());
  EXPECT_GE(head_.streams(), 3);
}

TEST_F(HeadLinkTest, WhatTheHeadDoesNotAnswerIsSaid) {
  head_.LeaveUnanswered(1000);
  const auto link = MakeLink(absl::Milliseconds(100));
  EXPECT_THAT(link->Start(absl::Seconds(5)),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("has not answered the registration of this "
                                 "node for 100ms")));
}

// The time is that until the answer, not that of the stream.
TEST_F(HeadLinkTest, AnAcceptedStreamIsKept) {
  constexpr absl::Duration kAnswerTimeout = absl::Seconds(1);
  const auto link = MakeLink(kAnswerTimeout);
  ASSERT_THAT(link->Start(kPatience), IsOk());
  const int64_t attachment = AwaitAttachment(*link, 0);
  ASSERT_GT(attachment, 0);
  // Runs after what watches the stream: that was due before.
  absl::Notification over;
  RunInBackground([&over] { over.Notify(); }, kAnswerTimeout);
  over.WaitForNotification();
  v1::NodeMessage stats;
  stats.mutable_stats()->set_memory_used_bytes(1);
  link->Send(stats);
  EXPECT_EQ(head_.AwaitMessage(), head_.streams());
  EXPECT_EQ(link->attachment(), attachment);
}

}  // namespace
}  // namespace miniray
