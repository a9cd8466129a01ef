// A parameter server's state as bytes, and servers that go on from it.

#include <string>

#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "ps/shard_states.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ParameterServer Server(const std::string& strategy,
                       const StrategyOptions& options = {}) {
  return ParameterServer(strategy, options, {}, {});
}

TEST(ServerExportTest, AnotherServerGoesOnFromIt) {
  ParameterServer server = Server("weighted");
  ASSERT_THAT(server.PushWeights({{"w", Floats({1, 2})}, {"n", Ints({3})}}),
              IsOk());
  ASSERT_THAT(server.PushWeights({{"w", Floats({4, 5})}, {"n", Ints({6})}}),
              IsOk());
  const auto bytes = server.ExportState();
  ASSERT_THAT(bytes, IsOk());
  ASSERT_THAT(server.PushWeights({{"w", Floats({7, 8})}, {"n", Ints({9})}}),
              IsOk());

  ParameterServer next = Server("weighted");
  for (ParameterServer* const target : {&next, &server}) {
    ASSERT_THAT(target->ImportState(*bytes), IsOk());
    EXPECT_EQ(target->GetStats()->version, 2);
    const auto weights = target->PullWeights();
    ASSERT_THAT(weights, IsOk());
    EXPECT_EQ(weights->at(0).first, "w");
    EXPECT_TRUE(SameBits(weights->at(0).second, Floats({4, 5})));
    EXPECT_TRUE(SameBits(weights->at(1).second, Ints({6})));
  }
  // The model is fixed from then on.
  EXPECT_THAT(next.PushWeights({{"other", Floats({1})}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// One that has gone on since becomes what it was: its state_dir may be ahead of
// the checkpoint.
TEST(ServerExportTest, BeforeThereAreWeights) {
  TempFolder folder;
  for (const ServerOptions& options :
       {ServerOptions(), ServerOptions{.state_dir = folder.path()},
        ServerOptions{.to_workers = {.method = Compression::kInt8}},
        ServerOptions{.piece_bytes = 4096}}) {
    const auto make = [&] {
      return ParameterServer("fedadam", {}, options, {});
    };
    ParameterServer server = make();
    const auto bytes = server.ExportState();
    ASSERT_THAT(bytes, IsOk());
    for (int i = 0; i < 2; ++i) {
      ASSERT_THAT(server.PushWeights({{"w", at::ones({5000})}}), IsOk());
    }
    ASSERT_THAT(server.ImportState(*bytes), IsOk());
    EXPECT_FALSE(server.GetStats()->initialized);
    EXPECT_EQ(server.GetStats()->version, 0);
    EXPECT_THAT(server.PullWeights(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("no weights yet")));
    EXPECT_THAT(server.ExportState(), IsOkAndHolds(*bytes));
    // The next weights fix the model, whatever the last one was.
    EXPECT_THAT(server.PushWeights({{"other", at::ones({9000, 2})}}),
                IsOkAndHolds(1));
    EXPECT_EQ(server.PullWeights()->at(0).first, "other");
  }
}

TEST(ServerExportTest, AStateWithoutWeightsIsWhatTheNextProcessFinds) {
  TempFolder folder;
  const auto bytes = Server("momentum").ExportState();
  ASSERT_THAT(bytes, IsOk());
  {
    ParameterServer server("momentum", {}, {.state_dir = folder.path()}, {});
    ASSERT_THAT(server.PushWeights({{"w", Floats({1})}}), IsOk());
    ASSERT_THAT(server.ImportState(*bytes), IsOk());
  }
  ParameterServer next("momentum", {}, {.state_dir = folder.path()}, {});
  EXPECT_FALSE(next.GetStats()->initialized);
  EXPECT_EQ(next.GetStats()->version, 0);
}

TEST(ServerExportTest, OneThatBeginsAnewIsAsIfNothingHadBeenDone) {
  TempFolder folder;
  const auto make = [&] {
    return ParameterServer("weighted", {}, {.state_dir = folder.path()}, {});
  };
  const auto empty = make().ExportState();
  ASSERT_THAT(empty, IsOk());
  {
    ParameterServer server = make();
    ASSERT_THAT(server.SetWorkerWeights({{0, 2.0}, {1, 0.0}}), IsOk());
    ASSERT_THAT(server.PushWeights({{"w", Floats({1})}}), IsOk());
    ASSERT_THAT(server.BeginAnew(), IsOk());
    EXPECT_EQ(server.GetStats()->version, 0);
    EXPECT_THAT(server.ExportState(), IsOkAndHolds(*empty));
  }
  // So does the next process find it.
  EXPECT_THAT(make().ExportState(), IsOkAndHolds(*empty));
  EXPECT_THAT(Server("sgd", {{"lr", 0.1}}).BeginAnew(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ServerExportTest, WorkerWeightsMayAllBeReplaced) {
  ParameterServer server = Server("weighted");
  const auto none = server.ExportState();
  ASSERT_THAT(none, IsOk());
  ASSERT_THAT(server.SetWorkerWeight(0, 2.0), IsOk());
  EXPECT_THAT(server.SetWorkerWeights({{0, 1.0}, {1, -1.0}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_THAT(server.SetWorkerWeights({}), IsOk());
  EXPECT_THAT(server.ExportState(), IsOkAndHolds(*none));
  EXPECT_THAT(Server("average").SetWorkerWeights({}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ServerExportTest, WhatDoesNotFitIsAnError) {
  const auto bytes = Server("average").ExportState();
  ASSERT_THAT(bytes, IsOk());
  ParameterServer other = Server("momentum", {{"momentum", 0.5}});
  EXPECT_THAT(other.ImportState(*bytes),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the strategy average, and this one has "
                                 "momentum (momentum=0.5)")));
  EXPECT_THAT(other.ImportState("no state"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the state of a parameter server")));
  EXPECT_THAT(
      Server("average").ImportState(
          PackShardStates({.id = "w", .shards = {*bytes, *bytes}})),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("2 shards")));
  ParameterServer gradients = Server("sgd", {{"lr", 0.1}});
  EXPECT_THAT(
      gradients.ExportState(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("state_dir")));
}

TEST(ServerExportTest, OptionsAreComparedByTheirValues) {
  EXPECT_THAT(
      Server("momentum")
          .ImportState(*Server("momentum", {{"momentum", 0.9}}).ExportState()),
      IsOk());
  EXPECT_THAT(Server("fedavgm", {{"lr", 1}})
                  .ImportState(*Server("fedavgm", {{"lr", 1.0}}).ExportState()),
              IsOk());
  EXPECT_THAT(
      Server("momentum", {{"momentum", 0.1234567}})
          .ImportState(
              *Server("momentum", {{"momentum", 0.1234568}}).ExportState()),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("they differ in the option 'momentum'")));
}

TEST(ServerExportTest, ASecretOptionIsComparedButNotShown) {
  ParameterServer server = Server("dp", {{"seed", 4711}, {"clip_norm", 2}});
  EXPECT_EQ(server.GetStats()->strategy, "dp (clip_norm=2)");
  const absl::Status refused = Server("dp", {{"seed", 815}, {"clip_norm", 2}})
                                   .ImportState(*server.ExportState());
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("the option 'seed'"),
                             Not(HasSubstr("4711")), Not(HasSubstr("815")))));
}

TEST(ServerExportTest, AStateOfAnotherModelChangesNothing) {
  ParameterServer other = Server("average");
  ASSERT_THAT(other.PushWeights({{"w", Floats({1, 2, 3})}}), IsOk());
  ParameterServer server = Server("average");
  ASSERT_THAT(server.PushWeights({{"w", Floats({1, 2})}}), IsOk());
  EXPECT_THAT(server.ImportState(*other.ExportState()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(SameBits(server.PullWeights()->at(0).second, Floats({1, 2})));
}

TEST(ShardStatesTest, ComeBackAsTheyWere) {
  const ShardStates states = {.id = "weights-1",
                              .shards = {std::string("a\0b", 3), "", "xyz"}};
  const std::string packed = PackShardStates(states);
  // By hand: the first bytes, 9 + 3 + 0 + 3 of content, and four sizes.
  EXPECT_EQ(packed.size(), 8 + 4 * 8 + 15);
  EXPECT_TRUE(AreShardStates(packed));
  EXPECT_FALSE(AreShardStates(packed.substr(0, 7)));
  const auto unpacked = UnpackShardStates(packed);
  ASSERT_THAT(unpacked, IsOk());
  EXPECT_EQ(unpacked->id, states.id);
  EXPECT_EQ(unpacked->shards, states.shards);
  for (size_t size = 8; size < packed.size(); ++size) {
    const auto cut = UnpackShardStates(packed.substr(0, size));
    // Where a shard ends, there are fewer of them, and none is cut.
    const bool whole = size == 25 || size == 36 || size == 44;
    EXPECT_EQ(cut.ok(), whole) << size;
    EXPECT_TRUE(!cut.ok() || cut->shards.size() < 3) << size;
  }
}

}  // namespace
}  // namespace miniray::ps
