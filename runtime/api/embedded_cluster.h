// A cluster of real processes on this machine for one program: a head and
// worker daemons, the `miniray` program in its foreground mode. They end with
// the program, however it ends: each holds the read end of a pipe whose write
// end is here.

#ifndef MINIRAY_RUNTIME_API_EMBEDDED_CLUSTER_H_
#define MINIRAY_RUNTIME_API_EMBEDDED_CLUSTER_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"

namespace miniray {
namespace internal {

// Not thread-safe.
class EmbeddedCluster {
 public:
  struct Options {
    int num_nodes = 1;
    double num_cpus = 0;  // Of each node; 0: the machine's.
    int num_gpus = 0;     // Of each node.
    absl::Duration start_timeout = absl::Seconds(20);
  };
  // Errors: FAILED_PRECONDITION, the `miniray` program is not found; what the
  // programs themselves report.
  static absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Start(
      const Options& options);

  // Ends the processes and waits for them: daemons first, so that they can say
  // goodbye to the head.
  ~EmbeddedCluster();

  const std::string& address() const { return address_; }

 private:
  struct Process {
    pid_t pid = 0;
    ScopedFd lifeline;  // Write end: closing it ends the process.
    ScopedFd ready;     // Read end.
    std::string log_file;
  };
  EmbeddedCluster() = default;
  absl::StatusOr<Process> Spawn(const std::string& program,
                                std::vector<std::string> args,
                                const std::string& log_file);
  static void End(std::vector<Process>* processes);

  std::string address_;
  std::vector<Process> head_;
  std::vector<Process> daemons_;
};

// Where the `miniray` program is: $MINIRAY_BIN; the folder of this executable;
// tools/miniray in a folder above it (a bazel-bin tree); a Bazel test's
// runfiles; $PATH. Errors: FAILED_PRECONDITION, with what to set.
absl::StatusOr<std::string> FindMinirayProgram();

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_API_EMBEDDED_CLUSTER_H_
