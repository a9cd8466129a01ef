#include "tools/cli/launch.h"

#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace miniray::cli {
namespace {

// Longer than a worker daemon tries to reach its head.
constexpr absl::Duration kReadyTimeout = absl::Seconds(30);
constexpr absl::Duration kStopGrace = absl::Seconds(3);

std::vector<std::string> StartArguments(const CommandLine& line,
                                        const std::vector<std::string>& flags) {
  std::vector<std::string> args = ForwardFlags(line, flags);
  args.insert(args.begin(), "start");
  return args;
}

// A process in the foreground has it in its log, which is stderr.
void Warn(const ReadyMessage& message) {
  if (message.warning.empty()) return;
  std::cerr << "miniray: warning: " << message.warning << std::endl;
}

absl::Status LaunchHead(const CommandLine& line, const StartOptions& options,
                        const StopEvents& stop) {
  MR_ASSIGN_OR_RETURN(
      Child head,
      Child::Spawn(
          StartArguments(
              line, {"head", "host", "port", "dashboard_port", "state_dir",
                     "lease", "driver_grace", "infeasible_timeout",
                     "max_restart_delay", "max_state_bytes", "package_limit",
                     "token_file", "tls_dir", "inject_faults"}),
          Child::Mode::kDetached, "the head"));
  MR_ASSIGN_OR_RETURN(const ReadyMessage message,
                      head.AwaitReady(kReadyTimeout, stop.signal_fd()));
  std::string description = DescribeHead(message);
  Warn(message);
  if (options.with_daemon) {
    const absl::StatusOr<LaunchedDaemon> daemon =
        LaunchDaemon(line, message.address, Child::Mode::kDetached, stop);
    if (!daemon.ok()) {
      head.Undo(kStopGrace);
      return daemon.status();
    }
    absl::StrAppend(&description, DescribeDaemon(daemon->message));
    Warn(daemon->message);
  }
  std::cout << description;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchedDaemon> LaunchDaemon(const CommandLine& line,
                                            const std::string& address,
                                            Child::Mode mode,
                                            const StopEvents& stop) {
  std::vector<std::string> args = StartArguments(
      line, {"num_cpus", "num_gpus", "resources", "node_ip", "labels",
             "shared_memory_mb", "object_store_bytes", "object_spill_dir",
             "memory_limit", "fence_after", "headless_timeout",
             "package_cache_bytes", "log_max_bytes", "log_files",
             "log_total_bytes", "token_file", "tls_dir", "inject_faults"});
  args.push_back(absl::StrCat("--address=", address));
  MR_ASSIGN_OR_RETURN(Child child,
                      Child::Spawn(args, mode, "the worker daemon"));
  MR_ASSIGN_OR_RETURN(ReadyMessage message,
                      child.AwaitReady(kReadyTimeout, stop.signal_fd()));
  return LaunchedDaemon{std::move(child), std::move(message)};
}

absl::Status LaunchInBackground(const CommandLine& line,
                                const StartOptions& options) {
  // Until all is ready, Ctrl-C must not leave a half of it.
  MR_ASSIGN_OR_RETURN(const StopEvents stop, StopEvents::Install(-1));
  if (options.head) return LaunchHead(line, options, stop);
  MR_ASSIGN_OR_RETURN(
      const LaunchedDaemon daemon,
      LaunchDaemon(line, options.address, Child::Mode::kDetached, stop));
  Warn(daemon.message);
  std::cout << DescribeDaemon(daemon.message);
  return absl::OkStatus();
}

}  // namespace miniray::cli
