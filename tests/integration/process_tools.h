// Starts real programs, reads what they print and counts what they leave
// behind.

#ifndef MINIRAY_TESTS_INTEGRATION_PROCESS_TOOLS_H_
#define MINIRAY_TESTS_INTEGRATION_PROCESS_TOOLS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace miniray {

// The path of a program built by Bazel, e.g. "tools/miniray". REQUIRES: it is
// in the test's data.
std::string BuiltProgram(absl::string_view path);

struct RunResult {
  int exit_code = -1;  // 128 + signal if it was killed.
  std::string out;
  std::string err;
  // The most memory that it, or a process that it started and waited for, had.
  int64_t peak_bytes = 0;
};

// Every program that one test starts, and all that those start, carry a mark in
// their environment, by which they are counted; a private runtime folder keeps
// the test apart from everything else. At the end all marked processes are
// killed. Not thread-safe.
class ProcessTree {
 public:
  ProcessTree();
  ~ProcessTree();

  // A program in a process group of its own.
  class Child {
   public:
    ~Child();
    pid_t pid() const { return pid_; }
    // The next line of its standard output, without the newline; empty at the
    // end or after `timeout`.
    std::string ReadLine(absl::Duration timeout = absl::Seconds(30));
    void Signal(int signal);       // To the process.
    void SignalGroup(int signal);  // As Ctrl-C in a terminal does.
    // Blocks until it has ended; returns the exit code, or 128 + signal.
    int Wait();
    const std::string& error_file() const { return error_file_; }
    // See RunResult; after Wait.
    int64_t peak_bytes() const { return peak_bytes_; }

   private:
    friend class ProcessTree;
    pid_t pid_ = 0;
    int out_ = -1;
    bool waited_ = false;
    int64_t peak_bytes_ = 0;
    std::string buffer_;
    std::string error_file_;
  };

  std::unique_ptr<Child> Start(std::vector<std::string> argv);
  // Starts it and waits for its end.
  RunResult Run(std::vector<std::string> argv);

  // Living marked processes (zombies do not count).
  std::vector<pid_t> Living() const;
  // Waits until exactly `count` live; returns whether that came.
  bool WaitForCount(size_t count, absl::Duration timeout = absl::Seconds(10));

  // Waits until a marked process has ended.
  bool WaitForEnd(pid_t pid, absl::Duration timeout = absl::Seconds(10));

  const std::string& folder() const { return folder_; }
  std::map<std::string, std::string>& env() { return env_; }

 private:
  std::string folder_;
  std::string mark_;
  std::map<std::string, std::string> env_;
  int next_file_ = 0;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_INTEGRATION_PROCESS_TOOLS_H_
