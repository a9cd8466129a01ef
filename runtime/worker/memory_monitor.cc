#include "runtime/worker/memory_monitor.h"

#include <dirent.h>
#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/memory_limit.h"
#include "runtime/base/proc_stat.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Both internal: how often is looked is a flag. What a process gave back takes
// a moment to be free.
constexpr absl::Duration kMinBetweenKills = absl::Seconds(1);
// While memory still falls; a machine that swaps may take long.
constexpr absl::Duration kMaxBetweenKills = absl::Seconds(10);

// Of less, it is not looked at whether others have it too: that takes the
// kernel a while.
constexpr int64_t kMuchShared = 16 << 20;

// "NAME: 123 kB" or "NAME 123" in lines of text; 0: it is not there.
int64_t Field(absl::string_view text, absl::string_view name, int64_t unit) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) continue;
    if (line.empty() || (line[0] != ':' && line[0] != ' ')) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(
        line.substr(1), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t value = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &value)) {
      return value * unit;
    }
  }
  return 0;
}

absl::StatusOr<MemoryReading> ReadMachine() {
  MR_ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/meminfo"));
  MemoryReading reading;
  reading.total_bytes = Field(text, "MemTotal", 1024);
  reading.used_bytes = reading.total_bytes - Field(text, "MemAvailable", 1024);
  if (reading.total_bytes <= 0) {
    return absl::InternalError("/proc/meminfo has no MemTotal");
  }
  return reading;
}

double Share(const MemoryReading& reading) {
  return static_cast<double>(reading.used_bytes) /
         static_cast<double>(reading.total_bytes);
}

// A control group with a limit; nothing where it has none.
std::optional<MemoryReading> ReadGroup(const std::string& folder) {
  const std::string max = ReadFile(folder + "/memory.max").value_or("max");
  const std::string current = ReadFile(folder + "/memory.current").value_or("");
  MemoryReading reading;
  if (!absl::SimpleAtoi(max, &reading.total_bytes) ||
      !absl::SimpleAtoi(current, &reading.used_bytes) ||
      reading.total_bytes <= 0) {
    return std::nullopt;
  }
  const std::string stat = ReadFile(folder + "/memory.stat").value_or("");
  reading.used_bytes -= Field(stat, "inactive_file", 1);
  reading.used_bytes -= Field(stat, "active_file", 1);
  return reading;
}

std::string Gigabytes(int64_t bytes) {
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
}

// The process group in /proc/PID/stat; 0: there is no such process.
pid_t GroupOf(const std::string& pid) {
  const std::string stat =
      ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
  const std::vector<absl::string_view> fields = ProcStatFields(stat);
  pid_t group = 0;
  if (fields.size() < 3 || !absl::SimpleAtoi(fields[2], &group)) return 0;
  return group;
}

int64_t MemoryOf(const std::string& pid) {
  const std::string status =
      ReadFile(absl::StrCat("/proc/", pid, "/status")).value_or("");
  int64_t shared = Field(status, "RssShmem", 1024);
  if (shared >= kMuchShared) {
    // Values of the node's store, and what actors lend each other: the end of
    // one of those who have it frees nothing, so each counts for its part.
    const std::string sums =
        ReadFile(absl::StrCat("/proc/", pid, "/smaps_rollup")).value_or("");
    // A kernel before 5.3 does not tell.
    if (absl::StrContains(sums, "Pss_Shmem")) {
      shared = Field(sums, "Pss_Shmem", 1024);
    }
  }
  return Field(status, "RssAnon", 1024) + shared;
}

// Memory by process group, of those of the victims.
std::map<pid_t, int64_t> MemoryByGroup(
    const std::vector<MemoryMonitor::Victim>& victims) {
  std::map<pid_t, int64_t> memory;
  for (const MemoryMonitor::Victim& victim : victims) memory[victim.group] = 0;
  DIR* const dir = opendir("/proc");
  if (dir == nullptr) return memory;
  while (const dirent* entry = readdir(dir)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    const auto it = memory.find(GroupOf(entry->d_name));
    if (it != memory.end()) it->second += MemoryOf(entry->d_name);
  }
  closedir(dir);
  return memory;
}

}  // namespace

absl::StatusOr<MemoryReading> ReadMemory() {
  MR_ASSIGN_OR_RETURN(MemoryReading reading, ReadMachine());
  for (const std::string& folder : ControlGroupFolders()) {
    const std::optional<MemoryReading> group = ReadGroup(folder);
    if (group.has_value() && Share(*group) > Share(reading)) reading = *group;
  }
  return reading;
}

MemoryMonitor::MemoryMonitor(Options options, Callbacks callbacks)
    : options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      thread_([this] { Loop(); }) {}

MemoryMonitor::~MemoryMonitor() {
  stopping_.Notify();
  thread_.join();
}

void MemoryMonitor::Loop() {
  absl::Time report_at = absl::InfinitePast();
  absl::Time killed_at = absl::InfinitePast();
  int64_t last_used = 0;
  bool failed = false;
  do {
    const absl::StatusOr<MemoryReading> reading = options_.read();
    if (!reading.ok()) {
      if (!std::exchange(failed, true)) {
        LOG(ERROR) << "memory is not watched: " << reading.status();
      }
      continue;
    }
    const absl::Time now = absl::Now();
    if (now >= report_at) {
      callbacks_.report(*reading);
      report_at = now + options_.report_period;
    }
    const bool over = options_.limit > 0 && Share(*reading) > options_.limit;
    const bool falls = reading->used_bytes < last_used;
    const absl::Duration since_kill = now - killed_at;
    last_used = reading->used_bytes;
    if (!over || since_kill < kMinBetweenKills ||
        (falls && since_kill < kMaxBetweenKills)) {
      continue;
    }
    KillLargest(*reading);
    killed_at = absl::Now();
  } while (!stopping_.WaitForNotificationWithTimeout(options_.period));
}

void MemoryMonitor::KillLargest(const MemoryReading& reading) {
  const std::vector<Victim> victims = callbacks_.list();
  const std::map<pid_t, int64_t> memory = MemoryByGroup(victims);
  const Victim* largest = nullptr;
  int64_t largest_bytes = 0;
  for (const Victim& victim : victims) {
    const int64_t bytes = memory.at(victim.group);
    if (bytes <= largest_bytes) continue;
    largest = &victim;
    largest_bytes = bytes;
  }
  if (largest == nullptr) return;  // It is not the actors'.
  const std::string cause = absl::StrFormat(
      "killed for memory: used %s of %s (limit %g%%); the actor used %s",
      Gigabytes(reading.used_bytes), Gigabytes(reading.total_bytes),
      options_.limit * 100, Gigabytes(largest_bytes));
  LOG(ERROR) << largest->key << ": " << cause;
  callbacks_.kill(*largest, cause);
}

}  // namespace miniray
