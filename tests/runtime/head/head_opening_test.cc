// A head whose port is bound, and which is not ready: what it told a caller
// then might be forgotten with it.

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.grpc.pb.h"
#include "runtime/head/head_service.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr char kToken[] = "secret";

class HeadOpeningTest : public ::testing::Test {
 protected:
  HeadOpeningTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::Head::NewStub(MakeChannel(absl::StrCat("127.0.0.1:", port)));
  }
  ~HeadOpeningTest() override {
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
  }

  std::unique_ptr<grpc::ClientContext> Context(
      const std::string& token = kToken) {
    auto context = std::make_unique<grpc::ClientContext>();
    PrepareContext(context.get(), token, kPatience);
    return context;
  }

  absl::Status Register() {
    const auto context = Context();
    const auto stream = stub_->AttachNode(context.get());
    v1::NodeMessage message;
    message.mutable_register_node()->set_node_id("n");
    stream->Write(message);
    v1::NodeCommand command;
    if (stream->Read(&command)) {
      context->TryCancel();
      (void)stream->Finish();
      return absl::OkStatus();
    }
    return FromGrpcStatus(stream->Finish());
  }

  absl::Status Upload() {
    const auto context = Context();
    v1::PutPackageResponse response;
    const auto writer = stub_->PutPackage(context.get(), &response);
    writer->WritesDone();
    return FromGrpcStatus(writer->Finish());
  }

  absl::Status Create() {
    v1::CreateActorRequest request;
    request.mutable_spec()->set_actor_id("a");
    v1::CreateActorResponse response;
    return FromGrpcStatus(
        stub_->CreateActor(Context().get(), request, &response));
  }

  absl::Status Query(const std::string& token = kToken) {
    v1::GetClusterStateResponse response;
    return FromGrpcStatus(
        stub_->GetClusterState(Context(token).get(), {}, &response));
  }

  TempFolder folder_;
  ClusterState state_{ClusterState::Options()};
  PackageStore packages_{folder_ / "packages"};
  ActorStateStore actor_states_{
      folder_ / "states", 1 << 20,
      [](const std::string&, int32_t) { return absl::OkStatus(); }};
  LogRelay logs_;
  CallRecordRing calls_;
  HeadService service_{&state_, &packages_, &actor_states_,
                       &logs_,  &calls_,    kToken};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Head::Stub> stub_;
};

TEST_F(HeadOpeningTest, NobodyIsServedBefore) {
  const auto refusal = StatusIs(absl::StatusCode::kUnavailable,
                                HasSubstr("the head is about to start"));
  EXPECT_THAT(Register(), refusal);
  EXPECT_THAT(Upload(), refusal);
  EXPECT_THAT(Create(), refusal);
  EXPECT_THAT(Query(), refusal);
  // Callers come again: a wrong token is no reason not to, before it is read.
  EXPECT_THAT(Query("wrong"), refusal);
  EXPECT_EQ(state_.Snapshot().nodes_size(), 0);
  EXPECT_EQ(state_.Snapshot().actors_size(), 0);

  service_.Open();
  EXPECT_THAT(Query(), IsOk());
  EXPECT_THAT(Query("wrong"), StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Register(), IsOk());
  EXPECT_EQ(state_.Snapshot().nodes_size(), 1);
}

}  // namespace
}  // namespace miniray
