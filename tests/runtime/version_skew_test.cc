// Programs, nodes and heads of different releases refuse each other at once,
// and say so. (What each method of each service says to a foreign caller:
// tests/integration/security_test.)

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/actor.grpc.pb.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/version.h"
#include "runtime/client/actor_stream.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "runtime/worker/worker_daemon.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kOther[] = "99.1.0";

// Nobody who is refused waits as long: the tests' time limits are shorter.
constexpr absl::Duration kForEver = absl::Hours(1);

auto IsRefusedFor(const std::string& caller) {
  return StatusIs(absl::StatusCode::kUnimplemented,
                  AllOf(HasSubstr(absl::StrCat("Mini-Ray ", caller)),
                        HasSubstr("from the same release")));
}

// A head to which this release is another one.
class ForeignHead : public v1::Head::Service {
 public:
  ForeignHead() {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  const std::string& address() const { return address_; }

  grpc::Status AttachNode(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::NodeCommand, v1::NodeMessage>*) override {
    return Refuse(context);
  }
  grpc::Status AttachDriver(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::DriverEvent, v1::DriverMessage>*) override {
    return Refuse(context);
  }

 private:
  static grpc::Status Refuse(grpc::ServerContext* context) {
    const auto version = context->client_metadata().find(kVersionKey);
    EXPECT_NE(version, context->client_metadata().end());
    return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                        absl::StrCat("the caller is Mini-Ray ",
                                     std::string(version->second.data(),
                                                 version->second.size()),
                                     "; build all from the same release"));
  }

  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(VersionSkewTest, ADriverDoesNotWaitForAHeadOfAnotherRelease) {
  ForeignHead head;
  EXPECT_THAT(Cluster::Connect(
                  {.address = head.address(), .connect_timeout = kForEver}),
              IsRefusedFor(kVersion));
}

TEST(VersionSkewTest, ANodeDoesNotJoinAHeadOfAnotherRelease) {
  ForeignHead head;
  TempFolder folder;
  EXPECT_THAT(WorkerDaemon::Start({.head_address = head.address(),
                                   .session_dir = folder / "session",
                                   .connect_timeout = kForEver}),
              IsRefusedFor(kVersion));
}

// Tells how its stream has ended.
class Caller : public internal::ActorStreamUser {
 public:
  absl::Status Await() {
    ended_.WaitForNotification();
    return status_;
  }
  void OnWritable(internal::ActorStream*) override {}
  void OnFrame(internal::ActorStream* stream, const absl::Cord&) override {
    ADD_FAILURE() << "an answer";
    stream->Cancel();
  }
  void OnStreamEnded(internal::ActorStream*,
                     const absl::Status& status) override {
    status_ = status;
    ended_.Notify();
  }

 private:
  absl::Notification ended_;
  absl::Status status_;
};

class Echo {
 public:
  int64_t Say(int64_t n) { return n; }
};
MINIRAY_ACTOR(Echo, Constructor<>, &Echo::Say);

TEST(VersionSkewTest, AnActorRefusesTheCallerOnAllWaysToIt) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  const auto echo = driver.CreateActor<Echo>({});
  ASSERT_THAT(echo, IsOk());
  ASSERT_THAT(echo->WaitReady(), IsOk());
  const std::string address = cluster.Info(*echo).address();
  internal::ActorStream::Metadata metadata = {{kActorKey, echo->actor_id()},
                                              {kIncarnationKey, "0"},
                                              {kVersionKey, kOther}};

  for (const auto& start :
       {internal::StartUnixActorStream, internal::StartTcpActorStream}) {
    const auto caller = std::make_shared<Caller>();
    const auto stream = start(caller, address, "", metadata);
    ASSERT_NE(stream, nullptr);
    EXPECT_THAT(caller->Await(), IsRefusedFor(kOther));
  }

  // Raw, since a stream of this program tells its own version.
  grpc::ClientContext context;
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  const auto stub = v1::ActorService::NewStub(MakeChannel(address));
  v1::InspectRequest request;
  v1::InspectResponse response;
  EXPECT_THAT(FromGrpcStatus(stub->Inspect(&context, request, &response)),
              IsRefusedFor(kOther));

  EXPECT_THAT(echo->Call<&Echo::Say>(5).Get(), IsOkAndHolds(5));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
