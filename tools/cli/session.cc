#include "tools/cli/session.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::cli {
namespace {

constexpr absl::string_view kPrefix = "session-";

// True also for another process that got the pid: its folder then goes later.
bool MayBeAlive(absl::string_view session) {
  pid_t pid = 0;
  if (!absl::SimpleAtoi(session.substr(session.rfind('-') + 1), &pid) ||
      pid <= 0) {
    return true;  // Not one of ours.
  }
  return kill(pid, 0) == 0 || errno != ESRCH;
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
  const std::string path = absl::StrCat(
      folder, "/", kPrefix,
      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::UTCTimeZone()), "-",
      getpid());
  MR_RETURN_IF_ERROR(MakeDirectories(path, 0700));
  return path;
}

}  // namespace miniray::cli
