// Results that are asked to stay (keep_result), in the object store of their
// actor's node. Real processes.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

class Maker {
 public:
  std::string Make(int64_t size, int64_t first) {
    return std::string(static_cast<size_t>(size),
                       static_cast<char>('a' + first));
  }
  int64_t Size(const std::string& text) {
    return static_cast<int64_t>(text.size());
  }
};
MINIRAY_ACTOR(Maker, Constructor<>, &Maker::Make, &Maker::Size);

// Whose state cannot be saved.
class Forgetful {
 public:
  std::string Make(int64_t size) {
    return std::string(static_cast<size_t>(size), 'f');
  }
  absl::StatusOr<std::string> SaveState() const {
    return absl::ResourceExhaustedError("no room for it");
  }
  absl::Status RestoreState(const std::string&) { return absl::OkStatus(); }
};
MINIRAY_ACTOR(Forgetful, Constructor<>, &Forgetful::Make);

class KeptResultsTest : public testing::Test {
 protected:
  // Whose store has so many bytes of memory.
  explicit KeptResultsTest(int64_t store_bytes = 6'000'000)
      : cluster_({.configure_node = [store_bytes](WorkerDaemon::Options* node) {
          node->object_store_bytes = store_bytes;
        }}) {}

  ActorHandle<Maker> Create() {
    auto maker = driver_.CreateActor<Maker>({});
    EXPECT_THAT(maker, IsOk());
    EXPECT_THAT(maker->WaitReady(kLong), IsOk());
    return *maker;
  }

  static ObjectRef<std::string> Keep(const ActorHandle<Maker>& maker,
                                     int64_t size, int64_t first = 0) {
    return maker.With({.keep_result = true}).Call<&Maker::Make>(size, first);
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
  int64_t Stored() { return cluster_.daemon(0).object_stats().objects; }

  TestCluster cluster_;
  Cluster driver_ = cluster_.Connect();
};

TEST_F(KeptResultsTest, TheNodeKeepsThemAsLongAsTheyAreWanted) {
  constexpr int kAll = 11, kSome = 4;
  const ActorHandle<Maker> maker = Create();
  const ActorHandle<Maker> reader = Create();
  std::vector<ObjectRef<std::string>> refs;
  for (int i = 0; i < kAll; ++i) refs.push_back(Keep(maker, 1'000'000, i));
  refs.push_back(Keep(maker, /*size=*/1));
  for (const auto& ref : refs) {
    const auto reference = ref.state()->Wait(kLong);
    ASSERT_THAT(reference, IsOk());
    EXPECT_LT(reference->size(), 500u);
  }
  EXPECT_EQ(Inspect(maker).kept_objects(), kAll + 1);
  EXPECT_EQ(Inspect(maker).kept_bytes(), 0);
  EXPECT_EQ(Stored(), kAll + 1);
  // The store's memory is less than that.
  EXPECT_GT(cluster_.daemon(0).object_stats().spilled_objects, 0);
  for (int i = 0; i < kAll; ++i) {
    EXPECT_THAT(refs[i].Get(kLong),
                IsOkAndHolds(std::string(1'000'000, 'a' + i)));
    EXPECT_THAT(reader.Call<&Maker::Size>(refs[i]).Get(kLong),
                IsOkAndHolds(1'000'000));
  }
  EXPECT_THAT(refs[kAll].Get(kLong), IsOkAndHolds("a"));
  refs.resize(kSome);
  EXPECT_TRUE(Eventually(
      [&] {
        return Stored() == kSome && Inspect(maker).kept_objects() == kSome;
      },
      kLong));
  for (int i = 0; i < kSome; ++i) {
    EXPECT_THAT(refs[i].Get(kLong),
                IsOkAndHolds(std::string(1'000'000, 'a' + i)));
  }
  refs.clear();
  EXPECT_TRUE(Eventually(
      [&] { return Stored() == 0 && Inspect(maker).kept_objects() == 0; },
      kLong));
}

TEST_F(KeptResultsTest, WhereTheNodeHasNoRoomTheErrorSaysWhatToDo) {
  const ActorHandle<Maker> maker = Create();
  auto first = Keep(maker, 3'000'000);
  ASSERT_THAT(first.state()->Wait(kLong), IsOk());
  EXPECT_THAT(
      Keep(maker, 7'000'000).Get(kLong),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("Maker.Make"), HasSubstr("the call ran"),
                     HasSubstr("its node's object store cannot keep its result "
                               "of 7000"),
                     HasSubstr("no room for 7000"),
                     HasSubstr("--object_store_bytes"))));
  EXPECT_EQ(Inspect(maker).calls_failed(), 1u);
  EXPECT_EQ(Inspect(maker).kept_objects(), 1);
  EXPECT_EQ(Stored(), 1);
}

TEST_F(KeptResultsTest, WhatFailsBecauseTheStateIsNotSavedIsNotKept) {
  const auto actor = driver_.CreateActor<Forgetful>({});
  ASSERT_THAT(actor, IsOk());
  std::vector<ObjectRef<std::string>> refs;
  for (int i = 0; i < 3; ++i) {
    refs.push_back(actor->With({.keep_result = true})
                       .Call<&Forgetful::Make>(int64_t{1'000'000}));
    EXPECT_THAT(refs.back().Get(kLong),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("what it did may be lost"),
                               HasSubstr("no room for it"))));
  }
  EXPECT_EQ(Inspect(*actor).kept_objects(), 0);
  EXPECT_TRUE(Eventually([&] { return Stored() == 0; }, kLong));
}

TEST_F(KeptResultsTest, WhatNobodyWaitsForIsNotKept) {
  const ActorHandle<Maker> maker = Create();
  for (int i = 0; i < 5; ++i) Keep(maker, 1'000'000);
  ASSERT_THAT(maker.Call<&Maker::Size>("behind").Get(kLong), IsOk());
  EXPECT_TRUE(Eventually(
      [&] { return Stored() == 0 && Inspect(maker).kept_objects() == 0; },
      kLong));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
