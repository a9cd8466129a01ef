// Checkpoints on the disk, without a training around them.

#include "train/checkpoint.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

// After two epochs of two workers.
Checkpoint SomeCheckpoint() {
  EpochResult first{
      .epoch = 0,
      .metrics = {{"loss", 0.1 + 0.2}},
      .min = {{"loss", -INFINITY}},
      .max = {{"loss", INFINITY}},
      .per_worker = {{{"loss", NAN}}, {{"loss", 1e-300}}},
      .notes = {{{"best", "7-3"}}, {}},
      .seconds = 1.5,
      .timing = {.compute = 1, .wait = 0.25, .sync = 0.125, .checkpoint = 0.5}};
  EpochResult second{.epoch = 1, .metrics = {{"loss", 0.7}}, .synced = true};
  second.sync.version = 3;
  second.sync.bytes = int64_t{1} << 40;
  return {.needs_sync = true,
          .history = {first, second},
          .server = std::string("server\0state", 12),
          .workers = {{{"model.pt", "weights of 0"}, {"empty", ""}},
                      {{"model.pt", std::string(100'000, 'w')}}}};
}

TEST(CheckpointTest, IsReadAsItWasWritten) {
  TempFolder temp;
  const Checkpoint checkpoint = SomeCheckpoint();
  const auto info = WriteCheckpoint(temp / "checkpoint_000002", checkpoint);
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->epochs, 2);
  EXPECT_EQ(info->metrics.at("loss"), 0.7);
  EXPECT_THAT(temp.List(), ElementsAre("checkpoint_000002"));

  const auto read = ReadCheckpoint(temp / "checkpoint_000002");
  ASSERT_THAT(read, IsOk());
  EXPECT_TRUE(read->needs_sync);
  EXPECT_EQ(read->server, checkpoint.server);
  EXPECT_EQ(read->workers, checkpoint.workers);
  ASSERT_EQ(read->epochs(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(read->history[i].ToJson(), checkpoint.history[i].ToJson());
  }
  EXPECT_EQ(read->history[0].metrics.at("loss"), 0.1 + 0.2);
  EXPECT_TRUE(std::isnan(read->history[0].per_worker[0].at("loss")));
  EXPECT_EQ(read->history[0].max.at("loss"), INFINITY);
  EXPECT_EQ(read->history[0].notes, checkpoint.history[0].notes);
  EXPECT_EQ(read->history[1].sync.bytes, int64_t{1} << 40);

  const auto described = DescribeCheckpoint(temp / "checkpoint_000002");
  ASSERT_THAT(described, IsOk());
  EXPECT_EQ(described->epochs, 2);
  EXPECT_EQ(described->metrics.at("loss"), 0.7);
  EXPECT_EQ(described->bytes, info->bytes);
}

TEST(CheckpointTest, WithoutEpochsOrServer) {
  TempFolder temp;
  ASSERT_THAT(WriteCheckpoint(temp / "c", {.workers = {{}}}), IsOk());
  const auto read = ReadCheckpoint(temp / "c");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->epochs(), 0);
  EXPECT_EQ(read->server, std::nullopt);
  EXPECT_EQ(read->workers.size(), 1);
}

TEST(CheckpointTest, DamageOfAnyFileIsSeen) {
  TempFolder temp;
  const std::string path = temp / "checkpoint_000002";
  ASSERT_THAT(WriteCheckpoint(path, SomeCheckpoint()), IsOk());
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  ASSERT_EQ(files.size(), 6);
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    const std::string whole = *ReadFile(file);
    auto expect_damaged = [&] {
      EXPECT_THAT(ReadCheckpoint(path),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr("damaged")));
      std::ofstream(file, std::ios::binary) << whole;
      EXPECT_THAT(ReadCheckpoint(path), IsOk());
    };
    fs::remove(file);
    expect_damaged();
    std::ofstream(file, std::ios::binary) << whole << "}";
    expect_damaged();
    if (whole.empty()) continue;
    std::ofstream(file, std::ios::binary) << whole.substr(0, whole.size() / 2);
    expect_damaged();
    std::string flipped = whole;
    flipped[0] = static_cast<char>(flipped[0] ^ 1);
    std::ofstream(file, std::ios::binary) << flipped;
    expect_damaged();
  }
}

TEST(CheckpointTest, WhatAKilledWriterLeftIsWrittenOver) {
  TempFolder temp;
  const std::string path = temp / "checkpoint_000002";
  fs::create_directories(path + ".part/worker_007");
  std::ofstream(path + ".part/history.jsonl") << "half";
  EXPECT_THAT(ReadCheckpoint(path), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(WriteCheckpoint(path, SomeCheckpoint()), IsOk());
  EXPECT_THAT(temp.List(), ElementsAre("checkpoint_000002"));
  EXPECT_FALSE(fs::exists(path + "/worker_007"));
}

TEST(CheckpointTest, NamesOfFilesThatCannotBeAreErrors) {
  TempFolder temp;
  for (const std::string name : {"", "../model.pt", "a/b", ".hidden", "a b"}) {
    EXPECT_THAT(WriteCheckpoint(temp / "c", {.workers = {{}, {{name, "x"}}}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("worker 1: the name of a checkpoint's")));
  }
  EXPECT_THAT(temp.List(), ElementsAre());
}

TEST(CheckpointTest, Names) {
  EXPECT_EQ(CheckpointName(12), "checkpoint_000012");
  EXPECT_EQ(EpochsOfCheckpointName("checkpoint_000012"), 12);
  EXPECT_EQ(EpochsOfCheckpointName(CheckpointName(12'345'678)), 12'345'678);
  for (const std::string name :
       {"checkpoint_12", "checkpoint_000012.part", "checkpoint_", "x",
        "checkpoint_-00012", "checkpoint_000012.superseded"}) {
    EXPECT_EQ(EpochsOfCheckpointName(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace miniray::train
