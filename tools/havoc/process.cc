#include "tools/havoc/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"

extern char** environ;

namespace miniray::havoc {
namespace {

std::vector<char*> Pointers(std::vector<std::string>* words) {
  std::vector<char*> pointers;
  for (std::string& word : *words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The fields of /proc/<pid>/stat behind the name: state, parent, ...
std::vector<std::string> StatFields(pid_t pid) {
  const std::string text =
      ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return {};
  return absl::StrSplit(text.substr(end + 1), ' ', absl::SkipEmpty());
}

}  // namespace

absl::Status RunCommand(const std::vector<std::string>& argv) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  ScopedFd read_end(fds[0]), write_end(fds[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 2);
  std::vector<std::string> words = argv;
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0].c_str(), &actions, nullptr,
                                 Pointers(&words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  write_end.reset();
  if (error != 0) return ErrnoStatus(error, absl::StrCat("run ", argv[0]));
  std::string text;
  char buffer[4096];
  ssize_t n;
  while ((n = read(read_end.get(), buffer, sizeof(buffer))) > 0 ||
         (n < 0 && errno == EINTR)) {
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(absl::StrJoin(argv, " "), ": ",
                                          absl::StripAsciiWhitespace(text)));
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv,
                            const std::map<std::string, std::string>& env,
                            const std::string& log,
                            const std::function<bool()>& enter) {
  const ScopedFd out(
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const ScopedFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!out.valid()) return ErrnoStatus(errno, absl::StrCat("open ", log));
  std::map<std::string, std::string> all = env;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      all.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  std::vector<std::string> entries, words = argv;
  for (const auto& [name, value] : all) {
    entries.push_back(absl::StrCat(name, "=", value));
  }
  const std::vector<char*> args = Pointers(&words), envp = Pointers(&entries);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "fork");
  if (pid == 0) {  // Only system calls: other threads may hold any lock.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || !enter() || dup2(null.get(), 0) < 0 ||
        dup2(out.get(), 1) < 0 || dup2(out.get(), 2) < 0) {
      _exit(126);
    }
    execve(args[0], args.data(), envp.data());
    _exit(127);
  }
  return pid;
}

bool HasMark(pid_t pid, const std::string& mark) {
  const auto environment = ReadFile(absl::StrCat("/proc/", pid, "/environ"));
  if (!environment.ok()) return false;
  const std::string wanted = absl::StrCat(kMarkVariable, "=", mark);
  for (absl::string_view entry : absl::StrSplit(*environment, '\0')) {
    if (entry == wanted) return true;
  }
  return false;
}

std::vector<pid_t> MarkedProcesses(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end;
       !error && entry != end; entry.increment(error)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->path().filename().string(), &pid) &&
        pid != getpid() && HasMark(pid, mark)) {
      found.push_back(pid);
    }
  }
  return found;
}

pid_t ParentOf(pid_t pid) {
  const std::vector<std::string> fields = StatFields(pid);
  pid_t parent = 0;
  if (fields.size() < 2 || !absl::SimpleAtoi(fields[1], &parent)) return 0;
  return parent;
}

std::string ShortName(pid_t pid) {
  const std::string name =
      ReadFile(absl::StrCat("/proc/", pid, "/comm")).value_or("");
  return std::string(absl::StripAsciiWhitespace(name));
}

std::string DescribeProcess(pid_t pid) {
  const std::vector<std::string> fields = StatFields(pid);
  const std::string line =
      ReadFile(absl::StrCat("/proc/", pid, "/cmdline")).value_or("");
  return absl::StrCat(
      pid, " (", ShortName(pid), ", state ", fields.empty() ? "?" : fields[0],
      ", parent ", ParentOf(pid),
      "): ", absl::StrReplaceAll(line, {{absl::string_view("\0", 1), " "}}));
}

int WaitForChild(pid_t pid, absl::Duration timeout) {
  int status = 0;
  if (!WaitUntil(timeout,
                 [&] { return waitpid(pid, &status, WNOHANG) == pid; })) {
    return -1;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool WaitUntil(absl::Duration timeout, const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

}  // namespace miniray::havoc
