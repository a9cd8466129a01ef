#include "tests/integration/process_tools.h"

#include <dirent.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/ids.h"

extern char** environ;

namespace miniray {
namespace {

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string BuiltProgram(absl::string_view path) {
  const char* runfiles = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  CHECK(runfiles != nullptr && workspace != nullptr) << "run me with bazel";
  return absl::StrCat(runfiles, "/", workspace, "/", path);
}

ProcessTree::ProcessTree() : mark_(NewId("mark")) {
  const char* base = std::getenv("TEST_TMPDIR");
  folder_ = absl::StrCat(base == nullptr ? "/tmp" : base, "/", mark_);
  std::filesystem::create_directories(folder_);
  env_["MINIRAY_TEST_MARK"] = mark_;
  env_["MINIRAY_RUNTIME_DIR"] = folder_ + "/runtime";
}

ProcessTree::~ProcessTree() {
  for (pid_t pid : Living()) kill(pid, SIGKILL);
  WaitForCount(0);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::unique_ptr<ProcessTree::Child> ProcessTree::Start(
    std::vector<std::string> argv) {
  int fds[2];
  CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
  auto child = std::make_unique<Child>();
  child->error_file_ = absl::StrCat(folder_, "/stderr.", next_file_++);
  std::map<std::string, std::string> env = env_;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    env.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  env.erase("MINIRAY_ADDRESS");
  std::vector<std::string> entries;
  for (const auto& [key, value] : env) {
    entries.push_back(absl::StrCat(key, "=", value));
  }
  std::vector<char*> args, envp;
  for (std::string& word : argv) args.push_back(word.data());
  args.push_back(nullptr);
  for (std::string& entry : entries) envp.push_back(entry.data());
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, child->error_file_.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&child->pid_, args[0], &actions, &attributes,
                                args.data(), envp.data());
  CHECK_EQ(error, 0) << args[0];
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(fds[1]);
  child->out_ = fds[0];
  return child;
}

RunResult ProcessTree::Run(std::vector<std::string> argv) {
  std::unique_ptr<Child> child = Start(std::move(argv));
  RunResult result;
  char buffer[4096];
  while (true) {
    const ssize_t n = read(child->out_, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    result.out.append(buffer, static_cast<size_t>(n));
  }
  result.exit_code = child->Wait();
  result.peak_bytes = child->peak_bytes();
  result.err = Slurp(child->error_file_);
  return result;
}

std::vector<pid_t> ProcessTree::Living() const {
  std::vector<pid_t> living;
  const std::string wanted = absl::StrCat("MINIRAY_TEST_MARK=", mark_);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    if (pid == getpid()) continue;
    // A zombie has no environment any more.
    if (absl::StrContains(Slurp(entry.path().string() + "/environ"), wanted)) {
      living.push_back(pid);
    }
  }
  return living;
}

bool ProcessTree::WaitForCount(size_t count, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (Living().size() != count) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

bool ProcessTree::WaitForEnd(pid_t pid, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const std::vector<pid_t> living = Living();
    if (std::find(living.begin(), living.end(), pid) == living.end()) {
      return true;
    }
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
}

ProcessTree::Child::~Child() {
  if (!waited_) {
    kill(-pid_, SIGKILL);
    Wait();
  }
  close(out_);
}

std::string ProcessTree::Child::ReadLine(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd wait = {out_, POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) <= 0) return "";
    char buffer[4096];
    const ssize_t n = read(out_, buffer, sizeof(buffer));
    if (n <= 0) return "";
    buffer_.append(buffer, static_cast<size_t>(n));
  }
}

void ProcessTree::Child::Signal(int signal) { kill(pid_, signal); }
void ProcessTree::Child::SignalGroup(int signal) { kill(-pid_, signal); }

int ProcessTree::Child::Wait() {
  int status = 0;
  rusage usage = {};
  while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  waited_ = true;
  peak_bytes_ = int64_t{usage.ru_maxrss} << 10;  // It is in KiB.
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace miniray
