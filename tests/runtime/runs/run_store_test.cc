#include "runtime/runs/run_store.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/runs/run_table.h"
#include "tests/runtime/base/pausing_child.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/runs/run_events.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Only what a test asks for is written, and what the end of a store writes.
constexpr RunStore::Options kByHand = {.period = absl::InfiniteDuration()};

class RunStoreTest : public ::testing::Test {
 protected:
  static std::unique_ptr<RunStore> Open(const std::string& path,
                                        RunTable* table) {
    auto store = RunStore::Open(path, table, kByHand);
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  // All that a table tells, but for versions, which reports alone do not store.
  static std::string Told(const RunTable& table) {
    std::string told;
    const v1::ListRunsResponse runs = *table.List({});
    for (const v1::RunInfo& info : runs.runs()) {
      v1::GetRunResponse run = *table.Get(GetOf(info.run_id(), 10000, true));
      run.mutable_run()->clear_version();
      absl::StrAppend(&told, run.DebugString());
      for (const v1::RunImageInfo& image : run.images()) {
        v1::GetRunImageRequest get;
        get.set_run_id(info.run_id());
        get.set_image_id(image.image_id());
        const auto png = table.GetImage(get);
        absl::StrAppend(&told, png.ok() ? png->png() : "no bytes", "\n");
      }
    }
    return told;
  }

  // Where a head that is killed now leaves it.
  std::string CopyAsAfterAKill(const std::string& name) {
    std::filesystem::create_directory(temp_ / name);
    for (const char* end : {"", "-wal"}) {
      std::filesystem::copy_file(path_ + end,
                                 absl::StrCat(temp_ / name, "/runs.db", end));
    }
    return temp_ / name + "/runs.db";
  }

  // Rows of a table of the file.
  int64_t CountRows(const std::string& table) {
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    sqlite3_stmt* statement = nullptr;
    const std::string sql = "SELECT count(*) FROM " + table;
    EXPECT_EQ(sqlite3_prepare_v2(db, sql.c_str(), -1, &statement, nullptr),
              SQLITE_OK);
    EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW);
    const int64_t count = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return count;
  }

  static void Execute(sqlite3* db, const std::string& sql) {
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr),
              SQLITE_OK)
        << sqlite3_errmsg(db);
  }

  // A running run with all there is, and one that has ended.
  static void Fill(RunTable* table) {
    ASSERT_THAT(table->Report(ReportOf(
                    "gan", 1,
                    {Started(9), Point(0.5, 3), Point(0.5, 4, 0),
                     ProgressAt(1, 0, 5, 10, 50), Sync(0, 1), Server("ps", 1),
                     Image(0, PngOf(3000, 1)), Span("epoch 1", 0, 1)})),
                IsOk());
    ASSERT_THAT(
        table->Report(ReportOf("ended", 1,
                               {Started(2), Point(1, 1),
                                Image(0, PngOf(100, 2)), Ended("it broke")})),
        IsOk());
  }

  TempFolder temp_;
  const std::string path_ = temp_ / "runs.db";
};

TEST_F(RunStoreTest, RunsAreThereAfterARestart) {
  std::string told;
  {
    RunTable table;
    const auto store = Open(path_, &table);
    Fill(&table);
    told = Told(table);
    EXPECT_THAT(told, HasSubstr("it broke"));
  }
  struct stat st;
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600);
  {
    RunTable table;
    const auto store = Open(path_, &table);
    EXPECT_EQ(Told(table), told);
    // The running one goes on where it was: 5 to 8 came before.
    ASSERT_THAT(
        table.Report(ReportOf(
            "gan", 5,
            {Sync(0, 1), Server("ps", 1), Image(0, PngOf(3000, 1)),
             Span("epoch 1", 0, 1), Sync(1, 2), Image(1, PngOf(200, 3))})),
        IsOk());
    const v1::GetRunResponse run = *table.Get(GetOf("gan"));
    EXPECT_EQ(run.syncs_size(), 2);
    EXPECT_EQ(run.images_size(), 2);
    EXPECT_NE(run.images(0).image_id(), run.images(1).image_id());
    EXPECT_EQ(run.run().dropped_events(), 0);
    told = Told(table);
  }
  // And again, with what an earlier head had written and this one did not.
  RunTable table;
  const auto store = Open(path_, &table);
  EXPECT_EQ(Told(table), told);
  // New runs come before those.
  ASSERT_THAT(table.Report(ReportOf("new", 1, {Started(1)})), IsOk());
  std::vector<std::string> ids;
  const v1::ListRunsResponse runs = *table.List({});
  for (const v1::RunInfo& run : runs.runs()) ids.push_back(run.run_id());
  EXPECT_THAT(ids, ElementsAre("new", "ended", "gan"));
}

TEST_F(RunStoreTest, AHeadThatIsKilledLosesWhatItHasNotWritten) {
  RunTable table;
  const auto store = Open(path_, &table);
  Fill(&table);
  ASSERT_THAT(store->Write(), IsOk());
  // Behind the snapshot: rows of their own, written twice.
  ASSERT_THAT(table.Report(ReportOf("gan", 9, {Point(1, 2)})), IsOk());
  ASSERT_THAT(store->Write(), IsOk());
  ASSERT_THAT(
      table.Report(ReportOf("gan", 10, {Point(2, 1), Image(1, PngOf(50, 4))})),
      IsOk());
  ASSERT_THAT(store->Write(), IsOk());
  ASSERT_THAT(store->Write(), IsOk());  // Nothing new.
  EXPECT_EQ(CountRows("reports"), 2);
  const std::string written = Told(table);
  ASSERT_THAT(table.Report(ReportOf("gan", 12, {Point(3, 0.5)})), IsOk());
  const std::string copy = CopyAsAfterAKill("killed");

  RunTable next;
  const auto next_store = Open(copy, &next);
  EXPECT_EQ(Told(next), written);
  // The reporter was told that 12 had come, and does not send it again.
  ASSERT_THAT(next.Report(ReportOf("gan", 13, {Point(4, 0.25)})), IsOk());
  EXPECT_EQ(next.Get(GetOf("gan"))->run().dropped_events(), 1);
}

// As where an earlier head had it, whose file is lost.
TEST_F(RunStoreTest, ARunWhoseBeginningNeverCameIsKept) {
  RunTable table;
  const auto store = Open(path_, &table);
  ASSERT_THAT(table.Report(ReportOf("gan", 7, {Point(1, 2)})), IsOk());
  ASSERT_THAT(store->Write(), IsOk());
  ASSERT_THAT(table.Report(ReportOf("gan", 8, {Point(2, 1)})), IsOk());
  ASSERT_THAT(store->Write(), IsOk());
  EXPECT_EQ(CountRows("runs"), 1);
  EXPECT_EQ(CountRows("reports"), 1);
  RunTable next;
  const auto next_store = Open(CopyAsAfterAKill("killed"), &next);
  EXPECT_EQ(Told(next), Told(table));
  // It knows which it has.
  ASSERT_THAT(next.Report(ReportOf("gan", 9, {Point(3, 0.5)})), IsOk());
  EXPECT_EQ(next.Get(GetOf("gan"))->run().dropped_events(), 6);
}

// Many reports become one snapshot: the file does not grow with time.
TEST_F(RunStoreTest, ReportsBecomeSnapshots) {
  RunTable table;
  const auto store = Open(path_, &table);
  ASSERT_THAT(table.Report(ReportOf("gan", 1, {Started(9)})), IsOk());
  ASSERT_THAT(store->Write(), IsOk());
  int64_t sequence = 2;
  int64_t most = 0;
  for (int i = 0; i < 40; ++i) {
    // 20 KB each; there are 256 KiB before the next snapshot.
    std::vector<v1::RunEvent> events(500, Span(std::string(20, 's'), 0, 1));
    ASSERT_THAT(table.Report(ReportOf("gan", sequence, events)), IsOk());
    sequence += 500;
    ASSERT_THAT(store->Write(), IsOk());
    most = std::max(most, CountRows("reports"));
  }
  EXPECT_GE(most, 2);
  EXPECT_LE(most, 20);
  RunTable next;
  const auto next_store = Open(CopyAsAfterAKill("killed"), &next);
  EXPECT_TRUE(Told(next) == Told(table));
}

TEST_F(RunStoreTest, WhatTheTableForgetsIsErased) {
  RunTable::Options options;
  options.max_runs = 2;
  options.limits.max_images = 2;
  RunTable table(options);
  const auto store = Open(path_, &table);
  Fill(&table);
  ASSERT_THAT(store->Write(), IsOk());
  EXPECT_EQ(CountRows("images"), 2);
  ASSERT_THAT(
      table.Report(ReportOf("gan", 9,
                            {Image(1, PngOf(10, 5)), Image(2, PngOf(10, 6)),
                             Image(3, PngOf(10, 7))})),
      IsOk());
  ASSERT_THAT(store->Write(), IsOk());
  EXPECT_EQ(CountRows("images"), 3);  // 2 of gan, 1 of ended.
  ASSERT_THAT(table.Report(ReportOf("new", 1, {Started(1)})), IsOk());
  ASSERT_THAT(store->Write(), IsOk());
  EXPECT_EQ(CountRows("runs"), 2);
  EXPECT_EQ(CountRows("images"), 2);
  // A start that goes on from 1 trains the pictures of 2 and 3 again.
  ASSERT_THAT(table.Report(ReportOf("gan", 1, {Started(9, 1)}, "second")),
              IsOk());
  ASSERT_THAT(store->Write(), IsOk());
  EXPECT_EQ(CountRows("images"), 0);
  EXPECT_EQ(CountRows("reports"), 0);
  RunTable next;
  const auto next_store = Open(CopyAsAfterAKill("killed"), &next);
  EXPECT_EQ(Told(next), Told(table));
}

TEST_F(RunStoreTest, WritesByItselfAndAtOnceWhereARunBeginsOrEnds) {
  RunTable table;
  // Its period is never over.
  const auto store = Open(path_, &table);
  ASSERT_THAT(table.Report(ReportOf("gan", 1, {Started(9)})), IsOk());
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (CountRows("runs") == 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(2));
  }
  EXPECT_EQ(CountRows("runs"), 1);
}

TEST_F(RunStoreTest, WritesInItsPeriod) {
  RunTable table;
  const auto store =
      RunStore::Open(path_, &table, {.period = absl::Milliseconds(5)});
  ASSERT_THAT(store, IsOk());
  // The snapshot of the beginning, then a report.
  ASSERT_THAT(table.Report(ReportOf("gan", 1, {Started(9)})), IsOk());
  ASSERT_THAT((*store)->Write(), IsOk());
  ASSERT_THAT(table.Report(ReportOf("gan", 2, {Point(1, 1)})), IsOk());
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (CountRows("reports") == 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(2));
  }
  EXPECT_EQ(CountRows("reports"), 1);
}

TEST_F(RunStoreTest, ADamagedFileIsSetAside) {
  const std::string garbage(8192, 'x');
  ASSERT_THAT(WriteFileAtomically(path_, garbage), IsOk());
  {
    RunTable table;
    const auto store = Open(path_, &table);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(Told(table), "");
    Fill(&table);
  }
  EXPECT_EQ(ReadFile(path_ + "-damaged").value_or("it is not there"), garbage);
  RunTable table;
  const auto store = Open(path_, &table);
  EXPECT_THAT(Told(table), HasSubstr("it broke"));
}

TEST_F(RunStoreTest, AFileOfAnotherVersionIsSetAside) {
  {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    Execute(db, "PRAGMA user_version = 99");
    sqlite3_close(db);
  }
  RunTable table;
  const auto store = Open(path_, &table);
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(std::filesystem::exists(path_ + "-damaged"));
  Fill(&table);
  EXPECT_THAT(store->Write(), IsOk());
}

TEST_F(RunStoreTest, ARunThatMakesNoSenseIsLeftOut) {
  std::string told;
  {
    RunTable table;
    const auto store = Open(path_, &table);
    ASSERT_THAT(table.Report(ReportOf("good", 1, {Started(9)})), IsOk());
    told = Told(table);
    ASSERT_THAT(table.Report(ReportOf("bad", 1, {Started(9)})), IsOk());
    ASSERT_THAT(table.Report(ReportOf("bad-too", 1, {Started(9)})), IsOk());
  }
  {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    // No message; a message without an id.
    Execute(db, "UPDATE runs SET row = x'ffff' WHERE key = 2");
    Execute(db, "UPDATE runs SET row = x'' WHERE key = 3");
    sqlite3_close(db);
  }
  RunTable table;
  const auto store = Open(path_, &table);
  EXPECT_EQ(Told(table), told);
}

TEST_F(RunStoreTest, APlaceThatCannotBeIsAnErrorWithThePath) {
  RunTable table;
  const std::string path = temp_ / "missing/runs.db";
  EXPECT_THAT(RunStore::Open(path, &table),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
  // The table serves without.
  ASSERT_THAT(table.Report(ReportOf("gan", 1, {Started(9)})), IsOk());
  EXPECT_THAT(table.TakeChanges(), IsEmpty());
}

// As with sqlite3, while the head runs: it leaves the head its log.
TEST_F(RunStoreTest, AnotherProgramMayLookAtIt) {
  PausingChild child([&](const PausingChild::Pause& pause) {
    RunTable table;
    const auto store = RunStore::Open(path_, &table, kByHand);
    for (int64_t number = 1; number <= 2 && store.ok(); ++number) {
      const v1::RunEvent event = number == 1 ? Started(9) : Point(1, 0.5);
      if (!table.Report(ReportOf("gan", number, {event})).ok()) break;
      if (!(*store)->Write().ok()) break;
      if (!pause()) break;
    }
    _exit(0);  // Before the store is closed.
  });
  ASSERT_TRUE(child.AwaitPause());
  EXPECT_EQ(CountRows("runs"), 1);
  ASSERT_TRUE(child.Continue());
  EXPECT_TRUE(child.AwaitPause());  // The point is written.
  child.End();
  RunTable next;
  const auto store = Open(path_, &next);
  EXPECT_EQ(next.Get(GetOf("gan"))->curves_size(), 1);
}

// Another program holds the file, as a disk that takes nothing would.
TEST_F(RunStoreTest, WhatCannotBeWrittenIsWrittenLater) {
  RunTable table;
  const auto store = Open(path_, &table);
  ASSERT_NE(store, nullptr);
  ASSERT_THAT(table.Report(ReportOf("gan", 1, {Started(9)})), IsOk());
  ASSERT_THAT(store->Write(), IsOk());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  Execute(db, "BEGIN IMMEDIATE");
  ASSERT_THAT(table.Report(ReportOf("gan", 2,
                                    {Point(1, 1), Image(0, PngOf(50, 1)),
                                     Image(1, PngOf(50, 2))})),
              IsOk());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(store->Write(),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path_)));
  }
  // Reports are taken all the while.
  ASSERT_THAT(table.Report(ReportOf("gan", 5, {Point(2, 2)})), IsOk());
  Execute(db, "COMMIT");
  sqlite3_close(db);
  ASSERT_THAT(store->Write(), IsOk());
  EXPECT_EQ(CountRows("images"), 2);
  RunTable next;
  const auto next_store = Open(CopyAsAfterAKill("killed"), &next);
  EXPECT_EQ(Told(next), Told(table));
}

}  // namespace
}  // namespace miniray
