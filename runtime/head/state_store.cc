#include "runtime/head/state_store.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/bind_front.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/base/sqlite.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Of the tables and of what is in them.
constexpr int kSchema = 1;
constexpr std::array<const char*, 5> kTables = {
    "nodes", "actors", "actor_specs", "jobs", "placement_groups"};

// Pages of 4 KiB in the log from which it is moved to the file, and from which
// writers have to wait for that.
constexpr int kCheckpointPages = 1000;
constexpr int kRestartPages = 25000;
// How long the log may be, and how often that is looked at: internal.
constexpr absl::Duration kCheckpointPeriod = absl::Seconds(1);
constexpr absl::Duration kPatience = absl::Seconds(10);

using Statement = SqliteConnection::Statement;

absl::Status Damaged(const std::string& path, absl::string_view how) {
  return absl::DataLossError(absl::StrCat(
      "the head's database ", path, " is damaged (", how,
      "). It and its -wal file belong together: put back copies of both, or "
      "move it away, with its -wal, -shm and -unclean files, to begin a new "
      "cluster"));
}

absl::Status SqliteStatus(const std::string& path, int code,
                          const std::string& reason) {
  switch (code) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
      return absl::ResourceExhaustedError(
          absl::StrCat("the head cannot write ", path, " (", reason,
                       "): is the disk of that folder full?"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Damaged(path, reason);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat("another process uses the head's database ", path));
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return absl::PermissionDeniedError(absl::StrCat(
          "the head's database ", path, " cannot be opened: ", reason));
    default:
      return absl::InternalError(
          absl::StrCat("the head's database ", path, ": ", reason));
  }
}

// Stands beside the database while what it holds may be in its log alone.
std::string UncleanMark(const std::string& path) { return path + "-unclean"; }

// -1: there is no such file.
int64_t SizeOf(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 ? static_cast<int64_t>(st.st_size) : -1;
}

uint32_t BigEndian(const char* bytes) {
  const auto* const b = reinterpret_cast<const unsigned char*>(bytes);
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 |
         uint32_t{b[3]};
}

uint32_t LittleEndian(const char* bytes) {
  return __builtin_bswap32(BigEndian(bytes));
}

// True if a log begins as SQLite's format says; one that does not would be
// taken for an empty one. It is never written in part: 32 bytes at once.
bool HasSoundHeader(const std::string& log) {
  constexpr size_t kHeaderBytes = 32;
  const ScopedFd fd(open(log.c_str(), O_RDONLY | O_CLOEXEC));
  char header[kHeaderBytes];
  if (!fd.valid() ||
      read(fd.get(), header, kHeaderBytes) != ssize_t{kHeaderBytes}) {
    return false;
  }
  const uint32_t magic = BigEndian(header);
  if ((magic & ~1U) != 0x377f0682) return false;
  uint32_t s0 = 0, s1 = 0;
  for (size_t i = 0; i < 24; i += 8) {
    const auto word = (magic & 1U) != 0 ? &BigEndian : &LittleEndian;
    s0 += word(header + i) + s1;
    s1 += word(header + i + 4) + s0;
  }
  return s0 == BigEndian(header + 24) && s1 == BigEndian(header + 28);
}

// SQLite takes a log that is not there, or that it cannot read, for an empty
// one, and the database for what it was long ago.
absl::Status CheckLog(const std::string& path) {
  const std::string log = path + "-wal";
  const bool has_database = SizeOf(path) > 0;
  const int64_t log_bytes = SizeOf(log);
  if (!has_database) {
    if (log_bytes <= 0) return absl::OkStatus();
    return Damaged(path, absl::StrCat("it is missing, while there is ", log));
  }
  if (log_bytes > 0 && !HasSoundHeader(log)) {
    return Damaged(path, absl::StrCat(log, " is no log of SQLite"));
  }
  if (log_bytes <= 0 && SizeOf(UncleanMark(path)) >= 0) {
    return Damaged(
        path, absl::StrCat(log, log_bytes < 0 ? " is missing" : " is empty",
                           "; if another program has moved it into ", path,
                           ", as sqlite3 does, remove ", UncleanMark(path)));
  }
  return absl::OkStatus();
}

class SqliteStore : public StateStore {
 public:
  explicit SqliteStore(std::string path)
      : path_(std::move(path)),
        writer_(path_, absl::bind_front(SqliteStatus, path_)),
        cleaner_(path_, absl::bind_front(SqliteStatus, path_)) {}

  ~SqliteStore() override {
    {
      absl::MutexLock lock(&cleaner_mu_);
      closing_ = true;
    }
    if (thread_.joinable()) thread_.join();
    if (writer_.db() == nullptr) return;
    if (begun_) {
      const int code = sqlite3_wal_checkpoint_v2(
          writer_.db(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
      if (code == SQLITE_OK) {
        unlink(UncleanMark(path_).c_str());
        return;
      }
      LOG(WARNING) << writer_.Error(code);
    }
    // The last to close it would move the log into the file and remove it,
    // while the mark stays and says that there is one.
    sqlite3_db_config(writer_.db(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1,
                      nullptr);
  }

  absl::Status Begin(bool has_cluster) {
    MR_RETURN_IF_ERROR(writer_.Open(kPatience));
    MR_RETURN_IF_ERROR(CheckSound());
    MR_RETURN_IF_ERROR(CheckSchema(has_cluster));
    // From here on there is a log that is not empty, and it is missed.
    MR_RETURN_IF_ERROR(
        writer_.Execute(absl::StrCat("PRAGMA user_version = ", kSchema)));
    MR_RETURN_IF_ERROR(
        writer_.Value("PRAGMA wal_checkpoint(PASSIVE)").status());
    MR_RETURN_IF_ERROR(WriteFileAtomically(UncleanMark(path_), "", 0600));
    for (size_t i = 0; i < kTables.size(); ++i) {
      MR_ASSIGN_OR_RETURN(
          put_[i], writer_.Prepare(absl::StrCat("INSERT OR REPLACE INTO ",
                                                kTables[i], " VALUES (?, ?)")));
      MR_ASSIGN_OR_RETURN(
          erase_[i], writer_.Prepare(absl::StrCat("DELETE FROM ", kTables[i],
                                                  " WHERE key = ?")));
    }
    // Instead of moving the log in the middle of a write, as is the default.
    sqlite3_wal_hook(
        writer_.db(),
        [](void* self, sqlite3*, const char*, int pages) {
          static_cast<SqliteStore*>(self)->log_pages_ = pages;
          return SQLITE_OK;
        },
        this);
    MR_RETURN_IF_ERROR(cleaner_.Open(kPatience));
    thread_ = std::thread([this] { CleanLog(); });
    begun_ = true;
    return absl::OkStatus();
  }

  absl::Status Write(const std::vector<Change>& changes) override {
    absl::MutexLock lock(&mu_);
    return writer_.Transact([&]() -> absl::Status {
      for (const Change& change : changes) {
        const auto table = static_cast<size_t>(change.table);
        MR_RETURN_IF_ERROR(
            change.row.has_value()
                ? writer_.Step(put_[table].get(), {change.key}, *change.row)
                : writer_.Step(erase_[table].get(), {change.key}));
      }
      return absl::OkStatus();
    });
  }

  absl::Status Read(
      Table table,
      const std::function<absl::Status(int64_t, absl::string_view)>& row)
      override {
    absl::MutexLock lock(&mu_);
    return writer_.ForEachRow(
        absl::StrCat("SELECT key, row FROM ",
                     kTables[static_cast<size_t>(table)], " ORDER BY key"),
        [&](sqlite3_stmt* at) {
          return row(sqlite3_column_int64(at, 0),
                     SqliteConnection::Blob(at, 1));
        });
  }

  const std::string& path() const override { return path_; }

 private:
  absl::Status CheckSound() {
    MR_ASSIGN_OR_RETURN(const std::string verdict,
                        writer_.Value("PRAGMA quick_check(1)"));
    if (verdict == "ok") return absl::OkStatus();
    return Damaged(path_, verdict);
  }

  absl::Status CheckSchema(bool has_cluster) {
    MR_ASSIGN_OR_RETURN(const std::string found,
                        writer_.Value("PRAGMA user_version"));
    if (found == absl::StrCat(kSchema)) return absl::OkStatus();
    if (found != "0") {
      return absl::FailedPreconditionError(absl::StrCat(
          "the head's database ", path_, " was written by a newer Mini-Ray (",
          "schema ", found, "; this one knows ", kSchema,
          "): start that version, or give another --state_dir"));
    }
    if (has_cluster) return Damaged(path_, "it has no tables");
    return writer_.Transact([&]() -> absl::Status {
      for (const char* table : kTables) {
        MR_RETURN_IF_ERROR(writer_.Execute(
            absl::StrCat("CREATE TABLE ", table,
                         " (key INTEGER PRIMARY KEY, row BLOB NOT NULL)")));
      }
      return writer_.Execute(absl::StrCat("PRAGMA user_version = ", kSchema));
    });
  }

  void CleanLog() {
    while (true) {
      {
        absl::MutexLock lock(&cleaner_mu_);
        if (cleaner_mu_.AwaitWithTimeout(absl::Condition(&closing_),
                                         kCheckpointPeriod)) {
          return;
        }
      }
      const int pages = log_pages_;
      if (pages < kCheckpointPages) continue;
      // Under constant load the log is never read to its end, and grows, unless
      // the writers wait for once. It never becomes empty: see CheckLog.
      const int mode = pages < kRestartPages ? SQLITE_CHECKPOINT_PASSIVE
                                             : SQLITE_CHECKPOINT_RESTART;
      const int code = sqlite3_wal_checkpoint_v2(cleaner_.db(), nullptr, mode,
                                                 nullptr, nullptr);
      if (code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY) {
        LOG(ERROR) << cleaner_.Error(code);
      }
    }
  }

  const std::string path_;
  bool begun_ = false;
  std::atomic<int> log_pages_{0};

  absl::Mutex mu_;
  SqliteConnection writer_;  // Guarded by mu_ once Begin has returned.
  std::array<Statement, kTables.size()> put_;
  std::array<Statement, kTables.size()> erase_;

  SqliteConnection cleaner_;  // Of thread_.
  absl::Mutex cleaner_mu_;
  bool closing_ ABSL_GUARDED_BY(cleaner_mu_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Open(
    const std::string& folder, bool has_cluster) {
  const std::string path = folder + "/head.db";
  MR_RETURN_IF_ERROR(CheckLog(path));
  const bool existed = SizeOf(path) >= 0;
  // The constructor arguments of actors are nobody else's business.
  MR_RETURN_IF_ERROR(SqliteConnection::MakeFile(path));
  auto store = std::make_unique<SqliteStore>(path);
  MR_RETURN_IF_ERROR(store->Begin(has_cluster && existed));
  return store;
}

}  // namespace miniray
