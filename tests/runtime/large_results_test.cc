// Large results between processes that share no memory: they stay with the
// actor that made them until somebody fetches them. End to end, with real
// processes.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/fault_injector.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(50);
// Before an actor out of reach is given up, by far.
constexpr absl::Duration kSoon = absl::Seconds(10);
constexpr char kMemoryVariable[] = "MINIRAY_SHARED_MEMORY_MB";

// No two ranges of it are alike.
std::string Text(int64_t size) {
  std::string text;
  for (int64_t i = 0; static_cast<int64_t>(text.size()) < size; ++i) {
    absl::StrAppend(&text, i, ",");
  }
  text.resize(static_cast<size_t>(size));
  return text;
}

class Producer {
 public:
  std::string Make(int64_t size) { return Text(size); }
  std::string MakeAndExit(int64_t size) {
    ActorContext::Current()->ExitActor();
    return Text(size);
  }
  int64_t Size(const std::string& text) { return text.size(); }
  int64_t Pid() { return getpid(); }
  void Die() { kill(getpid(), SIGKILL); }
};
MINIRAY_ACTOR(Producer, Constructor<>, &Producer::Make, &Producer::MakeAndExit,
              &Producer::Size, &Producer::Pid, &Producer::Die);

class LargeResultsTest : public testing::Test {
 protected:
  ~LargeResultsTest() override { EXPECT_THAT(UseFaults(""), IsOk()); }

  ActorHandle<Producer> Create() {
    auto producer =
        driver_.CreateActor<Producer>({.env = {{kMemoryVariable, "0"}}});
    EXPECT_THAT(producer, IsOk());
    EXPECT_THAT(producer->WaitReady(kLong), IsOk());
    return *producer;
  }

  v1::InspectResponse Inspect(const AnyActorHandle& actor) {
    auto stub =
        v1::ActorService::NewStub(MakeChannel(cluster_.Info(actor).address()));
    grpc::ClientContext context;
    AddToken(&context, "");
    v1::InspectRequest request;
    request.set_actor_id(actor.actor_id());
    v1::InspectResponse response;
    EXPECT_TRUE(stub->Inspect(&context, request, &response).ok());
    return response;
  }

  // Bytes that have come here, once the call is done.
  static size_t Came(const ObjectRef<std::string>& ref) {
    const auto result = ref.state()->Wait(kLong);
    EXPECT_THAT(result, IsOk());
    return result.ok() ? result->size() : 0;
  }

  TestCluster cluster_;
  Cluster driver_ = cluster_.Connect();
};

TEST_F(LargeResultsTest, StayUntilTheyAreFetchedAndAreFreedAfterTheLastRef) {
  // Below and above where ranges begin, and of odd sizes.
  for (const int64_t size : {100'001, 3'000'017, 20'000'003}) {
    const ActorHandle<Producer> producer = Create();
    auto made = producer.Call<&Producer::Make>(size);
    auto copy = made;
    EXPECT_LT(Came(made), 500u) << size;
    EXPECT_GE(Inspect(producer).kept_bytes(), size);
    EXPECT_EQ(*made.Get(kLong), Text(size));
    made = {};
    EXPECT_EQ(Inspect(producer).kept_objects(), 1);
    EXPECT_EQ(*copy.Get(kLong), Text(size));
    copy = {};
    auto all_freed = [&] { return Inspect(producer).kept_objects() == 0; };
    EXPECT_TRUE(Eventually(all_freed)) << size;
    // What is fetched at once or never looked at, too.
    EXPECT_EQ(*producer.Call<&Producer::Make>(size).Get(kLong), Text(size));
    producer.Call<&Producer::Make>(size);
    EXPECT_EQ(*producer.Call<&Producer::Size>("after it").Get(kLong), 8);
    EXPECT_TRUE(Eventually(all_freed)) << size;
    EXPECT_EQ(Inspect(producer).kept_bytes(), 0) << size;
  }
}

TEST_F(LargeResultsTest, ComeWithTheReplyWhereTheyWereFetchedBefore) {
  const ActorHandle<Producer> producer = Create();
  auto came = [&](int64_t size) {
    return Came(producer.Call<&Producer::Make>(size)) >=
           static_cast<size_t>(size);
  };
  EXPECT_FALSE(came(1'000'000));
  EXPECT_FALSE(came(1'000'000));
  EXPECT_EQ(producer.Call<&Producer::Make>(500'000).Get(kLong)->size(),
            500'000u);
  for (int i = 0; i < 3; ++i) {
    auto made = producer.Call<&Producer::Make>(1'000'000);
    EXPECT_GE(Came(made), 1'000'000u);
    EXPECT_EQ(*made.Get(kLong), Text(1'000'000));
  }
  // Not if they are very large ...
  auto large = producer.Call<&Producer::Make>(10'000'000);
  EXPECT_LT(Came(large), 500u);
  EXPECT_EQ(large.Get(kLong)->size(), 10'000'000u);
  // ... nor once one was not wanted.
  EXPECT_TRUE(came(1'000'000));
  EXPECT_TRUE(Eventually([&] { return !came(1'000'000); }));
}

TEST_F(LargeResultsTest, ComeAtOnceWhereMuchStaysAlready) {
  const auto producer = driver_.CreateActor<Producer>(
      {.env = {{kMemoryVariable, "0"}, {"MINIRAY_KEPT_RESULTS_MB", "1"}}});
  ASSERT_THAT(producer, IsOk());
  auto first = producer->Call<&Producer::Make>(1'100'000);
  EXPECT_LT(Came(first), 500u);
  auto second = producer->Call<&Producer::Make>(1'100'000);
  EXPECT_GE(Came(second), 1'100'000u);
  EXPECT_EQ(*second.Get(kLong), Text(1'100'000));
  EXPECT_EQ(Inspect(*producer).kept_objects(), 1);
  first = {};
  EXPECT_TRUE(Eventually(
      [&] { return Came(producer->Call<&Producer::Make>(1'100'000)) < 500u; }));
}

TEST_F(LargeResultsTest, SmallOnesComeWithTheReply) {
  const ActorHandle<Producer> producer = Create();
  auto made = producer.Call<&Producer::Make>(50'000);
  EXPECT_GE(Came(made), 50'000u);
  EXPECT_EQ(Inspect(producer).kept_objects(), 0);
}

TEST_F(LargeResultsTest, PassingOneMovesOnlyTheReference) {
  const ActorHandle<Producer> producer = Create();
  const ActorHandle<Producer> reader = Create();
  // Before it exists, after, and after it was fetched.
  auto made = producer.Call<&Producer::Make>(9'000'001);
  auto early = reader.Call<&Producer::Size>(made);
  EXPECT_EQ(*early.Get(kLong), 9'000'001);
  EXPECT_EQ(*reader.Call<&Producer::Size>(made).Get(kLong), 9'000'001);
  EXPECT_LT(Came(made), 500u);
  EXPECT_EQ(made.Get(kLong)->size(), 9'000'001u);
  EXPECT_EQ(*reader.Call<&Producer::Size>(made).Get(kLong), 9'000'001);
  // A call holds what it was passed.
  auto last =
      reader.Call<&Producer::Size>(producer.Call<&Producer::Make>(7'000'001));
  EXPECT_EQ(*last.Get(kLong), 7'000'001);
  made = {};
  EXPECT_TRUE(
      Eventually([&] { return Inspect(producer).kept_objects() == 0; }));
}

TEST_F(LargeResultsTest, AreLostWithTheirProcessUnlessTheyWereFetched) {
  const ActorHandle<Producer> producer = Create();
  const ActorHandle<Producer> reader = Create();
  auto lost = producer.Call<&Producer::Make>(5'000'000);
  auto fetched = producer.Call<&Producer::Make>(6'000'000);
  EXPECT_EQ(fetched.Get(kLong)->size(), 6'000'000u);
  EXPECT_LT(Came(lost), 500u);
  EXPECT_FALSE(producer.Call<&Producer::Die>().Get(kLong).ok());
  EXPECT_EQ(fetched.Get(kLong)->size(), 6'000'000u);
  EXPECT_THAT(lost.Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("Producer.Make"),
                             HasSubstr("whose process is gone"))));
  EXPECT_THAT(reader.Call<&Producer::Size>(lost).Get(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("argument 1"),
                             HasSubstr("whose process is gone"))));
}

TEST_F(LargeResultsTest, TheLastResultOfAnActorThatEndsItselfComes) {
  const ActorHandle<Producer> producer = Create();
  auto made = producer.Call<&Producer::MakeAndExit>(5'000'000);
  EXPECT_GE(Came(made), 5'000'000u);
  EXPECT_EQ(made.Get(kLong)->size(), 5'000'000u);
}

TEST_F(LargeResultsTest, AProducerThatIsKilledInTheMiddle) {
  // Each chunk takes its time, so that the fetch is not done by then.
  ASSERT_THAT(UseFaults("ActorService/FetchObject:delay=1@300ms"), IsOk());
  const ActorHandle<Producer> producer = Create();
  auto made = producer.Call<&Producer::Make>(60'000'001);
  EXPECT_LT(Came(made), 500u);
  absl::StatusOr<std::string> value;
  std::thread getter([&] { value = made.Get(kLong); });
  EXPECT_FALSE(producer.Call<&Producer::Die>().Get(kLong).ok());
  getter.join();
  EXPECT_THAT(value, StatusIs(absl::StatusCode::kUnavailable,
                              HasSubstr("whose process is gone")));
}

TEST_F(LargeResultsTest, ALinkThatBreaksCostsNothing) {
  ASSERT_THAT(UseFaults("ActorService/FetchObject:drop_request=0.2,reset=0.2;"
                        "seed=5"),
              IsOk());
  const ActorHandle<Producer> producer = Create();
  const std::string expected = Text(50'000'011);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*producer.Call<&Producer::Make>(50'000'011).Get(kLong), expected);
  }
  EXPECT_TRUE(
      Eventually([&] { return Inspect(producer).kept_objects() == 0; }));
}

TEST_F(LargeResultsTest, AFetchEndsInTime) {
  ASSERT_THAT(UseFaults("ActorService/FetchObject:drop_request=1"), IsOk());
  const ActorHandle<Producer> producer = Create();
  auto made = producer.Call<&Producer::Make>(5'000'000);
  EXPECT_LT(Came(made), 500u);
  const absl::Time begin = absl::Now();
  EXPECT_THAT(made.Get(absl::Milliseconds(300)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("Producer.Make"),
                             HasSubstr("did not come in time"))));
  EXPECT_LT(absl::Now() - begin, kSoon);
}

TEST_F(LargeResultsTest, AProducerThatStandsStillIsWaitedForInThatTimeAlone) {
  const ActorHandle<Producer> producer = Create();
  const auto pid = producer.Call<&Producer::Pid>().Get(kLong);
  ASSERT_THAT(pid, IsOk());
  std::vector<ObjectRef<std::string>> made;
  for (const int64_t size : {1'000, 5'000'000}) {
    made.push_back(producer.Call<&Producer::Make>(size));
    (void)Came(made.back());
  }
  ASSERT_TRUE(StopProcess(*pid));
  const absl::Time begin = absl::Now();
  EXPECT_THAT(made[1].Get(absl::Milliseconds(300)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(GetAll(made, absl::Milliseconds(300)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_LT(absl::Now() - begin, kSoon);
  ASSERT_EQ(kill(static_cast<pid_t>(*pid), SIGCONT), 0);
  // Nothing was lost by that.
  const auto values = GetAll(made, kLong);
  ASSERT_THAT(values, IsOk());
  EXPECT_EQ((*values)[0], Text(1'000));
  EXPECT_EQ((*values)[1], Text(5'000'000));
}

}  // namespace
}  // namespace miniray

int main(int argc, char** argv) {
  // Nothing is to be shared. Before anything asks.
  setenv(miniray::kMemoryVariable, "0", /*replace=*/1);
  miniray::Init(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
