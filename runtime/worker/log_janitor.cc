#include "runtime/worker/log_janitor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace miniray {
namespace {

struct Log {
  std::vector<std::string> files;  // With the rotated ones.
  int64_t bytes = 0;
  int64_t last_change = 0;  // Seconds.
};

// By the path that is written: X.log for X.log, X.log.1, ...
using Logs = std::map<std::string, Log>;

void Collect(const std::string& folder, Logs* logs) {
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), end;
       !error && file != end; file.increment(error)) {
    const std::string path = file->path().string();
    std::string log = path;
    int number = 0;
    if (!absl::EndsWith(log, ".log")) {
      const size_t dot = log.rfind('.');
      if (!absl::SimpleAtoi(absl::string_view(log).substr(dot + 1), &number)) {
        continue;
      }
      log.resize(dot);
      if (!absl::EndsWith(log, ".log")) continue;
    }
    struct stat st;
    // A link leads to the log of a shared process, which is counted by itself.
    if (lstat(path.c_str(), &st) != 0) continue;
    Log& entry = (*logs)[log];
    entry.files.push_back(path);
    entry.bytes += st.st_size;
    entry.last_change =
        std::max(entry.last_change, static_cast<int64_t>(st.st_mtime));
  }
}

// "CLASS-ACTORID" and the number in "CLASS-ACTORID.NUMBER.log"; false for the
// log of something else.
bool Split(absl::string_view log, absl::string_view* actor, int* incarnation) {
  log.remove_suffix(absl::string_view(".log").size());
  const size_t dot = log.rfind('.');
  if (dot == absl::string_view::npos) return false;
  *actor = log.substr(0, dot);
  return absl::SimpleAtoi(log.substr(dot + 1), incarnation);
}

void Remove(const Log& log) {
  for (const std::string& file : log.files) unlink(file.c_str());
}

}  // namespace

LogJanitor::LogJanitor(Options options,
                       std::function<std::set<std::string>()> in_use)
    : options_(std::move(options)), in_use_(std::move(in_use)), thread_([this] {
        while (!stopping_.WaitForNotificationWithTimeout(options_.period)) {
          Clean(options_, in_use_());
        }
      }) {}

LogJanitor::~LogJanitor() {
  stopping_.Notify();
  thread_.join();
}

void LogJanitor::Clean(const Options& options,
                       const std::set<std::string>& in_use) {
  Logs logs;
  Collect(options.actor_folder, &logs);
  // By actor: the numbers of its processes, the newest first.
  std::map<absl::string_view, std::vector<std::pair<int, std::string>>> actors;
  for (const auto& [path, log] : logs) {
    absl::string_view actor;
    int incarnation = 0;
    if (Split(path, &actor, &incarnation)) {
      actors[actor].emplace_back(-incarnation, path);
    }
  }
  std::vector<std::string> surplus;
  for (auto& [actor, paths] : actors) {
    std::sort(paths.begin(), paths.end());
    for (size_t i = 0; i < paths.size(); ++i) {
      if (i >= static_cast<size_t>(options.max_incarnations)) {
        surplus.push_back(paths[i].second);
      }
    }
  }
  actors.clear();  // It has views of what goes now.
  for (const std::string& path : surplus) {
    if (in_use.contains(path)) continue;
    Remove(logs[path]);
    logs.erase(path);
  }
  // A template's log is small, and it may live.
  std::erase_if(logs, [](const auto& item) {
    absl::string_view actor;
    int incarnation = 0;
    return !absl::StrContains(item.first, "-shared-") &&
           !Split(item.first, &actor, &incarnation);
  });
  Collect(options.job_folder, &logs);
  int64_t total = 0;
  std::vector<std::tuple<int64_t, std::string>> by_age;
  for (const auto& [path, log] : logs) {
    total += log.bytes;
    by_age.emplace_back(log.last_change, path);
  }
  std::sort(by_age.begin(), by_age.end());
  auto count = static_cast<int64_t>(logs.size());
  for (const auto& [age, path] : by_age) {
    if (total <= options.max_bytes && count <= options.max_logs) return;
    if (in_use.contains(path)) continue;
    Remove(logs[path]);
    total -= logs[path].bytes;
    --count;
  }
}

}  // namespace miniray
