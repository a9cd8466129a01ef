#include "runtime/rpc/fault_injector.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/head.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FaultSpecTest, ReadsEverything) {
  const auto spec = ParseFaultSpec(
      "Head/CreateActor:drop_request=0.25,drop_reply=1; "
      "Head/* : delay=0.5@50ms ;Channel:reset=1e-2,limit=3;*:delay=1@1.5s;"
      "seed=7");
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(spec->seed, 7);
  ASSERT_EQ(spec->rules.size(), 4);
  EXPECT_EQ(spec->rules[0].service, "Head");
  EXPECT_EQ(spec->rules[0].method, "CreateActor");
  EXPECT_EQ(spec->rules[0].drop_request, 0.25);
  EXPECT_EQ(spec->rules[0].drop_reply, 1);
  EXPECT_EQ(spec->rules[1].service, "Head");
  EXPECT_EQ(spec->rules[1].method, "");
  EXPECT_EQ(spec->rules[1].delay, 0.5);
  EXPECT_EQ(spec->rules[1].delay_time, absl::Milliseconds(50));
  EXPECT_EQ(spec->rules[2].service, "");
  EXPECT_EQ(spec->rules[2].method, "Channel");
  EXPECT_EQ(spec->rules[2].reset, 0.01);
  EXPECT_EQ(spec->rules[2].limit, 3);
  EXPECT_EQ(spec->rules[3].method, "");
  EXPECT_EQ(spec->rules[3].delay_time, absl::Milliseconds(1500));
  EXPECT_TRUE(ParseFaultSpec("")->rules.empty());
}

TEST(FaultSpecTest, AMistakeIsToldWithItsPlace) {
  struct Mistake {
    std::string text;
    int place;
    std::string reason;
  };
  for (const Mistake& mistake : std::vector<Mistake>{
           {"Head/CreatActor:reset=1", 1, "no method 'Head/CreatActor'"},
           {"Heat/*:reset=1", 1, "no method 'Heat/*'"},
           {"/Channel:reset=1", 1, "no method '/Channel'"},
           {"Head/:reset=1", 1, "no method 'Head/'"},
           {":reset=1", 1, "no method ''"},
           {"Channel", 8, "expected ':'"},
           {"Channel=1", 8, "expected ':'"},
           {"Channel:", 9, "'' is no fault"},
           {"Channel:drop=1", 9, "'drop' is no fault"},
           {"Channel:reset", 14, "expected '='"},
           {"Channel:reset=", 15, "'' is not a probability"},
           {"Channel:reset=2", 15, "'2' is not a probability"},
           {"Channel:reset=nan", 15, "'nan' is not a probability"},
           {"Channel:reset=-0.1", 15, "'-0.1' is not a probability"},
           {"Channel:delay=0.1", 18, "expected '@'"},
           {"Channel:delay=0.1@5", 19, "'5' is not a time"},
           {"Channel:delay=0.1@-5s", 19, "'-5s' is not a time"},
           {"Channel:delay=0.1@2h", 19, "'2h' is not a time"},
           {"Channel:reset=1@2s", 16, "expected ',' or ';'"},
           {"Channel:limit=x", 15, "'x' is not a number"},
           {"Channel:reset=1;seed=x", 22, "'x' is not a number"},
           {"Channel:reset=1;seed", 21, "expected '='"},
           {"Channel:reset=1;;", 17, "no method ''"},
       }) {
    EXPECT_THAT(ParseFaultSpec(mistake.text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("at character " +
                                         std::to_string(mistake.place) + " of"),
                               HasSubstr(mistake.reason))))
        << mistake.text;
  }
}

std::string Fates(const std::string& spec, const std::string& path,
                  FaultInjector::Kind kind, int n) {
  FaultInjector injector(ParseFaultSpec(spec).value());
  std::string fates;
  for (int i = 0; i < n; ++i) fates += injector.Decide(path, kind) ? 'x' : '.';
  return fates;
}

TEST(FaultInjectorTest, TheSeedDecidesAndNothingElse) {
  constexpr auto kDrop = FaultInjector::Kind::kDropRequest;
  constexpr char kPath[] = "/miniray.v1.Head/GetActor";
  const std::string fates =
      Fates("*:drop_request=0.3;seed=5", kPath, kDrop, 10000);
  EXPECT_EQ(Fates("*:drop_request=0.3;seed=5", kPath, kDrop, 10000), fates);
  EXPECT_NE(Fates("*:drop_request=0.3;seed=6", kPath, kDrop, 10000), fates);
  EXPECT_NE(Fates("*:drop_request=0.3;seed=5", "/miniray.v1.Head/KillActor",
                  kDrop, 10000),
            fates);
  const auto drops = std::count(fates.begin(), fates.end(), 'x');
  EXPECT_GT(drops, 2800);
  EXPECT_LT(drops, 3200);
  // What befalls one method does not depend on how often others are called.
  FaultInjector injector(ParseFaultSpec("*:drop_request=0.3;seed=5").value());
  std::string mixed;
  for (int i = 0; i < 10000; ++i) {
    injector.Decide("/miniray.v1.Head/KillActor", kDrop);
    mixed += injector.Decide(kPath, kDrop) ? 'x' : '.';
  }
  EXPECT_EQ(mixed, fates);
}

TEST(FaultInjectorTest, LimitAndMatching) {
  constexpr auto kReset = FaultInjector::Kind::kReset;
  EXPECT_EQ(Fates("Channel:reset=1,limit=2", "/miniray.v1.ActorService/Channel",
                  kReset, 5),
            "xx...");
  EXPECT_EQ(Fates("Head/*:reset=1", "/miniray.v1.Head/GetActor", kReset, 2),
            "xx");
  EXPECT_EQ(
      Fates("Head/*:reset=1", "/miniray.v1.ActorService/Channel", kReset, 2),
      "..");
}

// A head that counts what arrives.
class FakeHead : public v1::Head::CallbackService {
 public:
  FakeHead() {
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeHead() override { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

  grpc::ServerUnaryReactor* HasPackage(grpc::CallbackServerContext* context,
                                       const v1::HasPackageRequest*,
                                       v1::HasPackageResponse*) override {
    ++arrived;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  // Answers each message with one.
  grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent>* AttachDriver(
      grpc::CallbackServerContext*) override {
    class Echo
        : public grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent> {
     public:
      explicit Echo(std::atomic<int>* arrived) : arrived_(arrived) {
        StartRead(&message_);
      }
      void OnReadDone(bool ok) override {
        if (!ok) return Finish(grpc::Status::OK);
        ++*arrived_;
        StartWrite(&event_);
      }
      void OnWriteDone(bool ok) override {
        if (ok) StartRead(&message_);
        if (!ok) Finish(grpc::Status::CANCELLED);
      }
      void OnDone() override { delete this; }

     private:
      std::atomic<int>* const arrived_;
      v1::DriverMessage message_;
      v1::DriverEvent event_;
    };
    return new Echo(&arrived);
  }

  std::unique_ptr<v1::Head::Stub> Stub() const {
    return v1::Head::NewStub(MakeChannel("127.0.0.1:" + std::to_string(port_)));
  }

  std::atomic<int> arrived = 0;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

absl::Status Ask(v1::Head::Stub* stub) {
  grpc::ClientContext context;
  PrepareContext(&context, "", absl::Seconds(20));
  v1::HasPackageResponse response;
  return FromGrpcStatus(stub->HasPackage(&context, {}, &response));
}

class FaultyCallsTest : public ::testing::Test {
 protected:
  ~FaultyCallsTest() override { EXPECT_THAT(UseFaults(""), IsOk()); }
  FakeHead head_;
};

TEST_F(FaultyCallsTest, ADroppedRequestNeverArrives) {
  ASSERT_THAT(UseFaults("HasPackage:drop_request=1,limit=3"), IsOk());
  const auto stub = head_.Stub();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Ask(stub.get()), StatusIs(absl::StatusCode::kUnavailable,
                                          HasSubstr("request was dropped")));
  }
  EXPECT_EQ(head_.arrived, 0);
  EXPECT_THAT(Ask(stub.get()), IsOk());
  EXPECT_EQ(head_.arrived, 1);
}

TEST_F(FaultyCallsTest, ADroppedReplyIsOfACallThatRan) {
  ASSERT_THAT(UseFaults("Head/*:drop_reply=1,limit=1"), IsOk());
  const auto stub = head_.Stub();
  EXPECT_THAT(Ask(stub.get()), StatusIs(absl::StatusCode::kUnavailable,
                                        HasSubstr("reply was dropped")));
  EXPECT_EQ(head_.arrived, 1);
  EXPECT_THAT(Ask(stub.get()), IsOk());
}

TEST_F(FaultyCallsTest, ADelayedCallArrivesLater) {
  ASSERT_THAT(UseFaults("*:delay=1@80ms,limit=1"), IsOk());
  const auto stub = head_.Stub();
  const absl::Time start = absl::Now();
  EXPECT_THAT(Ask(stub.get()), IsOk());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(80));
}

TEST_F(FaultyCallsTest, CallbacksAreServedLikeBlockingCalls) {
  ASSERT_THAT(UseFaults("*:drop_request=0.3,drop_reply=0.3,delay=0.5@1ms"),
              IsOk());
  const auto stub = head_.Stub();
  constexpr int kCalls = 200;
  struct Pending {
    grpc::ClientContext context;
    v1::HasPackageRequest request;
    v1::HasPackageResponse response;
  };
  std::vector<std::unique_ptr<Pending>> calls;
  std::atomic<int> done = 0, failed = 0;
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<Pending>());
    Pending* const call = calls.back().get();
    PrepareContext(&call->context, "", absl::Seconds(20));
    stub->async()->HasPackage(&call->context, &call->request, &call->response,
                              [&](grpc::Status status) {
                                if (!status.ok()) ++failed;
                                ++done;
                              });
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (done < kCalls && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  ASSERT_EQ(done, kCalls);
  EXPECT_GT(failed, kCalls / 5);
  EXPECT_LT(failed, kCalls * 4 / 5);
  // Some ran though they failed.
  EXPECT_GT(head_.arrived, kCalls - failed);
  EXPECT_LT(head_.arrived, kCalls);
}

TEST_F(FaultyCallsTest, AResetBreaksAStreamAfterAMessage) {
  ASSERT_THAT(UseFaults("AttachDriver:reset=0.1;seed=3"), IsOk());
  const auto stub = head_.Stub();
  grpc::ClientContext context;
  PrepareContext(&context, "", absl::Seconds(20));
  const auto stream = stub->AttachDriver(&context);
  v1::DriverEvent event;
  int round_trips = 0;
  while (stream->Write(v1::DriverMessage()) && stream->Read(&event)) {
    ++round_trips;
  }
  EXPECT_THAT(FromGrpcStatus(stream->Finish()),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("connection was reset")));
  EXPECT_GT(round_trips, 0);
  EXPECT_LT(round_trips, 100);
}

TEST_F(FaultyCallsTest, AStreamsRequestCanBeDropped) {
  ASSERT_THAT(UseFaults("AttachDriver:drop_request=1,limit=1"), IsOk());
  const auto stub = head_.Stub();
  for (const bool dropped : {true, false}) {
    grpc::ClientContext context;
    PrepareContext(&context, "", absl::Seconds(20));
    const auto stream = stub->AttachDriver(&context);
    v1::DriverEvent event;
    EXPECT_EQ(stream->Write(v1::DriverMessage()) && stream->Read(&event),
              !dropped);
    stream->WritesDone();
    EXPECT_EQ(FromGrpcStatus(stream->Finish()).code(),
              dropped ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk);
    EXPECT_EQ(head_.arrived, dropped ? 0 : 1);
  }
}

TEST_F(FaultyCallsTest, OthersAreLeftAlone) {
  ASSERT_THAT(UseFaults("KillActor:drop_request=1;ActorService/*:reset=1"),
              IsOk());
  const auto stub = head_.Stub();
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Ask(stub.get()), IsOk());
}

}  // namespace
}  // namespace miniray
