// The `miniray` command. Exit codes: 0 done, 1 it failed, 2 the command line is
// wrong, 124 a time limit is over; `submit` exits with the job's. Errors are
// one line on stderr.

#include <fcntl.h>
#include <glog/logging.h>
#include <grpc/support/log.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/head.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "tools/cli/command_line.h"
#include "tools/cli/fail.h"
#include "tools/cli/foreground.h"
#include "tools/cli/head_client.h"
#include "tools/cli/job.h"
#include "tools/cli/launch.h"
#include "tools/cli/list.h"
#include "tools/cli/make_certs.h"
#include "tools/cli/read_log.h"
#include "tools/cli/run.h"
#include "tools/cli/start_options.h"
#include "tools/cli/status.h"
#include "tools/cli/stop.h"
#include "tools/cli/submit.h"
#include "tools/cli/submit_options.h"
#include "tools/cli/timeline.h"
#include "tools/cli/top.h"
#include "tools/cli/verbs.h"

namespace miniray::cli {
namespace {

int Start(const CommandLine& line) {
  const absl::StatusOr<StartOptions> options = ReadStartOptions(line);
  if (!options.ok()) return Fail(options.status(), kWrongUsage);
  return Finish(options->block ? RunForeground(line, *options)
                               : LaunchInBackground(line, *options));
}

int Status(const CommandLine& line) {
  const absl::Status flags = CheckStatusFlags(line);
  if (!flags.ok()) return Fail(flags, kWrongUsage);
  return RunStatus(line);
}

int List(const CommandLine& line) {
  const std::string table = line.Argument(0);
  const absl::Status flags = CheckListFlags(line, table);
  if (!flags.ok()) return Fail(flags, kWrongUsage);
  return Finish(RunList(line, table));
}

int Logs(const CommandLine& line) {
  absl::Status flags = CheckLogFlags(line);
  if (flags.ok() && line.Argument(0).empty()) {
    flags = absl::InvalidArgumentError(
        "say whose: miniray logs ACTOR|JOB; see: miniray logs --help");
  }
  if (!flags.ok()) return Fail(flags, kWrongUsage);
  v1::ReadLogRequest request;
  request.set_any_id(line.Argument(0));
  return RunLogs(line, std::move(request));
}

int Submit(const CommandLine& line) {
  absl::StatusOr<SubmitOptions> options = ReadSubmitOptions(line);
  if (options.ok()) {
    if (absl::Status flags = CheckHeadFlags(line); !flags.ok()) options = flags;
  }
  if (!options.ok()) {
    return Fail(
        absl::InvalidArgumentError(absl::StrCat(
            options.status().message(), "; see: miniray submit --help")),
        kWrongUsage);
  }
  return RunSubmit(line, *std::move(options));
}

int Timeline(const CommandLine& line) {
  const absl::Status flags = CheckTimelineFlags(line);
  if (!flags.ok()) return Fail(flags, kWrongUsage);
  return Finish(RunTimeline(line));
}

int Top(const CommandLine& line) {
  const absl::Status flags = CheckTopFlags(line);
  if (!flags.ok()) return Fail(flags, kWrongUsage);
  return RunTop(line);
}

int MakeCerts(const CommandLine& line) {
  const absl::Status flags = CheckMakeCertsFlags(line);
  if (!flags.ok()) return Fail(flags, kWrongUsage);
  return Finish(RunMakeCerts(line));
}

int Stop(const CommandLine& line) {
  const absl::Status flags = CheckStopFlags(line);
  if (!flags.ok()) return Fail(flags, kWrongUsage);
  return Finish(RunStop(line));
}

// Failures come back as a status, which says them better.
void SilenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) {
    gpr_set_log_verbosity(
        static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
  }
}

int Main(std::vector<std::string> args) {
  if (!args.empty()) {
    const std::string& first = args[0];
    if (first == "help" && args.size() > 1) {
      // "miniray help start", "miniray help job stop"
      args.erase(args.begin());
      args.emplace_back("--help");
    } else if (first == "help" || first == "--help" || first == "-h") {
      std::cout << GeneralHelp();
      return kDone;
    } else if (first == "--version") {
      std::cout << "miniray " << kVersion << "\n";
      return kDone;
    }
  }
  const absl::StatusOr<CommandLine> line = ParseCommandLine(args, Verbs());
  if (!line.ok()) return Fail(line.status(), kWrongUsage);
  if (line->help) {
    const auto& help_on = line->verb->help_on;
    const auto part = help_on.find(line->Argument(0));
    std::cout << (part == help_on.end() ? line->verb->help : part->second);
    return kDone;
  }
  SilenceGrpc();
  if (line->verb->name == "start") return Start(*line);
  // Nothing but the answer, or the one line that says why there is none.
  FLAGS_minloglevel = google::GLOG_FATAL;
  if (line->verb->name == "status") return Status(*line);
  if (line->verb->name == "submit") return Submit(*line);
  if (line->verb->name == "job") return RunJob(*line);
  if (line->verb->name == "list") return List(*line);
  if (line->verb->name == "logs") return Logs(*line);
  if (line->verb->name == "run") return RunRun(*line);
  if (line->verb->name == "top") return Top(*line);
  if (line->verb->name == "timeline") return Timeline(*line);
  if (line->verb->name == "make-certs") return MakeCerts(*line);
  return Stop(*line);
}

// A file that is opened later must not get the number of a standard stream that
// the caller has closed. What is written to stdout then fails, and is noticed.
void OpenStandardStreams() {
  while (true) {
    const int fd = open("/dev/null", O_RDONLY);
    if (fd == STDERR_FILENO) {
      close(fd);
      (void)open("/dev/null", O_WRONLY);
      return;
    }
    if (fd > STDERR_FILENO) close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

// Output that reached nobody is a failure, also where all else went well.
int FinishOutput(int code) {
  errno = 0;
  const bool lost =
      !std::cout.flush() || fflush(stdout) != 0 || ferror(stdout) != 0;
  if (!lost || code != kDone) return code;
  return Fail(errno != 0 ? ErrnoStatus(errno, "cannot write the output")
                         : absl::UnknownError("cannot write the output: is "
                                              "the disk behind it full?"));
}

}  // namespace
}  // namespace miniray::cli

int main(int argc, char** argv) {
  miniray::cli::OpenStandardStreams();
  // Files have a limit (ulimit -f): to write beyond it is to be an error, like
  // a full disk. A handler, which children do not inherit.
  signal(SIGXFSZ, [](int) {});
  // See miniray::Init.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  try {
    return miniray::cli::FinishOutput(
        miniray::cli::Main(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const std::system_error& error) {
    return miniray::cli::Fail(absl::ResourceExhaustedError(absl::StrCat(
        "cannot start a thread (", error.what(),
        "): a limit of this user or of the memory is reached; see ulimit -a")));
  }
}
