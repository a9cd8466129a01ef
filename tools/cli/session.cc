#include "tools/cli/session.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::cli {
namespace {

constexpr absl::string_view kPrefix = "session-";
constexpr size_t kKeptEmbeddedLogs = 10;

// True also for another process that got the pid: its folder then goes later.
bool MayBeAlive(absl::string_view session) {
  pid_t pid = 0;
  if (!absl::SimpleAtoi(session.substr(session.rfind('-') + 1), &pid) ||
      pid <= 0) {
    return true;  // Not one of ours.
  }
  return kill(pid, 0) == 0 || errno != ESRCH;
}

// Of a program's embedded cluster: "embedded-PID-log-...".
bool IsEmbeddedLog(absl::string_view name, pid_t* pid) {
  if (!absl::ConsumePrefix(&name, "embedded-")) return false;
  const size_t end = name.find('-');
  return end != absl::string_view::npos &&
         absl::SimpleAtoi(name.substr(0, end), pid) && *pid > 0 &&
         absl::EndsWith(name, ".log");
}

// Those of programs that have ended, but for the last few, which may say why.
void RemoveOldEmbeddedLogs(const std::string& folder) {
  std::error_code error;
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> dead;
  for (std::filesystem::directory_iterator file(folder, error), end;
       !error && file != end; file.increment(error)) {
    pid_t pid = 0;
    std::error_code gone;
    if (IsEmbeddedLog(file->path().filename().string(), &pid) &&
        kill(pid, 0) != 0 && errno == ESRCH) {
      dead.emplace_back(file->last_write_time(gone), file->path().string());
    }
  }
  std::sort(dead.begin(), dead.end(), std::greater<>());
  for (size_t i = kKeptEmbeddedLogs; i < dead.size(); ++i) {
    std::filesystem::remove(dead[i].second, error);
  }
}

// Does what it can: another process may do the same at this moment.
void RemoveOldSessions(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> dead;
  for (std::filesystem::directory_iterator file(folder, error), end;
       !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (absl::StartsWith(name, kPrefix) && !MayBeAlive(name)) {
      dead.push_back(name);
    }
  }
  // Names begin with the time.
  std::sort(dead.begin(), dead.end(), std::greater<>());
  for (size_t i = kKeptSessions; i < dead.size(); ++i) {
    std::filesystem::remove_all(absl::StrCat(folder, "/", dead[i]), error);
  }
}

}  // namespace

absl::StatusOr<std::string> CreateSession() {
  MR_ASSIGN_OR_RETURN(const std::string folder, RuntimeDirectory());
  RemoveOldSessions(folder);
  RemoveOldEmbeddedLogs(folder);
  const std::string path = absl::StrCat(
      folder, "/", kPrefix,
      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()), "-",
      getpid());
  MR_RETURN_IF_ERROR(MakeDirectories(path, 0700));
  return path;
}

void LimitLog(const std::string& log, int64_t max_bytes) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(log, error);
  if (error || bytes <= static_cast<uintmax_t>(max_bytes)) return;
  // Not renamed: a head's own daemon writes to the same file.
  const std::string next = log + ".1.next";
  std::filesystem::copy_file(
      log, next, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) std::filesystem::rename(next, log + ".1", error);
  if (!error) return std::filesystem::resize_file(log, 0, error);
  std::filesystem::remove(next, error);  // No room: all stays as it is.
}

}  // namespace miniray::cli
