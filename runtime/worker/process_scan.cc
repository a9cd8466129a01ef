#include "runtime/worker/process_scan.h"

#include <dirent.h>
#include <unistd.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"
#include "runtime/base/proc_stat.h"
#include "runtime/worker/guardian.h"

namespace miniray {
namespace {

// The entries of a folder of /proc that are numbers.
std::vector<pid_t> Numbers(const std::string& folder) {
  std::vector<pid_t> numbers;
  DIR* const dir = opendir(folder.c_str());
  if (dir == nullptr) return numbers;
  while (const dirent* entry = readdir(dir)) {
    pid_t number = 0;
    if (absl::SimpleAtoi(entry->d_name, &number)) numbers.push_back(number);
  }
  closedir(dir);
  return numbers;
}

// The parent of a process; 0 if there is no such process.
pid_t ParentOf(pid_t pid) {
  const std::string stat =
      ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
  const std::vector<absl::string_view> fields = ProcStatFields(stat);
  pid_t parent = 0;
  if (fields.size() < 2 || !absl::SimpleAtoi(fields[1], &parent)) return 0;
  return parent;
}

bool IsGuardian(pid_t pid) {
  return ReadFile(absl::StrCat("/proc/", pid, "/comm")).value_or("") ==
         absl::StrCat(kGuardianName, "\n");
}

}  // namespace

std::vector<pid_t> OwnChildren() {
  std::set<pid_t> children;
  for (const pid_t thread : Numbers("/proc/self/task")) {
    const absl::StatusOr<std::string> text =
        ReadFile(absl::StrCat("/proc/self/task/", thread, "/children"));
    if (!text.ok()) continue;  // The thread has ended, or see below.
    for (absl::string_view word :
         absl::StrSplit(*text, ' ', absl::SkipEmpty())) {
      pid_t child = 0;
      if (absl::SimpleAtoi(word, &child)) children.insert(child);
    }
  }
  const std::string own =
      absl::StrCat("/proc/self/task/", getpid(), "/children");
  if (access(own.c_str(), R_OK) != 0) {  // A kernel without these files.
    for (const pid_t pid : Numbers("/proc")) {
      if (ParentOf(pid) == getpid()) children.insert(pid);
    }
  }
  return {children.begin(), children.end()};
}

std::string MarkOfProcess(pid_t pid) {
  const std::string prefix = absl::StrCat(kMarkVariable, "=");
  const std::string env =
      ReadFile(absl::StrCat("/proc/", pid, "/environ")).value_or("");
  for (absl::string_view entry : absl::StrSplit(env, '\0')) {
    if (absl::ConsumePrefix(&entry, prefix)) return std::string(entry);
  }
  return "";
}

std::vector<pid_t> MarkedProcesses(absl::string_view prefix, bool whole) {
  std::vector<pid_t> found;
  for (const pid_t pid : Numbers("/proc")) {
    if (pid == getpid()) continue;
    const std::string mark = MarkOfProcess(pid);
    if (mark.empty()) continue;
    if (whole ? mark != prefix : !absl::StartsWith(mark, prefix)) continue;
    if (!IsGuardian(pid)) found.push_back(pid);
  }
  return found;
}

}  // namespace miniray
