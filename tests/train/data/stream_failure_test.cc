// Readers that fail, streams that end early, and the memory that a stream
// takes.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/train/data/number_files.h"
#include "tests/train/data/threads.h"
#include "train/data/dataset.h"

namespace miniray::train {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kInternal;
using absl::StatusCode::kInvalidArgument;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DatasetShard ShardOf(const NumberFiles& files, ReaderLog* log, int rank = 0,
                     int world_size = 1) {
  auto data = files.Make(log);
  EXPECT_THAT(data, IsOk());
  auto shard = data->Shard(rank, world_size);
  EXPECT_THAT(shard, IsOk());
  return *std::move(shard);
}

TEST(StreamFailureTest, AReadersErrorNamesFileAndRecordAndStays) {
  const NumberFiles files({10, 10});
  for (const int prefetch : {0, 3}) {
    ReaderLog log;
    log.fail_at = 13;  // Record 3 of the second file.
    DatasetShard shard = ShardOf(files, &log);
    BatchStream stream =
        shard.IterBatches({.batch_size = 4, .prefetch = prefetch});
    // What came before it is whole.
    for (int i = 0; i < 3; ++i) {
      auto batch = stream.Next();
      ASSERT_THAT(batch, IsOk());
      EXPECT_THAT(NumbersOf(**batch),
                  ElementsAre(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3));
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(stream.Next(),
                  StatusIs(kInternal, AllOf(HasSubstr(files.paths()[1]),
                                            HasSubstr("record 3"),
                                            HasSubstr("bad checksum"))));
    }
  }
}

TEST(StreamFailureTest, ALoopThrowsWhatTheReaderSays) {
  const NumberFiles files({10});
  ReaderLog log;
  log.throw_at = 5;
  DatasetShard shard = ShardOf(files, &log);
  int batches = 0;
  try {
    for ([[maybe_unused]] const Batch& batch :
         shard.IterBatches({.batch_size = 2})) {
      ++batches;
    }
    ADD_FAILURE() << "the loop ended as if it had seen all";
  } catch (const DatasetError& e) {
    EXPECT_THAT(e.status(), StatusIs(kInternal, AllOf(HasSubstr("record 5"),
                                                      HasSubstr("bad magic"))));
    EXPECT_THAT(e.what(), HasSubstr("bad magic"));
  }
  EXPECT_EQ(batches, 2);
  // The shard is of use again.
  log.throw_at = -1;
  EXPECT_EQ(Loop(shard.IterBatches({.batch_size = 2})).size(), 5);
}

TEST(StreamFailureTest, AFileThatIsGoneOrHasChangedIsAnError) {
  const NumberFiles files({10, 10});
  ReaderLog log;
  DatasetShard shard = ShardOf(files, &log);
  std::ofstream(files.paths()[1], std::ios::app) << " more";
  {
    BatchStream stream = shard.IterBatches({.batch_size = 10, .prefetch = 0});
    EXPECT_THAT(stream.Next(), IsOk());
    EXPECT_THAT(stream.Next(),
                StatusIs(kDataLoss, AllOf(HasSubstr(files.paths()[1]),
                                          HasSubstr("data set was made"))));
  }
  ASSERT_EQ(std::remove(files.paths()[0].c_str()), 0);
  EXPECT_THAT(
      shard.IterBatches().Next(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr(files.paths()[0])));
}

// As large as before, but with fewer records.
TEST(StreamFailureTest, AFileWithFewerRecordsThanCountedIsAnError) {
  const NumberFiles files({10});
  ReaderLog log;
  DatasetShard shard = ShardOf(files, &log);
  std::ofstream(files.paths()[0]) << "0 7 ";
  BatchStream stream = shard.IterBatches({.batch_size = 10});
  EXPECT_THAT(stream.Next(),
              StatusIs(kDataLoss, AllOf(HasSubstr(files.paths()[0]),
                                        HasSubstr("record 7"))));
}

TEST(StreamFailureTest, RecordsThatCannotBeStackedAreAnError) {
  const std::vector<Row> rows = {{at::zeros({2})}, {at::zeros({2})}};
  auto data = Dataset::FromRows({"x"}, rows);
  ASSERT_THAT(data, IsOk());
  EXPECT_THAT(Dataset::FromRows({"x"}, {{at::zeros({2})}, {at::zeros({3})}}),
              StatusIs(kInvalidArgument,
                       AllOf(HasSubstr("\"x\""), HasSubstr("Float[3]"),
                             HasSubstr("Float[2]"))));
}

TEST(StreamFailureTest, EarlyDestructionEndsTheThreadWhateverItDoes) {
  const NumberFiles files({500, 500});
  const int before = CountThreads();
  for (const int64_t buffer : {0, 1000}) {
    for (const int take : {0, 1, 3}) {
      ReaderLog log;
      DatasetShard shard = ShardOf(files, &log);
      {
        BatchStream stream = shard.IterBatches(
            {.batch_size = 10, .shuffle_buffer = buffer, .prefetch = 2});
        for (int i = 0; i < take; ++i) ASSERT_THAT(stream.Next(), IsOk());
        BatchStream moved = std::move(stream);
        ASSERT_THAT(moved.Next(), IsOk());
      }
      EXPECT_TRUE(ThreadsComeDownTo(before)) << CountThreads();
      EXPECT_EQ(log.live, 0);  // Of the rows, none is left.
      EXPECT_EQ(shard.epoch(), 1);
    }
  }
}

// Destroyed while the thread fills a large buffer, which takes long.
TEST(StreamFailureTest, DestructionDoesNotWaitForTheBufferToBeFull) {
  const NumberFiles files({2000000});
  ReaderLog log;
  absl::Notification reading;
  log.on_read = [&] {
    if (!reading.HasBeenNotified()) reading.Notify();
  };
  DatasetShard shard = ShardOf(files, &log);
  {
    BatchStream stream =
        shard.IterBatches({.batch_size = 10, .shuffle_buffer = 2000000});
    reading.WaitForNotification();
  }
  EXPECT_LT(log.reads, 2000000);
}

TEST(StreamMemoryTest, HoldsNoMoreRowsThanTheOptionsSay) {
  const NumberFiles files({3000, 2000});
  for (const int64_t buffer : {0, 1, 100}) {
    for (const int prefetch : {0, 1, 3}) {
      ReaderLog log;
      DatasetShard shard = ShardOf(files, &log);
      int64_t taken = 0;
      for (const Batch& batch : shard.IterBatches({.batch_size = 20,
                                .shuffle_buffer = buffer,
                                .prefetch = prefetch})) {
        taken += batch.size();
        // The buffer, a batch in the making; and what was made is ahead by no
        // more than was allowed.
        EXPECT_LE(log.reads,
                  taken + (prefetch + 1) * 20 + std::max<int64_t>(buffer, 1));
      }
      EXPECT_EQ(taken, 5000);
      EXPECT_LE(log.most_live, std::max<int64_t>(buffer, 1) + 20);
      EXPECT_EQ(log.live, 0);
    }
  }
}

// Records of 256 KiB.
class BlobReader : public RecordReader {
 public:
  static constexpr int64_t kBytes = int64_t{256} << 10;

  explicit BlobReader(const std::string& path)
      : file_(path, std::ios::binary) {}
  absl::StatusOr<std::optional<Row>> Next() override {
    at::Tensor blob = at::empty({kBytes}, at::kByte);
    if (!file_.read(static_cast<char*>(blob.data_ptr()), kBytes)) {
      return std::nullopt;
    }
    return Row{blob};
  }

 private:
  std::ifstream file_;
};

int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

TEST(StreamMemoryTest, StreamsAFileThatIsLargerThanTheMemoryItTakes) {
  constexpr int64_t kFileBytes = int64_t{1} << 30;
  const TempFolder folder;
  const std::string path = folder / "large";
  std::ofstream(path).put('\0');
  // A file of holes: reading it costs memory, having it costs nothing.
  ASSERT_EQ(truncate(path.c_str(), kFileBytes), 0);
  auto data = Dataset::FromFiles(
      {path},
      RecordFormat{.open = [](const std::string& path)
                       -> absl::StatusOr<std::unique_ptr<RecordReader>> {
                     return std::make_unique<BlobReader>(path);
                   },
                   .count = [](const std::string&) -> absl::StatusOr<int64_t> {
                     return kFileBytes / BlobReader::kBytes;
                   }},
      {.columns = {"blob"}});
  ASSERT_THAT(data, IsOk());
  auto shard = data->Shard(0, 1);
  ASSERT_THAT(shard, IsOk());
  const int64_t before = PeakBytes();
  int64_t bytes = 0;
  for (const Batch& batch : shard->IterBatches(
           {.batch_size = 16, .shuffle_buffer = 64, .prefetch = 2})) {
    bytes += static_cast<int64_t>(batch["blob"].nbytes());
  }
  EXPECT_EQ(bytes, kFileBytes);
  // 64 rows and 4 batches of 16 are 32 MiB, stacked ones beside their rows a
  // few more; the file is 1024. Sanitizers keep what was freed for a while.
  EXPECT_LT(PeakBytes() - before, kFileBytes / 2);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(PeakBytes() - before, int64_t{128} << 20);
#endif
}

}  // namespace
}  // namespace miniray::train
