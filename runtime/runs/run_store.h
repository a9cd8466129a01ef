// Keeps a RunTable on the disk, so that runs are still there after a restart of
// the head.

#ifndef MINIRAY_RUNTIME_RUNS_RUN_STORE_H_
#define MINIRAY_RUNTIME_RUNS_RUN_STORE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/runs/run_table.h"

namespace miniray {

// A SQLite file: of each run a snapshot, the reports since, and its pictures. A
// thread of its own writes what has changed, all at once; no report waits for
// it. A head that is killed loses what came since the last write: the next one
// counts those events as dropped.
//
// What cannot be written is a warning in the log, and is tried again: runs are
// nothing that a cluster needs.
//
// Thread-safe.
class RunStore {
 public:
  struct Options {
    // Between two writes. The beginning and the end of a run do not wait.
    absl::Duration period = absl::Seconds(1);
  };

  // Takes what is in the file at `path` into the table, which is empty and
  // outlives this, and goes on writing there. A file that is damaged, or that a
  // newer version wrote, is set aside as `path`-damaged, over an earlier one,
  // with a warning, and there is a new one; a run in it that makes no sense is
  // left out.
  //
  // Errors: those of the file system, and of SQLite, with the path: nothing can
  // be kept there.
  static absl::StatusOr<std::unique_ptr<RunStore>> Open(const std::string& path,
                                                        RunTable* table,
                                                        Options options);
  static absl::StatusOr<std::unique_ptr<RunStore>> Open(const std::string& path,
                                                        RunTable* table) {
    return Open(path, table, Options());
  }

  // Writes what is left.
  virtual ~RunStore() = default;

  // Writes what has changed, now. Errors: RESOURCE_EXHAUSTED, the disk is full;
  // others of SQLite, with the path. Nothing of it was written then, and it
  // will be tried again.
  virtual absl::Status Write() = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RUNS_RUN_STORE_H_
