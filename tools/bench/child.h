// Processes of a benchmark: this program again, in another role. Each reads
// commands from its standard input, a line each, and answers each with a line.

#ifndef MINIRAY_TOOLS_BENCH_CHILD_H_
#define MINIRAY_TOOLS_BENCH_CHILD_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"

namespace miniray::bench {

// Not thread-safe.
class Child {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  // Runs this program with --role=`role` and `args`.
  static absl::StatusOr<std::unique_ptr<Child>> Start(
      const std::string& role, std::vector<std::string> args,
      const Environment& environment = {});

  // Runs another program that keeps to the same rules. name: for errors.
  static absl::StatusOr<std::unique_ptr<Child>> StartProgram(
      const std::string& name, const std::string& program,
      std::vector<std::string> args, const Environment& environment = {});

  // Closes its input, at which it ends, and waits for it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }

  absl::Status Send(const std::string& command);
  // The next answer. Errors: what the child's function returned; UNAVAILABLE,
  // it has ended; DEADLINE_EXCEEDED.
  absl::StatusOr<std::string> Receive(absl::Duration timeout = kPatience);

  absl::StatusOr<std::string> Ask(const std::string& command);
  absl::StatusOr<double> AskNumber(const std::string& command);

 private:
  static constexpr absl::Duration kPatience = absl::Minutes(5);

  Child() = default;

  std::string name_;  // Its role.
  pid_t pid_ = 0;
  ScopedFd input_;
  ScopedFd output_;
  std::string buffer_;
};

// Sends the command to all, then waits for the answers: the numbers, by child.
absl::StatusOr<std::vector<double>> AskAll(
    const std::vector<std::unique_ptr<Child>>& children,
    const std::string& command);

// In a child: answers commands until its input ends; returns the exit code.
int ServeCommands(
    const std::function<absl::StatusOr<std::string>(const std::string&)>&
        answer);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_CHILD_H_
