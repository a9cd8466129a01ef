// When a node's lease is renewed, seen by its head.

#include "runtime/worker/lease_keeper.h"

#include <grpcpp/grpcpp.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "runtime/worker/head_link.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
// How far the head's clock is behind this machine's.
constexpr absl::Duration kBehind = absl::Hours(1);

// Accepts the first stream, and no other. Takes every renewal.
class FakeHead : public v1::Head::Service {
 public:
  explicit FakeHead(absl::Duration lease,
                    int renewals_a_stream = std::numeric_limits<int>::max())
      : lease_(lease), renewals_a_stream_(renewals_a_stream) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeHead() override {
    if (!broken_.HasBeenNotified()) broken_.Notify();
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
  }

  grpc::Status AttachNode(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::NodeCommand, v1::NodeMessage>* stream)
      override {
    const grpc::Status no(grpc::StatusCode::UNAVAILABLE, "no stream for you");
    v1::NodeMessage registration;
    if (!stream->Read(&registration)) return no;
    {
      absl::MutexLock lock(&mu_);
      if (++streams_ > 1) return no;
    }
    v1::NodeCommand registered;
    registered.mutable_registered()->set_lease_ms(
        absl::ToInt64Milliseconds(lease_));
    stream->Write(registered);
    broken_.WaitForNotification();
    return no;
  }

  // `renewals_a_stream_` are answered; then the stream breaks.
  grpc::Status RenewLease(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::RenewLeaseResponse, v1::RenewLeaseRequest>*
          stream) override {
    v1::RenewLeaseRequest request;
    for (int left = renewals_a_stream_; left > 0 && stream->Read(&request);
         --left) {
      {
        absl::MutexLock lock(&mu_);
        renewals_.push_back(absl::Now());
        requests_.push_back(request);
      }
      v1::RenewLeaseResponse response;
      response.set_unix_us(absl::ToUnixMicros(absl::Now() - kBehind));
      stream->Write(response);
    }
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "enough renewed");
  }

  // Those of Renewals.
  std::vector<v1::RenewLeaseRequest> Requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

  void BreakTheStream() { broken_.Notify(); }

  // The times of the first `count` renewals; fewer if they do not come.
  std::vector<absl::Time> Renewals(size_t count) {
    absl::MutexLock lock(&mu_);
    auto enough = [this, count] {
      mu_.AssertHeld();
      return renewals_.size() >= count;
    };
    mu_.AwaitWithTimeout(absl::Condition(&enough), kPatience);
    return renewals_;
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  const absl::Duration lease_;
  const int renewals_a_stream_;
  int port_ = 0;
  absl::Notification broken_;
  absl::Mutex mu_;
  int streams_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<absl::Time> renewals_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::RenewLeaseRequest> requests_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<grpc::Server> server_;
};

// A daemon's link and keeper at a head.
class Node {
 public:
  explicit Node(const FakeHead& head)
      : channel_(MakeDialledChannel(head.address())),
        stub_(v1::Head::NewStub(channel_)),
        link_({.head_address = head.address(), .channel = channel_.get()},
              stub_.get(),
              {.describe = [](v1::RegisterNode*) {},
               .on_command = [](const v1::NodeCommand&) {},
               .on_given_up = [] {}}) {}

  absl::Status Start() {
    MR_RETURN_IF_ERROR(link_.Start(kPatience));
    keeper_ = std::make_unique<LeaseKeeper>(
        /*token=*/"", stub_.get(), &link_,
        [](const grpc::Status&, absl::Duration) {});
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Head::Stub> stub_;
  HeadLink link_;
  std::unique_ptr<LeaseKeeper> keeper_;
};

TEST(LeaseKeeperTest, RenewsAfterThreeTenthsOfTheLease) {
  const absl::Duration lease = absl::Seconds(2);
  FakeHead head(lease);
  Node node(head);
  const absl::Time begin = absl::Now();
  ASSERT_THAT(node.Start(), IsOk());
  const std::vector<absl::Time> renewals = head.Renewals(2);
  ASSERT_GE(renewals.size(), 2);
  EXPECT_GE(renewals[0] - begin, 0.3 * lease);
  EXPECT_GE(renewals[1] - renewals[0], 0.25 * lease);
}

// Each stream breaks right after its first renewal: the next one still comes at
// its time, not after a try that fails.
TEST(LeaseKeeperTest, ABrokenStreamIsReplaced) {
  const absl::Duration lease = absl::Seconds(3);
  FakeHead head(lease, /*renewals_a_stream=*/1);
  Node node(head);
  ASSERT_THAT(node.Start(), IsOk());
  const std::vector<absl::Time> renewals = head.Renewals(3);
  ASSERT_GE(renewals.size(), 3);
  EXPECT_LT(renewals[2] - renewals[0], 2 * lease);
}

// The head loses a node whose stream broke after a third of the lease.
TEST(LeaseKeeperTest, RenewsSoonWhileTheStreamCannotBeHad) {
  const absl::Duration lease = absl::Seconds(15);
  FakeHead head(lease);
  Node node(head);
  ASSERT_THAT(node.Start(), IsOk());
  head.BreakTheStream();
  const absl::Time broken = absl::Now();
  const std::vector<absl::Time> renewals = head.Renewals(2);
  ASSERT_GE(renewals.size(), 2);
  EXPECT_LT(renewals[0] - broken, lease / 3);
  EXPECT_LT(renewals[1] - renewals[0], lease / 3);
}

// Over streams that break: what was learned from one holds on the next.
TEST(LeaseKeeperTest, TellsHowTheNodesClockStandsToTheHeads) {
  FakeHead head(/*lease=*/absl::Seconds(1), /*renewals_a_stream=*/1);
  Node node(head);
  ASSERT_THAT(node.Start(), IsOk());
  ASSERT_GE(head.Renewals(3).size(), 3);
  const std::vector<v1::RenewLeaseRequest> requests = head.Requests();
  // Nothing is known before the first answer.
  EXPECT_FALSE(requests[0].has_clock());
  for (int i = 1; i < 3; ++i) {
    ASSERT_TRUE(requests[i].has_clock());
    const v1::ClockReading& clock = requests[i].clock();
    EXPECT_LT(clock.error_us(), absl::ToInt64Microseconds(kBehind) / 2);
    // Two: what is below a microsecond is cut off, here and at the head.
    EXPECT_NEAR(clock.ahead_us(), absl::ToInt64Microseconds(kBehind),
                clock.error_us() + 2);
  }
}

}  // namespace
}  // namespace miniray
