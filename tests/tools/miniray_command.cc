#include "tests/tools/miniray_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "runtime/base/process_records.h"

namespace miniray {
namespace {

using ::testing::AnyOf;
using ::testing::IsEmpty;
using ::testing::StartsWith;

auto NothingButWarnings() {
  return AnyOf(IsEmpty(), StartsWith("miniray: warning: "));
}

struct Pipe {
  ScopedFd read;
  ScopedFd write;
};

// High numbers, so that they cannot be ones that a program is to get.
Pipe MakePipe() {
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  Pipe low{ScopedFd(fds[0]), ScopedFd(fds[1])};
  return {ScopedFd(fcntl(low.read.get(), F_DUPFD_CLOEXEC, 100)),
          ScopedFd(fcntl(low.write.get(), F_DUPFD_CLOEXEC, 100))};
}

// Appends what there is to read; false at its end.
bool ReadSome(ScopedFd* fd, std::string* text) {
  char buffer[4096];
  const ssize_t n = read(fd->get(), buffer, sizeof(buffer));
  if (n <= 0) {
    fd->reset();
    return false;
  }
  text->append(buffer, static_cast<size_t>(n));
  return true;
}

int MillisecondsUntil(absl::Time deadline) {
  return static_cast<int>(
      std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - absl::Now())));
}

}  // namespace

std::string RunfilePath(const std::string& path) {
  return absl::StrCat(std::getenv("TEST_SRCDIR"), "/",
                      std::getenv("TEST_WORKSPACE"), "/", path);
}

Program::Program(const std::string& path, const std::vector<std::string>& args,
                 const std::map<int, int>& inherit) {
  Pipe in = MakePipe(), out = MakePipe(), err = MakePipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  for (const auto& [number, fd] : inherit) {
    posix_spawn_file_actions_adddup2(&actions, fd, number);
  }
  std::vector<std::string> all = {path};
  all.insert(all.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& arg : all) argv.push_back(arg.data());
  argv.push_back(nullptr);
  EXPECT_EQ(
      posix_spawn(&pid_, path.c_str(), &actions, nullptr, argv.data(), environ),
      0)
      << path;
  posix_spawn_file_actions_destroy(&actions);
  stdin_ = std::move(in.write);
  out_ = std::move(out.read);
  err_ = std::move(err.read);
}

Program::~Program() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Program::Signal(int signal) const { EXPECT_EQ(kill(pid_, signal), 0); }

std::optional<std::string> Program::ReadLine(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    if (const size_t end = out_text_.find('\n'); end != std::string::npos) {
      const std::string line = out_text_.substr(0, end);
      out_text_.erase(0, end + 1);
      return line;
    }
    pollfd fd = {out_.get(), POLLIN, 0};
    if (poll(&fd, 1, MillisecondsUntil(deadline)) <= 0) return std::nullopt;
    if (!ReadSome(&out_, &out_text_)) return std::nullopt;
  }
}

CommandResult Program::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  CommandResult result;
  result.out = std::move(out_text_);
  stdin_.reset();
  while (out_.valid() || err_.valid()) {
    pollfd fds[] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
    if (poll(fds, 2, MillisecondsUntil(deadline)) <= 0) {
      ADD_FAILURE() << "the program, or one that it left, holds its output "
                       "open; so far: "
                    << result.out << result.err;
      return result;
    }
    if (fds[0].revents != 0) ReadSome(&out_, &result.out);
    if (fds[1].revents != 0) ReadSome(&err_, &result.err);
  }
  int status = 0;
  if (!Eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; },
                  deadline - absl::Now() + absl::Seconds(1))) {
    ADD_FAILURE() << "the program does not end";
    return result;
  }
  pid_ = 0;
  result.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::vector<pid_t> ProcessesOf(const std::string& runtime_dir) {
  const std::string wanted = absl::StrCat("MINIRAY_RUNTIME_DIR=", runtime_dir);
  std::vector<pid_t> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end;
       !error && entry != end; entry.increment(error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->path().filename().string(), &pid)) continue;
    const auto environment = ReadFile(absl::StrCat("/proc/", pid, "/environ"));
    if (!environment.ok() || pid == getpid()) continue;
    for (absl::string_view variable : absl::StrSplit(*environment, '\0')) {
      if (variable == wanted && ProcessStartTicks(pid).ok()) {
        found.push_back(pid);
      }
    }
  }
  return found;
}

bool Eventually(const std::function<bool()>& condition,
                absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

void CommandTest::SetUp() {
  unsetenv("MINIRAY_TOKEN");
  unsetenv("MINIRAY_ADDRESS");
  UseNewRuntimeDir();
}

void CommandTest::TearDown() {
  unsetenv("MINIRAY_TOKEN");
  for (const std::string& folder : runtime_dirs_) {
    setenv("MINIRAY_RUNTIME_DIR", folder.c_str(), 1);
    EXPECT_EQ(Run({"stop", "--force"}).exit_code, 0);
    EXPECT_TRUE(Eventually([&] { return ProcessesOf(folder).empty(); }))
        << "left running: " << ::testing::PrintToString(ProcessesOf(folder));
    for (const pid_t pid : ProcessesOf(folder)) kill(pid, SIGKILL);
  }
}

void CommandTest::UseNewRuntimeDir() {
  std::string folder = absl::StrCat(::testing::TempDir(), "/miniray-XXXXXX");
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  runtime_dirs_.push_back(folder);
  setenv("MINIRAY_RUNTIME_DIR", folder.c_str(), 1);
}

CommandResult CommandTest::Run(const std::vector<std::string>& args) {
  return Program(RunfilePath("tools/miniray"), args).Wait();
}

std::unique_ptr<Program> CommandTest::Start(
    const std::vector<std::string>& args, const std::map<int, int>& inherit) {
  return std::make_unique<Program>(RunfilePath("tools/miniray"), args, inherit);
}

std::string CommandTest::StartHead(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"start", "--head", "--port=0",
                                   "--dashboard_port=-1"};
  args.insert(args.end(), more.begin(), more.end());
  const CommandResult result = Run(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, NothingButWarnings());
  return WordAfter(result.out, "start --address ");
}

pid_t CommandTest::StartDaemon(const std::string& address,
                               const std::vector<std::string>& more) {
  std::vector<std::string> args = {"start", "--address", address};
  args.insert(args.end(), more.begin(), more.end());
  const CommandResult result = Run(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, NothingButWarnings());
  pid_t pid = 0;
  EXPECT_TRUE(absl::SimpleAtoi(WordAfter(result.out, "(pid "), &pid))
      << result.out;
  return pid;
}

pid_t CommandTest::HeadPid() {
  const auto records = ListProcessRecords();
  EXPECT_TRUE(records.ok()) << records.status();
  for (const ProcessRecord& record :
       records.value_or(std::vector<ProcessRecord>())) {
    if (record.role == ProcessRole::kHead) return record.pid;
  }
  ADD_FAILURE() << "there is no head";
  return std::numeric_limits<pid_t>::max();
}

std::string WordAfter(const std::string& text, const std::string& before) {
  const size_t at = text.find(before);
  if (at == std::string::npos) return "";
  const std::string rest = text.substr(at + before.size());
  const std::string word = rest.substr(0, rest.find_first_of(" \n"));
  return word.substr(0, word.find_last_not_of(",") + 1);
}

}  // namespace miniray
