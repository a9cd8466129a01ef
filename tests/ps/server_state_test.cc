#include "ps/server_state.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/tensors.h"

// What is done for a power failure, in order: "fsync FILE", "rename TO". The
// definitions below stand before those of the C library.
std::vector<std::string>& DiskCalls() {
  static auto* const calls = new std::vector<std::string>;
  return *calls;
}

extern "C" int fsync(int fd) {
  const std::string link = absl::StrCat("/proc/self/fd/", fd);
  DiskCalls().push_back("fsync " +
                        std::filesystem::read_symlink(link).string());
  return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  DiskCalls().push_back(absl::StrCat("rename ", to));
  return static_cast<int>(
      syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace miniray::ps {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServerStateTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(testing::TempDir() + "/state"); }

  static ServerState Example() {
    return {.strategy = {.name = "momentum",
                         .options = {{"momentum", 0.9}},
                         .text = "momentum (momentum=0.9)"},
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
  EXPECT_EQ(OtherStrategyText(state.strategy, second.strategy), "");
  EXPECT_EQ(state.strategy.text, "momentum (momentum=0.9)");
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

// The bytes before the name that is to have them, and the name before anybody
// counts on it.
TEST_F(ServerStateTest, OutlastsAPowerFailure) {
  const std::string temp = fs::canonical(testing::TempDir()).string();
  const std::string folder = temp + "/state/of/server";
  DiskCalls().clear();
  ASSERT_TRUE(SaveServerState(folder, Example()).ok());
  EXPECT_THAT(
      DiskCalls(),
      ElementsAre("fsync " + temp + "/state/of", "fsync " + temp + "/state",
                  "fsync " + temp, "fsync " + folder + "/server.state.next",
                  "rename " + folder + "/server.state", "fsync " + folder));
  DiskCalls().clear();
  ASSERT_TRUE(SaveServerState(folder + "/prepared", Example()).ok());
  DiskCalls().clear();
  ASSERT_TRUE(MoveServerState(folder + "/prepared", folder).ok());
  EXPECT_THAT(DiskCalls(), ElementsAre("rename " + folder + "/server.state",
                                       "fsync " + folder));
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

TEST_F(ServerStateTest, AnotherReleasesStateIsNotCalledDamaged) {
  ASSERT_TRUE(SaveServerState(folder_, Example()).ok());
  std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(7).put('\1');
  file.close();
  EXPECT_THAT(Error(), AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr(file_),
                             HasSubstr("of another release (format 1, ")));
}

TEST_F(ServerStateTest, AFolderThatCannotBeIsAnError) {
  const absl::Status status = SaveServerState("/proc/none", Example());
  EXPECT_THAT(status.ToString(), HasSubstr("/proc/none"));
}

}  // namespace
}  // namespace miniray::ps
