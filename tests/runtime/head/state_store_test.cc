#include "runtime/head/state_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/pausing_child.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Table = StateStore::Table;

class StateStoreTest : public ::testing::Test {
 protected:
  void Open() {
    store_.reset();
    auto store = StateStore::Open(folder_.path());
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }

  std::map<int64_t, std::string> Rows(Table table) {
    std::map<int64_t, std::string> rows;
    EXPECT_THAT(store_->Read(table,
                             [&](int64_t key, absl::string_view row) {
                               rows.emplace(key, std::string(row));
                               return absl::OkStatus();
                             }),
                IsOk());
    return rows;
  }

  // Runs `sql` on the file. REQUIRES: no store has it open.
  void Execute(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ / "head.db").c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr),
              SQLITE_OK);
    sqlite3_close(db);
  }

  TempFolder folder_;
  std::unique_ptr<StateStore> store_;
};

TEST_F(StateStoreTest, WhatWasWrittenIsThereAfterReopening) {
  Open();
  const std::string bytes("\0\x01\xff", 3);
  ASSERT_THAT(store_->Write({{Table::kActors, 2, "two"},
                             {Table::kActors, 1, bytes},
                             {Table::kJobs, 1, ""}}),
              IsOk());
  Open();
  EXPECT_THAT(Rows(Table::kActors),
              ElementsAre(Pair(1, bytes), Pair(2, "two")));
  EXPECT_THAT(Rows(Table::kJobs), ElementsAre(Pair(1, "")));
  EXPECT_THAT(Rows(Table::kNodes), IsEmpty());
}

TEST_F(StateStoreTest, RowsAreReplacedAndErased) {
  Open();
  ASSERT_THAT(
      store_->Write({{Table::kNodes, 1, "old"}, {Table::kNodes, 2, "x"}}),
      IsOk());
  ASSERT_THAT(store_->Write({{Table::kNodes, 1, "new"},
                             {Table::kNodes, 2, std::nullopt},
                             {Table::kNodes, 3, std::nullopt}}),
              IsOk());
  EXPECT_THAT(Rows(Table::kNodes), ElementsAre(Pair(1, "new")));
}

TEST_F(StateStoreTest, ReadStopsAtTheFirstError) {
  Open();
  ASSERT_THAT(store_->Write({{Table::kJobs, 1, "a"}, {Table::kJobs, 2, "b"}}),
              IsOk());
  int rows = 0;
  EXPECT_THAT(store_->Read(Table::kJobs,
                           [&](int64_t, absl::string_view) {
                             ++rows;
                             return absl::DataLossError("bad row");
                           }),
              StatusIs(absl::StatusCode::kDataLoss, "bad row"));
  EXPECT_EQ(rows, 1);
}

TEST_F(StateStoreTest, OnlyTheUserMayReadTheFiles) {
  Open();
  ASSERT_THAT(store_->Write({{Table::kJobs, 1, "a"}}), IsOk());
  for (const char* name : {"head.db", "head.db-wal", "head.db-shm"}) {
    struct stat st;
    ASSERT_EQ(stat((folder_ / name).c_str(), &st), 0) << name;
    EXPECT_EQ(st.st_mode & 0777, 0600) << name;
  }
}

TEST_F(StateStoreTest, AKilledWriterLosesNothingThatWasAcknowledged) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ready[0]);
    auto store = StateStore::Open(folder_.path());
    if (!store.ok()) _exit(1);
    for (int64_t key = 1;; ++key) {
      if (!(*store)
               ->Write({{Table::kActors, key, absl::StrCat("row ", key)},
                        {Table::kActorSpecs, key, std::string(5000, 's')}})
               .ok()) {
        _exit(2);
      }
      if (write(ready[1], &key, sizeof(key)) != sizeof(key)) _exit(3);
    }
  }
  close(ready[1]);
  int64_t last = 0, key = 0;
  while (last < 500 && read(ready[0], &key, sizeof(key)) == sizeof(key)) {
    last = key;
  }
  EXPECT_EQ(last, 500);
  kill(child, SIGKILL);
  // What it still acknowledged.
  while (read(ready[0], &key, sizeof(key)) == sizeof(key)) last = key;
  close(ready[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  Open();
  const auto rows = Rows(Table::kActors);
  const auto specs = Rows(Table::kActorSpecs);
  EXPECT_EQ(rows.size(), specs.size());
  for (int64_t i = 1; i <= last; ++i) {
    ASSERT_TRUE(rows.contains(i)) << i << " of " << last;
    EXPECT_EQ(rows.at(i), absl::StrCat("row ", i));
  }
}

// As with sqlite3, while the head runs: it leaves the head its log.
TEST_F(StateStoreTest, AnotherProgramMayLookAtIt) {
  PausingChild child([&](const PausingChild::Pause& pause) {
    auto store = StateStore::Open(folder_.path());
    for (int64_t key = 1; key <= 2 && store.ok(); ++key) {
      if (!(*store)->Write({{Table::kJobs, key, "a"}}).ok()) break;
      if (!pause()) break;
    }
    _exit(0);  // Before the store is closed.
  });
  ASSERT_TRUE(child.AwaitPause());
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((folder_ / "head.db").c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, "SELECT * FROM jobs", nullptr, nullptr, nullptr),
            SQLITE_OK);
  ASSERT_EQ(sqlite3_close(db), SQLITE_OK);
  ASSERT_TRUE(child.Continue());
  EXPECT_TRUE(child.AwaitPause());  // The second row is written.
  child.End();
  Open();
  EXPECT_THAT(Rows(Table::kJobs), ElementsAre(Pair(1, "a"), Pair(2, "a")));
}

TEST_F(StateStoreTest, ADamagedFileIsAnErrorThatSaysWhatToDo) {
  ASSERT_THAT(
      WriteFileAtomically(folder_ / "head.db", std::string(8192, 'x'), 0600),
      IsOk());
  EXPECT_THAT(
      StateStore::Open(folder_.path()).status(),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr(folder_ / "head.db"), HasSubstr("is damaged"),
                     HasSubstr("move it away"))));
}

TEST_F(StateStoreTest, APageOverwrittenInTheMiddleIsNoticed) {
  Open();
  std::vector<StateStore::Change> changes;
  for (int64_t key = 0; key < 100; ++key) {
    changes.push_back({Table::kActors, key, std::string(1000, 'r')});
  }
  ASSERT_THAT(store_->Write(changes), IsOk());
  store_.reset();  // The last to close it moves the log into the file.
  const int fd = open((folder_ / "head.db").c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::string garbage(4096 * 8, '\xa5');
  ASSERT_EQ(pwrite(fd, garbage.data(), garbage.size(), 4096 * 4),
            static_cast<ssize_t>(garbage.size()));
  close(fd);
  EXPECT_THAT(StateStore::Open(folder_.path()).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("move it away")));
}

// A store whose process was killed, with one row in its log alone.
class KilledStoreTest : public StateStoreTest {
 protected:
  void SetUp() override {
    const pid_t pid = fork();
    if (pid == 0) {
      auto store = StateStore::Open(folder_.path());
      if (store.ok()) (void)(*store)->Write({{Table::kJobs, 1, "a"}});
      _exit(0);  // Closes nothing.
    }
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  }
  void ExpectDamaged(const std::string& how) {
    EXPECT_THAT(StateStore::Open(folder_.path(), /*has_cluster=*/true).status(),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("is damaged"), HasSubstr(how),
                               HasSubstr("belong together"))));
  }
  const std::string log_ = folder_ / "head.db-wal";
};

TEST_F(KilledStoreTest, GoesOn) {
  Open();
  EXPECT_THAT(Rows(Table::kJobs), ElementsAre(Pair(1, "a")));
  store_.reset();
  // What was closed in good order needs no log.
  EXPECT_NE(access(log_.c_str(), F_OK), 0);
  Open();
  EXPECT_THAT(Rows(Table::kJobs), ElementsAre(Pair(1, "a")));
}

TEST_F(KilledStoreTest, AStartThatFailsOnAFullDiskLeavesTheLog) {
  const pid_t pid = fork();
  if (pid == 0) {
    auto store = StateStore::Open(folder_.path());
    // Again and again, so that SQLite's other files are smaller than the log.
    const std::string row(200000, 'r');
    for (int i = 0; i < 3 && store.ok(); ++i) {
      (void)(*store)->Write({{Table::kActors, 1, row}});
    }
    _exit(0);
  }
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  struct stat st;
  ASSERT_EQ(stat(log_.c_str(), &st), 0);
  ASSERT_GT(st.st_size, 600000);
  struct rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  struct rlimit limit = old_limit;
  limit.rlim_cur = static_cast<rlim_t>(st.st_size);
  auto* const old_handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status = StateStore::Open(folder_.path()).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  signal(SIGXFSZ, old_handler);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(access(log_.c_str(), F_OK), 0);
  Open();
  EXPECT_THAT(Rows(Table::kJobs), ElementsAre(Pair(1, "a")));
}

TEST_F(KilledStoreTest, AnOlderReleaseThatRefusesItLeavesTheLog) {
  // What a release with that schema does that is killed.
  const auto set_schema = [this](const std::string& schema) {
    const pid_t pid = fork();
    if (pid == 0) {
      sqlite3* db = nullptr;
      sqlite3_open((folder_ / "head.db").c_str(), &db);
      sqlite3_exec(db, ("PRAGMA user_version = " + schema).c_str(), nullptr,
                   nullptr, nullptr);
      _exit(0);
    }
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  };
  set_schema("2");
  EXPECT_THAT(StateStore::Open(folder_.path()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(access(log_.c_str(), F_OK), 0);
  set_schema("1");
  Open();
  EXPECT_THAT(Rows(Table::kJobs), ElementsAre(Pair(1, "a")));
}

TEST_F(KilledStoreTest, AMissingLogIsNoticed) {
  ASSERT_EQ(unlink(log_.c_str()), 0);
  ExpectDamaged("head.db-wal is missing");
  // The way out for whoever had it moved into the file.
  ASSERT_EQ(unlink((folder_ / "head.db-unclean").c_str()), 0);
  Open();
}

TEST_F(KilledStoreTest, AnEmptyLogIsNoticed) {
  ASSERT_EQ(truncate(log_.c_str(), 0), 0);
  ExpectDamaged("head.db-wal is empty");
}

TEST_F(KilledStoreTest, ALogOfGarbageIsNoticed) {
  ASSERT_THAT(WriteFileAtomically(log_, std::string(20000, '\xa5'), 0600),
              IsOk());
  ExpectDamaged("is no log of SQLite");
  ASSERT_THAT(WriteFileAtomically(log_, "short", 0600), IsOk());
  ExpectDamaged("is no log of SQLite");
}

TEST_F(KilledStoreTest, AMissingDatabaseBesideItsLogIsNoticed) {
  ASSERT_EQ(unlink((folder_ / "head.db").c_str()), 0);
  ExpectDamaged("it is missing");
  EXPECT_EQ(access(log_.c_str(), F_OK), 0);  // Still there to be put together.
}

TEST_F(StateStoreTest, ADatabaseThatLostItsTablesIsNoticed) {
  Execute("CREATE TABLE other (x)");
  EXPECT_THAT(StateStore::Open(folder_.path(), /*has_cluster=*/true).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no tables")));
}

TEST_F(StateStoreTest, ANewerSchemaIsRefusedAndUntouched) {
  Open();
  ASSERT_THAT(store_->Write({{Table::kJobs, 1, "a"}}), IsOk());
  store_.reset();
  Execute("PRAGMA user_version = 2");
  EXPECT_THAT(StateStore::Open(folder_.path()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(folder_ / "head.db"), HasSubstr("newer"),
                             HasSubstr("schema 2"), HasSubstr("--state_dir"))));
  Execute("PRAGMA user_version = 1");
  Open();
  EXPECT_THAT(Rows(Table::kJobs), ElementsAre(Pair(1, "a")));
}

TEST_F(StateStoreTest, AFullDiskFailsTheWriteWholeAndALaterOneSucceeds) {
  Open();
  ASSERT_THAT(store_->Write({{Table::kJobs, 1, "a"}}), IsOk());
  struct rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  struct rlimit limit = old_limit;
  limit.rlim_cur = 100000;
  auto* const old_handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const absl::Status status =
      store_->Write({{Table::kJobs, 2, "b"},
                     {Table::kActorSpecs, 1, std::string(1 << 20, 's')}});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  signal(SIGXFSZ, old_handler);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr(folder_ / "head.db")));
  EXPECT_THAT(Rows(Table::kJobs), ElementsAre(Pair(1, "a")));
  EXPECT_THAT(store_->Write({{Table::kJobs, 2, "b"}}), IsOk());
  Open();
  EXPECT_THAT(Rows(Table::kJobs), ElementsAre(Pair(1, "a"), Pair(2, "b")));
  EXPECT_THAT(Rows(Table::kActorSpecs), IsEmpty());
}

TEST_F(StateStoreTest, TheLogDoesNotGrowForEver) {
  Open();
  const std::string row(100000, 'r');
  // 200 MB in all.
  for (int i = 0; i < 2000; ++i) {
    ASSERT_THAT(store_->Write({{Table::kActorSpecs, i % 10, row}}), IsOk());
  }
  // The other thread's turn comes while writes go on.
  struct stat st = {};
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  do {
    ASSERT_THAT(store_->Write({{Table::kJobs, 1, "a"}}), IsOk());
    ASSERT_EQ(stat((folder_ / "head.db-wal").c_str(), &st), 0);
  } while (st.st_size >= (64 << 20) && absl::Now() < deadline);
  EXPECT_LT(st.st_size, 64 << 20);
}

}  // namespace
}  // namespace miniray
