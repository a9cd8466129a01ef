// The `miniray` command. Exit codes: 0 done, 1 it failed, 2 the command line is
// wrong; errors are one line on stderr.

#include <glog/logging.h>
#include <grpc/support/log.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "tools/cli/command_line.h"
#include "tools/cli/foreground.h"
#include "tools/cli/launch.h"
#include "tools/cli/make_certs.h"
#include "tools/cli/start_options.h"
#include "tools/cli/status.h"
#include "tools/cli/stop.h"
#include "tools/cli/verbs.h"

namespace miniray::cli {
namespace {

enum ExitCode { kDone = 0, kFailed = 1, kWrongUsage = 2 };

int Fail(const absl::Status& status, ExitCode code) {
  std::string message(status.message());
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << "miniray: " << message << std::endl;
  return code;
}

int Finish(const absl::Status& status) {
  return status.ok() ? kDone : Fail(status, kFailed);
}

int Start(const CommandLine& line) {
  const absl::StatusOr<StartOptions> options = ReadStartOptions(line);
  if (!options.ok()) return Fail(options.status(), kWrongUsage);
  return Finish(options->block ? RunForeground(line, *options)
                               : LaunchInBackground(line, *options));
}

int Status(const CommandLine& line) {
  const absl::Status flags = CheckStatusFlags(line);
  if (!flags.ok()) return Fail(flags, kWrongUsage);
  return Finish(RunStatus(line));
}

int MakeCerts(const CommandLine& line) {
  const absl::Status flags = CheckMakeCertsFlags(line);
  if (!flags.ok()) return Fail(flags, kWrongUsage);
  return Finish(RunMakeCerts(line));
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
      args = {args[1], "--help"};  // "miniray help start"
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
    std::cout << line->verb->help;
    return kDone;
  }
  SilenceGrpc();
  if (line->verb->name == "start") return Start(*line);
  // Nothing but the answer, or the one line that says why there is none.
  FLAGS_minloglevel = google::GLOG_FATAL;
  if (line->verb->name == "status") return Status(*line);
  if (line->verb->name == "make-certs") return MakeCerts(*line);
  return Finish(RunStop(*line));
}

}  // namespace
}  // namespace miniray::cli

int main(int argc, char** argv) {
  return miniray::cli::Main(std::vector<std::string>(argv + 1, argv + argc));
}
