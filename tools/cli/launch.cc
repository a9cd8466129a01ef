#include "tools/cli/launch.h"

#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/start_flags.h"

namespace miniray::cli {
namespace {

// For what is started in vain; beyond any time limit. Internal.
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
  const absl::Time deadline = absl::Now() + options.timeout;
  MR_ASSIGN_OR_RETURN(
      Child head,
      Child::Spawn(StartArguments(line, JoinFlags({{"head"},
                                                   HeadPlaceFlags(),
                                                   HeadTuningFlags(),
                                                   CommonFlags()})),
                   Child::Mode::kDetached, "the head"));
  MR_ASSIGN_OR_RETURN(const ReadyMessage message,
                      head.AwaitReady(options.timeout, stop.signal_fd()));
  std::string description = DescribeHead(message);
  Warn(message);
  if (options.with_daemon) {
    const absl::StatusOr<LaunchedDaemon> daemon =
        LaunchDaemon(line, message.address, Child::Mode::kDetached, stop,
                     deadline - absl::Now());
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
                                            const StopEvents& stop,
                                            absl::Duration timeout) {
  std::vector<std::string> args =
      StartArguments(line, JoinFlags({DaemonFlags(), CommonFlags()}));
  args.push_back(absl::StrCat("--address=", address));
  MR_ASSIGN_OR_RETURN(Child child,
                      Child::Spawn(args, mode, "the worker daemon"));
  absl::StatusOr<ReadyMessage> message =
      child.AwaitReady(timeout, stop.signal_fd());
  if (absl::IsDeadlineExceeded(message.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat(message.status().message(),
                     " (--timeout); whether the head answers "
                     "tells: miniray status --address ",
                     address));
  }
  MR_RETURN_IF_ERROR(message.status());
  return LaunchedDaemon{std::move(child), *std::move(message)};
}

absl::Status LaunchInBackground(const CommandLine& line,
                                const StartOptions& options) {
  // Until all is ready, Ctrl-C must not leave a half of it.
  MR_ASSIGN_OR_RETURN(const StopEvents stop, StopEvents::Install(-1));
  if (options.head) return LaunchHead(line, options, stop);
  MR_ASSIGN_OR_RETURN(
      const LaunchedDaemon daemon,
      LaunchDaemon(line, options.address, Child::Mode::kDetached, stop,
                   options.timeout));
  Warn(daemon.message);
  std::cout << DescribeDaemon(daemon.message);
  return absl::OkStatus();
}

}  // namespace miniray::cli
