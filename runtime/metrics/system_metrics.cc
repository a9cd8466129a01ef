#include "runtime/metrics/system_metrics.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/files.h"
#include "runtime/base/proc_stat.h"

namespace miniray {
namespace {

// The columns of /proc/stat (man 5 proc). Those behind them count once more
// what is in "user" and "nice".
constexpr const char* kModes[] = {"user",   "nice", "system",  "idle",
                                  "iowait", "irq",  "softirq", "steal"};

double TicksPerSecond() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

// When the machine was started; 0: unknown.
double BootUnixSeconds() {
  const std::string stat = ReadFile("/proc/stat").value_or("");
  for (absl::string_view line : absl::StrSplit(stat, '\n')) {
    double seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") &&
        absl::SimpleAtod(line, &seconds)) {
      return seconds;
    }
  }
  return 0;
}

int64_t OpenFiles() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int64_t count = -1;  // That of the folder itself.
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') ++count;
  }
  closedir(folder);
  return count;
}

}  // namespace

std::vector<std::pair<std::string, double>> ParseCpuSeconds(
    absl::string_view stat, double ticks_per_second) {
  std::vector<std::pair<std::string, double>> seconds;
  absl::string_view line = stat.substr(0, stat.find('\n'));
  if (!absl::ConsumePrefix(&line, "cpu ")) return seconds;
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, ' ', absl::SkipEmpty());
  for (size_t i = 0; i < std::size(kModes) && i < words.size(); ++i) {
    double ticks = 0;
    if (!absl::SimpleAtod(words[i], &ticks)) break;
    seconds.emplace_back(kModes[i], ticks / ticks_per_second);
  }
  return seconds;
}

void AddCpuMetrics(MetricPage* page) {
  const std::string stat = ReadFile("/proc/stat").value_or("");
  for (const auto& [mode, seconds] : ParseCpuSeconds(stat, TicksPerSecond())) {
    page->Counter("miniray_node_cpu_seconds_total",
                  "What the CPUs of the machine did, all together.", seconds,
                  {{"mode", mode}});
  }
  page->Gauge("miniray_node_cpus", "CPUs of the machine.",
              static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
}

void AddProcessMetrics(MetricPage* page) {
  const std::string stat = ReadFile("/proc/self/stat").value_or("");
  const std::vector<absl::string_view> words = ProcStatFields(stat);
  // As man 5 proc numbers them: 14 and 15, 22, 24.
  double user = 0, system = 0, start = 0, pages = 0;
  if (words.size() < 22 || !absl::SimpleAtod(words[11], &user) ||
      !absl::SimpleAtod(words[12], &system) ||
      !absl::SimpleAtod(words[19], &start) ||
      !absl::SimpleAtod(words[21], &pages)) {
    return;
  }
  page->Counter("process_cpu_seconds_total",
                "CPU time of this process, user and system.",
                (user + system) / TicksPerSecond());
  page->Gauge("process_resident_memory_bytes",
              "Memory of this process that is not swapped out.",
              pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
  if (const int64_t files = OpenFiles(); files >= 0) {
    page->Gauge("process_open_fds", "Open files of this process.",
                static_cast<double>(files));
  }
  if (const double boot = BootUnixSeconds(); boot > 0) {
    page->Gauge("process_start_time_seconds",
                "When this process began, in seconds since 1970.",
                boot + start / TicksPerSecond());
  }
}

}  // namespace miniray
