#include "runtime/base/process_records.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "runtime/base/proc_stat.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

using Json = nlohmann::json;

constexpr char kHeadName[] = "head";
constexpr char kDaemonName[] = "daemon";

absl::StatusOr<std::string> RecordFolder() {
  MR_ASSIGN_OR_RETURN(std::string folder, RuntimeDirectory());
  absl::StrAppend(&folder, "/processes");
  MR_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  return folder;
}

std::string RecordPath(absl::string_view folder, pid_t pid) {
  return absl::StrCat(folder, "/", pid, ".json");
}

std::string Serialize(const ProcessRecord& record) {
  const Json json = {
      {"role", record.role == ProcessRole::kHead ? kHeadName : kDaemonName},
      {"pid", record.pid},
      {"start_ticks", record.start_ticks},
      {"start_unix_ms", record.start_unix_ms},
      {"address", record.address},
      {"listen_host", record.listen_host},
      {"dashboard_port", record.dashboard_port},
      {"token", record.token},
      {"tls_dir", record.tls_dir},
      {"session_dir", record.session_dir},
      {"state_dir", record.state_dir},
      {"node_id", record.node_id},
      {"lifeline", record.lifeline},
  };
  // Bytes that are not UTF-8 (in a path) must not throw.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<ProcessRecord> Parse(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    ProcessRecord record;
    const std::string role = json.at("role").get<std::string>();
    if (role != kHeadName && role != kDaemonName) return std::nullopt;
    record.role =
        role == kHeadName ? ProcessRole::kHead : ProcessRole::kWorkerDaemon;
    record.pid = json.at("pid").get<pid_t>();
    record.start_ticks = json.at("start_ticks").get<uint64_t>();
    record.start_unix_ms = json.at("start_unix_ms").get<int64_t>();
    record.address = json.at("address").get<std::string>();
    record.listen_host = json.value("listen_host", "");
    record.dashboard_port = json.value("dashboard_port", -1);
    record.token = json.value("token", "");
    record.tls_dir = json.value("tls_dir", "");
    record.session_dir = json.value("session_dir", "");
    record.state_dir = json.value("state_dir", "");
    record.node_id = json.value("node_id", "");
    record.lifeline = json.value("lifeline", false);
    return record;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

// Returns the pid in "<pid>.json"; anything else in the folder is not ours to
// touch.
std::optional<pid_t> PidOfFile(absl::string_view name) {
  pid_t pid = 0;
  if (!absl::ConsumeSuffix(&name, ".json")) return std::nullopt;
  if (!absl::SimpleAtoi(name, &pid) || pid <= 0) return std::nullopt;
  return pid;
}

bool IsWildcard(absl::string_view host) {
  return host == "0.0.0.0" || host == "::";
}

bool Serves(const ProcessRecord& record, const HostPort& wanted) {
  const absl::StatusOr<HostPort> own = ParseHostPort(record.address);
  if (!own.ok() || own->port != wanted.port) return false;
  if (own->host == wanted.host) return true;
  if (record.role != ProcessRole::kHead) return false;
  // Only addresses that surely are this machine: a token must not be sent to
  // another one whose head happens to have the same port.
  if (!IsLoopback(wanted.host)) {
    if (record.listen_host == wanted.host) return true;
    // Its own name, whatever that resolves to here.
    if (IsWildcard(record.listen_host) && wanted.host == Hostname()) {
      return true;
    }
    // This machine reaches its own addresses from themselves.
    return IsWildcard(record.listen_host) &&
           LocalAddressTowards(wanted).value_or("") == wanted.host;
  }
  return IsWildcard(record.listen_host) || IsLoopback(record.listen_host);
}

// The record that knows best about the head at `address`.
std::optional<ProcessRecord> RecordFor(absl::string_view address) {
  const absl::StatusOr<HostPort> wanted = ParseHostPort(address);
  auto records = ListProcessRecords();
  if (!wanted.ok() || !records.ok()) return std::nullopt;
  // A head's own record knows best; a daemon's may be of an earlier head that
  // had the port.
  for (const ProcessRole role :
       {ProcessRole::kHead, ProcessRole::kWorkerDaemon}) {
    for (ProcessRecord& record : *records) {
      if (record.role == role && Serves(record, *wanted)) {
        return std::move(record);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<uint64_t> ProcessStartTicks(pid_t pid) {
  MR_ASSIGN_OR_RETURN(const std::string text,
                      ReadFile(absl::StrCat("/proc/", pid, "/stat")));
  const std::vector<absl::string_view> fields = ProcStatFields(text);
  if (fields.empty()) {
    return absl::NotFoundError(absl::StrCat("no process ", pid));
  }
  constexpr size_t kState = 3 - 3, kStartTime = 22 - 3;
  uint64_t ticks = 0;
  if (fields.size() <= kStartTime ||
      !absl::SimpleAtoi(fields[kStartTime], &ticks)) {
    return absl::InternalError(
        absl::StrCat("/proc/", pid, "/stat has no field 22"));
  }
  if (fields[kState] == "Z" || fields[kState] == "X") {
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  }
  return ticks;
}

bool IsAlive(const ProcessRecord& record) {
  const absl::StatusOr<uint64_t> ticks = ProcessStartTicks(record.pid);
  return ticks.ok() && *ticks == record.start_ticks;
}

absl::Status WriteOwnProcessRecord(ProcessRecord record) {
  record.pid = getpid();
  MR_ASSIGN_OR_RETURN(record.start_ticks, ProcessStartTicks(record.pid));
  record.start_unix_ms = absl::ToUnixMillis(absl::Now());
  MR_ASSIGN_OR_RETURN(const std::string folder, RecordFolder());
  return WriteFileAtomically(RecordPath(folder, record.pid), Serialize(record),
                             0600);
}

absl::StatusOr<std::vector<ProcessRecord>> ListProcessRecords() {
  MR_ASSIGN_OR_RETURN(const std::string folder, RecordFolder());
  std::error_code error;
  std::vector<ProcessRecord> records;
  for (std::filesystem::directory_iterator file(folder, error), end;
       !error && file != end; file.increment(error)) {
    const std::optional<pid_t> pid =
        PidOfFile(file->path().filename().string());
    if (!pid.has_value()) continue;
    const std::string path = RecordPath(folder, *pid);
    const absl::StatusOr<std::string> text = ReadFile(path);
    if (!text.ok()) continue;  // Removed meanwhile.
    std::optional<ProcessRecord> record = Parse(*text);
    if (record.has_value() && record->pid == *pid && IsAlive(*record)) {
      records.push_back(*std::move(record));
    } else if (record.has_value() || !ProcessStartTicks(*pid).ok()) {
      // What cannot be read stays while its process lives: another version of
      // the program may have written it.
      unlink(path.c_str());
    }
  }
  if (error) {
    return ErrnoStatus(error.value(), absl::StrCat("read folder ", folder));
  }
  std::sort(records.begin(), records.end(),
            [](const ProcessRecord& a, const ProcessRecord& b) {
              return std::make_pair(a.start_unix_ms, a.start_ticks) >
                     std::make_pair(b.start_unix_ms, b.start_ticks);
            });
  return records;
}

absl::Status RemoveProcessRecord(pid_t pid) {
  MR_ASSIGN_OR_RETURN(const std::string folder, RecordFolder());
  const std::string path = RecordPath(folder, pid);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove ", path));
  }
  return absl::OkStatus();
}

bool ServesAddress(const ProcessRecord& record, absl::string_view address) {
  const absl::StatusOr<HostPort> wanted = ParseHostPort(address);
  return wanted.ok() && Serves(record, *wanted);
}

std::optional<std::string> TokenFor(absl::string_view address) {
  const std::optional<ProcessRecord> record = RecordFor(address);
  if (!record.has_value()) return std::nullopt;
  return record->token;
}

std::optional<std::string> TlsDirFor(absl::string_view address) {
  const std::optional<ProcessRecord> record = RecordFor(address);
  if (!record.has_value()) return std::nullopt;
  return record->tls_dir;
}

std::optional<std::string> StateDirFor(absl::string_view address) {
  const std::optional<ProcessRecord> record = RecordFor(address);
  if (!record.has_value() || record->role != ProcessRole::kHead ||
      record->state_dir.empty()) {
    return std::nullopt;
  }
  return record->state_dir;
}

std::optional<std::string> MostRecentHeadAddress() {
  const auto records = ListProcessRecords();
  if (!records.ok()) return std::nullopt;
  for (const ProcessRole role :
       {ProcessRole::kHead, ProcessRole::kWorkerDaemon}) {
    for (const ProcessRecord& record : *records) {
      if (record.role == role) return record.address;
    }
  }
  return std::nullopt;
}

}  // namespace miniray
