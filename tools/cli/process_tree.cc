#include "tools/cli/process_tree.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/proc_stat.h"
#include "runtime/base/process_records.h"

namespace miniray::cli {
namespace {

// Field 4 of /proc/<pid>/stat; 0 if the process is gone.
pid_t ParentOf(pid_t pid) {
  const std::string text =
      ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
  const std::vector<absl::string_view> fields = ProcStatFields(text);
  pid_t parent = 0;
  return fields.size() > 1 && absl::SimpleAtoi(fields[1], &parent) ? parent : 0;
}

std::multimap<pid_t, pid_t> ChildrenByParent() {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end;
       !error && entry != end; entry.increment(error)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->path().filename().string(), &pid)) {
      children.emplace(ParentOf(pid), pid);
    }
  }
  return children;
}

}  // namespace

bool IsAlive(const ProcessId& process) {
  const absl::StatusOr<uint64_t> ticks = ProcessStartTicks(process.pid);
  return ticks.ok() && *ticks == process.start_ticks;
}

std::vector<ProcessId> Descendants(pid_t pid) {
  const std::multimap<pid_t, pid_t> children = ChildrenByParent();
  std::vector<ProcessId> found;
  std::vector<pid_t> open = {pid};
  while (!open.empty()) {
    const auto [first, last] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = first; child != last; ++child) {
      if (child->second == getpid()) continue;
      open.push_back(child->second);
      const absl::StatusOr<uint64_t> ticks = ProcessStartTicks(child->second);
      if (ticks.ok()) found.push_back({child->second, *ticks});
    }
  }
  return found;
}

void SendSignal(const ProcessId& process, int signal) {
  // The descriptor keeps meaning the process that had the pid when it was
  // opened, so that the check holds until the signal is sent.
  const ScopedFd pidfd(
      static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  const bool unsupported = !pidfd.valid() && errno == ENOSYS;
  if (!IsAlive(process)) return;
  if (pidfd.valid()) {
    syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0);
  } else if (unsupported) {
    kill(process.pid, signal);
  }
}

void KillTree(const ProcessId& root, absl::Duration timeout) {
  std::vector<ProcessId> tree = {root};
  SendSignal(root, SIGSTOP);
  // What a process had started before it was stopped shows in the next look.
  for (bool grew = true; grew;) {
    grew = false;
    for (const ProcessId& process : Descendants(root.pid)) {
      if (std::count(tree.begin(), tree.end(), process) > 0) continue;
      SendSignal(process, SIGSTOP);
      tree.push_back(process);
      grew = true;
    }
  }
  for (const ProcessId& process : tree) SendSignal(process, SIGKILL);
  WaitUntilGone(tree, timeout);
}

bool WaitUntilGone(const std::vector<ProcessId>& processes,
                   absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (std::any_of(processes.begin(), processes.end(),
                     [](const ProcessId& p) { return IsAlive(p); })) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace miniray::cli
