#include "runtime/worker/usage_meter.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;

// A /proc of the test's own.
class UsageMeterTest : public ::testing::Test {
 protected:
  UsageMeter Meter(size_t max_actors = 200) {
    return UsageMeter({.proc = proc_.path(),
                       .uptime = [this] { return uptime_; },
                       .max_actors = max_actors});
  }

  void Write(const std::string& file, const std::string& text) {
    ASSERT_THAT(WriteFileAtomically(proc_ / file, text), IsOk());
  }

  // Times in seconds, since the machine's start or of the process.
  void WriteProcess(int pid, double start, double user, double system,
                    const std::string& name = "actor") {
    const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    ASSERT_THAT(MakeDirectories(proc_ / absl::StrCat(pid)), IsOk());
    // Fields as in proc(5): 14 and 15 are the times, 22 is the start.
    Write(absl::StrCat(pid, "/stat"),
          absl::StrCat(pid, " (", name, ") S 1 2 3 4 5 6 7 8 9 10 ",
                       static_cast<int64_t>(user * ticks), " ",
                       static_cast<int64_t>(system * ticks), " 0 0 20 0 1 0 ",
                       static_cast<int64_t>(start * ticks), " 1000 200\n"));
    Write(absl::StrCat(pid, "/status"),
          "Name:\tactor\nVmRSS:\t  999 kB\nRssAnon:\t    2048 kB\n"
          "RssFile:\t  777 kB\nRssShmem:\t    1024 kB\n");
  }

  static std::vector<std::string> Ids(const v1::NodeStats& stats) {
    std::vector<std::string> ids;
    for (const v1::ActorUsage& actor : stats.actors()) {
      ids.push_back(actor.actor_id());
    }
    return ids;
  }

  const TempFolder proc_;
  absl::Duration uptime_ = absl::Seconds(1000);
};

TEST_F(UsageMeterTest, TheMachinesCpusSinceTheLastTime) {
  UsageMeter meter = Meter();
  v1::NodeStats stats;
  // User, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice.
  Write("stat",
        "cpu  1000 0 500 8000 100 0 0 0 300 0\n"
        "cpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0\ncpu3 0 0 0 0\n"
        "intr 5\n");
  meter.Measure({}, &stats);
  EXPECT_EQ(stats.cpus(), 0);  // There is no time before it.
  // 200 busy, 560 idle, 40 waiting: a quarter of 800.
  Write("stat",
        "cpu  1150 10 510 8560 140 10 10 10 300 0\n"
        "cpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0\ncpu3 0 0 0 0\n"
        "intr 5\n");
  meter.Measure({}, &stats);
  EXPECT_EQ(stats.cpus(), 4);
  EXPECT_DOUBLE_EQ(stats.cpus_busy(), 1);
}

TEST_F(UsageMeterTest, AProcess) {
  UsageMeter meter = Meter();
  WriteProcess(77, /*start=*/900, /*user=*/30, /*system=*/10);
  v1::NodeStats stats;
  meter.Measure({{.actor_id = "a",
                  .incarnation = 2,
                  .pid = 77,
                  .calls = {.done = 5, .waiting = 3, .running = 1}}},
                &stats);
  ASSERT_EQ(stats.actors_size(), 1);
  EXPECT_EQ(stats.actors(0).actor_id(), "a");
  EXPECT_EQ(stats.actors(0).incarnation(), 2);
  EXPECT_EQ(stats.actors(0).calls_done(), 5);
  EXPECT_EQ(stats.actors(0).calls_waiting(), 3);
  EXPECT_EQ(stats.actors(0).calls_running(), 1);
  // Since its start: 40 s of 100 s.
  EXPECT_DOUBLE_EQ(stats.actors(0).cpus(), 0.4);
  EXPECT_EQ(stats.actors(0).memory_bytes(), 3 << 20);
  // Since the last time: 3 s of 2 s, on two CPUs.
  uptime_ += absl::Seconds(2);
  WriteProcess(77, 900, 32, 11);
  stats.Clear();
  meter.Measure({{"a", 2, 77}}, &stats);
  ASSERT_EQ(stats.actors_size(), 1);
  EXPECT_DOUBLE_EQ(stats.actors(0).cpus(), 1.5);
}

TEST_F(UsageMeterTest, AnotherProcessWithTheSamePid) {
  UsageMeter meter = Meter();
  WriteProcess(77, 900, 30, 10);
  v1::NodeStats stats;
  meter.Measure({{"a", 0, 77}}, &stats);
  uptime_ += absl::Seconds(2);
  WriteProcess(77, /*start=*/1001, /*user=*/0.5, 0);
  stats.Clear();
  meter.Measure({{"b", 0, 77}}, &stats);
  ASSERT_EQ(stats.actors_size(), 1);
  EXPECT_DOUBLE_EQ(stats.actors(0).cpus(), 0.5);  // Of the second that it ran.
}

TEST_F(UsageMeterTest, ActorsOfOneProcessAreToldTheSame) {
  UsageMeter meter = Meter();
  WriteProcess(77, 900, 30, 10);
  v1::NodeStats stats;
  meter.Measure({{"b", 0, 77}, {"a", 0, 77}}, &stats);
  EXPECT_THAT(Ids(stats), ElementsAre("a", "b"));
  EXPECT_DOUBLE_EQ(stats.actors(0).cpus(), 0.4);
  EXPECT_DOUBLE_EQ(stats.actors(1).cpus(), 0.4);
}

TEST_F(UsageMeterTest, TheNameOfAProcessMayHoldAnything) {
  UsageMeter meter = Meter();
  WriteProcess(77, 900, 30, 10, "a) b (c 1 2 3");
  v1::NodeStats stats;
  meter.Measure({{"a", 0, 77}}, &stats);
  ASSERT_EQ(stats.actors_size(), 1);
  EXPECT_DOUBLE_EQ(stats.actors(0).cpus(), 0.4);
}

TEST_F(UsageMeterTest, WhatCannotBeReadIsLeftOut) {
  UsageMeter meter = Meter();
  WriteProcess(77, 900, 30, 10);
  Write("78", "no folder");
  ASSERT_THAT(MakeDirectories(proc_ / "79"), IsOk());
  Write("79/stat", "79 (x) S 1 2");
  v1::NodeStats stats;
  meter.Measure({{"a", 0, 76}, {"b", 0, 77}, {"c", 0, 78}, {"d", 0, 79}},
                &stats);
  EXPECT_THAT(Ids(stats), ElementsAre("b"));
  EXPECT_EQ(stats.cpus(), 0);
}

TEST_F(UsageMeterTest, ManyHaveTheirTurns) {
  UsageMeter meter = Meter(/*max_actors=*/2);
  std::vector<ActorProcess> actors;
  for (int i = 0; i < 5; ++i) {
    WriteProcess(70 + i, 900, 30, 10);
    actors.push_back({absl::StrCat("a", i), 0, 70 + i});
  }
  std::vector<std::vector<std::string>> turns;
  for (int i = 0; i < 4; ++i) {
    v1::NodeStats stats;
    meter.Measure(actors, &stats);
    turns.push_back(Ids(stats));
    uptime_ += absl::Seconds(1);
  }
  EXPECT_THAT(turns,
              ElementsAre(ElementsAre("a0", "a1"), ElementsAre("a2", "a3"),
                          ElementsAre("a4", "a0"), ElementsAre("a1", "a2")));
  // a3's last turn was at 1001 s; it did nothing in the 3 s since then.
  v1::NodeStats stats;
  meter.Measure(actors, &stats);
  EXPECT_THAT(Ids(stats), ElementsAre("a3", "a4"));
  EXPECT_DOUBLE_EQ(stats.actors(0).cpus(), 0);
}

TEST(UsageMeterOfThisMachineTest, ThisProcess) {
  UsageMeter meter;
  v1::NodeStats stats;
  meter.Measure({{"me", 0, getpid()}}, &stats);
  ASSERT_EQ(stats.actors_size(), 1);
  EXPECT_GE(stats.actors(0).cpus(), 0);
  EXPECT_GT(stats.actors(0).memory_bytes(), 100 << 10);
}

}  // namespace
}  // namespace miniray
