// What the head must still know after it was killed, in one SQLite file.

#ifndef MINIRAY_RUNTIME_HEAD_STATE_STORE_H_
#define MINIRAY_RUNTIME_HEAD_STATE_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray {

// Rows of serialized messages (proto/head_state.proto; kActorSpecs: ActorSpec),
// by table and a number that is unique in it.
//
// The file is in WAL mode with synchronous=NORMAL: a write that returned
// survives the death of the process at any time. A power loss or a crash of the
// machine leaves the file sound, but may cost the writes of the last seconds.
// What was written is moved from the log to the file by a thread of its own,
// beside the writers.
//
// Thread-safe.
class StateStore {
 public:
  enum class Table { kNodes, kActors, kActorSpecs, kJobs, kPlacementGroups };
  struct Change {
    Table table;
    int64_t key;
    std::optional<std::string> row;  // Absent: the row goes.
  };

  // Opens, or makes, `folder`/head.db. The folder exists. `has_cluster`: a file
  // that is there has tables. Errors: DATA_LOSS, the file or its log is
  // damaged, or one of them is missing. FAILED_PRECONDITION, a newer version
  // wrote it, or another process has it open. Those of the file system.
  static absl::StatusOr<std::unique_ptr<StateStore>> Open(
      const std::string& folder, bool has_cluster = false);

  virtual ~StateStore() = default;

  // All or nothing. Errors: RESOURCE_EXHAUSTED, the disk is full: nothing was
  // written, and a later try may succeed. DATA_LOSS. INTERNAL.
  virtual absl::Status Write(const std::vector<Change>& changes) = 0;

  // Calls `row` for all rows, by increasing key. Stops at its first error.
  virtual absl::Status Read(
      Table table,
      const std::function<absl::Status(int64_t key, absl::string_view row)>&
          row) = 0;

  // Of the database, for messages.
  virtual const std::string& path() const = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_STATE_STORE_H_
