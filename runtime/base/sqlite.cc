#include "runtime/base/sqlite.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sqlite3.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Of a log that was read to its end.
constexpr int kKeptLogBytes = 8 << 20;

}  // namespace

void SqliteConnection::EndStatement::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

void SqliteConnection::CloseDatabase::operator()(sqlite3* db) const {
  sqlite3_close_v2(db);
}

absl::Status SqliteConnection::MakeFile(const std::string& path) {
  const ScopedFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (file.valid()) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("open ", path));
}

absl::Status SqliteConnection::Open(absl::Duration patience) {
  sqlite3* db = nullptr;
  const int code = sqlite3_open_v2(
      path_.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  db_.reset(db);
  if (code != SQLITE_OK) return Error(code);
  sqlite3_extended_result_codes(db, 1);
  sqlite3_busy_timeout(db,
                       static_cast<int>(absl::ToInt64Milliseconds(patience)));
  MR_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
  MR_RETURN_IF_ERROR(
      Execute(absl::StrCat("PRAGMA journal_size_limit=", kKeptLogBytes)));
  return Execute("PRAGMA synchronous=NORMAL");
}

void SqliteConnection::Close() {
  begin_.reset();
  commit_.reset();
  db_.reset();
}

absl::Status SqliteConnection::Execute(const std::string& sql) {
  const int code =
      sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<std::string> SqliteConnection::Value(const std::string& sql) {
  MR_ASSIGN_OR_RETURN(const Statement statement, Prepare(sql));
  const int code = sqlite3_step(statement.get());
  if (code != SQLITE_ROW) return Error(code);
  const auto* text = sqlite3_column_text(statement.get(), 0);
  return std::string(text == nullptr ? ""
                                     : reinterpret_cast<const char*>(text));
}

absl::StatusOr<SqliteConnection::Statement> SqliteConnection::Prepare(
    const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(db_.get(), sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT,
                         &statement, nullptr);
  if (code != SQLITE_OK) return Error(code);
  return Statement(statement);
}

absl::Status SqliteConnection::Step(sqlite3_stmt* statement,
                                    std::initializer_list<int64_t> numbers,
                                    absl::string_view blob) {
  int index = 0;
  for (const int64_t number : numbers) {
    sqlite3_bind_int64(statement, ++index, number);
  }
  if (index < sqlite3_bind_parameter_count(statement)) {
    // No bytes at all would be NULL.
    sqlite3_bind_blob64(statement, ++index,
                        blob.data() == nullptr ? "" : blob.data(), blob.size(),
                        SQLITE_STATIC);
  }
  const int code = sqlite3_step(statement);
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return code == SQLITE_DONE ? absl::OkStatus() : Error(code);
}

absl::Status SqliteConnection::ForEachRow(
    const std::string& sql,
    absl::FunctionRef<absl::Status(sqlite3_stmt*)> row) {
  MR_ASSIGN_OR_RETURN(const Statement statement, Prepare(sql));
  int code;
  while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
    MR_RETURN_IF_ERROR(row(statement.get()));
  }
  return code == SQLITE_DONE ? absl::OkStatus() : Error(code);
}

absl::string_view SqliteConnection::Blob(sqlite3_stmt* statement, int column) {
  const auto* bytes =
      static_cast<const char*>(sqlite3_column_blob(statement, column));
  return absl::string_view(
      bytes, static_cast<size_t>(sqlite3_column_bytes(statement, column)));
}

absl::Status SqliteConnection::Transact(
    absl::FunctionRef<absl::Status()> change) {
  if (commit_ == nullptr) {
    MR_ASSIGN_OR_RETURN(begin_, Prepare("BEGIN IMMEDIATE"));
    MR_ASSIGN_OR_RETURN(commit_, Prepare("COMMIT"));
  }
  MR_RETURN_IF_ERROR(Step(begin_.get()));
  absl::Status status = change();
  if (status.ok()) status = Step(commit_.get());
  // Some errors have rolled it back already.
  if (!status.ok() && sqlite3_get_autocommit(db_.get()) == 0) {
    const absl::Status rolled_back = Execute("ROLLBACK");
    if (!rolled_back.ok()) LOG(ERROR) << rolled_back;
  }
  return status;
}

absl::Status SqliteConnection::Error(int code) const {
  return to_status_(code & 0xff, db_ != nullptr ? sqlite3_errmsg(db_.get())
                                                : sqlite3_errstr(code));
}

}  // namespace miniray
