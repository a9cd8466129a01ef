// Runs the `miniray` program, each test with a runtime folder of its own.

#ifndef MINIRAY_TESTS_TOOLS_MINIRAY_COMMAND_H_
#define MINIRAY_TESTS_TOOLS_MINIRAY_COMMAND_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace miniray {

// A file of the test's `data`.
std::string RunfilePath(const std::string& path);

struct CommandResult {
  int exit_code = -1;  // 128 + the signal that ended it; -1: it hung.
  std::string out;
  std::string err;
};

// A program with pipes at its stdin, stdout and stderr; killed at the end.
class Program {
 public:
  // inherit: file descriptors of this process by the number that they get.
  Program(const std::string& path, const std::vector<std::string>& args,
          const std::map<int, int>& inherit = {});
  ~Program();

  pid_t pid() const { return pid_; }
  void CloseStdin() { stdin_.reset(); }
  // Returns the next line of its output, or nothing if there is none in time.
  std::optional<std::string> ReadLine(
      absl::Duration timeout = absl::Seconds(20));
  void Signal(int signal) const;
  // Reads what it writes until it has closed both and ended.
  CommandResult Wait(absl::Duration timeout = absl::Seconds(40));

 private:
  pid_t pid_ = -1;
  ScopedFd stdin_;
  ScopedFd out_;
  ScopedFd err_;
  std::string out_text_;
};

// Living processes (no zombies) whose environment names `runtime_dir`, this one
// left out.
std::vector<pid_t> ProcessesOf(const std::string& runtime_dir);

// Waits until `condition` holds, at most `timeout`; returns whether it does.
bool Eventually(const std::function<bool()>& condition,
                absl::Duration timeout = absl::Seconds(20));

// A test whose commands see a runtime folder that no other cluster uses. At the
// end everything in it is stopped; that nothing is left is part of each test.
class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  static CommandResult Run(const std::vector<std::string>& args);
  static std::unique_ptr<Program> Start(const std::vector<std::string>& args,
                                        const std::map<int, int>& inherit = {});

  // Starts a head on a free port, without a dashboard; returns its address.
  static std::string StartHead(const std::vector<std::string>& more = {});
  // Starts a worker daemon; returns its pid.
  static pid_t StartDaemon(const std::string& address,
                           const std::vector<std::string>& more = {});

  // The head of this runtime folder. Where there is none, that is a failure,
  // and the number is one that no process has: kill does no harm.
  static pid_t HeadPid();

  // Uses another runtime folder, as on another machine.
  void UseNewRuntimeDir();
  const std::string& runtime_dir() const { return runtime_dirs_.back(); }

 private:
  std::vector<std::string> runtime_dirs_;
};

// What follows `before` in `text`, up to the next white space.
std::string WordAfter(const std::string& text, const std::string& before);

}  // namespace miniray

#endif  // MINIRAY_TESTS_TOOLS_MINIRAY_COMMAND_H_
