#include "runtime/runs/run_store.h"

#include <glog/logging.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/bind_front.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "proto/run_state.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/sqlite.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Of the tables and of what is in them.
constexpr int kSchema = 1;
constexpr const char* kTables =
    "CREATE TABLE runs (key INTEGER PRIMARY KEY, row BLOB NOT NULL);"
    "CREATE TABLE reports (key INTEGER PRIMARY KEY, run INTEGER NOT NULL, "
    "row BLOB NOT NULL);"
    "CREATE INDEX reports_of_run ON reports (run);"
    "CREATE TABLE images (run INTEGER NOT NULL, image INTEGER NOT NULL, "
    "png BLOB NOT NULL, PRIMARY KEY (run, image))";
// From one line in the log to the next, about a disk that takes nothing.
constexpr absl::Duration kWarningPeriod = absl::Minutes(1);

using Statement = SqliteConnection::Statement;

absl::Status SqliteStatus(const std::string& path, int code,
                          const std::string& reason) {
  const std::string text = absl::StrCat(path, ": ", reason);
  switch (code) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
      return absl::ResourceExhaustedError(
          absl::StrCat(text, " (is the disk of that folder full?)"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:  // A table is missing, or is another one.
      return absl::DataLossError(text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(
          absl::StrCat(text, " (another process uses it)"));
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return absl::PermissionDeniedError(text);
    default:
      return absl::InternalError(text);
  }
}

// The rows of a RunTable. Not thread-safe.
class RunDatabase {
 public:
  explicit RunDatabase(std::string path)
      : path_(std::move(path)),
        db_(path_, absl::bind_front(SqliteStatus, path_)) {}

  // Errors: DATA_LOSS, the file is no such database. Others: it cannot be used.
  absl::Status Open() {
    MR_RETURN_IF_ERROR(SqliteConnection::MakeFile(path_));
    MR_RETURN_IF_ERROR(db_.Open());
    MR_RETURN_IF_ERROR(CheckSchema());
    const std::pair<Statement*, const char*> statements[] = {
        {&put_run_, "INSERT OR REPLACE INTO runs VALUES (?, ?)"},
        {&put_report_, "INSERT INTO reports (run, row) VALUES (?, ?)"},
        {&put_image_, "INSERT OR REPLACE INTO images VALUES (?, ?, ?)"},
        {&erase_run_, "DELETE FROM runs WHERE key = ?"},
        {&erase_reports_, "DELETE FROM reports WHERE run = ?"},
        {&erase_image_, "DELETE FROM images WHERE run = ? AND image = ?"},
        {&erase_images_, "DELETE FROM images WHERE run = ?"},
    };
    for (const auto& [statement, sql] : statements) {
      MR_ASSIGN_OR_RETURN(*statement, db_.Prepare(sql));
    }
    return absl::OkStatus();
  }

  // Closes it; Open may follow.
  void Close() {
    for (Statement* statement :
         {&put_run_, &put_report_, &put_image_, &erase_run_, &erase_reports_,
          &erase_image_, &erase_images_}) {
      statement->reset();
    }
    db_.Close();
  }

  // All or nothing.
  absl::Status Write(const std::vector<RunTable::Change>& changes) {
    return db_.Transact([&]() -> absl::Status {
      for (const RunTable::Change& change : changes) {
        MR_RETURN_IF_ERROR(WriteOne(change));
      }
      return absl::OkStatus();
    });
  }

  // Errors: DATA_LOSS, the file is damaged. Nothing is in the table then.
  absl::Status ReadInto(RunTable* table) {
    std::map<int64_t, v1::StoredRun> runs;
    MR_RETURN_IF_ERROR(
        ReadRows("SELECT key, 0, row FROM runs",
                 [&](int64_t key, int64_t, absl::string_view row) {
                   if (!runs[key].ParseFromArray(row.data(), Size(row))) {
                     LOG(WARNING) << path_ << ": run " << key << " is left out";
                     runs.erase(key);
                   }
                 }));
    std::map<int64_t, std::vector<v1::ReportRunRequest>> reports;
    MR_RETURN_IF_ERROR(ReadRows(
        "SELECT run, key, row FROM reports ORDER BY key",
        [&](int64_t run, int64_t key, absl::string_view row) {
          v1::ReportRunRequest report;
          if (report.ParseFromArray(row.data(), Size(row))) {
            reports[run].push_back(std::move(report));
          } else {
            LOG(WARNING) << path_ << ": report " << key << " is left out";
          }
        }));
    struct Picture {
      int64_t run;
      int64_t image;
      std::string png;
    };
    std::vector<Picture> pictures;
    MR_RETURN_IF_ERROR(
        ReadRows("SELECT run, image, png FROM images",
                 [&](int64_t run, int64_t image, absl::string_view png) {
                   pictures.push_back({run, image, std::string(png)});
                 }));
    // All could be read: from here on nothing is damaged.
    for (auto& [key, run] : runs) {
      const absl::Status restored =
          table->Restore(key, run, std::move(reports[key]));
      LOG_IF(WARNING, !restored.ok())
          << path_ << ": " << restored.message() << "; it is left out";
    }
    for (Picture& picture : pictures) {
      if (table->RestoreImage(picture.run, picture.image,
                              std::move(picture.png))) {
        continue;
      }
      const absl::Status erased =
          db_.Step(erase_image_.get(), {picture.run, picture.image});
      LOG_IF(WARNING, !erased.ok()) << erased;
    }
    return absl::OkStatus();
  }

 private:
  static int Size(absl::string_view row) {
    return static_cast<int>(row.size());
  }

  template <class Row>
  absl::Status ReadRows(const char* sql, Row row) {
    return db_.ForEachRow(sql, [&](sqlite3_stmt* at) {
      row(sqlite3_column_int64(at, 0), sqlite3_column_int64(at, 1),
          SqliteConnection::Blob(at, 2));
      return absl::OkStatus();
    });
  }

  absl::Status WriteOne(const RunTable::Change& change) {
    if (change.erased) {
      for (sqlite3_stmt* erase :
           {erase_run_.get(), erase_reports_.get(), erase_images_.get()}) {
        MR_RETURN_IF_ERROR(db_.Step(erase, {change.key}));
      }
      return absl::OkStatus();
    }
    if (change.snapshot.has_value()) {
      MR_RETURN_IF_ERROR(db_.Step(put_run_.get(), {change.key},
                                  change.snapshot->SerializeAsString()));
      MR_RETURN_IF_ERROR(db_.Step(erase_reports_.get(), {change.key}));
    }
    for (const std::string& report : change.reports) {
      MR_RETURN_IF_ERROR(db_.Step(put_report_.get(), {change.key}, report));
    }
    for (const auto& [image, png] : change.new_images) {
      MR_RETURN_IF_ERROR(db_.Step(put_image_.get(), {change.key, image}, *png));
    }
    for (const int64_t image : change.removed_images) {
      MR_RETURN_IF_ERROR(db_.Step(erase_image_.get(), {change.key, image}));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSchema() {
    MR_ASSIGN_OR_RETURN(const std::string found,
                        db_.Value("PRAGMA user_version"));
    if (found == absl::StrCat(kSchema)) return absl::OkStatus();
    if (found != "0") {
      return absl::DataLossError(
          absl::StrCat(path_, " was written by another Mini-Ray (schema ",
                       found, "; this one knows ", kSchema, ")"));
    }
    return db_.Transact([&]() -> absl::Status {
      MR_RETURN_IF_ERROR(db_.Execute(kTables));
      return db_.Execute(absl::StrCat("PRAGMA user_version = ", kSchema));
    });
  }

  const std::string path_;
  SqliteConnection db_;
  // Behind the database: they end before it.
  Statement put_run_, put_report_, put_image_;
  Statement erase_run_, erase_reports_, erase_image_, erase_images_;
};

class SqliteRunStore : public RunStore {
 public:
  SqliteRunStore(const std::string& path, RunTable* table, Options options)
      : path_(path), options_(options), table_(*table), database_(path) {}

  ~SqliteRunStore() override {
    if (!thread_.joinable()) return;
    {
      absl::MutexLock lock(&wake_mu_);
      closing_ = true;
    }
    thread_.join();
    Warn(Write());
    table_.EndKeeping();
  }

  absl::Status Begin() {
    absl::Status status = Load();
    if (absl::IsDataLoss(status)) {
      MR_RETURN_IF_ERROR(SetAside(status));
      status = Load();
    }
    MR_RETURN_IF_ERROR(status);
    table_.BeginKeeping([this] {
      absl::MutexLock lock(&wake_mu_);
      woken_ = true;
    });
    thread_ = std::thread([this] { Loop(); });
    return absl::OkStatus();
  }

  absl::Status Write() override {
    absl::MutexLock lock(&write_mu_);
    std::vector<RunTable::Change> changes = table_.TakeChanges();
    if (changes.empty()) return absl::OkStatus();
    absl::Status status = database_.Write(changes);
    if (!status.ok()) table_.ReturnChanges(std::move(changes));
    return status;
  }

 private:
  absl::Status Load() {
    absl::MutexLock lock(&write_mu_);
    MR_RETURN_IF_ERROR(database_.Open());
    return database_.ReadInto(&table_);
  }

  absl::Status SetAside(const absl::Status& why) {
    absl::MutexLock lock(&write_mu_);
    database_.Close();
    const std::string aside = path_ + "-damaged";
    LOG(WARNING) << "the runs of earlier trainings are not shown, and " << path_
                 << " is set aside as " << aside << ": " << why.message();
    if (rename(path_.c_str(), aside.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("rename ", path_));
    }
    // They belong to it, and would be taken for the new one's.
    unlink((path_ + "-wal").c_str());
    unlink((path_ + "-shm").c_str());
    return absl::OkStatus();
  }

  void Loop() {
    while (true) {
      {
        absl::MutexLock lock(&wake_mu_);
        auto is_woken = [this] {
          wake_mu_.AssertReaderHeld();
          return woken_ || closing_;
        };
        wake_mu_.AwaitWithTimeout(absl::Condition(&is_woken), options_.period);
        woken_ = false;
        if (closing_) return;
      }
      const absl::Status status = Write();
      Warn(status);
      if (status.ok()) continue;
      // What woke it is still there, and would again and again.
      absl::MutexLock lock(&wake_mu_);
      wake_mu_.AwaitWithTimeout(absl::Condition(&closing_), options_.period);
    }
  }

  void Warn(const absl::Status& status) {
    if (status.ok() || absl::Now() < next_warning_) return;
    next_warning_ = absl::Now() + kWarningPeriod;
    LOG(WARNING) << "what trainers report is shown, but not kept for a head "
                    "that is started again: "
                 << status.message();
  }

  const std::string path_;
  const Options options_;
  RunTable& table_;
  absl::Time next_warning_ = absl::InfinitePast();  // Of the thread.

  // Comes before the table's own lock.
  absl::Mutex write_mu_;
  RunDatabase database_ ABSL_GUARDED_BY(write_mu_);

  // Comes behind the table's own lock.
  absl::Mutex wake_mu_;
  bool woken_ ABSL_GUARDED_BY(wake_mu_) = false;
  bool closing_ ABSL_GUARDED_BY(wake_mu_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RunStore>> RunStore::Open(
    const std::string& path, RunTable* table, Options options) {
  auto store = std::make_unique<SqliteRunStore>(path, table, options);
  MR_RETURN_IF_ERROR(store->Begin());
  return store;
}

}  // namespace miniray
