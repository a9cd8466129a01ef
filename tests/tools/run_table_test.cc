#include "tools/cli/run_table.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/cli/list_table.h"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::RunInfo Running() {
  v1::RunInfo run;
  run.set_run_id("gan-1");
  run.set_kind("GanTrainer");
  run.set_state(v1::RUN_STATE_RUNNING);
  run.set_num_workers(2);
  run.set_epochs(10);
  run.set_epoch(2);
  run.set_progress(0.2499);
  run.set_samples_per_second(1234.4);
  run.set_eta_seconds(83.9);
  (*run.mutable_metrics())["loss"] = 0.123456;
  (*run.mutable_metrics())["accuracy"] = 0.9;
  return run;
}

TEST(RunTableTest, Times) {
  EXPECT_EQ(ClockText(0), "0:00");
  EXPECT_EQ(ClockText(7.9), "0:07");
  EXPECT_EQ(ClockText(83), "1:23");
  EXPECT_EQ(ClockText(3599), "59:59");
  EXPECT_EQ(ClockText(3600), "1:00:00");
  EXPECT_EQ(ClockText(2 * 3600 + 3 * 60 + 10), "2:03:10");
  EXPECT_EQ(ClockText(-1), "0:00");
  EXPECT_EQ(ClockText(std::numeric_limits<double>::quiet_NaN()), "0:00");
  // 10^9 s: 277777 h, 46 min, 40 s.
  EXPECT_EQ(ClockText(std::numeric_limits<double>::infinity()), "277777:46:40");
}

TEST(RunTableTest, Percents) {
  EXPECT_EQ(Percent(0), "0 %");
  EXPECT_EQ(Percent(0.349), "34 %");
  EXPECT_EQ(Percent(1), "100 %");
  EXPECT_EQ(Percent(7), "100 %");
  EXPECT_EQ(Percent(-1), "0 %");
  EXPECT_EQ(Percent(std::numeric_limits<double>::quiet_NaN()), "0 %");
}

TEST(RunTableTest, States) {
  v1::RunInfo run = Running();
  EXPECT_EQ(RunStateWord(run), "running");
  run.set_stop_requested(true);
  EXPECT_EQ(RunStateWord(run), "stopping");
  run.set_state(v1::RUN_STATE_STOPPED);
  EXPECT_EQ(RunStateWord(run), "stopped");
  run.set_state(v1::RUN_STATE_LOST);
  EXPECT_EQ(RunStateWord(run), "lost");
}

TEST(RunTableTest, Epochs) {
  v1::RunInfo run = Running();
  EXPECT_EQ(EpochText(run), "3/10");
  run.set_epoch(10);  // All are done, and its end is not known yet.
  EXPECT_EQ(EpochText(run), "10/10");
  run.set_state(v1::RUN_STATE_STOPPED);
  run.set_epoch(4);
  EXPECT_EQ(EpochText(run), "4/10");
  run.set_epochs(0);
  EXPECT_EQ(EpochText(run), "4");
}

TEST(RunTableTest, Losses) {
  v1::RunInfo run = Running();
  EXPECT_EQ(LossText(run), "0.1235");
  run.clear_metrics();
  EXPECT_EQ(LossText(run), "");
  (*run.mutable_metrics())["g_loss"] = 0.93;
  (*run.mutable_metrics())["d_loss"] = 0.5;
  (*run.mutable_metrics())["fid"] = 12;
  EXPECT_EQ(LossText(run), "d_loss 0.5, g_loss 0.93");
}

TEST(RunTableTest, Columns) {
  RunInfos runs;
  *runs.Add() = Running();
  v1::RunInfo* failed = runs.Add();
  failed->set_run_id("r2");
  failed->set_state(v1::RUN_STATE_FAILED);
  failed->set_error("worker 1:\nout of memory");
  failed->set_eta_seconds(-1);
  failed->set_epoch(3);
  EXPECT_EQ(
      FormatRuns(runs),
      "ID     KIND        STATE    EPOCH  PROGRESS  SAMPLES/S  ETA   LOSS    "
      "WORKERS  START  END  ERROR\n"
      "gan-1  GanTrainer  running  3/10   24 %      1234       1:23  0.1235  "
      "2        -      -    -\n"
      "r2     -           failed   3      -         -          -     -       "
      "0        -      -    worker 1: out of memory\n");
  EXPECT_EQ(FormatRuns({}),
            "ID  KIND  STATE  EPOCH  PROGRESS  SAMPLES/S  ETA  LOSS  WORKERS  "
            "START  END  ERROR\n");
}

TEST(RunTableTest, WhatHasEndedHasNoTimeLeft) {
  v1::RunInfo run = Running();
  run.set_state(v1::RUN_STATE_FINISHED);
  RunInfos runs;
  *runs.Add() = run;
  EXPECT_THAT(FormatRuns(runs), Not(HasSubstr("1:23")));
}

TEST(RunTableTest, OneRun) {
  v1::GetRunResponse run;
  *run.mutable_run() = Running();
  run.mutable_run()->set_num_syncs(5);
  run.mutable_run()->set_folder("/runs/gan");
  run.mutable_run()->set_dropped_events(3);
  v1::RunProgress* worker = run.add_workers();
  worker->set_worker(-1);  // All of them together.
  worker = run.add_workers();
  worker->set_worker(1);
  worker->set_epoch(2);
  worker->set_step(40);
  worker->set_steps(100);
  worker->set_samples(5120);
  v1::RunServer* server = run.add_servers();
  server->set_name("ps");
  server->set_strategy("momentum(0.9)");
  server->set_version(5);
  server->set_num_syncs(5);
  server->set_bytes_pulled(int64_t{3} << 29);
  const std::string text = FormatRun(run);
  EXPECT_THAT(text, HasSubstr("Run:        gan-1\n"
                              "State:      running\n"));
  EXPECT_THAT(text, HasSubstr("Epoch:      3/10\n"
                              "Progress:   24 %\n"
                              "Samples/s:  1234\n"
                              "ETA:        1:23\n"
                              "Workers:    2\n"
                              "  worker 1: epoch 3, step 40 of 100, "
                              "5120 samples\n"
                              "  server ps: momentum(0.9), version 5, 5 syncs, "
                              "1.5GiB pulled, 0.0GiB pushed\n"
                              "Metrics:    accuracy 0.9, loss 0.1235\n"
                              "Syncs:      5\n"));
  EXPECT_THAT(text, HasSubstr("Folder:     /runs/gan\n"));
  EXPECT_THAT(text, HasSubstr("Not heard:  3 reports"));
  EXPECT_THAT(text, Not(HasSubstr("worker -1")));
  EXPECT_THAT(text, Not(HasSubstr("Error")));
}

TEST(RunTableTest, TheOldestComeFirst) {
  RunInfos runs;
  for (const auto& [id, start] : std::vector<std::pair<std::string, int64_t>>{
           {"new", 3}, {"b", 1}, {"a", 1}}) {
    v1::RunInfo* run = runs.Add();
    run->set_run_id(id);
    run->set_start_unix_ms(start);
  }
  SortByAge(&runs);
  std::vector<std::string> ids;
  for (const v1::RunInfo& run : runs) ids.push_back(run.run_id());
  EXPECT_THAT(ids, ElementsAre("a", "b", "new"));
}

TEST(RunTableTest, JsonIsAnArrayOfRecords) {
  RunInfos runs;
  EXPECT_EQ(RecordsToJson(runs).value(), "[]\n");
  *runs.Add() = Running();
  *runs.Add() = Running();
  const auto json = nlohmann::json::parse(RecordsToJson(runs).value());
  ASSERT_EQ(json.size(), 2);
  EXPECT_EQ(json[0]["run_id"], "gan-1");
  EXPECT_EQ(json[0]["state"], "RUN_STATE_RUNNING");
  EXPECT_EQ(json[0]["num_workers"], 2);
  EXPECT_EQ(json[0]["metrics"]["loss"], 0.123456);
  EXPECT_EQ(json[0]["stop_requested"], false);  // Also what is not set.
}

}  // namespace
}  // namespace miniray::cli
