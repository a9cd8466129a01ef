#include "runtime/api/embedded_cluster.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"

extern char** environ;

namespace miniray {
namespace internal {
namespace {

// Descriptors in the child.
constexpr int kReadyFd = 3;
constexpr int kLifelineFd = 4;

// A daemon gives its actors a second to end.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);

struct Pipe {
  ScopedFd read;
  ScopedFd write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  // Above the numbers that the child uses, so that dup2 there overwrites none.
  Pipe result;
  ScopedFd read(fds[0]), write(fds[1]);
  result.read = ScopedFd(fcntl(read.get(), F_DUPFD_CLOEXEC, 10));
  result.write = ScopedFd(fcntl(write.get(), F_DUPFD_CLOEXEC, 10));
  if (!result.read.valid() || !result.write.valid()) {
    return ErrnoStatus(errno, "pipe");
  }
  return result;
}

bool IsProgram(const std::string& path) {
  return access(path.c_str(), X_OK) == 0 &&
         !std::filesystem::is_directory(path);
}

// Reads the line that the program writes once it is ready.
absl::StatusOr<nlohmann::json> ReadReadyLine(int fd, absl::Time deadline,
                                             const std::string& log_file) {
  std::string line;
  while (line.find('\n') == std::string::npos) {
    const absl::Duration left = deadline - absl::Now();
    pollfd wait = {fd, POLLIN, 0};
    const int n =
        left <= absl::ZeroDuration()
            ? 0
            : poll(&wait, 1,
                   static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the embedded cluster did not start in time; see ", log_file));
    }
    char buffer[4096];
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got <= 0) {
      const std::string tail = ReadFileTail(log_file, 500).value_or("");
      return absl::UnavailableError(
          absl::StrCat("the embedded cluster did not start: ",
                       absl::StripAsciiWhitespace(tail), " (", log_file, ")"));
    }
    line.append(buffer, static_cast<size_t>(got));
  }
  nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) {
    return absl::InternalError("the embedded cluster answered: " + line);
  }
  if (json.contains("error") && json["error"].is_string()) {
    return absl::UnavailableError(
        absl::StrCat("the embedded cluster did not start: ",
                     json["error"].get<std::string>()));
  }
  return json;
}

}  // namespace

absl::StatusOr<std::string> FindMinirayProgram() {
  if (const char* set = std::getenv("MINIRAY_BIN"); set != nullptr) {
    if (IsProgram(set)) return std::string(set);
    return absl::FailedPreconditionError(
        absl::StrCat("MINIRAY_BIN = ", set, " is not a program"));
  }
  std::vector<std::string> candidates;
  if (auto executable = ExecutablePath(); executable.ok()) {
    const std::string folder =
        std::filesystem::path(*executable).parent_path().string();
    candidates.push_back(absl::StrCat(folder, "/miniray"));
    // In a bazel-bin tree, however deep the program lies.
    std::filesystem::path parent(folder);
    for (int depth = 0; depth < 8 && parent.has_relative_path(); ++depth) {
      parent = parent.parent_path();
      candidates.push_back((parent / "tools/miniray").string());
    }
  }
  const char* runfiles = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  if (runfiles != nullptr && workspace != nullptr) {
    candidates.push_back(
        absl::StrCat(runfiles, "/", workspace, "/tools/miniray"));
  }
  if (const char* path = std::getenv("PATH"); path != nullptr) {
    for (absl::string_view folder : absl::StrSplit(path, ':')) {
      if (!folder.empty()) {
        candidates.push_back(absl::StrCat(folder, "/miniray"));
      }
    }
  }
  for (const std::string& candidate : candidates) {
    if (IsProgram(candidate)) return candidate;
  }
  return absl::FailedPreconditionError(
      "no cluster address was given (--address or MINIRAY_ADDRESS), and the "
      "'miniray' program, which starts an embedded cluster, was not found; set "
      "MINIRAY_BIN to its path");
}

absl::StatusOr<std::unique_ptr<EmbeddedCluster>> EmbeddedCluster::Start(
    const Options& options) {
  MR_ASSIGN_OR_RETURN(const std::string program, FindMinirayProgram());
  MR_ASSIGN_OR_RETURN(const std::string folder, RuntimeDirectory());
  const absl::Time deadline = absl::Now() + options.start_timeout;
  const std::string prefix =
      absl::StrCat(folder, "/embedded-", getpid(), "-", NewId("log"));
  auto cluster = absl::WrapUnique(new EmbeddedCluster);
  MR_ASSIGN_OR_RETURN(Process head,
                      cluster->Spawn(program,
                                     {"--head", "--host=127.0.0.1", "--port=0",
                                      "--dashboard_port=-1"},
                                     prefix + "-head.log"));
  cluster->head_.push_back(std::move(head));
  MR_ASSIGN_OR_RETURN(const nlohmann::json ready,
                      ReadReadyLine(cluster->head_[0].ready.get(), deadline,
                                    cluster->head_[0].log_file));
  if (!ready.contains("address") || !ready["address"].is_string()) {
    return absl::InternalError("the embedded head gave no address");
  }
  cluster->address_ = ready["address"].get<std::string>();
  for (int i = 0; i < options.num_nodes; ++i) {
    // Nobody watches it from outside.
    std::vector<std::string> args = {
        absl::StrCat("--address=", cluster->address_), "--metrics_port=-1"};
    if (options.num_gpus > 0) {
      args.push_back(absl::StrCat("--num_gpus=", options.num_gpus));
    }
    if (options.num_cpus > 0) {
      args.push_back(absl::StrCat("--num_cpus=", options.num_cpus));
    }
    MR_ASSIGN_OR_RETURN(
        Process daemon,
        cluster->Spawn(program, args,
                       absl::StrCat(prefix, "-daemon-", i, ".log")));
    cluster->daemons_.push_back(std::move(daemon));
  }
  for (Process& daemon : cluster->daemons_) {
    MR_RETURN_IF_ERROR(
        ReadReadyLine(daemon.ready.get(), deadline, daemon.log_file).status());
  }
  return cluster;
}

absl::StatusOr<EmbeddedCluster::Process> EmbeddedCluster::Spawn(
    const std::string& program, std::vector<std::string> args,
    const std::string& log_file) {
  // Here, where the error can name it.
  if (!ScopedFd(open(log_file.c_str(),
                     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600))
           .valid()) {
    return ErrnoStatus(
        errno, absl::StrCat("create ", log_file,
                            " (MINIRAY_RUNTIME_DIR names another folder)"));
  }
  MR_ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  MR_ASSIGN_OR_RETURN(Pipe lifeline, MakePipe());
  std::vector<std::string> words = {
      program, "start", "--block", absl::StrCat("--ready_fd=", kReadyFd),
      absl::StrCat("--lifeline_fd=", kLifelineFd)};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log_file.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_adddup2(&actions, ready.write.get(), kReadyFd);
  posix_spawn_file_actions_adddup2(&actions, lifeline.read.get(), kLifelineFd);
  // A session of its own: Ctrl-C is for the program, whose end ends the rest.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID |
                                            POSIX_SPAWN_SETSIGDEF |
                                            POSIX_SPAWN_SETSIGMASK);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // What the variables say is for another cluster: this one is of loopback.
  std::vector<char*> env;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, "MINIRAY_TOKEN=") &&
        !absl::StartsWith(*entry, "MINIRAY_TLS_DIR=")) {
      env.push_back(*entry);
    }
  }
  env.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes,
                                argv.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("run ", program));
  Process process;
  process.pid = pid;
  process.lifeline = std::move(lifeline.write);
  process.ready = std::move(ready.read);
  process.log_file = log_file;
  return process;
}

void EmbeddedCluster::End(std::vector<Process>* processes) {
  for (Process& process : *processes) process.lifeline.reset();
  for (Process& process : *processes) {
    int status = 0;
    const absl::Time deadline = absl::Now() + kEndTimeout;
    while (true) {
      const pid_t ended = waitpid(process.pid, &status, WNOHANG);
      if (ended == process.pid || (ended < 0 && errno != EINTR)) break;
      // One that is stopped, or stuck, must not keep the program from ending.
      if (absl::Now() > deadline) kill(process.pid, SIGKILL);
      absl::SleepFor(absl::Milliseconds(2));
    }
    // The output of one that ended in good order is of no further use.
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      unlink(process.log_file.c_str());
    }
  }
  processes->clear();
}

EmbeddedCluster::~EmbeddedCluster() {
  End(&daemons_);
  End(&head_);
}

}  // namespace internal
}  // namespace miniray
