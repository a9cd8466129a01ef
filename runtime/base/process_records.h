// Which head and worker daemon processes of this user run on this machine: one
// file a process, RuntimeDirectory()/processes/<pid>.json, mode 0600 because it
// holds the cluster's token. `miniray status` and `miniray stop` find them
// here, and drivers their token.
//
// Records of processes that are gone are removed by whoever reads them; a
// process that got the pid of a dead one is told apart by its start time.
// Thread-safe; different processes may call at once.

#ifndef MINIRAY_RUNTIME_BASE_PROCESS_RECORDS_H_
#define MINIRAY_RUNTIME_BASE_PROCESS_RECORDS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray {

enum class ProcessRole { kHead, kWorkerDaemon };

struct ProcessRecord {
  ProcessRole role = ProcessRole::kHead;
  pid_t pid = 0;
  // Field 22 of /proc/<pid>/stat: clock ticks between boot and start.
  uint64_t start_ticks = 0;
  int64_t start_unix_ms = 0;
  // HOST:PORT of the head, as other machines would write it if it listens for
  // them. A worker daemon's record names the head that it joined.
  std::string address;
  // Heads: the IP address it listens on, e.g. "0.0.0.0".
  std::string listen_host;
  int dashboard_port = -1;  // -1: none.
  std::string token;        // May be empty.
  std::string tls_dir;      // Absolute path; empty: no TLS.
  std::string session_dir;
  std::string state_dir;  // Heads.
  std::string node_id;    // Worker daemons.
  bool lifeline = false;  // It ends with the process that started it.
};

// Writes the record of the calling process; pid and both start times are filled
// in. Replaces an earlier one.
absl::Status WriteOwnProcessRecord(ProcessRecord record);

// Returns the records of living processes, newest first. A zombie is not alive.
absl::StatusOr<std::vector<ProcessRecord>> ListProcessRecords();

// OK if there is none.
absl::Status RemoveProcessRecord(pid_t pid);

// False also when another process has the pid by now.
bool IsAlive(const ProcessRecord& record);

// Returns field 22 of /proc/<pid>/stat. Errors: NOT_FOUND, no such process, or
// a zombie.
absl::StatusOr<uint64_t> ProcessStartTicks(pid_t pid);

// True if what `record` says concerns the head that is called at `address`
// (HOST:PORT): of a head all that surely are addresses of its own, of a worker
// daemon the one that it was given.
bool ServesAddress(const ProcessRecord& record, absl::string_view address);

// Returns the token of the head at `address`, if a record knows the head; an
// empty token means that the head needs none. A head that listens on all
// addresses is also known by a loopback address.
std::optional<std::string> TokenFor(absl::string_view address);

// Returns the folder with the certificates that the head at `address` takes, as
// TokenFor; an empty path means that it does not speak TLS.
std::optional<std::string> TlsDirFor(absl::string_view address);

// Returns the state folder of the head at `address`, if a head that runs on
// this machine is known by it.
std::optional<std::string> StateDirFor(absl::string_view address);

// Returns the address of the head that was started last; where there is none,
// of the head that the last worker daemon joined.
std::optional<std::string> MostRecentHeadAddress();

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_PROCESS_RECORDS_H_
