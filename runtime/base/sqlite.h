// A connection to a SQLite database, for what the head keeps on the disk.

#ifndef MINIRAY_RUNTIME_BASE_SQLITE_H_
#define MINIRAY_RUNTIME_BASE_SQLITE_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

struct sqlite3;
struct sqlite3_stmt;

namespace miniray {

// In WAL mode with synchronous=NORMAL: a write that returned survives the death
// of the process at any time. Errors are what the owner makes of SQLite's
// codes. Not thread-safe.
class SqliteConnection {
 public:
  struct EndStatement {
    void operator()(sqlite3_stmt* statement) const;
  };
  // Ends before its connection.
  using Statement = std::unique_ptr<sqlite3_stmt, EndStatement>;
  // code: a primary one (sqlite3.h). reason: in SQLite's words.
  using ToStatus =
      std::function<absl::Status(int code, const std::string& reason)>;

  // Makes the file, for its owner alone, if it is not there; SQLite's other
  // files get its mode. Call it before this process has a connection to it:
  // closing a file ends the process's locks on it, and another program that
  // looks at the database would then remove the log from under it. Errors:
  // those of the file system.
  static absl::Status MakeFile(const std::string& path);

  SqliteConnection(std::string path, ToStatus to_status)
      : path_(std::move(path)), to_status_(std::move(to_status)) {}

  // patience: what a statement waits for other connections.
  absl::Status Open(absl::Duration patience = absl::ZeroDuration());
  // Open may follow.
  void Close();

  absl::Status Execute(const std::string& sql);
  // The first column of the first row.
  absl::StatusOr<std::string> Value(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const std::string& sql);
  // Runs a statement that has no rows with these numbers and, behind them, the
  // blob.
  absl::Status Step(sqlite3_stmt* statement,
                    std::initializer_list<int64_t> numbers = {},
                    absl::string_view blob = absl::string_view());
  // Calls `row` with the statement at each row of the answer. Stops at its
  // first error.
  absl::Status ForEachRow(const std::string& sql,
                          absl::FunctionRef<absl::Status(sqlite3_stmt*)> row);
  // Of the row that the statement is at. Valid until its next step.
  static absl::string_view Blob(sqlite3_stmt* statement, int column);

  // Does what `change` does all or not at all. Returns its error, too.
  absl::Status Transact(absl::FunctionRef<absl::Status()> change);

  absl::Status Error(int code) const;
  sqlite3* db() const { return db_.get(); }

 private:
  struct CloseDatabase {
    void operator()(sqlite3* db) const;
  };

  const std::string path_;
  const ToStatus to_status_;
  std::unique_ptr<sqlite3, CloseDatabase> db_;
  // Behind the database: they end before it. Null until they are needed.
  Statement begin_, commit_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_SQLITE_H_
