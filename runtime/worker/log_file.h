// A log in files of limited size, and reading it: PATH is written; full ones
// become PATH.1 (the newest), PATH.2, ...

#ifndef MINIRAY_RUNTIME_WORKER_LOG_FILE_H_
#define MINIRAY_RUNTIME_WORKER_LOG_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"

namespace miniray {

// Not thread-safe.
class LogFile {
 public:
  struct Options {
    int64_t max_bytes = 32 << 20;  // Of one file.
    int max_files = 5;             // With the one that is written.
  };

  // Appends to what is there. Errors: those of the system.
  static absl::StatusOr<LogFile> Open(std::string path, Options options);

  // Never fails: what the disk does not take is counted, and the log says so
  // when there is room again.
  void Append(absl::string_view text);

  // Nothing more comes: the log says what it lost last, if there is room.
  void Finish();

  const std::string& path() const { return path_; }
  int64_t lost_bytes() const { return total_lost_; }

 private:
  LogFile(std::string path, Options options)
      : path_(std::move(path)), options_(options) {}
  void Rotate();
  void Write(absl::string_view text);
  // Writes what was lost into the log; nothing if that is not possible.
  void NoteLost();

  std::string path_;
  Options options_;
  ScopedFd fd_;
  int64_t size_ = 0;
  int64_t lost_ = 0;  // Since the log last said so.
  int64_t total_lost_ = 0;
  std::string lost_cause_;
};

// What the disk did not take of a log that this process writes, or wrote.
struct LostOutput {
  int64_t bytes = 0;
  int64_t unsaid_bytes = 0;  // Of which the log itself says nothing.
  std::string cause;         // "No space left on device in /logs"

  // "output lost: No space left on device in /logs, 20 bytes", of all of it;
  // empty if nothing was lost.
  std::string ToString() const;
};

// Thread-safe. A log's path may be a symbolic link.
LostOutput LostOutputOf(const std::string& path);

// Reads a log from its oldest file to its newest, and on as it grows, also
// across rotations. Not thread-safe.
class LogReader {
 public:
  // From the last `tail_lines` lines on; 0: from the beginning. A symbolic link
  // is followed. Errors: NOT_FOUND.
  static absl::StatusOr<LogReader> Open(const std::string& path,
                                        int64_t tail_lines);

  // Returns up to `max_bytes` more bytes; nothing at the present end, where
  // more may come later. Errors: those of the system.
  absl::StatusOr<std::string> Read(size_t max_bytes);

  // Bytes that made way, since the last call, before they were read: they stood
  // before what the last Read returned. What made way before this process
  // wrote the log is not known of.
  int64_t TakeLost() { return std::exchange(lost_, 0); }

  // How many bytes of the log stand before what Read returns next, those that
  // made way included (as far as this process knows of them).
  int64_t Position() const;

 private:
  explicit LogReader(std::string path) : path_(std::move(path)) {}
  absl::Status StartAtTail(int64_t lines);
  // The file before the one that is open, the newest if none is; not valid:
  // there is none.
  absl::StatusOr<ScopedFd> OpenOlder() const;
  // Sets begin_ for the open file.
  void FindBegin();
  // Opens the file after the one that is open; false: that is the newest.
  absl::StatusOr<bool> OpenNext();

  std::string path_;
  ScopedFd fd_;
  int64_t begin_ = 0;  // Of the open file, in all that was ever written.
  int64_t lost_ = 0;
};

// The logs of an actor's processes in `folder`, by incarnation: files (or
// links) CLASS-ACTORID.INCARNATION.log. Empty if there are none.
std::map<int, std::string> FindActorLogs(const std::string& folder,
                                         absl::string_view actor_id);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_LOG_FILE_H_
