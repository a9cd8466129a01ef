// The head over a real gRPC channel.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/head/head_server.h"
#include "runtime/head/state_folder.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/head/head_service_testutil.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// --- Without the token nothing is answered and nothing happens.

class WrongTokenTest : public HeadServiceTest {
 protected:
  std::vector<std::string> WrongTokens() const {
    std::string last = token_;
    last.back() = last.back() == '0' ? '1' : '0';
    return {
        "",         "x", token_.substr(1), token_.substr(0, 63), token_ + "0",
        NewToken(), last};
  }

  // EXPECTs what every refused call must answer.
  void ExpectRefused(const absl::Status& status, const std::string& token) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnauthenticated,
                                 AllOf(HasSubstr("MINIRAY_TOKEN"),
                                       Not(HasSubstr(token_)))))
        << "with the token '" << token << "'";
  }

  template <class Message, class Answer>
  void ExpectStreamRefused(grpc::ClientReaderWriter<Message, Answer>* stream,
                           const Message& message, const std::string& token) {
    stream->Write(message);
    Answer answer;
    EXPECT_FALSE(stream->Read(&answer));
    ExpectRefused(FromGrpcStatus(stream->Finish()), token);
  }
};

TEST_F(WrongTokenTest, EveryCallIsRefusedAndDoesNothing) {
  // A cluster that has something to lose.
  ASSERT_THAT(Upload(package_id_, package_, token_), IsOk());
  const auto node_context = Context(token_);
  const auto node = stub_->AttachNode(node_context.get());
  ASSERT_TRUE(node->Write(Registration("node")));
  v1::NodeCommand command;
  ASSERT_TRUE(node->Read(&command));
  v1::CreateActorResponse created;
  ASSERT_THAT(Call(&v1::Head::Stub::CreateActor, Creation("actor"), &created),
              IsOk());
  const std::string before = head_->GetState().SerializeAsString();
  std::string other = package_;
  other[0] = static_cast<char>(other[0] + 1);
  ASSERT_THAT(WriteFileAtomically(folder_ / "other", other), IsOk());
  const std::string other_id = Sha256OfFile(folder_ / "other").value();

  for (const std::string& token : WrongTokens()) {
    {
      const auto context = Context(token);
      ExpectStreamRefused(stub_->AttachNode(context.get()).get(),
                          Registration("intruder"), token);
    }
    {
      const auto context = Context(token);
      ExpectStreamRefused(stub_->AttachDriver(context.get()).get(),
                          Hello("intruder"), token);
    }
    {
      const auto context = Context(token);
      v1::RenewLeaseRequest renew;
      renew.set_node_id("node");
      ExpectStreamRefused(stub_->RenewLease(context.get()).get(), renew, token);
    }
    v1::HasPackageRequest has;
    has.set_package_id(package_id_);
    v1::HasPackageResponse present;
    ExpectRefused(Call(&v1::Head::Stub::HasPackage, has, &present, token),
                  token);
    EXPECT_FALSE(present.present());
    ExpectRefused(Upload(other_id, other, token), token);
    std::string bytes;
    ExpectRefused(Download(package_id_, token, &bytes), token);
    EXPECT_THAT(bytes, IsEmpty());
    v1::CreateActorResponse response;
    ExpectRefused(Call(&v1::Head::Stub::CreateActor, Creation("intruder"),
                       &response, token),
                  token);
    v1::GetActorRequest get;
    get.set_actor_id("actor");
    v1::GetActorResponse got;
    ExpectRefused(Call(&v1::Head::Stub::GetActor, get, &got, token), token);
    v1::KillActorRequest kill;
    kill.set_actor_id("actor");
    kill.set_no_restart(true);
    v1::KillActorResponse killed;
    ExpectRefused(Call(&v1::Head::Stub::KillActor, kill, &killed, token),
                  token);
    v1::GetClusterStateResponse state;
    ExpectRefused(Call(&v1::Head::Stub::GetClusterState,
                       v1::GetClusterStateRequest(), &state, token),
                  token);
    EXPECT_EQ(state.ByteSizeLong(), 0u);
    EXPECT_EQ(got.ByteSizeLong() + response.ByteSizeLong(), 0u);
  }
  EXPECT_EQ(head_->GetState().SerializeAsString(), before);
  EXPECT_THAT(Packages(), ElementsAre(package_id_));
}

// --- With it.

TEST_F(HeadServiceTest, ClocksOfNodesComeWithTheCallRecords) {
  const auto context = Context(token_);
  const auto node = stub_->AttachNode(context.get());
  v1::NodeMessage registration = Registration("node");
  registration.mutable_register_node()->set_hostname("box");
  ASSERT_TRUE(node->Write(registration));
  v1::NodeCommand command;
  ASSERT_TRUE(node->Read(&command));
  const auto lease_context = Context(token_);
  const auto lease = stub_->RenewLease(lease_context.get());
  v1::RenewLeaseRequest renew;
  renew.set_node_id("node");
  renew.mutable_clock()->set_ahead_us(-70);
  renew.mutable_clock()->set_error_us(5);
  v1::RenewLeaseResponse renewed;
  const int64_t before = absl::ToUnixMicros(absl::Now());
  ASSERT_TRUE(lease->Write(renew));
  ASSERT_TRUE(lease->Read(&renewed));
  EXPECT_GE(renewed.unix_us(), before);
  EXPECT_LE(renewed.unix_us(), absl::ToUnixMicros(absl::Now()));
  v1::GetCallRecordsResponse records;
  ASSERT_THAT(Call(&v1::Head::Stub::GetCallRecords, v1::GetCallRecordsRequest(),
                   &records),
              IsOk());
  ASSERT_EQ(records.clocks_size(), 1);
  EXPECT_EQ(records.clocks(0).node_id(), "node");
  EXPECT_EQ(records.clocks(0).hostname(), "box");
  EXPECT_EQ(records.clocks(0).reading().ahead_us(), -70);
  EXPECT_EQ(records.clocks(0).reading().error_us(), 5);
}

TEST_F(HeadServiceTest, AnActorFromItsCreationToItsEnd) {
  v1::CreateActorResponse created;
  EXPECT_THAT(Call(&v1::Head::Stub::CreateActor, Creation("actor"), &created),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("upload the package")));
  ASSERT_THAT(Upload(package_id_, package_, token_), IsOk());
  ASSERT_THAT(Call(&v1::Head::Stub::CreateActor, Creation("actor"), &created),
              IsOk());
  EXPECT_EQ(created.actor().state(), v1::ACTOR_STATE_PENDING);

  const auto context = Context(token_);
  const auto node = stub_->AttachNode(context.get());
  ASSERT_TRUE(node->Write(Registration("node")));
  v1::NodeCommand command;
  ASSERT_TRUE(node->Read(&command));
  EXPECT_EQ(command.registered().lease_ms(), 10000);
  ASSERT_TRUE(node->Read(&command));
  EXPECT_EQ(command.start_actor().spec().actor_id(), "actor");
  const auto lease_context = Context(token_);
  const auto lease = stub_->RenewLease(lease_context.get());
  v1::RenewLeaseRequest renew;
  renew.set_node_id("node");
  v1::RenewLeaseResponse renewed;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(lease->Write(renew));
    ASSERT_TRUE(lease->Read(&renewed));
  }

  v1::NodeMessage message;
  message.mutable_actor_started()->set_actor_id("actor");
  message.mutable_actor_started()->set_address("127.0.0.1:1");
  ASSERT_TRUE(node->Write(message));
  v1::GetActorRequest get;
  get.set_actor_id("actor");
  get.set_min_version(3);
  get.set_wait_ms(30000);
  v1::GetActorResponse got;
  ASSERT_THAT(Call(&v1::Head::Stub::GetActor, get, &got), IsOk());
  EXPECT_EQ(got.actor().state(), v1::ACTOR_STATE_ALIVE);

  v1::KillActorRequest kill;
  kill.set_actor_id("actor");
  kill.set_no_restart(true);
  v1::KillActorResponse killed;
  ASSERT_THAT(Call(&v1::Head::Stub::KillActor, kill, &killed), IsOk());
  ASSERT_TRUE(node->Read(&command));
  EXPECT_EQ(command.stop_actor().actor_id(), "actor");
  message.mutable_actor_exited()->set_actor_id("actor");
  ASSERT_TRUE(node->Write(message));
  EXPECT_TRUE(Eventually([](const v1::GetClusterStateResponse& state) {
    return state.nodes(0).available().quantity().count("CPU") == 1 &&
           state.actors(0).state() == v1::ACTOR_STATE_DEAD;
  }));

  message.mutable_leaving();
  ASSERT_TRUE(node->Write(message));
  node->WritesDone();
  EXPECT_FALSE(node->Read(&command));
  EXPECT_TRUE(node->Finish().ok());
  v1::GetClusterStateResponse state;
  ASSERT_THAT(Call(&v1::Head::Stub::GetClusterState,
                   v1::GetClusterStateRequest(), &state),
              IsOk());
  ASSERT_EQ(state.nodes_size(), 1);
  EXPECT_EQ(state.nodes(0).state(), v1::NODE_STATE_DEAD);
  ASSERT_TRUE(lease->Write(renew));
  EXPECT_FALSE(lease->Read(&renewed));
  EXPECT_EQ(lease->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HeadServiceTest, AQueryThatIsNoMessageIsRefused) {
  grpc::GenericStub stub(
      MakeChannel(absl::StrCat("127.0.0.1:", head_->port())));
  const grpc::Slice garbage("\xff\xff");
  const grpc::ByteBuffer request(&garbage, 1);
  grpc::ByteBuffer response;
  grpc::CompletionQueue queue;
  const auto context = Context(token_);
  const auto call = stub.PrepareUnaryCall(
      context.get(), "/miniray.v1.Head/GetClusterState", request, &queue);
  call->StartCall();
  grpc::Status status;
  int tag = 0;
  call->Finish(&response, &status, &tag);
  void* done = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&done, &ok));
  EXPECT_THAT(FromGrpcStatus(status),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("GetClusterStateRequest")));
}

TEST_F(HeadServiceTest, UnknownActors) {
  v1::GetActorRequest get;
  get.set_actor_id("x");
  v1::GetActorResponse got;
  EXPECT_THAT(Call(&v1::Head::Stub::GetActor, get, &got),
              StatusIs(absl::StatusCode::kNotFound));
  v1::KillActorRequest kill;
  kill.set_actor_id("x");
  v1::KillActorResponse killed;
  EXPECT_THAT(Call(&v1::Head::Stub::KillActor, kill, &killed),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(HeadServiceTest, ANodeMustRegisterFirst) {
  const auto context = Context(token_);
  const auto node = stub_->AttachNode(context.get());
  v1::NodeMessage message;
  message.mutable_actor_started()->set_actor_id("actor");
  ASSERT_TRUE(node->Write(message));
  v1::NodeCommand command;
  EXPECT_FALSE(node->Read(&command));
  EXPECT_THAT(
      FromGrpcStatus(node->Finish()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("register_node")));
}

TEST_F(HeadServiceTest, ARegistrationThatIsRefusedEndsTheStream) {
  const auto context = Context(token_);
  const auto node = stub_->AttachNode(context.get());
  ASSERT_TRUE(node->Write(Registration("node", -1)));
  v1::NodeCommand command;
  EXPECT_FALSE(node->Read(&command));
  EXPECT_THAT(FromGrpcStatus(node->Finish()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("CPU")));
  EXPECT_EQ(head_->GetState().nodes_size(), 0);
}

TEST_F(HeadServiceTest, ABrokenNodeStreamIsNoticedAtOnce) {
  const auto context = Context(token_);
  const auto node = stub_->AttachNode(context.get());
  ASSERT_TRUE(node->Write(Registration("node")));
  v1::NodeCommand command;
  ASSERT_TRUE(node->Read(&command));
  context->TryCancel();
  EXPECT_TRUE(Eventually([](const v1::GetClusterStateResponse& state) {
    return state.nodes(0).state() == v1::NODE_STATE_DISCONNECTED;
  }));
  EXPECT_FALSE(node->Finish().ok());
  // And it may come back.
  const auto again_context = Context(token_);
  const auto again = stub_->AttachNode(again_context.get());
  ASSERT_TRUE(again->Write(Registration("node")));
  ASSERT_TRUE(again->Read(&command));
  EXPECT_EQ(head_->GetState().nodes(0).state(), v1::NODE_STATE_ALIVE);
}

TEST_F(HeadServiceTest, ADriversStreamFromHelloToGoodbye) {
  const auto context = Context(token_);
  const auto driver = stub_->AttachDriver(context.get());
  ASSERT_TRUE(driver->Write(Hello("job")));
  v1::DriverEvent event;
  ASSERT_TRUE(driver->Read(&event));
  EXPECT_TRUE(event.has_registered());
  {
    const auto other_context = Context(token_);
    const auto other = stub_->AttachDriver(other_context.get());
    ASSERT_TRUE(other->Write(Hello("job", "another")));
    EXPECT_FALSE(other->Read(&event));
    EXPECT_THAT(FromGrpcStatus(other->Finish()),
                StatusIs(absl::StatusCode::kAlreadyExists));
  }
  v1::DriverMessage goodbye;
  goodbye.mutable_leaving();
  ASSERT_TRUE(driver->Write(goodbye));
  EXPECT_FALSE(driver->Read(&event));
  EXPECT_TRUE(driver->Finish().ok());
  EXPECT_EQ(head_->GetState().jobs(0).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(HeadServiceTest, AVanishedDriversActorsEndAfterTheGrace) {
  head_.reset();
  HeadServer::Options options;
  options.driver_grace = absl::Milliseconds(100);
  StartHead(options);
  ASSERT_THAT(Upload(package_id_, package_, token_), IsOk());
  const auto context = Context(token_);
  const auto driver = stub_->AttachDriver(context.get());
  ASSERT_TRUE(driver->Write(Hello("job")));
  v1::DriverEvent event;
  ASSERT_TRUE(driver->Read(&event));
  v1::CreateActorResponse created;
  ASSERT_THAT(Call(&v1::Head::Stub::CreateActor, Creation("actor"), &created),
              IsOk());
  context->TryCancel();
  EXPECT_FALSE(driver->Finish().ok());
  EXPECT_TRUE(Eventually([](const v1::GetClusterStateResponse& state) {
    return state.jobs(0).state() == v1::JOB_STATE_FAILED &&
           state.actors(0).state() == v1::ACTOR_STATE_DEAD;
  }));
}

TEST_F(HeadServiceTest, WhatADriverMissedLastIsToldToo) {
  constexpr int kMessages = 256;
  constexpr int kLines = 1024;
  const auto driver_context = Context(token_);
  const auto driver = stub_->AttachDriver(driver_context.get());
  v1::DriverMessage hello = Hello("job");
  hello.mutable_register_driver()->set_wants_output(true);
  ASSERT_TRUE(driver->Write(hello));
  v1::DriverEvent event;
  ASSERT_TRUE(driver->Read(&event));
  const auto node_context = Context(token_);
  const auto node = stub_->AttachNode(node_context.get());
  ASSERT_TRUE(node->Write(Registration("node")));
  v1::NodeMessage message;
  message.mutable_output()->set_job_id("job");
  for (int i = 0; i < kLines; ++i) {
    message.mutable_output()->mutable_text()->append(127, 'x').push_back('\n');
  }
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(node->Write(message));
  // By then it has taken all of it.
  v1::NodeMessage stats;
  stats.mutable_stats()->set_memory_used_bytes(7);
  ASSERT_TRUE(node->Write(stats));
  ASSERT_TRUE(Eventually([](const v1::GetClusterStateResponse& state) {
    return state.nodes(0).memory_used_bytes() == 7;
  }));
  v1::DriverMessage goodbye;
  goodbye.mutable_leaving();
  ASSERT_TRUE(driver->Write(goodbye));
  int64_t shown = 0, dropped = 0;
  while (driver->Read(&event)) {
    shown += std::count(event.output().text().begin(),
                        event.output().text().end(), '\n');
    dropped += event.output().dropped_lines();
  }
  EXPECT_TRUE(driver->Finish().ok());
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(shown + dropped, kMessages * kLines);
  node_context->TryCancel();
  EXPECT_FALSE(node->Finish().ok());
}

TEST_F(HeadServiceTest, ANodeThatSaysGoodbyeAndReadsNothingIsLetGo) {
  ASSERT_THAT(Upload(package_id_, package_, token_), IsOk());
  const auto context = Context(token_);
  const auto node = stub_->AttachNode(context.get());
  ASSERT_TRUE(node->Write(Registration("node", 100)));
  v1::NodeCommand command;
  ASSERT_TRUE(node->Read(&command));
  // More than fits on the way.
  for (int i = 0; i < 40; ++i) {
    v1::CreateActorRequest request = Creation(absl::StrCat("actor-", i));
    request.mutable_spec()->add_constructor_args()->set_bytes_value(
        std::string(2 << 20, 'x'));
    v1::CreateActorResponse created;
    ASSERT_THAT(Call(&v1::Head::Stub::CreateActor, request, &created), IsOk());
  }
  v1::NodeMessage goodbye;
  goodbye.mutable_leaving();
  ASSERT_TRUE(node->Write(goodbye));
  ASSERT_TRUE(Eventually([](const v1::GetClusterStateResponse& state) {
    return state.nodes(0).state() == v1::NODE_STATE_DEAD;
  }));
  context->TryCancel();
  EXPECT_FALSE(node->Finish().ok());
  // It waits until all streams are over.
  absl::Notification over;
  std::thread shutdown([&] {
    head_->Shutdown();
    over.Notify();
  });
  const bool in_time = over.WaitForNotificationWithTimeout(kPatience);
  EXPECT_TRUE(in_time);
  if (!in_time) abort();  // It would wait for ever.
  shutdown.join();
}

TEST_F(HeadServiceTest, ShutdownAnswersThoseWhoWait) {
  ASSERT_THAT(Upload(package_id_, package_, token_), IsOk());
  v1::CreateActorResponse created;
  ASSERT_THAT(Call(&v1::Head::Stub::CreateActor, Creation("actor"), &created),
              IsOk());
  const auto context = Context(token_);
  const auto node = stub_->AttachNode(context.get());
  ASSERT_TRUE(node->Write(Registration("node", 0)));
  v1::NodeCommand command;
  ASSERT_TRUE(node->Read(&command));
  v1::GetActorRequest get;
  get.set_actor_id("actor");
  get.set_min_version(100);
  get.set_wait_ms(600000);
  v1::GetActorResponse got;
  absl::Notification answered;
  grpc::Status answer;
  const auto waiting = Context(token_);
  stub_->async()->GetActor(waiting.get(), &get, &got, [&](grpc::Status status) {
    answer = status;
    answered.Notify();
  });
  // What was sent before on the same connection has come when this is answered.
  v1::GetClusterStateResponse state;
  ASSERT_THAT(Call(&v1::Head::Stub::GetClusterState,
                   v1::GetClusterStateRequest(), &state),
              IsOk());
  ASSERT_FALSE(answered.HasBeenNotified());
  const absl::Time start = absl::Now();
  head_->Shutdown();
  answered.WaitForNotification();
  // The record as it is, or that the head has gone.
  EXPECT_NE(answer.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  while (node->Read(&command)) {
  }
  EXPECT_FALSE(node->Finish().ok());
  EXPECT_LT(absl::Now() - start, kPatience / 2);
  head_->Shutdown();  // Twice does no harm.
}

// --- What it leaves alone.

// A head may run inside a program: its tests do so.
TEST(HeadServerTest, ItsStartDoesNotChangeTheProcesssMalloc) {
  const TempFolder folder;
  // Blocks of this size are mapped, unless malloc is told otherwise.
  constexpr size_t kLarge = size_t{30} << 20;
  const auto mapped = [] { return mallinfo2().hblks; };
  const size_t before = mapped();
  // volatile: the compiler may leave out a pair of malloc and free.
  void* volatile const first = std::malloc(kLarge);
  const auto end = absl::MakeCleanup([&first] { std::free(first); });
  if (mapped() != before + 1) GTEST_SKIP() << "this malloc does not tell";
  const auto head = HeadServer::Start({.state_dir = folder.path()});
  ASSERT_THAT(head, IsOk());
  const size_t started = mapped();
  void* volatile const second = std::malloc(kLarge);
  EXPECT_EQ(mapped(), started + 1);
  std::free(second);
}

// --- Where a head may listen.

TEST(HeadServerTest, RefusesWhatIsNoAddress) {
  const TempFolder folder;
  for (const char* host : {"", "localhost", "head.example", "1.2.3", "::g"}) {
    EXPECT_THAT(
        HeadServer::Start({.host = host, .state_dir = folder.path()}),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("IP address")));
  }
}

TEST(HeadServerTest, NeedsATokenBeyondLoopback) {
  const TempFolder folder;
  for (const char* host : {"0.0.0.0", "::", "10.1.2.3"}) {
    EXPECT_THAT(HeadServer::Start({.host = host, .state_dir = folder.path()}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(host), HasSubstr("token"))));
  }
}

TEST(HeadServerTest, APortInUseIsAClearError) {
  const TempFolder folder;
  const auto first = HeadServer::Start({.state_dir = folder / "1"});
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(
      HeadServer::Start({.port = (*first)->port(), .state_dir = folder / "2"}),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr(absl::StrCat("127.0.0.1:", (*first)->port())),
                     HasSubstr("in use"))));
}

TEST(HeadServerTest, AnAddressOfAnotherMachineIsAClearError) {
  const TempFolder folder;
  for (const int port : {0, 6380}) {
    EXPECT_THAT(
        HeadServer::Start({.host = "198.51.100.1",
                           .port = port,
                           .token = "t",
                           .state_dir = folder / "state"}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("198.51.100.1 is not an IP address of this "
                                 "machine"),
                       Not(HasSubstr("in use")))));
    EXPECT_THAT(folder.List(), IsEmpty());
  }
}

TEST(HeadServerTest, AStartThatFailsLeavesNothing) {
  const TempFolder folder;
  const auto first = HeadServer::Start({.state_dir = folder / "1"});
  ASSERT_THAT(first, IsOk());
  EXPECT_FALSE(HeadServer::Start({.port = (*first)->port(),
                                  .token = "secret",
                                  .state_dir = folder / "2"})
                   .ok());
  EXPECT_THAT(folder.List(), ElementsAre("1"));
  // Its daemon, say, could not be started.
  auto third =
      HeadServer::Start({.token = "secret", .state_dir = folder / "3"});
  ASSERT_THAT(third, IsOk());
  EXPECT_THAT(folder.List(), ElementsAre("1", "3"));
  (*third)->Shutdown(HeadServer::End::kFailedStart);
  third->reset();
  EXPECT_THAT(folder.List(), ElementsAre("1"));
}

TEST(HeadServerTest, AStartThatFailsLeavesAClusterAsItWas) {
  const TempFolder folder;
  const auto busy = HeadServer::Start({.state_dir = folder / "busy"});
  ASSERT_THAT(busy, IsOk());
  int port = 0;
  {
    const auto killed =
        HeadServer::Start({.token = "secret", .state_dir = folder / "1"});
    ASSERT_THAT(killed, IsOk());
    port = (*killed)->port();
  }
  EXPECT_FALSE(HeadServer::Start({.port = (*busy)->port(),
                                  .token = "secret",
                                  .state_dir = folder / "1"})
                   .ok());
  {
    const auto again = HeadServer::Start(
        {.port = port, .token = "secret", .state_dir = folder / "1"});
    ASSERT_THAT(again, IsOk());
    (*again)->Shutdown(HeadServer::End::kFailedStart);
  }
  const auto left = StateFolder::Recall(folder / "1");
  ASSERT_THAT(left, IsOk());
  EXPECT_EQ(left->port, port);
  EXPECT_EQ(left->token, "secret");
  EXPECT_EQ(left->host, "127.0.0.1");
}

TEST(HeadServerTest, AFolderThatCannotBeMade) {
  const TempFolder folder;
  ASSERT_THAT(WriteFileAtomically(folder / "file", ""), IsOk());
  EXPECT_THAT(HeadServer::Start({.state_dir = folder / "file/sub"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("file/sub")));
}

TEST(HeadServerTest, WithoutATokenEverybodyOnThisMachineIsIn) {
  const TempFolder folder;
  const auto head = HeadServer::Start({.state_dir = folder.path()});
  ASSERT_THAT(head, IsOk());
  const auto stub = v1::Head::NewStub(
      MakeChannel(absl::StrCat("127.0.0.1:", (*head)->port())));
  for (const char* token : {"", "any"}) {
    grpc::ClientContext context;
    PrepareContext(&context, token, absl::Seconds(30));
    v1::GetClusterStateResponse state;
    EXPECT_TRUE(stub->GetClusterState(&context, {}, &state).ok());
  }
}

}  // namespace
}  // namespace miniray
