#include "tools/cli/submit_options.h"

#include <cmath>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/ids.h"
#include "runtime/base/job_id.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "tools/cli/flags.h"
#include "tools/cli/patience.h"
#include "tools/cli/start_options.h"

namespace miniray::cli {
namespace {

absl::Status ReadEnv(const CommandLine& line, v1::JobSpec* spec) {
  for (const std::string& item : line.Repeated("env")) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0 || !IsUtf8(item) ||
        item.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--env=", ToUtf8(item), ": expected NAME=VALUE in UTF-8"));
    }
    (*spec->mutable_env())[item.substr(0, equals)] = item.substr(equals + 1);
  }
  return absl::OkStatus();
}

absl::Status ReadQuantity(const char* flag, const char* name, double quantity,
                          v1::JobSpec* spec) {
  if (!std::isfinite(quantity) || quantity < 0 || quantity > 1e9) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag, "=", quantity, ": expected a number in [0, 1e9]"));
  }
  if (quantity > 0) {
    (*spec->mutable_resources()->mutable_quantity())[name] = quantity;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SubmitOptions> ReadSubmitOptions(const CommandLine& line) {
  SubmitOptions options;
  v1::JobSpec& spec = options.spec;
  if (line.command.empty()) {
    return absl::InvalidArgumentError(
        "say what to run, behind --: miniray submit -- ./my_trainer --flag");
  }
  for (const std::string& arg : line.command) {
    if (!IsUtf8(arg)) {
      return absl::InvalidArgumentError(
          absl::StrCat("an argument is not UTF-8: ", ToUtf8(arg)));
    }
    spec.add_command(arg);
  }
  spec.set_job_id(line.Has("job_id") ? absl::GetFlag(FLAGS_job_id)
                                     : NewId("job"));
  MR_RETURN_IF_ERROR(Annotate(CheckJobId(spec.job_id()), "--job_id"));
  MR_RETURN_IF_ERROR(ReadEnv(line, &spec));
  MR_ASSIGN_OR_RETURN(*spec.mutable_resources(),
                      ParseResources(absl::GetFlag(FLAGS_resources)));
  MR_RETURN_IF_ERROR(
      ReadQuantity("num_cpus", "CPU", absl::GetFlag(FLAGS_num_cpus), &spec));
  MR_RETURN_IF_ERROR(
      ReadQuantity("num_gpus", "GPU", absl::GetFlag(FLAGS_num_gpus), &spec));
  options.working_dir = absl::GetFlag(FLAGS_working_dir);
  if (line.Has("working_dir") && options.working_dir.empty()) {
    return absl::InvalidArgumentError("--working_dir= names no folder");
  }
  options.max_folder_bytes = absl::GetFlag(FLAGS_max_folder_bytes);
  if (options.max_folder_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_folder_bytes=", options.max_folder_bytes,
                     ": expected a number of bytes"));
  }
  if (line.Has("max_folder_bytes") && options.working_dir.empty()) {
    return absl::InvalidArgumentError(
        "--max_folder_bytes goes with --working_dir");
  }
  MR_ASSIGN_OR_RETURN(options.head_patience, ReadHeadPatience());
  options.wait = absl::GetFlag(FLAGS_wait);
  if (!options.wait && line.Has("timeout")) {
    return absl::InvalidArgumentError("--timeout goes with --wait");
  }
  return options;
}

}  // namespace miniray::cli
