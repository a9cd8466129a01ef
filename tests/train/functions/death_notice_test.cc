// How soon the others hear of a rank's death, where nothing but the trainer's
// word can tell them: no connection of theirs breaks, and no limit of time is
// near.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/file_at_log_line.h"
#include "train/collective/collective_error.h"
#include "train/functions/torch_trainer.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kDeaths = 5;
// Of one death, on a machine that is busy with much else.
constexpr absl::Duration kAtMost = absl::Seconds(20);
// Of the quickest one: the machine may be busy, but not each time.
constexpr absl::Duration kQuickest = absl::Seconds(1);

void Write(const std::string& path, const std::string& text) {
  const absl::Status written = WriteFileAtomically(path, text);
  if (!written.ok()) throw std::runtime_error(written.ToString());
}

// "MICROSECONDS TEXT".
void Note(const std::string& path, absl::string_view text) {
  Write(path, absl::StrCat(absl::ToUnixMicros(absl::Now()), " ", text));
}

// Until the trainer tells this rank to stop.
absl::Status AwaitWord(Context& ctx, const std::string& waits) {
  absl::Status word;
  absl::Notification told;
  const auto handler = ctx.OnAbort([&](const absl::Status& reason) {
    word = reason;
    told.Notify();
  });
  Write(waits, "");
  told.WaitForNotification();
  return word;
}

// For a tensor that rank 0 does not send: what ends it is that this rank is
// told to stop, or rank 0, which closes its connections then.
absl::Status AwaitTensor(Context& ctx, const std::string& waits) {
  const auto group = ctx.process_group();
  std::atomic<bool> over = false;
  std::thread watcher([&] {
    while (!over && group->waits() == 0) std::this_thread::yield();
    Write(waits, "");
  });
  const absl::Status status = group->Broadcast(at::ones({9}), /*root=*/0);
  over = true;
  watcher.join();
  return status;
}

// Rank 2 dies once the others wait, in all generations but the last.
void DieWhileOthersWait(Context& ctx) {
  ctx.Report({}, {{"file", ""}});
  if (ctx.generation() == kDeaths) return;
  ctx.process_group();
  const std::string folder = ctx.config<std::string>("folder");
  const auto path = [&](absl::string_view what, int rank) {
    return absl::StrCat(folder, "/", what, ".", ctx.generation(), ".", rank);
  };
  if (ctx.rank() == 2) {
    if (!AwaitFile(path("waits", 0)) || !AwaitFile(path("waits", 1))) {
      throw std::runtime_error("the others do not wait");
    }
    Note(path("ends", 2), "");
    kill(getpid(), SIGKILL);
  }
  const absl::Status status = ctx.rank() == 0
                                  ? AwaitWord(ctx, path("waits", 0))
                                  : AwaitTensor(ctx, path("waits", 1));
  Note(path("ends", ctx.rank()), status.message());
  throw CollectiveError(status);
}
MINIRAY_TRAIN_FUNC(DieWhileOthersWait);

struct End {
  absl::Time time;
  std::string text;
};

End ReadEnd(const TempFolder& folder, int generation, int rank) {
  const auto note =
      ReadFile(folder / absl::StrCat("ends.", generation, ".", rank));
  EXPECT_THAT(note, IsOk());
  const std::vector<std::string> parts =
      absl::StrSplit(note.value_or(""), absl::MaxSplits(' ', 1));
  int64_t micros = 0;
  EXPECT_TRUE(absl::SimpleAtoi(parts[0], &micros));
  return {absl::FromUnixMicros(micros), parts.back()};
}

TEST(DeathNoticeTest, TheTrainersWordEndsTheOthersWaitsWithinASecond) {
  TestCluster nodes({.node_cpus = {4}});
  TempFolder temp;
  TorchTrainerOptions options;
  options.config = {{"folder", temp.path()}};
  options.scaling.num_workers = 3;
  options.run.name = "run";
  options.run.storage_path = temp.path();
  options.run.failure.max_failures = kDeaths;
  options.run.collective_timeout = absl::Minutes(30);
  options.run.report_timeout = absl::Minutes(30);
  options.cluster = nodes.Connect();
  TorchTrainer trainer(DieWhileOthersWait, options);
  ASSERT_THAT(trainer.Fit(), IsOk());
  EXPECT_THAT(trainer.last_result().history, SizeIs(kDeaths + 1));
  ASSERT_THAT(trainer.last_result().failures, SizeIs(kDeaths));

  std::vector<absl::Duration> waits;
  for (int generation = 0; generation < kDeaths; ++generation) {
    SCOPED_TRACE(generation);
    EXPECT_EQ(trainer.last_result().failures[generation].worker_id, 2);
    const End death = ReadEnd(temp, generation, 2);
    const End word = ReadEnd(temp, generation, 0);
    const End collective = ReadEnd(temp, generation, 1);
    EXPECT_THAT(word.text, AllOf(HasSubstr("rank 2 "), HasSubstr("signal 9")));
    EXPECT_GT(word.time, death.time);
    EXPECT_GT(collective.time, death.time);
    waits.push_back(std::max(word.time, collective.time) - death.time);
    EXPECT_LT(waits.back(), kAtMost);
  }
  std::sort(waits.begin(), waits.end());
  EXPECT_LT(waits.front(), kQuickest);
  testing::Test::RecordProperty(
      "milliseconds_to_abort",
      absl::StrCat(absl::ToDoubleMilliseconds(waits[kDeaths / 2])));
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
