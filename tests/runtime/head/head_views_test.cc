// What the head offers to the dashboard in its own process.

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/actor.grpc.pb.h"
#include "proto/head.grpc.pb.h"
#include "runtime/head/head_server.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/head/head_service_testutil.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

// An actor's process, as far as Inspect goes.
class FakeActor : public v1::ActorService::Service {
 public:
  explicit FakeActor(std::string token) : token_(std::move(token)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status Inspect(grpc::ServerContext* context,
                       const v1::InspectRequest* request,
                       v1::InspectResponse* response) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return ToGrpcStatus(status);
    }
    if (request->actor_id() != "actor") {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "not here");
    }
    response->set_calls_done(7);
    return grpc::Status::OK;
  }

 private:
  const std::string token_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class HeadViewsTest : public HeadServiceTest {
 protected:
  // A node, and an actor that is about to start there.
  void SetUp() override {
    HeadServiceTest::SetUp();
    ASSERT_THAT(Upload(package_id_, package_, token_), IsOk());
    context_ = Context(token_);
    node_ = stub_->AttachNode(context_.get());
    ASSERT_TRUE(node_->Write(Registration("node")));
    NextCommand(v1::NodeCommand::kRegistered);
    v1::CreateActorResponse created;
    ASSERT_THAT(Call(&v1::Head::Stub::CreateActor, Creation("actor"), &created),
                IsOk());
    NextCommand(v1::NodeCommand::kStartActor);
  }

  void TearDown() override {
    context_->TryCancel();
    node_->Finish();
  }

  // Passes over commands of other kinds.
  v1::NodeCommand NextCommand(v1::NodeCommand::KindCase kind) {
    v1::NodeCommand command;
    while (node_->Read(&command)) {
      if (command.kind_case() == kind) return command;
    }
    ADD_FAILURE() << "the node's stream ended before a command " << kind;
    return v1::NodeCommand();
  }

  void Say(uint64_t request_id, const std::string& data, bool last) {
    v1::NodeMessage message;
    message.mutable_log_chunk()->set_request_id(request_id);
    message.mutable_log_chunk()->set_data(data);
    message.mutable_log_chunk()->set_last(last);
    ASSERT_TRUE(node_->Write(message));
  }

  v1::ReadLogRequest LogOfActor() const {
    v1::ReadLogRequest request;
    request.set_actor_id("actor");
    return request;
  }

  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<NodeStream> node_;
};

TEST_F(HeadViewsTest, ALogIsReadToItsEnd) {
  auto reader = head_->ReadLog(LogOfActor());
  ASSERT_THAT(reader, IsOk());
  const v1::NodeCommand command = NextCommand(v1::NodeCommand::kReadLog);
  EXPECT_EQ(command.read_log().actor_id(), "actor");
  Say(command.read_log().request_id(), "one\n", false);
  Say(command.read_log().request_id(), "two\n", true);
  std::string text;
  while (true) {
    const auto chunk = (*reader)->Next(kPatience);
    if (absl::IsOutOfRange(chunk.status())) break;
    ASSERT_THAT(chunk, IsOk());
    ASSERT_TRUE(chunk->has_value()) << "after " << text;
    text += (*chunk)->data();
  }
  EXPECT_EQ(text, "one\ntwo\n");
  // It stays so.
  EXPECT_THAT((*reader)->Next(kPatience),
              StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_F(HeadViewsTest, NothingComesWhereNothingIsPrinted) {
  auto reader = head_->ReadLog(LogOfActor());
  ASSERT_THAT(reader, IsOk());
  const auto first = (*reader)->Next(kPatience);  // That it is connected.
  ASSERT_THAT(first, IsOk());
  ASSERT_TRUE(first->has_value());
  EXPECT_EQ((*first)->data(), "");
  const auto second = (*reader)->Next(absl::Milliseconds(10));
  ASSERT_THAT(second, IsOk());
  EXPECT_FALSE(second->has_value());
}

// More than may be on its way at once: what is taken makes room.
TEST_F(HeadViewsTest, WhatIsTakenMakesRoomForMore) {
  auto reader = head_->ReadLog(LogOfActor());
  ASSERT_THAT(reader, IsOk());
  const v1::NodeCommand command = NextCommand(v1::NodeCommand::kReadLog);
  const std::string piece(100'000, 'x');
  Say(command.read_log().request_id(), piece, false);
  std::optional<v1::LogChunk> chunk;
  while (!chunk.has_value() || chunk->data().empty()) {
    auto next = (*reader)->Next(kPatience);
    ASSERT_THAT(next, IsOk());
    ASSERT_TRUE(next->has_value());
    chunk = *std::move(next);
  }
  EXPECT_EQ(chunk->data(), piece);
  const v1::NodeCommand grant = NextCommand(v1::NodeCommand::kGrantLog);
  EXPECT_EQ(grant.grant_log().bytes(), 100'000);
}

TEST_F(HeadViewsTest, AReaderThatGoesEndsTheReading) {
  auto reader = head_->ReadLog(LogOfActor());
  ASSERT_THAT(reader, IsOk());
  const v1::NodeCommand command = NextCommand(v1::NodeCommand::kReadLog);
  reader->reset();
  EXPECT_EQ(
      NextCommand(v1::NodeCommand::kEndReadLog).end_read_log().request_id(),
      command.read_log().request_id());
}

TEST_F(HeadViewsTest, NoLogOfWhoIsUnknown) {
  v1::ReadLogRequest request;
  request.set_any_id("nobody");
  EXPECT_THAT(
      head_->ReadLog(request).status(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("called 'nobody'")));
}

TEST_F(HeadViewsTest, AJobIsStopped) {
  const auto context = Context(token_);
  const auto driver = stub_->AttachDriver(context.get());
  ASSERT_TRUE(driver->Write(Hello("mine")));
  v1::DriverEvent event;
  ASSERT_TRUE(driver->Read(&event));
  EXPECT_THAT(head_->StopJob("mine"), IsOk());
  const v1::GetClusterStateResponse state =
      head_->SelectState({v1::TABLE_JOBS}, nullptr);
  ASSERT_EQ(state.jobs_size(), 1);
  EXPECT_EQ(state.jobs(0).state(), v1::JOB_STATE_STOPPED);
  EXPECT_EQ(state.nodes_size(), 0);  // Nobody asked for them.
  EXPECT_THAT(head_->StopJob("other"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no job other")));
  context->TryCancel();
  driver->Finish();
}

TEST_F(HeadViewsTest, SomeOfTheActors) {
  int asked = 0;
  EXPECT_EQ(head_
                ->SelectState({v1::TABLE_ACTORS},
                              [&asked](const v1::ActorInfo& actor) {
                                ++asked;
                                return actor.actor_id() != "actor";
                              })
                .actors_size(),
            0);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(head_->SelectState({v1::TABLE_ACTORS}, nullptr).actors_size(), 1);
}

TEST_F(HeadViewsTest, WhatIsUsedAndWhatWasCalled) {
  v1::NodeMessage message;
  v1::CallRecord* call = message.mutable_call_records()->add_records();
  call->set_job_id("job");
  call->set_method("Add");
  ASSERT_TRUE(node_->Write(message));
  message.mutable_actor_started()->set_actor_id("actor");
  message.mutable_actor_started()->set_address("127.0.0.1:1");
  message.mutable_actor_started()->set_pid(1);
  ASSERT_TRUE(node_->Write(message));
  message.mutable_stats()->set_memory_total_bytes(2);
  message.mutable_stats()->set_cpus(8);
  message.mutable_stats()->set_cpus_busy(1.5);
  v1::ActorUsage* usage = message.mutable_stats()->add_actors();
  usage->set_actor_id("actor");
  usage->set_memory_bytes(5);
  ASSERT_TRUE(node_->Write(message));
  // What was sent before has come too.
  ASSERT_TRUE(Eventually([](const v1::GetClusterStateResponse& state) {
    return state.nodes(0).memory_total_bytes() == 2;
  }));
  const v1::GetUsageResponse used = head_->GetUsage({"actor", "other"});
  ASSERT_EQ(used.nodes_size(), 1);
  EXPECT_EQ(used.nodes(0).cpus_busy(), 1.5);
  ASSERT_EQ(used.actors_size(), 1);
  EXPECT_EQ(used.actors(0).memory_bytes(), 5);
  EXPECT_EQ(head_->GetUsage({}).actors_size(), 0);
  v1::GetCallRecordsRequest request;
  ASSERT_EQ(head_->GetCallRecords(request).records_size(), 1);
  EXPECT_EQ(head_->GetCallRecords(request).records(0).method(), "Add");
  EXPECT_EQ(head_->GetCallRecords(request).records(0).node_id(), "node");
  request.set_job_id("other");
  EXPECT_EQ(head_->GetCallRecords(request).records_size(), 0);
}

TEST_F(HeadViewsTest, AnActorTellsOfItsCalls) {
  EXPECT_THAT(head_->InspectActor("nobody", kPatience),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(
      head_->InspectActor("actor", kPatience),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no process now")));
  const FakeActor process(token_);
  v1::NodeMessage started;
  started.mutable_actor_started()->set_actor_id("actor");
  started.mutable_actor_started()->set_address(process.address());
  started.mutable_actor_started()->set_pid(1);
  ASSERT_TRUE(node_->Write(started));
  ASSERT_TRUE(Eventually([](const v1::GetClusterStateResponse& state) {
    return state.actors(0).state() == v1::ACTOR_STATE_ALIVE;
  }));
  const auto told = head_->InspectActor("actor", kPatience);
  ASSERT_THAT(told, IsOk());
  EXPECT_EQ(told->calls_done(), 7);
}

}  // namespace
}  // namespace miniray
