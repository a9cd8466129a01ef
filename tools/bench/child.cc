#include "tools/bench/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"

extern char** environ;

namespace miniray::bench {
namespace {

constexpr char kError[] = "error: ";
constexpr absl::Duration kEndTimeout = absl::Seconds(5);

std::vector<std::string> MergedEnvironment(const Child::Environment& added) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : added) {
    entries.push_back(absl::StrCat(name, "=", value));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    bool replaced = false;
    for (const auto& [name, value] : added) {
      replaced = replaced || absl::StartsWith(*entry, absl::StrCat(name, "="));
    }
    if (!replaced) entries.emplace_back(*entry);
  }
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>* words) {
  std::vector<char*> pointers;
  for (std::string& word : *words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(
    const std::string& role, std::vector<std::string> args,
    const Environment& environment) {
  MR_ASSIGN_OR_RETURN(const std::string program, ExecutablePath());
  args.insert(args.begin(), absl::StrCat("--role=", role));
  return StartProgram(role, program, std::move(args), environment);
}

absl::StatusOr<std::unique_ptr<Child>> Child::StartProgram(
    const std::string& name, const std::string& program,
    std::vector<std::string> args, const Environment& environment) {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  auto child = absl::WrapUnique(new Child);
  child->name_ = name;
  const ScopedFd their_input(to[0]);
  child->input_ = ScopedFd(to[1]);
  if (pipe2(from, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  child->output_ = ScopedFd(from[0]);
  const ScopedFd their_output(from[1]);

  std::vector<std::string> words = {program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<std::string> entries = MergedEnvironment(environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, their_input.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, their_output.get(), 1);
  const int error =
      posix_spawnp(&child->pid_, program.c_str(), &actions, nullptr,
                   Pointers(&words).data(), Pointers(&entries).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("run ", program));
  return child;
}

Child::~Child() {
  input_.reset();
  if (pid_ <= 0) return;
  const absl::Time deadline = absl::Now() + kEndTimeout;
  while (true) {
    const pid_t ended = waitpid(pid_, nullptr, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) return;
    if (absl::Now() > deadline) kill(pid_, SIGKILL);
    absl::SleepFor(absl::Milliseconds(2));
  }
}

absl::Status Child::Send(const std::string& command) {
  const std::string line = command + "\n";
  for (size_t done = 0; done < line.size();) {
    const ssize_t n =
        write(input_.get(), line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("process ", name_));
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Child::Receive(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  size_t end;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd wait = {output_.get(), POLLIN, 0};
    const int n = left <= 0 ? 0 : poll(&wait, 1, static_cast<int>(left));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("process ", name_, " did not answer"));
    }
    char bytes[4096];
    const ssize_t got = read(output_.get(), bytes, sizeof(bytes));
    if (got <= 0) {
      return absl::UnavailableError(
          absl::StrCat("process ", name_, " has ended; see its errors above"));
    }
    buffer_.append(bytes, static_cast<size_t>(got));
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  if (absl::StartsWith(line, kError)) {
    return absl::InternalError(
        absl::StrCat("process ", name_, ": ", absl::StripPrefix(line, kError)));
  }
  return line;
}

absl::StatusOr<std::string> Child::Ask(const std::string& command) {
  MR_RETURN_IF_ERROR(Send(command));
  return Receive();
}

absl::StatusOr<double> Child::AskNumber(const std::string& command) {
  MR_ASSIGN_OR_RETURN(const std::string text, Ask(command));
  double number = 0;
  if (!absl::SimpleAtod(text, &number)) {
    return absl::InternalError(
        absl::StrCat("process ", name_, " answered: ", text));
  }
  return number;
}

absl::StatusOr<std::vector<double>> AskAll(
    const std::vector<std::unique_ptr<Child>>& children,
    const std::string& command) {
  for (const auto& child : children) MR_RETURN_IF_ERROR(child->Send(command));
  std::vector<double> numbers;
  for (const auto& child : children) {
    MR_ASSIGN_OR_RETURN(const std::string text, child->Receive());
    double number = 0;
    if (!absl::SimpleAtod(text, &number)) {
      return absl::InternalError(absl::StrCat("a process answered: ", text));
    }
    numbers.push_back(number);
  }
  return numbers;
}

int ServeCommands(
    const std::function<absl::StatusOr<std::string>(const std::string&)>&
        answer) {
  // Whatever it is doing, it does not outlive the benchmark.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string command;
  while (std::getline(std::cin, command)) {
    const absl::StatusOr<std::string> result = answer(command);
    // One line, whatever the error says.
    std::cout << (result.ok()
                      ? *result
                      : absl::StrCat(kError, absl::StrReplaceAll(
                                                 result.status().ToString(),
                                                 {{"\n", " "}})))
              << std::endl;
  }
  return 0;
}

}  // namespace miniray::bench
