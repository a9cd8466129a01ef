#include "ps/server_state.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/tensors.h"

namespace miniray::ps {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ServerStateTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }

  static ServerState Example() {
    return {.strategy = "momentum (momentum=0.9)",
            .version = 7,
            .num_syncs = 5,
            .last_sync = "run/5",
            .weights = {{{"w", Floats({1, -2.5, 3e30})}, {"n", Ints({4})}}},
            .buffer_names = {"n"},
            .knows_buffers = true,
            .strategy_tensors = {{{"velocity/w", Floats({0, 1, 2})}}},
            .strategy_scalars = {{"steps", int64_t{5}}, {"scale", 0.25}},
            .worker_weights = {{0, 1.5}, {3, 0}}};
  }

  std::string Error() {
    const auto loaded = LoadServerState(folder_);
    return loaded.ok() ? "" : loaded.status().ToString();
  }

  const std::string folder_ = testing::TempDir() + "/state/of/server";
  const std::string file_ = folder_ + "/server.state";
};

TEST_F(ServerStateTest, IsLoadedAsItWasSaved) {
  ASSERT_TRUE(SaveServerState(folder_, Example()).ok());
  ServerState second = Example();
  second.version = 8;
  ASSERT_TRUE(SaveServerState(folder_, second).ok());
  const auto loaded = LoadServerState(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_TRUE(loaded->has_value());
  const ServerState& state = **loaded;
  EXPECT_EQ(state.strategy, second.strategy);
  EXPECT_EQ(state.version, 8);
  EXPECT_EQ(state.num_syncs, 5);
  EXPECT_EQ(state.last_sync, "run/5");
  ASSERT_EQ(state.weights.value.size(), 2);
  EXPECT_EQ(state.weights.value[1].first, "n");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(SameBits(state.weights.value[i].second,
                         second.weights.value[i].second));
  }
  EXPECT_EQ(state.buffer_names, second.buffer_names);
  EXPECT_TRUE(state.knows_buffers);
  EXPECT_TRUE(SameBits(state.strategy_tensors.value[0].second,
                       second.strategy_tensors.value[0].second));
  EXPECT_EQ(state.strategy_scalars.ToString(), "scale=0.25, steps=5");
  EXPECT_EQ(state.worker_weights, second.worker_weights);
}

TEST_F(ServerStateTest, AnEmptyFolderHasNone) {
  const auto missing = LoadServerState(folder_);
  ASSERT_TRUE(missing.ok()) << missing.status();
  EXPECT_FALSE(missing->has_value());
  fs::create_directories(folder_);
  EXPECT_FALSE(LoadServerState(folder_)->has_value());
}

TEST_F(ServerStateTest, WhatAKilledProcessLeftIsNoState) {
  ASSERT_TRUE(SaveServerState(folder_, Example()).ok());
  std::ofstream(file_ + ".next") << "half of a";
  EXPECT_EQ((*LoadServerState(folder_))->version, 7);
  ASSERT_TRUE(SaveServerState(folder_, Example()).ok());
  EXPECT_FALSE(fs::exists(file_ + ".next"));
}

TEST_F(ServerStateTest, DamageIsSaidWithThePath) {
  ASSERT_TRUE(SaveServerState(folder_, Example()).ok());
  const auto size = fs::file_size(file_);
  // Cut anywhere: never taken for a state.
  for (uintmax_t left = 0; left < size; left += 1 + left / 7) {
    ASSERT_TRUE(SaveServerState(folder_, Example()).ok());
    fs::resize_file(file_, left);
    EXPECT_THAT(Error(), AllOf(HasSubstr("DATA_LOSS"), HasSubstr(file_)))
        << left << " bytes";
  }
  std::ofstream(file_) << "something else altogether, and longer than a header";
  EXPECT_THAT(Error(), AllOf(HasSubstr("DATA_LOSS"), HasSubstr(file_)));
}

TEST_F(ServerStateTest, AFolderThatCannotBeIsAnError) {
  const absl::Status status = SaveServerState("/proc/none", Example());
  EXPECT_THAT(status.ToString(), HasSubstr("/proc/none"));
}

}  // namespace
}  // namespace miniray::ps
